"""Kernels for the triangle multiplicative update, those of GPU MODE's leaderboard among them, in one table.

    python benchmarks/device.py describe trimul > trimul.json       where ksflow's own packages are installed
    python benchmarks/trimul.py --problem trimul.json SUBMISSION ... --own seeds/trimul/gpu/01_host_triton.py

A submission is a file in the leaderboard's format: `custom_kernel((input, mask, weights, config))`; one of `--own` has
`custom_kernel(data)` as problems/trimul asks for. Every one is measured

 - with the same inputs in every call, as the leaderboard's benchmark mode does: nothing flushed, device events around
   the call, which see the host's work too, the mean of up to 100 calls, fewer once its error is below 0.1 %;
 - with new inputs in every call, weights in a new dict, the same clock;
 - by ksflow's judge: new inputs in every call, everything cold, launches queued before the inputs exist;
 - by the judge with weights that are the same in all calls of a case (the problem's variant `static`).

Beside the times stands whether answers are right (2e-2 relative and absolute, the leaderboard's rule), and whether they
still are after all weights were changed in place between two calls of the benchmark mode.

The judge calls a submission through an adapter that is made here: it puts the flat arguments into a dict, a new one for
every call (for `static` one for every case), and lets the one allocation in Python that has y's size be y, or copies.
What the kernels compile is compiled before anything is timed, and shown to the judge's sandboxes. A kernel that fails,
hangs or takes the process with it costs its own cells only. `--verdicts NAME NAME:static ...` names the verdicts that
are wanted, in their order; without it own kernels come first, then published ones, then those with static weights.
Needs torch, and what the kernels are made with.
"""

import argparse
import contextlib
import importlib.util
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_ROOT)]

Json = dict[str, Any]
Kernel = Callable[[Any], Any]

_NAMES = (
    *("norm.weight", "norm.bias", "left_proj.weight", "right_proj.weight", "left_gate.weight", "right_gate.weight"),
    *("out_gate.weight", "to_out_norm.weight", "to_out_norm.bias", "to_out.weight"),
)
"""The leaderboard's names of the weights, in the order of the problem's arguments."""
_MOST_CALLS, _FEWEST_CALLS, _ERROR, _MOST_MS, _MOST_S = 100, 3, 1e-3, 10e3, 120.0
"""The leaderboard's benchmark mode: how many calls, and when fewer are enough."""
_FRESH_CALLS, _CHECKED = 15, 2
_WARM_CALLS = 20
_TOLERANCE = 2e-2
_PREPARE_S, _KERNEL_S, _JUDGE_S = 170.0, 90.0, 120.0
"""At most, for all compilers together; for one kernel; for one verdict."""
_LEAST_S = 20.0
"""With less time left than this no other verdict is begun."""

_ADAPTER = '''
"""Generated: a submission in the leaderboard's format, called with the problem's flat arguments."""
import contextlib, importlib.util, math, os, shutil, sys, tempfile, types
import torch
from torch.utils import cpp_extension

NAMES, CACHE, STATIC = {names!r}, {cache!r}, {static!r}
own = tempfile.mkdtemp()
if os.path.isdir(CACHE):
    with contextlib.suppress(OSError):
        shutil.copytree(CACHE, own, dirs_exist_ok=True)
    os.environ["TRITON_CACHE_DIR"] = own + "/triton"


def built(name, *args, **options):
    """What was compiled before."""
    file = own + "/extensions/" + name + "/" + name + ".so"
    if not os.path.isfile(file):
        return build(name, *args, **options)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build, cpp_extension.load_inline = cpp_extension.load_inline, built
sys.modules["task"] = types.SimpleNamespace(input_t=object, output_t=object)
import submission


class Torch:
    """torch, but that the first allocation of y's size and type in a call is y."""

    y = None

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, *size, **options):
        shape = size if not size or isinstance(size[0], int) else tuple(size[0])
        y = self.y
        if y is None or options.get("dtype") is not y.dtype or math.prod(shape) != y.numel():
            return torch.empty(*size, **options)
        self.y = None
        return y.view(shape)


allocator = submission.torch = Torch()
kept = {{}}


def forget(found, pointer):
    """Take tensors at an address out of a dict that a submission keeps things in."""
    for name, value in list(found.items()):
        if isinstance(value, dict):
            forget(value, pointer)
        elif isinstance(value, torch.Tensor) and value.data_ptr() == pointer:
            del found[name]


def custom_kernel(data):
    x, mask, *tensors, y = data
    shape = tuple(x.shape)
    if STATIC and shape not in kept:
        kept.clear()
        kept[shape] = {{name: tensor.clone() for name, tensor in zip(NAMES, tensors)}}
    weights = kept[shape] if STATIC else dict(zip(NAMES, tensors))
    allocator.y = y
    got = submission.custom_kernel((x, mask, weights, {{"dim": shape[-1], "hidden_dim": tensors[2].shape[0]}}))
    allocator.y = None
    if STATIC:
        forget(weights, y.data_ptr())
    if got.data_ptr() != y.data_ptr() or got.dtype != y.dtype:
        y.copy_(got)
    return y
'''


