"""The judge of GPU kernels, tried on a GPU: against its corpus, on a problem's seeds, against another clock, again.

    python benchmarks/device.py cheats|dangers|honest|all [NAME ...]    those whose paths contain one of the names
    python benchmarks/device.py describe fp8_gemm [VARIANT] > problem.json    where ksflow's own packages are installed
    python benchmarks/device.py seeds  --problem problem.json KERNEL ...
    python benchmarks/device.py agree  [NAME ... | --problem problem.json KERNEL ...]
    python benchmarks/device.py repeat --problem problem.json KERNEL [--times 10]
    python benchmarks/device.py discern [--times 20]

All but `describe` need the standard library, torch and what the kernels are made with. The exit status is 1 where
something is off: a verdict that the corpus does not expect, a kernel that is not accepted, a time that is too good or,
for an honest kernel, not the one that a plain script measures.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_ROOT), str(_ROOT / "tests")]

from corpus.device.specimens import CATEGORIES, Specimen, plain, problems, specimens  # noqa: E402

from ksflow.kernels.hardware.target import default_target  # noqa: E402
from ksflow.kernels.languages import ON_DEVICE, detect_language  # noqa: E402
from ksflow.records import (  # noqa: E402
    Arg,
    Case,
    Check,
    Evaluation,
    Kernel,
    Limits,
    Origin,
    Problem,
    Trial,
    Verdict,
)
from ksflow.stages.evaluator.local import LocalEvaluator  # noqa: E402

_SLACK = 0.97
"""A trick that is accepted may look this much faster than the plain kernel: two runs of one kernel differ."""
_AGREES, _AGREES_SHORT, _SHORT_US = 0.03, 0.05, 10.0
_TRUE, _TRUE_US, _LONG_US = 0.05, 5.0, 50.0
"""An honest specimen's time is the script's within this share from so many us on, and within so many us below."""
_SCRIPT_S = 400.0
_HASTY_S = 8.0
"""How long a danger may take, of which some are made to hang."""
_WIDTH = 110
_MISTAKES = ("NameError", "SyntaxError", "ImportError", "ModuleNotFoundError", "AttributeError", "TypeError")


class Court:
    """An evaluator for this machine's GPU, and the times of plain kernels."""

    def __init__(self) -> None:
        self.evaluator = LocalEvaluator(default_target())
        self.problems = problems()
        self.plain: dict[tuple[str, str], Evaluation] = {}
        self.honest: list[tuple[Specimen, Evaluation]] = []
        """Those that were accepted."""

    def compile(self, chosen: list[Specimen]) -> None:
        """Compile all that are to be judged, on as many cores as there are."""
        kernels = [(specimen.problem, one) for specimen in chosen for one in (specimen.kernel, specimen.rival) if one]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda pair: self.evaluator.prepare(self.problems[pair[0]], pair[1]), kernels))

    def judge(self, specimen: Specimen) -> bool:
        """One specimen: its line, and whether all is as it should be."""
        started = time.monotonic()
        rivals = () if specimen.rival is None else (Trial("00001", Origin.SEED, kernel=specimen.rival),)
        problem = self.problems[specimen.problem]
        if specimen.name.startswith("dangers/"):
            problem = replace(problem, limits=replace(problem.limits, check_s=_HASTY_S, time_s=_HASTY_S))
        result = self.evaluator(problem, specimen.kernel, rivals)
        why = self._objection(specimen, result)
        if specimen.expect == "accept" and result.accepted:
            self.honest.append((specimen, result))
        if not why and specimen.name.startswith("dangers/"):
            after = self._honest(specimen, fresh=True)
            why = "" if after.accepted else f"afterwards the plain kernel: {after.verdict}: {after.reason}"
        took = f"{result.score_us:.1f} us" if result.score_us else result.reason
        line = (
            f"{specimen.name:40} {specimen.expect:10} {result.verdict:18} {time.monotonic() - started:4.0f} s  {took}"
        )
        print(line[:_WIDTH], flush=True)
        if why:
            print(f"    OFF: {why[:400]}", flush=True)
        return not why

    def _objection(self, specimen: Specimen, result: Evaluation) -> str:
        """What is wrong with a verdict; empty when nothing is."""
        if result.verdict is Verdict.HARNESS:
            return f"the harness failed: {result.reason} {result.evidence.log[-300:]}"
        if specimen.expect == "accept":
            return "" if result.accepted else f"{result.verdict}: {result.reason}"
        if _broken(result):
            return f"tests nothing: {result.reason}"
        if not result.accepted or specimen.expect == "harmless":
            return ""
        if specimen.expect == "race":
            refused = "; ".join(row.refused for row in result.evidence.sanitizer if row.refused)
            print(f"    not looked at: {refused}" if refused else f"    {result.why_unranked or 'ranked'}")
            return "" if refused or "racecheck" in result.why_unranked else f"ranked: {result.claim}"
        return self._speed(specimen, result) if specimen.expect == "true-speed" else "accepted"

    def _speed(self, specimen: Specimen, result: Evaluation) -> str:
        twin = self._honest(specimen)
        if twin.score_us is None or result.score_us is None:
            return f"its twin: {twin.verdict}: {twin.reason}"
        versus = next(iter(result.evidence.against), None)
        if versus is None or (versus.ranked and versus.low > specimen.gain):
            return f"beside its twin: {result.evidence.skipped or versus}"
        interval = f"[{versus.low:.3g}, {versus.high:.3g}]"
        print(f"    beside its twin x{versus.speedup:.3g} {interval}{'' if versus.ranked else ', not ranked'}")
        ratio = result.score_us / twin.score_us
        return "" if ratio >= _SLACK else f"looks {1 / ratio:.2f} times as fast as its twin"

    def _honest(self, specimen: Specimen, fresh: bool = False) -> Evaluation:
        kernel = specimen.twin
        key = (specimen.problem, kernel.digest)
        if fresh or key not in self.plain:
            self.plain[key] = self.evaluator(self.problems[specimen.problem], kernel, ())
        return self.plain[key]


