"""A process of its own that runs foreign files: without this one's keys, and never longer than this one."""

import contextlib
import json
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

from ksflow.errors import catch_foreign, error_location, one_line
from ksflow.evaluation.processes.child_environment import base_environment, end_with_this_process
from ksflow.records import Json


class IsolatedFailure(Exception):
    """It ended without an answer: its last words, or how long it may take."""


def run_isolated(module: str, order: Json, timeout_s: float, home: str | None = None) -> Any:
    """What a module answers to an order, in JSON; home: a folder of its own, to start in. Raises IsolatedFailure."""
    own: dict[str, Any] = {"env": base_environment() | ({"HOME": home} if home else {}), "cwd": home}
    own |= {"encoding": "utf-8", "errors": "replace", "preexec_fn": end_with_this_process(signal.SIGKILL)}
    command, text = [sys.executable, "-P", "-m", module], json.dumps(order)
    try:
        done = subprocess.run(command, input=text, capture_output=True, timeout=timeout_s, **own)
    except subprocess.TimeoutExpired as error:
        raise IsolatedFailure(f"it took longer than {timeout_s:g} s") from error
    if done.returncode or not done.stdout.strip():
        raise IsolatedFailure((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])


def answer_order(answer: Callable[[Json], Any]) -> None:
    """What such a module does: read the order, print the answer. All else that is printed goes to stderr."""
    order, out = json.load(sys.stdin), sys.stdout
    with contextlib.redirect_stdout(sys.stderr), catch_foreign() as caught:
        result = answer(order)
    if caught:
        traceback.print_exception(caught[0])
        sys.exit(one_line(f"{type(caught[0]).__name__}: {caught[0]}", 300) + error_location(caught[0]))
    out.write(json.dumps(result) + "\n")