class _OutOfTimeError(Exception):
    """No time is left for what is being waited for."""


# -- in a process of its own, for one kernel ------------------------------------------------------------------------


def work(order: Json) -> None:
    """Measure one kernel, or have it compile what it needs; a line of JSON for each case in the order's file."""
    import torch

    torch.set_grad_enabled(False)
    if order["waits"] and not sys.stdin.readline():  # until the device is this one's
        return None
    with Path(order["results"]).open("a", encoding="utf-8") as out:

        def tell(row: Json) -> None:
            out.write(json.dumps(row) + "\n")
            out.flush()

        try:
            bench = Bench(order)
        except Exception as error:  # noqa: BLE001 - a stranger's module
            return tell({"error": _line(error)})
        for number, case in enumerate(order["cases"]):
            try:
                tell(bench.prepare(case) if order["prepare"] else bench.measure(case, warm=number == 0))
            except Exception as error:  # noqa: BLE001 - a stranger's kernel
                tell({"case": case["name"], "error": _line(error)})
    return None


class Bench:
    """One kernel, called as the leaderboard would."""

    def __init__(self, order: Json) -> None:
        import torch

        self.torch = torch
        self.reference = _module("trimul_reference", Path(order["reference"]))
        self.where = "cuda" if torch.cuda.is_available() else "cpu"
        sys.modules["task"] = types.SimpleNamespace(input_t=object, output_t=object)  # type: ignore[assignment]
        found: Kernel = _module("submission", Path(order["kernel"])).custom_kernel
        self.kernel = self._adapted(found) if order["own"] else found

    def prepare(self, case: Json) -> Json:
        """Call it once with the mask as the leaderboard has it, and once as the judge has."""
        x, mask, weights, config = self._data(case, case["seed"])
        for one in {mask.dtype: mask, self.torch.float32: mask.float()}.values():
            self.kernel((x, one, dict(weights), config))
        self._wait()
        if self.where == "cuda":
            self.torch.cuda.empty_cache()  # others do the same beside it
        return {"case": case["name"]}

    def measure(self, case: Json, warm: bool) -> Json:
        """Both modes, and whether the answers are right."""
        data = self._data(case, case["seed"])
        right = self._objection(self.kernel(data), data)
        for _ in range(_WARM_CALLS if warm else 0):
            self.kernel(data)
        same = self._same(data)
        seed = self.torch.Generator(device=self.where).manual_seed(case["seed"] + 1)
        for one in data[2].values():
            if isinstance(one, self.torch.Tensor):  # a kernel may have put things of its own there
                size = float(one.square().mean().sqrt())
                one.copy_(self.torch.randn(one.shape, device=self.where, generator=seed) * size)
        stale = self._objection(self.kernel(data), data)
        del data
        fresh, objections = self._fresh(case)
        row = {"case": case["name"], "same_ms": same, "fresh_ms": fresh}
        return {**row, "right": next(filter(None, [right, *objections]), ""), "updated": stale}

    # -- inside

    def _same(self, data: Any) -> float:
        """The mean of calls with the same inputs."""
        found: list[float] = []
        started = time.monotonic()
        while len(found) < _MOST_CALLS:
            found.append(self._clocked(data)[0])
            if len(found) >= _FEWEST_CALLS:
                mean = statistics.fmean(found)
                error = statistics.stdev(found) / math.sqrt(len(found))
                if error < _ERROR * mean or sum(found) > _MOST_MS or time.monotonic() - started > _MOST_S:
                    break
        return statistics.fmean(found)

    def _fresh(self, case: Json) -> tuple[float, list[str]]:
        """The mean of calls that have inputs of their own, and what is wrong with the answers of some."""
        found, objections = [], []
        for number in range(_FRESH_CALLS + 1):
            data = self._data(case, case["seed"] + 13 * (number + 1))
            took, got = self._clocked(data)
            if number:
                found.append(took)
            if number > _FRESH_CALLS - _CHECKED:
                objections.append(self._objection(got, data))
            del data, got
        return statistics.fmean(found), objections

    def _clocked(self, data: Any) -> tuple[float, Any]:
        """One call: ms, and the answer."""
        self._wait()
        if self.where == "cpu":
            started = time.perf_counter()
            got = self.kernel(data)
            return (time.perf_counter() - started) * 1e3, got
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        got = self.kernel(data)
        last.record()
        self._wait()
        return first.elapsed_time(last), got

    def _objection(self, got: Any, data: Any) -> str:
        """What is wrong with an answer by the leaderboard's rule; empty where nothing is."""
        x, mask, weights, _ = data
        flat = (x, mask.float(), *(weights[name] for name in _NAMES), self.torch.empty_like(x))
        settings = self.torch.backends.cuda.matmul
        settings.allow_tf32, before = False, settings.allow_tf32  # a kernel may have changed that for itself
        want = self.reference.ref_kernel(flat)
        settings.allow_tf32 = before
        if got.shape != want.shape:
            return f"shape {tuple(got.shape)}"
        wrong = 0
        for mine, theirs in zip(got.flatten(0, 1), want.flatten(0, 1), strict=True):
            close = self.torch.isclose(mine.float(), theirs, rtol=_TOLERANCE, atol=_TOLERANCE)
            wrong = wrong + (~close).sum()
        return f"{int(wrong)} of {want.numel()} elements off" if int(wrong) else ""

    def _data(self, case: Json, seed: int) -> Any:
        """Inputs as the leaderboard hands them over: a mask of int64 where there is one, and of ones elsewhere."""
        x, mask, *weights, _ = self.reference.generate_input(**case["params"], seed=seed, device=self.where)
        config = {"dim": x.shape[-1], "hidden_dim": weights[2].shape[0]}
        mask = mask.long() if case["params"]["masked"] else mask
        return x, mask, dict(zip(_NAMES, weights, strict=True)), config

    def _adapted(self, kernel: Kernel) -> Kernel:
        """A kernel of this problem, called in the leaderboard's way: y is allocated within the call."""

        def call(data: Any) -> Any:
            x, mask, weights, _ = data
            tensors = (weights[name] for name in _NAMES)
            return kernel((x, mask.float(), *tensors, self.torch.empty_like(x)))

        return call

    def _wait(self) -> None:
        if self.where == "cuda":
            self.torch.cuda.synchronize()


