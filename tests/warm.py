"""`python -m ksflow` without its second of imports: a process that has made them forks a child for each command.

The child is a process of its own, with its own folder, environment and output, and ends as any other. What a command
imports beyond these modules it still imports itself.
"""

import atexit
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_PARENT = """
import json, os, runpy, signal, sys
import ksflow.cli.verbs

for line in sys.stdin:
    asked = json.loads(line)
    if pid := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    os.chdir(asked["place"])
    for fd, name in enumerate((os.devnull, "out", "err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), fd)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[0] = asked["folder"]
    sys.argv = ["ksflow", *asked["arguments"]]
    runpy.run_module("ksflow", run_name="__main__", alter_sys=True)
"""


@cache
def _parent() -> subprocess.Popen[str]:
    made = subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(made.communicate)
    return made


def run(folder: Path, arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """One command, from its start to its end."""
    asked = {"folder": str(folder), "arguments": arguments, "environment": environment}
    parent = _parent()
    assert parent.stdin
    assert parent.stdout
    with tempfile.TemporaryDirectory() as place:
        parent.stdin.write(json.dumps({**asked, "place": place}) + "\n")
        parent.stdin.flush()
        code = int(parent.stdout.readline())
        out, err = ((Path(place) / name).read_text() for name in ("out", "err"))
    return subprocess.CompletedProcess(arguments, code, out, err)
