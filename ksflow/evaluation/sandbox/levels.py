"""Isolation levels of a candidate, and the one that this machine reaches.

    full      root: a user of its own, namespaces, a root directory of its own
    userns    the same from user namespaces, for an ordinary user
    landlock  files by an allow-list, no signals and no TCP to the outside; the machine's own namespaces
    rlimits   limits and the system call filter only: a candidate can read what the user can read

The environment variable KSFLOW_ISOLATION names the best level to try, for tests.
"""

import json
import os
import subprocess
import sys
from functools import cache
from typing import NamedTuple

from ksflow.evaluation.processes.child_environment import ISOLATION
from ksflow.home import PACKAGE

LEVELS = ("none", "rlimits", "landlock", "userns", "full")  # weakest first
LOWEST_FLOOR = "rlimits"  # default of the lowest level at which kernels may run
PRIVATE = ("userns", "full")  # levels with namespaces and a root of the sandbox's own
_PATIENCE_S = 30


class SandboxSupport(NamedTuple):
    """The best of LEVELS that works here; layer -> what it is, or why it is missing."""

    level: str
    layers: dict[str, str]


def candidates() -> list[str]:
    """Return the levels to try, best first."""
    best = os.environ.get(ISOLATION, "full")
    allowed = LEVELS[: LEVELS.index(best) + 1] if best in LEVELS else LEVELS
    return [level for level in reversed(allowed[1:]) if level != "full" or os.getuid() == 0]


@cache
def probe() -> SandboxSupport:
    """Start a sandbox of each level, best first, until one works; in a child process, once per process."""
    environment = {"PATH": "", **{name: os.environ[name] for name in ("PATH", ISOLATION) if name in os.environ}}
    environment |= {"PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-S", "-P", "-m", "ksflow.evaluation.sandbox.probe"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=True, cwd="/", env=environment)
        return SandboxSupport(**json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return SandboxSupport("none", {"sandboxes": f"none can be started here: {error}"})
