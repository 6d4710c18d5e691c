"""What a sandbox did wrong, and how the end of one is told."""

import signal

CAUSES = {
    "memory": "used up its memory",
    "disk": "filled its disk",
    "stopped": "stopped itself",
}
"""What a sandbox's supervisor may say of its end."""


class Failure(Exception):
    """The sandbox did not do what it was told: `kind` is error, wrong, exit, timeout, cheat or harness."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


def ended(cause: str, status: int | None) -> Failure:
    """Of a sandbox that ended: for what, if its supervisor said so, and as which exit status, if any came."""
    if cause:
        return Failure("exit", CAUSES[cause.partition(" ")[0]])
    if status is None:
        return Failure("exit", "closed its socket")
    if status >= 0:
        return Failure("exit", f"exited with status {status}")
    number = -status
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if name in ("SIGXCPU",):
        return Failure("timeout", "used up its CPU time")
    hint = ", perhaps for its memory" if name == "SIGKILL" else ""
    return Failure("exit", f"killed by {name}{hint}")