def _broken(result: Evaluation) -> bool:
    """Whether a mistake in the corpus kept the kernel from trying anything."""
    mistake = any(f"{word}: " in result.reason for word in _MISTAKES)
    return result.verdict is Verdict.COMPILE or (result.verdict is Verdict.CRASH and mistake)


def corpus(category: str, names: list[str]) -> bool:
    """All of a category whose paths contain one of the names. Whether all is as it should be, the times of honest ones
    too."""
    court = Court()
    wanted = CATEGORIES if category == "all" else (category,)
    chosen = [one for name in wanted for one in specimens(name) if any(word in one.name for word in names or [""])]
    court.compile(chosen)
    fine = [court.judge(specimen) for specimen in chosen]
    for (name, _), result in court.plain.items():
        print(f"plain {name}: {result.verdict} {result.score_us or result.reason} us")
    print(f"{len(fine)} judged, {fine.count(False)} off", flush=True)
    court.evaluator.close()
    return all(fine) and true_times(court)


def true_times(court: Court) -> bool:
    """Every honest specimen's time of each case beside a plain script's. Whether all agree."""
    if not (honest := court.honest):
        return True
    others = _measured([(court.problems[one.problem], one.kernel) for one, _ in honest])
    print("judge us, script us, script us when all is cold, off, by the kernel's events, by the judge's clock, gated")
    wrong = 0
    for (specimen, result), other in zip(honest, others, strict=True):
        for timing, row in zip(result.timings, result.evidence.timed, strict=True):
            low, high = sorted(other[timing.case])
            off = max(timing.us - high, low - timing.us, 0.0)
            agrees = off <= (_TRUE * low if low > _LONG_US else _TRUE_US)
            agrees |= "time" in specimen.header
            wrong += not agrees
            figures = f"{timing.us:9.2f} {other[timing.case][0]:9.2f} {other[timing.case][1]:9.2f} {off:8.2f}"
            figures += f" {row.events_us or 0:9.2f} {row.bracket_us or 0:9.2f} {row.gated!s:5}"
            print(f"{specimen.name[7:]:28} {timing.case:20} {figures}{'' if agrees else '  OFF'}")
    print(f"{len(honest)} honest kernels, {wrong} times off", flush=True)
    return not wrong


def seeds(problem: Problem, kernels: dict[str, Kernel]) -> bool:
    """Verdict, geomean and every case's time of each kernel, on all GPUs that are visible."""
    judge = LocalEvaluator(default_target())
    fine = True

    def judged(kernel: Kernel) -> tuple[Evaluation, float]:
        started = time.monotonic()
        return judge(problem, kernel, ()), time.monotonic() - started

    started = time.monotonic()
    with ThreadPoolExecutor(judge.devices) as pool:
        answers = list(pool.map(judged, kernels.values()))
    print(f"{len(answers)} kernels on {judge.devices} GPUs in {time.monotonic() - started:.0f} s")
    for name, (result, took) in zip(kernels, answers, strict=True):
        fine &= result.accepted
        score = f"{result.score_us:.1f} us" if result.score_us else result.reason
        print(f"{name}: {result.verdict} {score}, judged in {took:.0f} s", flush=True)
        print(json.dumps({timing.case: round(timing.us, 2) for timing in result.timings}))
        if not result.accepted:
            print(str(result.evidence)[:1500])
    judge.close()
    return fine


