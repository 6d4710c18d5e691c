"""Runs a program in a sandbox, such as a compiler: its log goes to a pipe, one file that it made to a descriptor."""

import os
import shutil
import signal
import stat
import subprocess
from typing import Any, NoReturn

_NO_FILE = 120  # exit status if the program succeeded without making its file


def run(order: dict[str, Any], fds: list[int]) -> NoReturn:
    """Run the program and exit. `fds`: log, and the descriptor for the file's bytes."""
    log, result = fds
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        environment = {**os.environ, **order["environment"], "LC_ALL": "C"}  # HOME and TMPDIR are the sandbox's
        done = subprocess.run(
            order["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, check=False
        )
        status = done.returncode if done.returncode >= 0 else 128 - done.returncode
        if status == 0 and order["makes"]:
            status = _NO_FILE
            if _hand_out(order["makes"], result, order["file_mb"] << 20):
                status = 0
    except OSError as error:
        os.write(log, f"{error}\n".encode())
    finally:
        os._exit(status)


def _hand_out(name: str, result: int, largest: int) -> bool:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
        return False
    with open(fd, "rb") as source, open(result, "wb", closefd=False) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    return True
