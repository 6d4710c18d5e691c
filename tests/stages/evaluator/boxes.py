"""Runs Python programs in boxes of any level, as root or as an ordinary user, through the process that compiles.

Run as a program it reads jobs from its input and writes what became of them, so that another user can run it.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
SECRET = "sk-secret"
USER = 61000
"""An ordinary user that no machine has."""

Job = dict[str, Any]


def order(level: str, code: str, **more: Any) -> Job:
    """What the server is asked for."""
    wall_s = more.pop("wall_s", 60.0)
    held = {
        "level": level,
        "command": [sys.executable, "-S", "program.py"],
        "makes": "",
        "environment": {},
        "memory_mb": 256,
        "cpu_s": 20,
        "file_mb": 64,
        "disk_mb": 32,
        **more,
    }
    return {"files": {"program.py": code}, "order": held, "wall_s": wall_s, "into": ""}


def run(jobs: dict[str, Job], ordinary: bool, folder: Path, packages: Path = REPOSITORY) -> dict[str, Job]:
    """Job -> its words, its log, whether it was cut off. `folder`: for temporary files; `packages`: where ksflow is."""
    command = [sys.executable, "-P", __file__]
    if os.getuid() == 0:
        owner = USER if ordinary else 0
        os.chown(folder, owner, owner)
        command = _reachable(command, owner)
    environment = {**os.environ, "PYTHONPATH": str(packages), "TMPDIR": str(folder), "OPENAI_API_KEY": SECRET}
    done = subprocess.run(
        command, input=json.dumps(jobs), capture_output=True, text=True, env=environment, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def _reachable(command: list[str], user: int) -> list[str]:
    """In mounts of its own, where any user can reach what Python needs though it lies in a closed home."""
    needed = [Path(path).resolve() for path in (sys.base_prefix, sys.prefix, REPOSITORY)]
    lines = []
    for home in sorted({parent for path in needed for parent in path.parents if not parent.stat().st_mode & 1}):
        inside = [shlex.quote(str(path)) for path in needed if home in path.parents]
        stashes = [f"/tmp/stash-{os.getpid()}-{index}" for index in range(len(inside))]
        lines += [f"mkdir {stash}; mount --rbind {path} {stash}" for stash, path in zip(stashes, inside, strict=True)]
        lines.append(f"mount -t tmpfs -o mode=755 none {shlex.quote(str(home))}")
        for stash, path in zip(stashes, inside, strict=True):
            lines.append(f"mkdir -p {path}; mount --move {stash} {path}; rmdir {stash}")
    become = f"setpriv --reuid={user} --regid={user} --clear-groups --inh-caps=-all" if user else ""
    script = "\n".join(["set -e", *lines, f'exec {become} "$@"'])
    mounts = ["unshare", "--mount", "--propagation", "private"] if lines else []
    return [*mounts, "sh", "-c", script, "sh", *command]


def main() -> None:
    """Do the jobs, one after another."""
    from ksflow.evaluation.processes.server_process import ServerProcess

    server = ServerProcess("ksflow.evaluation.compilers.server", {})
    found = {name: server.ask(job, 300) for name, job in json.load(sys.stdin).items()}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
