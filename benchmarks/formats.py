"""`problem check` over every problem of a checkout in another project's format: which hold, why others do not.

    python benchmarks/formats.py gpumode ~/reference-kernels [--only TEXT] [--sample N] [--log FILE] [key=value ...]

Each problem is read and judged in a process of its own. Prints a row for each as it ends: the cap on sizes (for CPUs),
the verdicts of the solutions that came with it, and `holds` or the first failure. With --log, rows are kept as JSON
lines, and a run with the same file goes on where it ended. --sample takes so many at random, the same ones each time.
Exits 1 where a shipped solution was judged wrong, and where a problem that imports does not hold.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Json = dict[str, Any]
_WIDTH = 150


def _gpumode(root: Path) -> Iterator[tuple[str, list[str]]]:
    for file in sorted(root.rglob("task.yml")):
        folder = file.parent
        yield f"{folder.parent.name}/{folder.name}", [f"problem.path={folder}"]


def _kernelbench(root: Path) -> Iterator[tuple[str, list[str]]]:
    files = [(int(found[1]), int(found[2])) for found in map(_NUMBERED.search, map(str, root.rglob("*.py"))) if found]
    for level, number in sorted(set(files)):
        yield f"level{level}/{number}", [f"problem.root={root}", f"problem.level={level}", f"problem.id={number}"]


_NUMBERED = re.compile(r"/KernelBench/level(\d+)/(\d+)_[^/]*\.py$")


def _flashinfer(root: Path) -> Iterator[tuple[str, list[str]]]:
    for file in sorted(root.glob("**/definitions/**/*.json")):
        base = next(parent for parent in file.parents if parent.name == "definitions").parent
        yield file.stem, [f"problem.root={base}", f"problem.definition={file.stem}"]
    for file in sorted(root.rglob("definition.json")):  # SOL-ExecBench's
        yield f"{file.parent.parent.name}/{file.parent.name}", [f"problem.path={file}"]


def _tritonbench(root: Path) -> Iterator[tuple[str, list[str]]]:
    for channel in ("G", "T"):
        for file in sorted(root.glob(f"**/TritonBench_{channel}_v1/*.py")):
            yield (
                f"{channel}/{file.stem}",
                [f"problem.root={root}", f"problem.channel={channel}", f"problem.file={file.name}"],
            )


FORMATS: dict[str, Callable[[Path], Iterator[tuple[str, list[str]]]]] = {
    "gpumode": _gpumode,
    "kernelbench": _kernelbench,
    "flashinfer": _flashinfer,
    "tritonbench": _tritonbench,
}
"""Format -> (name, what says which problem) of all that a checkout has."""


def one(overrides: list[str]) -> int:
    """The child: read and judge one problem, print one line of JSON."""
    from ksflow.config import compose
    from ksflow.errors import KsflowError

    found: Json = {"cap": None, "rows": [], "error": ""}
    try:
        cfg = compose.compose(overrides)
        problem = compose.build(cfg.problem)
        found["cap"] = problem.origin.get("cap")
        evaluate = compose.build(cfg.evaluator)
        found["rows"] = [list(row) for row in evaluate.admit(problem)]
    except KsflowError as error:
        found["error"] = str(error)
    print("\n" + json.dumps(found))
    return 0


def _checked(overrides: list[str], timeout: float) -> Json:
    command = [sys.executable, __file__, "--one", *overrides]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, log = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        out, log = "", f"nothing after {timeout:g} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    lines = [line for line in out.splitlines() if line.startswith('{"cap"')]
    last = (log.strip().splitlines() or ["the check died without a word"])[-1]
    return json.loads(lines[-1]) if lines else {"cap": None, "rows": [], "error": last}


def _outcome(found: Json) -> str:
    failed = [f"{name}: {detail}" for name, ok, detail in found["rows"] if not ok]
    return found["error"] or (failed[0] if failed else "holds")


def _shipped(found: Json) -> str:
    """`2/2 good, 1/1 bad`: how many got the right verdict; skipped ones apart."""
    said = []
    for kind in ("good", "bad"):
        rows = [(ok, detail) for name, ok, detail in found["rows"] if name.startswith(f"{kind} ")]
        ran = [ok for ok, detail in rows if not detail.startswith("skipped")]
        if ran:
            said.append(f"{sum(ran)}/{len(ran)} {kind}")
        if len(rows) > len(ran):
            said.append(f"{len(rows) - len(ran)} {kind} skipped")
    return ", ".join(said) or "-"


def _kept(log: Path | None) -> dict[str, Json]:
    lines = log.read_text().splitlines() if log and log.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("format", choices=sorted(FORMATS))
    parser.add_argument("root", type=Path)
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--sample", type=int, help="so many of them")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each problem")
    parser.add_argument("--log", type=Path)
    parser.add_argument("overrides", nargs="*", help="further key=value words for each")
    return parser.parse_intermixed_args()


def _wanted(asked: argparse.Namespace) -> list[tuple[str, list[str]]]:
    found = [row for row in FORMATS[asked.format](asked.root.expanduser().resolve()) if asked.only in row[0]]
    return found if asked.sample is None else sorted(random.Random(0).sample(found, min(asked.sample, len(found))))


def main() -> int:
    """Check them all; 1 where something is not as it should be."""
    asked = _arguments()
    kept = _kept(asked.log)
    imported = held = wrong = 0
    wanted = _wanted(asked)
    for name, which in wanted:
        started = time.monotonic()
        words = [f"problem={asked.format}", *which, *asked.overrides]
        found = kept.get(name) or {"name": name, **_checked(words, asked.timeout)}
        if asked.log and name not in kept:
            with asked.log.open("a") as out:
                out.write(json.dumps(found) + "\n")
        outcome = _outcome(found)
        imported += bool(found["rows"])
        held += outcome == "holds"
        wrong += bool(found["rows"]) and outcome != "holds"
        took = f"{time.monotonic() - started:.0f} s"
        print(f"{name:42} cap {found['cap'] or '-':>7}  {_shipped(found):28} {took:>6}  {outcome[:_WIDTH]}", flush=True)
    print(f"{len(wanted)} problems, {imported} imported, {held} hold")
    return 1 if wrong or not wanted else 0


if __name__ == "__main__":
    sys.exit(one(sys.argv[2:]) if sys.argv[1:2] == ["--one"] else main())