def agree(problem: Problem, kernels: dict[str, Kernel]) -> bool:
    """The judge's times beside those that a plain script measures in the same run, in its two ways.

    Between calls the script empties the cache; in its second way it also makes instructions and address translation
    cold, as they are between the judge's calls. A time agrees when it is within 3 % of what lies between the two, or
    within 5 % below 10 us. `added` is what the judge's own clock put on top of the kernel's events.
    """
    judge = LocalEvaluator(default_target())
    fine = True
    for name, kernel in kernels.items():
        result = judge(problem, kernel, ())
        if not result.accepted:
            fine = False
            print(f"{name}: {result.verdict} {result.reason}", flush=True)
            continue
        (other,) = _measured([(problem, kernel)])
        print(f"{name}: judge us, script us, script us when all is cold, ratio to each, off, added us")
        added = {row.case: row.added_us or 0.0 for row in result.evidence.timed}
        rows = [(timing.us, *other[timing.case]) for timing in result.timings]
        for timing, (ours, warm, chilled) in zip(result.timings, rows, strict=True):
            off = max(ours / max(warm, chilled), min(warm, chilled) / ours, 1.0) - 1
            agrees = off <= (_AGREES if ours > _SHORT_US else _AGREES_SHORT)
            fine &= agrees
            figures = f"{ours:9.2f} {warm:9.2f} {chilled:9.2f} {ours / warm:7.3f} {ours / chilled:7.3f} {off:6.1%}"
            figures += f" {added[timing.case]:6.2f}"
            print(f"  {timing.case:30} {figures}{'' if agrees else '  OFF'}")
        means = [math.exp(statistics.fmean(math.log(row[0] / row[place]) for row in rows)) for place in (1, 2)]
        print(f"  geomean ratios {means[0]:.4f} {means[1]:.4f}", flush=True)
    judge.close()
    return fine


def discern(times: int) -> bool:
    """A kernel against one with 3 % more work, and against itself: how often it is called faster."""
    judge = LocalEvaluator(default_target(), control="always", sanitize=False)
    problem = problems()["norm"]
    problem = replace(problem, benchmarks=problem.benchmarks[:1], digest="discern")
    fine = True
    kernels = {more: Kernel("cuda", {"kernel.cu": _again(more)}) for more in (0, 3)}
    for more, wanted in ((3, times), (0, 0)):
        rival = Trial("00001", Origin.SEED, kernel=kernels[more])
        results = [judge(problem, kernels[0], (rival,)) for _ in range(times)]
        claims = [result.claim for result in results if result.claim]
        faster = sum(claim.faster for claim in claims)
        fine &= faster == wanted and all(result.accepted for result in results)
        speedups = sorted(claim.speedup for claim in claims)
        ranked = sum(claim.ranked for claim in claims)
        print(
            f"{more} % more work: called faster {faster} of {times}, ranked {ranked}, accepted "
            f"{sum(result.accepted for result in results)}, speed-up {speedups[0]:.3f} to {speedups[-1]:.3f}",
            flush=True,
        )
    judge.close()
    return fine


def _again(percent: int) -> str:
    """The plain kernel of `norm` in strong mode, with so many percent of the rows done twice."""
    text = plain("norm", Kernel("cuda", {"kernel.cu": "// launch: "})).main
    head = f"// launch: norm_again [rows + rows * {percent} // 100] [256] (x, w, out, rows, cols)"
    body = """
extern "C" __global__ void __launch_bounds__(256)
    norm_again(const float *x, const float *w, float *out, int64_t rows, int64_t cols) {
  int64_t i = blockIdx.x % rows;
  normalise(x + i * cols, w, out + i * cols, cols);
}
"""
    return f"{head}\n{text.partition(chr(10))[2]}{body}"


