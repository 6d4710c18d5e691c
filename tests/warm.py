"""`python -m ksflow` without its seconds of imports: a process that has made them forks a child for each command.

The child is a process of its own, with its own folder, environment, input and output, and ends as any other; when
whoever asked for it dies, it is killed. What a command imports beyond these modules it still imports itself.

`run` is for tests in Python; `shims` are a `python` and a `ksflow` that come first in the PATH of a shell.
"""

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from ksflow.evaluation.processes.child_environment import end_with_this_process

_SERVER = """
import gc, json, os, runpy, select, signal, socket, sys
import ksflow.cli.verbs, ksflow.evaluation.judge.evaluator, ksflow.stages.designer.rules, ksflow.stages.evaluator.fake
import ksflow.report.page, ksflow.search.forecast
gc.freeze()  # else the first search for cycles copies all of it for each command

def serve(line, fds):
    asked = json.loads(line)
    os.setsid()
    for fd, given in enumerate(fds):
        os.dup2(given, fd)
        os.close(given)
    sys.stdin = open(0, closefd=False)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", 1, closefd=False)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.path[0] = asked["folder"]
    sys.argv = ["ksflow", *asked["arguments"]]
    runpy.run_module("ksflow", run_name="__main__", alter_sys=True)

listening = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    client, _ = listening.accept()
    if os.fork():
        client.close()
        continue
    listening.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    line, fds, _, _ = socket.recv_fds(client, 65536, 3)
    while not line.endswith(b"\\n"):
        line += client.recv(65536)
    command = os.fork()
    if not command:
        client.close()
        serve(line, fds)
        os._exit(0)
    for fd in fds:
        os.close(fd)
    ended = os.pidfd_open(command)
    if ended not in select.select([client, ended], [], [])[0]:
        os.killpg(command, signal.SIGKILL)
    client.sendall(b"%d" % os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]))
    os._exit(0)
"""
_CLIENT = """
import json, os, socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
asked = {"folder": os.getcwd(), "arguments": sys.argv[2:], "environment": dict(os.environ)}
line = json.dumps(asked).encode() + b"\\n"
socket.send_fds(client, [line[:1]], [0, 1, 2])
client.sendall(line[1:])
os._exit(int(client.recv(16)) % 256)
"""
_PYTHON = """#!/bin/bash
if [ "$1 $2" = "-m ksflow" ] && [ -z "$COLD" ]; then shift 2; exec {client} "$@" $MORE; fi
case "$1" in
    benchmarks/*) exec {python} -m py_compile {root}/"$1" ;;
    *) exec {python} "$@" $MORE ;;
esac
"""


@cache
def _address() -> Path:
    """Where a server listens, which ends with this process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "client.py").write_text(_CLIENT)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        listening.listen()
        fd = listening.fileno()
        words = [sys.executable, "-c", _SERVER, str(fd)]
        server = subprocess.Popen(
            words,
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=end_with_this_process(signal.SIGKILL),
        )
    atexit.register(server.kill)
    return folder / "socket"


def run(folder: Path, arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """One command, from its start to its end."""
    asked = json.dumps({"folder": str(folder), "arguments": arguments, "environment": environment}).encode() + b"\n"
    with (
        socket.socket(socket.AF_UNIX) as client,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        Path(os.devnull).open("rb") as nothing,
    ):
        client.connect(str(_address()))
        socket.send_fds(client, [asked[:1]], [nothing.fileno(), out.fileno(), err.fileno()])
        client.sendall(asked[1:])
        code = int(client.recv(16))
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(arguments, code, *said)


def shims(folder: Path) -> None:
    """Put a `python` and a `ksflow` into a folder; benchmarks are only compiled.

    $MORE is added to every command. With $COLD a command is started as anywhere else: one that is to be interrupted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    client = f"{sys.executable} -I -S {_address().with_name('client.py')} {_address()}"
    root = Path(__file__).resolve().parent.parent
    texts = {
        "python": _PYTHON.format(client=client, python=sys.executable, root=root),
        "ksflow": f'#!/bin/bash\nexec {folder}/python -m ksflow "$@"\n',
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