# -- the table ------------------------------------------------------------------------------------------------------


class Field:
    """The kernels, and what was found of each so far."""

    def __init__(self, given: argparse.Namespace, problem: Any) -> None:
        self.problem = problem
        self.files = dict.fromkeys(given.kernels, False) | dict.fromkeys(given.own, True)
        self.names = _names(list(self.files))
        self.found: dict[str, dict[str, Json]] = {path: {} for path in self.files}
        """Kernel -> case -> what was measured."""
        self.notes: dict[str, list[str]] = {path: [] for path in self.files}
        self.hung: set[str] = set()
        self.waiting: dict[str, subprocess.Popen[str]] = {}
        """Processes that have loaded torch and wait for their turn to measure."""
        self.out: Path | None = given.out
        self.prepare_s: float = given.prepare_seconds
        self.end = time.monotonic() + given.seconds
        self.cache = Path(tempfile.mkdtemp(prefix="trimul-"))
        self.cache.chmod(0o755)
        self.benchmarks = [{"name": c.name, "params": dict(c.params), "seed": c.seed} for c in problem.benchmarks]
        self.tests = [{"name": c.name, "params": dict(c.params), "seed": c.seed} for c in problem.tests]

    @property
    def left_s(self) -> float:
        return self.end - time.monotonic()

    def compile(self) -> None:
        """Every kernel is called once on every case, all at the same time, so that what they compile is kept."""
        started = time.monotonic()
        cases = [*self.tests, *self.benchmarks]
        # not all at the largest case at once
        turned = {path: cases[number:] + cases[:number] for number, path in enumerate(self.files)}
        running = {path: self._start(path, some, prepare=True) for path, some in turned.items()}
        self.waiting = {path: self._start(path, self.benchmarks, prepare=False) for path in self.files}
        end = started + min(self.prepare_s, self.left_s / 2)
        for path, process in running.items():
            self._wait(path, process, end - time.monotonic(), "compiling")
        print(f"compiled in {time.monotonic() - started:.0f} s", flush=True)

    def measure(self, path: str) -> None:
        """One kernel in its process, with its share of the time that is left; not one that hung before."""
        process = self.waiting.pop(path)
        if path in self.hung:
            _end(process)
            return
        started = time.monotonic()
        share = self.left_s / (1 + list(self.files)[::-1].index(path))
        assert process.stdin
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("\n")
            process.stdin.close()
        self._wait(path, process, min(_KERNEL_S, share), "measuring")
        results = self._file(path, prepare=False)
        for line in results.read_text().splitlines() if results.exists() else []:
            row = json.loads(line)
            if "case" in row:
                self.found[path][row["case"]] = row
            if "error" in row:
                self.notes[path].append(f"{row.get('case', 'import')}: {row['error']}")
        print(f"{self.names[path]}: measured in {time.monotonic() - started:.0f} s", flush=True)
        print(json.dumps(list(self.found[path].values())), flush=True)
        self.save()

    def judge(self, evaluator: Any, path: str, static: bool) -> None:
        """One verdict, if there is time for it."""
        column = "static" if static else "judge"
        left = min(self.left_s, _JUDGE_S)
        if left < _LEAST_S or path in self.hung:
            self.notes[path].append(f"{column}: {'left out' if path in self.hung else 'out of time'}")
            return
        started = time.monotonic()
        try:
            with _within(left):
                result = evaluator(self._variant(static), self._kernel(path, static), ())
        except _OutOfTimeError:
            self.notes[path].append(f"{column}: no verdict within {left:.0f} s")
            raise
        except Exception as error:  # noqa: BLE001 - the table goes on
            self.notes[path].append(f"{column}: {_line(error)}")
            return
        for timing in result.timings:
            self.found[path].setdefault(timing.case, {"case": timing.case})[f"{column}_ms"] = timing.us / 1e3
        if not result.accepted:
            self.notes[path].append(f"{column}: {result.verdict} {result.reason}")
            print(str(result.evidence.log)[-1500:], flush=True)
        took = time.monotonic() - started
        print(f"{self.names[path]}: {column} {result.verdict} in {took:.0f} s {result.reason}", flush=True)
        self.save()

    def orders(self, wanted: Sequence[str] | None) -> list[tuple[str, bool]]:
        """Which verdicts in which order: file, and whether with static weights. ValueError for a name that is none."""
        if wanted is None:
            by_cache = sorted(self.names, key=lambda path: not self.caches(path))
            own_first = sorted(self.names, key=lambda path: not self.files[path])
            static = [(path, True) for path in by_cache if not self.files[path]]
            return [*((path, False) for path in own_first), *static]
        paths = {name: path for path, name in self.names.items()}
        if unknown := [word for word in wanted if word.removesuffix(":static") not in paths]:
            raise ValueError(f"--verdicts {unknown[0]}; valid: {', '.join(paths)}, each also with :static")
        return [(paths[word.removesuffix(":static")], word.endswith(":static")) for word in wanted]

    def save(self) -> None:
        """What is known so far, into the file that was named."""
        if self.out:
            named = {self.names[path]: rows for path, rows in self.found.items()}
            notes = {self.names[path]: rows for path, rows in self.notes.items()}
            self.out.write_text(json.dumps({"found": named, "notes": notes}, indent=1))

    def close(self) -> None:
        """Leave nothing behind."""
        for process in self.waiting.values():
            _end(process)
        self.save()
        shutil.rmtree(self.cache, ignore_errors=True)

    def caches(self, path: str) -> bool:
        """Whether it was seen to keep something of weights between calls."""
        return any(row.get("updated") and not row.get("right") for row in self.found[path].values())

    def table(self) -> str:
        """Everything, as Markdown."""
        columns = {
            "same_ms": "same inputs",
            "fresh_ms": "new inputs",
            "judge_ms": "judge",
            "static_ms": "judge, static",
        }
        cases = [case["name"] for case in self.benchmarks]
        lines = [
            f"\n| kernel (geometric mean of {len(cases)} cases, ms) | {' | '.join(columns.values())} | right | "
            "right after weights were changed in place |",
            "|---|---:|---:|---:|---:|---|---|",
        ]
        for path, name in self.names.items():
            rows = [self.found[path].get(case, {}) for case in cases]
            times = " | ".join(_mean([row.get(key) for row in rows]) for key in columns)
            lines.append(f"| {name} | {times} | {_right(rows, 'right')} | {_right(rows, 'updated')} |")
        for key, title in columns.items():
            lines += ["", f"| {title}, ms | {' | '.join(self.names.values())} |", "|---" * (len(self.names) + 1) + "|"]
            for case in cases:
                cells = [self.found[path].get(case, {}).get(key) for path in self.names]
                lines.append(f"| {case} | {' | '.join(f'{c:.3f}' if c else '-' for c in cells)} |")
        lines += ["", *(f"{self.names[path]}: {note}" for path in self.names for note in self.notes[path])]
        return "\n".join(lines)

    # -- inside

    def _variant(self, static: bool) -> Any:
        limits = replace(self.problem.limits, check_s=60.0, time_s=60.0)
        if not static:
            return replace(self.problem, limits=limits)
        tests, benchmarks = (
            tuple(replace(case, params={**case.params, "static": 1}) for case in cases)
            for cases in (self.problem.tests, self.problem.benchmarks)
        )
        changed = {"variant": "static", "defines": {"STATIC_WEIGHTS": 1}, "digest": f"{self.problem.digest}-static"}
        return replace(self.problem, limits=limits, tests=tests, benchmarks=benchmarks, **changed)

    def _kernel(self, path: str, static: bool) -> Any:
        from ksflow.records import Kernel, language

        text = Path(path).read_text(encoding="utf-8")
        if self.files[path]:
            return Kernel(language(path, text), {Path(path).name: text})
        adapter = _ADAPTER.format(names=_NAMES, cache=str(self._folder(path)), static=static)
        return Kernel("python", {"adapter.py": adapter, "submission.py": text})

    def _folder(self, path: str) -> Path:
        return self.cache / str(list(self.files).index(path))

    def _file(self, path: str, prepare: bool) -> Path:
        return self._folder(path) / ("prepared.jsonl" if prepare else "measured.jsonl")

    def _start(self, path: str, cases: Sequence[Json], prepare: bool) -> subprocess.Popen[str]:
        folder = self._folder(path)
        folder.mkdir(exist_ok=True)
        order = {
            "kernel": str(Path(path).resolve()),
            "own": self.files[path],
            "reference": f"{self.problem.root}/reference.py",
            "cases": list(cases),
            "prepare": prepare,
            "waits": not prepare,
            "results": str(self._file(path, prepare)),
        }
        kept = {"TRITON_CACHE_DIR": f"{folder}/triton", "TORCH_EXTENSIONS_DIR": f"{folder}/extensions"}
        file = folder / ("prepare.json" if prepare else "measure.json")
        file.write_text(json.dumps(order))
        return subprocess.Popen(
            [sys.executable, __file__, "--work", str(file)],
            stdin=subprocess.DEVNULL if prepare else subprocess.PIPE,
            stdout=(folder / "log").open("a"),
            stderr=subprocess.STDOUT,
            env={**os.environ, **kept},
            start_new_session=True,
            text=True,
        )

    def _wait(self, path: str, process: subprocess.Popen[str], seconds: float, doing: str) -> None:
        """Until a kernel's process has ended, or was ended with all that it started."""
        try:
            code = process.wait(max(seconds, 1.0))
        except subprocess.TimeoutExpired:
            self.notes[path].append(f"{doing} took more than {seconds:.0f} s")
            self.hung.add(path)
            code = 0
        _end(process)
        if code:
            last = (self._folder(path) / "log").read_text(errors="replace").strip().splitlines()[-1:]
            self.notes[path].append(f"{doing} ended with status {code}: {' '.join(last)[:300]}")