def repeat(problem: Problem, kernels: dict[str, Kernel], times: int) -> bool:
    """The spread of each kernel's score over judgements in a row."""
    judge = LocalEvaluator(default_target())
    fine = True
    for name, kernel in kernels.items():
        results = [judge(problem, kernel, ()) for _ in range(times)]
        scores = sorted(result.score_us for result in results if result.score_us)
        fine &= len(scores) == times
        if not scores:
            print(f"{name}: {results[-1].verdict} {results[-1].reason}", flush=True)
            continue
        middle = statistics.median(scores)
        spread = f"{scores[0]:.2f} to {scores[-1]:.2f} us ({(scores[-1] - scores[0]) / middle:.2%} of the median)"
        print(f"{name}: {len(scores)} of {times} accepted, median {middle:.2f} us, {spread}", flush=True)
    judge.close()
    return fine


def describe(name: str, variant: str = "") -> bool:
    """A problem as JSON, for a machine that lacks the packages which read problem folders."""
    from ksflow.kernels.problem.loader import load

    fields = asdict(load(name, cases="leaderboard", variant=variant or None))
    print(json.dumps({**fields, "seeds": [], "languages": ["python", *ON_DEVICE]}))
    return True


def read_problem(file: Path) -> Problem:
    """What `describe` wrote; its reference is found below this checkout's problems where the folder is not there."""
    fields: dict[str, Any] = json.loads(file.read_text())
    if not Path(fields["root"]).is_dir():
        fields["root"] = str(_ROOT / "problems" / fields["name"])
    made = {
        "args": tuple(Arg(**row) for row in fields["args"]),
        "tests": tuple(Case(**row) for row in fields["tests"]),
        "benchmarks": tuple(Case(**row) for row in fields["benchmarks"]),
        "check": Check(**fields["check"]),
        "limits": Limits(**fields["limits"]),
        "languages": tuple(fields["languages"]),
        "dims": tuple(fields["dims"]),
        "seeds": (),
    }
    return Problem(**{**fields, **made})


def _measured(kernels: list[tuple[Problem, Kernel]]) -> list[dict[str, list[float]]]:
    """For each kernel: case -> median times in us, usual and with cold code, by a script that knows no judge."""
    script = str(Path(__file__).with_name("device_clock.py"))
    with tempfile.TemporaryDirectory() as folder:
        orders = [_order(Path(folder, f"kernel{number}"), *pair) for number, pair in enumerate(kernels)]
        command = [sys.executable, script]
        done = subprocess.run(
            command, input=json.dumps(orders), capture_output=True, text=True, timeout=_SCRIPT_S, check=False
        )
    if done.returncode:
        sys.exit(f"{script}: {done.stderr[-2000:]}")
    return list(json.loads(done.stdout.splitlines()[-1]))


def _order(place: Path, problem: Problem, kernel: Kernel) -> dict[str, Any]:
    source = place.with_suffix(Path(next(iter(kernel.files))).suffix)
    source.write_text(kernel.main)
    return {
        "source": str(source),
        "language": kernel.language,
        "reference": f"{problem.root}/reference.py",
        "args": [arg.name for arg in problem.args],
        "outputs": sum(arg.role == "out" for arg in problem.args),
        "dims": problem.dims,
        "defines": dict(problem.defines),
        "cases": {case.name: [dict(case.params), case.seed] for case in problem.benchmarks},
    }


def _kernel(file: Path) -> Kernel:
    text = file.read_text()
    return Kernel(detect_language(file.name, text, ON_DEVICE), {file.name: text})


def main() -> None:
    """One command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=[*CATEGORIES, "all", "describe", "seeds", "agree", "repeat", "discern"])
    parser.add_argument("names", nargs="*", help="specimens, kernel files, or the problem to describe and its variant")
    parser.add_argument("--problem", type=Path)
    parser.add_argument("--times", type=int, default=10)
    given = parser.parse_intermixed_args()
    if given.command in (*CATEGORIES, "all"):
        sys.exit(not corpus(given.command, given.names))
    if given.command == "agree" and not given.problem:
        sys.exit(not corpus("honest", given.names))
    if given.command == "discern":
        sys.exit(not discern(given.times))
    if given.command == "describe":
        sys.exit(not describe(*given.names[:2]))
    if given.problem is None:
        parser.error("--problem FILE: what `describe` wrote")
    problem, kernels = read_problem(given.problem), {name: _kernel(Path(name)) for name in given.names}
    verbs: dict[str, Callable[[], bool]] = {
        "seeds": lambda: seeds(problem, kernels),
        "agree": lambda: agree(problem, kernels),
        "repeat": lambda: repeat(problem, kernels, given.times),
    }
    sys.exit(not verbs[given.command]())


if __name__ == "__main__":
    main()
