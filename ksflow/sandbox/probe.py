"""Starts boxes with nothing in them, best level first, and prints the first level that holds, as JSON."""

import json
import os
import shutil
import socket
import sys
import tempfile

from ksflow.sandbox import levels
from ksflow.sandbox.confine import PREFIX, prepare
from ksflow.sandbox.supervisor import supervise

_PATIENCE_S = 5.0
_LONGEST = 1 << 14


def main() -> None:
    """Try them."""
    prepare()
    missing: dict[str, str] = {}
    for level in levels.candidates():
        layers, fault = _try(level)
        if not fault:
            _print(level, layers | missing)
            return
        missing[f"level {level}"] = f"missing: {fault}"
    _print("none", missing)


def _print(level: str, layers: dict[str, str]) -> None:
    found = shutil.which("bwrap")
    layers = layers | {"bubblewrap": f"{found}, not used" if found else "missing: not installed, not needed"}
    sys.stdout.write(json.dumps({"level": level, "layers": layers}))


def _try(level: str) -> tuple[dict[str, str], str]:
    """What the level consists of, and why it does not hold."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    order = {
        "language": "nothing",
        "folder": tempfile.mkdtemp(prefix=PREFIX),
        "memory_mb": 64,
        "cpu_s": 10,
        "core": None,
        "level": level,
    }
    supervisor = os.fork()
    if supervisor == 0:
        ours.close()
        supervise(order, [theirs.detach()])
    theirs.close()
    ours.settimeout(_PATIENCE_S)
    layers: dict[str, str] = {}
    try:
        while word := ours.recv(_LONGEST).decode():
            kind, _, value = word.partition(" ")
            if kind == "layers":
                layers = json.loads(value)
            elif kind in ("fault", "exit"):
                return layers, "" if word == "exit 0" else value
        return layers, "the supervisor ended"
    except OSError as error:
        return layers, str(error)
    finally:
        ours.close()
        os.waitpid(supervisor, 0)


if __name__ == "__main__":
    main()