def _end(process: subprocess.Popen[str]) -> None:
    """End a process with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _mean(values: Sequence[float | None]) -> str:
    found = [value for value in values if value]
    if len(found) < len(values):
        return f"{len(found)} of {len(values)} cases" if found else "-"
    return f"{math.exp(statistics.fmean(map(math.log, found))):.3f}"


def _right(rows: Sequence[Json], key: str) -> str:
    known = [row[key] for row in rows if key in row]
    wrong = sum(bool(said) for said in known)
    return "-" if not known else "yes" if not wrong else f"no, on {wrong} of {len(known)} cases"


def _names(paths: Sequence[str]) -> dict[str, str]:
    stems = [Path(path).stem for path in paths]
    return {path: path if stems.count(stem) > 1 else stem for path, stem in zip(paths, stems, strict=True)}


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raises _OutOfTimeError in what is waited for meanwhile."""

    def interrupt(number: int, frame: types.FrameType | None) -> None:
        raise _OutOfTimeError

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _judged(field: Field, orders: Sequence[tuple[str, bool]]) -> None:
    """The verdicts for which there is time."""
    from ksflow.kernels.hardware.target import default_target
    from ksflow.stages.evaluator.local import LocalEvaluator

    evaluator = LocalEvaluator(default_target())
    for path, static in orders:
        try:
            field.judge(evaluator, path, static)
        except _OutOfTimeError:
            evaluator.close()  # it still works on that one
            evaluator = LocalEvaluator(default_target())
    evaluator.close()


