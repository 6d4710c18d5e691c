"""A process of its own that runs foreign files: without this one's keys, and never longer than this one."""

import json
import signal
import subprocess
import sys
from typing import Any

from ksflow.children import bare, ending_with_this
from ksflow.records import Json


def asked(module: str, order: Json, timeout_s: float, home: str | None = None) -> "subprocess.CompletedProcess[str]":
    """What a module answers to an order in JSON; home: a folder that it has to itself, and starts in.

    Raises subprocess.TimeoutExpired.
    """
    own: dict[str, Any] = {"env": bare() | ({"HOME": home} if home else {}), "cwd": home}
    return subprocess.run(
        [sys.executable, "-P", "-m", module],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        preexec_fn=ending_with_this(signal.SIGKILL),
        **own,
    )
