"""How far one trial goes through the code: from the round that plans it to the commit of its verdict.

    python benchmarks/hops.py [--list]

A real run with the fake evaluator and no model, of which the last round, of one experiment, is traced. Prints the
functions that were entered, their files, the hops (functions that were entered from another file) and how often the
file changed from one call to the next. Not counted: what records do to build and check themselves, the reports and the
log, which look on, and what a designer without a model and the text of kernels do inside.
"""

import argparse
import itertools
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import ksflow
from ksflow.cli import verbs
from ksflow.config import compose

_ROOT = Path(ksflow.__file__).resolve().parent.parent
_OTHERS = ("records/", "report/", "search/", "kernels/source/", "errors.py", "log.py", "redaction.py")
_LEFT_OUT = tuple(f"ksflow/{name}" for name in _OTHERS)
_EXPERIMENTS, _ROUND = 7, 3
"""Three a round, and one in the round that is traced."""


class Trace:
    """What was entered while it was on."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []
        """File, function and the file it was entered from, in their order."""
        self.rounds = 0
        self.on = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        file = _file(frame)
        if frame.f_code.co_name == "run_round":
            self.rounds += event == "call"
            self.on = event == "call" and self.rounds == _ROUND
        if event == "return" or not self.on or not file or file.startswith(_LEFT_OUT):
            return
        caller = frame.f_back
        while caller and (not _file(caller) or _file(caller).startswith(_LEFT_OUT)):
            caller = caller.f_back
        self.calls.append((file, frame.f_code.co_qualname, _file(caller) if caller else ""))


def _file(frame: FrameType) -> str:
    """Of ksflow or its stages, from the root; empty for any other."""
    path = os.path.realpath(frame.f_code.co_filename)
    name = path.removeprefix(f"{_ROOT}/")
    inside = name != path and name.startswith(("ksflow/", "stages/")) and "<" not in frame.f_code.co_name
    return name if inside else ""


def main() -> None:
    """Run, trace, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="every hop")
    options = parser.parse_args()
    trace = Trace()
    with tempfile.TemporaryDirectory(prefix="ksflow-hops-") as folder:
        os.chdir(folder)
        sys.argv = ["hops"]
        words = ["problem=softmax", "recipe=dry_run", f"loop.evaluations={_EXPERIMENTS}", "loop.digest_every=99"]
        threading.setprofile(trace)  # type: ignore[arg-type]
        sys.setprofile(trace)  # type: ignore[arg-type]
        compose.launch(lambda cfg: float(verbs.search(cfg, time.monotonic()).judged), words)
        sys.setprofile(None)
    hops = Counter((file, name) for file, name, before in trace.calls if before != file)
    files = [file for file, _, _ in trace.calls]
    changes = sum(one != other for one, other in itertools.pairwise(files))
    functions = {(file, name) for file, name, _ in trace.calls}
    print(f"{len(functions)} functions in {len(set(files))} files, {len(hops)} hops, {changes} changes of file")
    if options.list:
        for (file, name), times in hops.items():
            print(f"{times:5} {file}: {name}")


if __name__ == "__main__":
    main()