def _problem(given: argparse.Namespace) -> Any:
    if given.problem:
        from device import read_problem

        return read_problem(given.problem)
    from ksflow.kernels.hardware.target import default_target
    from ksflow.kernels.problem.loader import load

    return load("trimul", cases=given.cases, target=default_target())


def main() -> None:
    """All kernels, one table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kernels", nargs="*", help="submissions in the leaderboard's format")
    parser.add_argument("--own", nargs="*", default=[], help="kernels for problems/trimul")
    parser.add_argument("--problem", type=Path, help="what `device.py describe trimul` wrote")
    parser.add_argument("--cases", default="auto", help="without --problem: the case set")
    parser.add_argument("--seconds", type=float, default=380.0, help="for everything")
    parser.add_argument("--prepare-seconds", type=float, default=_PREPARE_S, help="at most, for all compilers together")
    parser.add_argument("--no-judge", action="store_true")
    parser.add_argument("--verdicts", nargs="*", metavar="NAME[:static]", help="verdicts of the judge, in this order")
    parser.add_argument("--out", type=Path, help="a file for everything that was measured, as JSON")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        return work(json.loads(given.work.read_text()))
    field = Field(given, _problem(given))
    try:
        field.orders(given.verdicts)
    except ValueError as error:
        parser.error(str(error))
    folders = [str(field.cache), os.environ.get("LD_LIBRARY_PATH", "")]
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))  # a sandbox may read what is there
    try:
        field.compile()
        for path in field.names:
            field.measure(path)
        print(field.table(), flush=True)
        if not given.no_judge:
            _judged(field, field.orders(given.verdicts))
            print(field.table(), flush=True)
    finally:
        field.close()
    return None


if __name__ == "__main__":
    main()
