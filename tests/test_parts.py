"""What a run is made of: whichever part cannot be built, what was opened before it is closed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MINE = """
import fcntl, subprocess
from ksflow.errors import ConfigError
from ksflow.stages.evaluator.fake import FakeEvaluator

def bad(*_, **__):
    raise ConfigError("this part cannot be built")

class Mine(FakeEvaluator):
    def start(self):
        self.lock = open("lock", "wb")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.child = subprocess.Popen(["sleep", "1000"])

    def close(self):
        self.lock.close()
        self.child.kill()
        self.child.wait()

class Rejects(Mine):
    def __call__(self, *given):
        raise ValueError("no kernel will do")
"""
GROUPS = ("problem", "target", "evaluator", "tracker", "selector", "designer", "writer", "digester")
OTHERS = ("lineage", "knowledge", "loop")
STAGES = {"tracker", "selector", "designer", "writer", "digester"}
LEFT = """
import json, os, signal, subprocess, sys, threading, time
from pathlib import Path
import ksflow
from ksflow.cli.verbs import COMMANDS
from ksflow.errors import KsflowError

def left():
    own = f"/proc/{os.getpid()}"
    files = [os.readlink(f"{own}/fd/{n}") for n in os.listdir(f"{own}/fd") if os.path.exists(f"{own}/fd/{n}")]
    tasks = [Path(f"{own}/task/{task}/children").read_text() for task in os.listdir(f"{own}/task")]
    git = ["git", "-C", "runs/lineage.git", "for-each-ref", "--format=%(refname) %(objectname)"]
    return {
        "processes": sorted(" ".join(tasks).split()),
        "files": sorted(file for file in files if not file.startswith(("/proc", "/dev/pts"))),
        "locks": [line for line in Path("/proc/locks").read_text().splitlines() if f" {os.getpid()} " in line],
        "refs": subprocess.run(git, capture_output=True, text=True).stdout,
        "threads": sorted(t.name for t in threading.enumerate()),
        "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM)],
    }

def study(*words):
    with ksflow.Study(*words):
        pass

def mcp(*words):
    COMMANDS["mcp"]([], list(words))

door = {"run": ksflow.run, "study": study, "mcp": mcp}[sys.argv[1]]
words = ["--config-dir=conf", "problem=softmax", "recipe=dry_run", "evaluator=mine", "loop.evaluations=0"]
(ksflow.run if door is mcp else door)(*words)
before = left()
said = {}
for bad in sys.argv[2:]:
    try:
        door(*words, *bad.split())
        said[bad] = "no error"
    except KsflowError as error:
        said[bad] = str(error)
    waited = time.monotonic() + 30
    while True:  # a thread that was told to end does so a little later
        after = left()
        changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
        if "threads" not in changed or time.monotonic() > waited:
            break
        time.sleep(0.01)
    if "run=begun" in bad:  # its session and its seeds are on record
        del changed["refs"]
    said[bad] += f" left: {changed}" if changed else ""
Path("said.json").write_text(json.dumps(said))
"""


@pytest.mark.slow
@pytest.mark.parametrize("door", ["run", "study", "mcp"])
def test_whichever_part_cannot_be_built_nothing_is_left_behind(tmp_path: Path, door: str) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    for group in GROUPS:
        folder = tmp_path / "conf" / group
        folder.mkdir(parents=True)
        (folder / "bad.yaml").write_text("_target_: mine.bad\n")
    (tmp_path / "conf" / "evaluator" / "mine.yaml").write_text("_target_: mine.Mine\n")
    (tmp_path / "conf" / "evaluator" / "rejects.yaml").write_text("_target_: mine.Rejects\n")
    groups = [name for name in GROUPS if door == "run" or name not in STAGES]
    bad = [f"{name}=bad" for name in groups] + [f"{name}._target_=mine.bad" for name in OTHERS]
    late = [] if door == "mcp" else ["evaluator=rejects run=begun"]
    more = ["run=..", "inherit=nobody", "seed_kernels=nowhere.cpp", *late]
    done = subprocess.run(
        [sys.executable, "-c", LEFT, door, *bad, *more], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "said.json").read_text())
    assert {word: said[word] for word in bad} == dict.fromkeys(bad, "this part cannot be built")
    assert not [said[word] for word in more if said[word] == "no error" or "left:" in said[word]]
