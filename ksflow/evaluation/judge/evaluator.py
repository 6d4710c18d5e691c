"""`LocalJudge`: compile here, judge in child processes, run kernels in sandboxes. Imports neither torch nor numpy.

The evaluators and the worker use it. It executes the references of problems, so those must be trusted.
"""

import contextlib
import hashlib
import os
import queue
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ksflow.errors import ConfigError, KsflowError
from ksflow.evaluation import compilers
from ksflow.evaluation.compilers import BuildResult, container, cpp, sanitized
from ksflow.evaluation.compilers.client import SHARED_SERVER
from ksflow.evaluation.judge import VERSION, machine_rates
from ksflow.evaluation.judge.client import (
    EMULATED,
    JudgeSlot,
    check_solutions,
    gpus,
    kernel_request,
    platform,
    problem_request,
)
from ksflow.evaluation.processes import core_choice, core_pinning, device_lock
from ksflow.evaluation.processes.wire import LATE, Closed
from ksflow.evaluation.profiling.inspector import AcceptedKernel, Inspector
from ksflow.evaluation.sandbox.levels import LEVELS, probe
from ksflow.kernels.hardware.cost_model import floor_us
from ksflow.kernels.hardware.roofline import rows as roofline
from ksflow.kernels.languages import LANGUAGES, ON_DEVICE
from ksflow.kernels.source import signature
from ksflow.protocols import Evaluator
from ksflow.records import (
    CompiledKernel,
    Evaluation,
    Evidence,
    Json,
    Kernel,
    Problem,
    Target,
    Timing,
    Trial,
    Verdict,
    digest,
    misfits,
    parse,
)
from ksflow.records.evidence import kernel_cores

_LACKS = f"; it reads neither PYTHONPATH nor ~/.local: install it into a virtual environment (here {sys.prefix})"
_LANGUAGES = {"": ("python", "cpp"), EMULATED: ("python",)}
"""Languages by platform; any GPU: Python and all GPU languages."""
_CORES = 2  # for the judge and its sandboxes
_ATTEMPTS = 2  # requests to a judge that died, in all
_STOPPED = "the judge was stopped"
_OVERDUE = "the judge gave no answer in time: the machine or the problem's reference may hang"
_ILLEGAL = re.compile(r"illegal.(?:memory access|address)|misaligned.address|launch.fail", re.IGNORECASE)
"""Matches a GPU driver's message about an access outside of the kernel's memory."""


class LocalJudge(Evaluator):
    """Judges kernels on this machine: on its CPU, or on its GPUs with one judge process each.

    devices: how many GPUs to use at once; None means all. control: time the incumbent against itself for `claims` of
    being faster only, or `always`. profile: on a GPU, read hardware counters of every accepted kernel; None means if
    they can be read. sanitize: on a GPU, run compute-sanitizer on kernels faster than the incumbent.
    """

    profiles = True
    judge = fingerprint = ""
    shares_core = False  # whether the judge runs on one of the kernel's cores: tests of two cores on two cores
    grace_s = 600.0  # for the judge's own work; drawing contents that fill a device may take half a minute

    def __init__(
        self,
        target: Target,
        devices: int | None = None,
        control: str = "claims",
        profile: bool | None = False,
        sanitize: bool = True,
    ) -> None:
        if control not in ("claims", "always"):
            raise ConfigError(f"evaluator.control={control}; valid: claims, always")
        if devices is not None and devices < 1:
            raise ConfigError("evaluator.devices must be at least 1, or null for all")
        self.level = probe().level
        core_choice.require(target.cores - self.shares_core)
        numbers = gpus(target)[:devices] if target.kind == "gpu" else [None]
        self.devices = len(numbers)
        self._slots = [JudgeSlot(target, number, self.shares_core) for number in numbers]
        self._free: queue.LifoQueue[JudgeSlot] = queue.LifoQueue()
        for slot in reversed(self._slots):
            self._free.put(slot)
        self.languages = _LANGUAGES.get(platform(target), ("python", *ON_DEVICE))
        self.target = target
        self.control = control
        self.overlap = len(os.sched_getaffinity(0)) > _CORES + target.cores - 1
        """Whether to compile the next kernels while one is timed; needs more cores than the judge uses."""
        self._inspect = Inspector(profile, sanitize, platform(target))
        self._left: frozenset[int] = frozenset()
        self._measured: Target | None = None
        self._stopped = False
        self.judge = f"local-{VERSION}"
        compiler = cpp.find() if target.kind == "cpu" else None
        versions = compilers.versions(target).values() if target.kind == "gpu" else [compiler.name if compiler else ""]
        self.fingerprint = f"{target.fingerprint}-{'-'.join(filter(None, versions)) or 'nocompiler'}"

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """Evaluate a kernel. Never raises for a bad kernel; raises ConfigError if the machine lacks what it needs."""
        return self._judged(problem, kernel, versus, {})

    def measure(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Evaluate a kernel, with small outputs in the evidence (`checked`, `outputs`) and `errors`: of each output the
        largest absolute and the largest relative error. A problem without benchmarks is `untimed`."""
        return self._judged(problem, kernel, (), {"show": True, "only_right": not problem.benchmarks})

    def _judged(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...], options: Json) -> Evaluation:
        if not self._accepts(problem, kernel):
            return self._verdict(Verdict.MALFORMED, f"language {kernel.language} cannot be judged here")
        with self._slot() as slot:
            description = problem_request(problem, self._rated())
            if not self._stopped:
                slot.ensure_running()
                slot.judge.post({"op": "prepare", "problem": description})
            built = self._build(problem, kernel)
            if built.reason:
                verdict = Verdict.TIMEOUT if built.timed_out else Verdict.COMPILE
                return self._verdict(verdict, built.reason, Evidence(log=built.log))
            others, skipped, failed = self._others(problem, versus)
            request = {
                "op": "evaluate",
                "problem": description,
                "kernel": self._request(problem, kernel, built),
                "against": others,
                "control": self.control,
                **options,
            }
            answer = self._ask(slot, problem, request)
            if answer["verdict"] == Verdict.IMPOSSIBLE and not self._stands(problem, answer["evidence"]):
                answer = self._ask(slot, problem, {**request, "problem": problem_request(problem, self._rated())})
            judged = AcceptedKernel(problem, kernel, built)
            with contextlib.suppress(KsflowError, OSError):  # the verdict does not depend on the hint
                answer["reason"] += self._hint(slot, judged, answer)
            evidence = parse(Evidence, answer["evidence"])
            self._keep_off(slot, evidence.cores)
            if answer["verdict"] == Verdict.ACCEPT:
                findings = self._inspect(judged, evidence.claim, slot.environment, answer["device_uuid"])
                evidence = replace(evidence, profile=findings.profile, sanitizer=findings.sanitizer)
                if why := findings.doubt:
                    claim = evidence.claim and replace(evidence.claim, faster=False, ranked=False, why=why)
                    evidence = replace(evidence, unranked=evidence.unranked or why, claim=claim)
                if findings.fault:
                    answer = {"verdict": Verdict.INCORRECT, "reason": findings.fault, "timings": []}
        evidence = replace(
            evidence,
            precision=problem.check.allow,
            weights=problem.weights,
            compiler=parse(tuple[CompiledKernel, ...], list(built.resources)),
            artefact=_code(kernel, built),
            features=self.target.features,
            skipped={**evidence.skipped, **skipped},
            failed_rivals={**evidence.failed_rivals, **failed},
        )
        return self._evaluation(problem, answer, evidence)

    def _accepts(self, problem: Problem, kernel: Kernel) -> bool:
        return problem.accepts_language(kernel.language) and kernel.language in self.languages

    def _request(self, problem: Problem, kernel: Kernel, built: BuildResult) -> Json:
        return kernel_request(problem, kernel, built, self.target.cores)

    def _hint(self, slot: JudgeSlot, judged: AcceptedKernel, answer: Json) -> str:
        """Return a possible cause of a wrong output or a crash, for the kernel's author; "" if none is known."""
        problem, kernel = judged.problem, judged.kernel
        verdict, at = answer["verdict"], answer["evidence"].get("at")
        if verdict not in (Verdict.INCORRECT, Verdict.CRASH):
            return ""
        seen = signature.fault(problem, kernel, suspected=True)
        seen = seen or (str(problem.origin.get("narrowed", "")) if verdict == Verdict.INCORRECT else "")
        if seen:
            return f"; {seen}"
        if verdict == Verdict.INCORRECT or at not in {case.name for case in (*problem.tests, *problem.benchmarks)}:
            return ""
        if self.target.kind == "gpu" and _ILLEGAL.search(answer["reason"]):
            location = self._inspect.crash(judged, at, slot.environment, answer["device_uuid"])
        elif kernel.language == "cpp" and "killed by SIG" in answer["reason"]:
            with tempfile.TemporaryDirectory(prefix="ksflow-crash-") as folder:
                inputs = Path(folder, "inputs.bin")
                request = {"op": "contents", "problem": problem_request(problem, self._rated())}
                contents = self._ask(slot, problem, {**request, "case": at, "into": str(inputs)})
                known = "pieces" in contents
                location = sanitized.locate_crash(problem, kernel, self.target, contents, inputs) if known else ""
        else:
            return ""
        return f" in {location}" if location else ""

    def _rated(self, again: bool = False) -> Target:
        """Return the target, on a CPU with rates measured by probes."""
        if again or self._measured is None:
            self._measured = machine_rates.with_measured_rates(self.target, again)
        return self._measured

    def _stands(self, problem: Problem, evidence: Json) -> bool:
        """Measure the machine's rates again and return whether any time is still impossible."""
        target, cases = self._rated(again=True), {case.name: case for case in problem.benchmarks}
        rows = [row for row in evidence["timed"] if row["impossible"]]
        return any(row["at_most_us"] < floor_us(problem, cases[row["case"]], target)[0] for row in rows)

    def judge_correctness(
        self, problem: Problem, kernel: Kernel, interpret: Json | None = None, show: bool = False
    ) -> Evaluation:
        """Check a kernel on the problem's tests; the verdict is `untimed` if it is right.

        interpret: options of Triton's interpreter, where that runs the kernel. show: as in `measure`.
        """
        with self._slot() as slot:
            built = BuildResult() if LANGUAGES[kernel.language].python else self._build(problem, kernel)
            if built.reason:
                return self._verdict(Verdict.COMPILE, built.reason, Evidence(log=built.log))
            request = {
                "op": "evaluate",
                "problem": problem_request(problem, self._rated()),
                "kernel": {**self._request(problem, kernel, built), "interpret": interpret or {}},
                "against": [],
                "only_right": True,
                "show": show,
            }
            answer = self._ask(slot, problem, request)
        return self._verdict(Verdict(answer["verdict"]), answer["reason"], parse(Evidence, answer["evidence"]))

    def start(self) -> None:
        """Start the judge processes, which takes a second or two."""
        for slot in self._slots:
            slot.ensure_running()

    def prepare(self, problem: Problem, kernel: Kernel) -> None:
        """Compile a kernel ahead of its evaluation, if that disturbs no timing; the result is cached."""
        if self._accepts(problem, kernel):
            compilers.require(kernel.language)
            if self.overlap:
                self._build(problem, kernel)

    def code(self, problem: Problem, kernel: Kernel) -> str:
        """Return a digest of the code that the sandbox would load; empty if that is the source."""
        return _code(kernel, self._build(problem, kernel)) if self._accepts(problem, kernel) else ""

    def admit(self, problem: Problem) -> Iterator[tuple[str, bool, str]]:
        """Yield (name, ok, detail) of each check of whether the problem can be judged: probes, seeds, solutions."""
        with self._slot() as slot:
            answer = self._ask(slot, problem, {"op": "probe", "problem": problem_request(problem, self._rated())})
        rows = [(str(name), bool(ok), str(detail)) for name, ok, detail in answer.get("rows", ())]
        yield from rows or [("reference", False, answer["reason"])]
        for seed in problem.seeds:
            result = self(problem, seed.kernel, ())
            took = f"{result.score_us:.1f} us" if result.score_us else f"{result.verdict}: {result.reason}"
            yield f"seed {seed.name}", result.accepted, took
        yield from check_solutions(problem, lambda kernel: self(problem, kernel, ()), self.target.kind == "gpu")

    def stop(self) -> bool:
        """Kill the judge processes; evaluations in progress and later ones return `harness-error`."""
        self._stopped = True
        for slot in self._slots:
            if slot.started:
                slot.judge.kill()
        return True

    def close(self) -> None:
        """End the judge processes, which otherwise end with this process."""
        for slot in self._slots:
            if slot.started:
                slot.judge.close()

    @contextlib.contextmanager
    def _slot(self) -> Iterator[JudgeSlot]:
        slot = self._free.get()
        try:
            yield slot
        finally:
            self._free.put(slot)

    def _keep_off(self, slot: JudgeSlot, cores: Json) -> None:
        """Move this process to other cores than those of the judge, if there are any."""
        sat = frozenset((*cores.get("judge", ()), *kernel_cores(cores)))
        if len(self._slots) == 1 and sat != self._left:
            core_pinning.move_off_cores(sat, (slot.judge.pid, SHARED_SERVER.pid))
            self._left = sat

    def _ask(self, slot: JudgeSlot, problem: Problem, request: Json) -> Json:
        """Return the judge's answer. A judge that died or hangs is restarted; after two failures: `harness-error`."""
        timeout = _ask_s(problem, self.grace_s)
        fault: Json = {}
        for _ in range(_ATTEMPTS):
            try:
                if not self._stopped:
                    slot.ensure_running()
                if self._stopped:  # also if that was after `stop` had killed the process
                    break
                answer = slot.judge.ask(request, timeout)
            except Closed as error:
                cause, _, words = str(error).partition("\n")
                last = words.strip().rpartition("\n")[2]
                hint = _LACKS if last.startswith("ModuleNotFoundError") else ""
                died = f"the judge died: {last or cause}{hint}"
                fault = {"reason": f"{_OVERDUE} ({timeout:g} s)" if cause == LATE else died, "evidence": {"log": words}}
                continue
            nonsense = _nonsense(answer)
            if answer.get("verdict") != Verdict.HARNESS and not nonsense:
                return answer
            fault = {"reason": nonsense, "evidence": {}} if nonsense else answer
            slot.judge.restart()  # a new process may work where this one does not
        if self._stopped:
            fault = {"reason": _STOPPED, "evidence": {}}
        evidence = {**fault["evidence"], "attempts": _ATTEMPTS}
        return {"verdict": "harness-error", "reason": fault["reason"], "timings": [], "evidence": evidence}

    def _build(self, problem: Problem, kernel: Kernel) -> BuildResult:
        if LANGUAGES[kernel.language].compiler in ("", "traced"):  # compiled at run time
            compilers.require(kernel.language)
            return BuildResult()
        gpu = self.target.kind == "gpu"
        built = (compilers.build if gpu else cpp.compile_kernel)(problem, kernel, self.target)
        wrong = "" if built.reason else signature.fault(problem, kernel)
        if built.artefact and built.mode == "host" and not wrong:
            named = b"\0%b\0" % signature.ENTRY.encode() in Path(built.artefact).read_bytes()
            wrong = "" if named else f"{signature.ENTRY} cannot be called: define it as {problem.signature}"
        return replace(built, reason=f"{next(iter(kernel.files))}: {wrong}") if wrong else built

    def _others(self, problem: Problem, versus: Sequence[Trial]) -> tuple[list[Json], dict[str, str], dict[str, str]]:
        """Return the rivals' requests, the rivals left out with reasons, and those left out by their own fault."""
        others, skipped, failed = list[Json](), dict[str, str](), dict[str, str]()
        for trial in versus:
            assert trial.kernel is not None  # rivals were accepted
            built = self._build(problem, trial.kernel)
            if built.reason:
                skipped[trial.id] = built.reason
                failed |= {} if built.timed_out else {trial.id: built.reason}
                continue
            known = trial.evaluation
            comparable = known and (known.judge, known.target) == (self.judge, self.fingerprint)
            us = {timing.case: timing.us for timing in known.timings} if known and comparable else {}
            others.append({**self._request(problem, trial.kernel, built), "id": trial.id, "us": us})
        return others, skipped, failed

    def _evaluation(self, problem: Problem, answer: Json, evidence: Evidence) -> Evaluation:
        verdict = Verdict(answer["verdict"])
        if verdict is not Verdict.ACCEPT:
            return self._verdict(verdict, answer["reason"], evidence)
        timings, chip = _timings(answer), evidence.device or self.target.chip
        evidence = replace(evidence, device=chip, roofline=roofline(problem, self._rated(), timings))
        return self._verdict(verdict, "", evidence, timings, round(problem.aggregate(each.us for each in timings), 3))

    def _verdict(
        self,
        verdict: Verdict,
        reason: str,
        evidence: Evidence = Evidence(),  # noqa: B008 - Evidence is frozen
        timings: tuple[Timing, ...] = (),
        score_us: float | None = None,
    ) -> Evaluation:
        return Evaluation(verdict, reason, score_us, timings, evidence, self.level, self.fingerprint, judge=self.judge)


def require_isolation(floor: str, level: str, prefix: str = "") -> None:
    """Raise ConfigError if sandboxes of this level are weaker than the floor; `prefix`: of the option's name."""
    if floor not in LEVELS:
        raise ConfigError(f"{prefix}isolation_floor={floor}; valid: {', '.join(LEVELS)}")
    if LEVELS.index(floor) > LEVELS.index(level):
        raise ConfigError(f"{prefix}isolation_floor={floor}, but sandboxes reach only {level} here; lower it")


def _code(kernel: Kernel, built: BuildResult) -> str:
    """Return a digest of the compiled code, constants, launches with arguments, and calling mode."""
    if built.reason or not built.artefact:
        return ""
    content = Path(built.artefact).read_bytes()
    loaded = container.strip_debug(content) if built.mode == "strong" else content
    return digest(kernel.language, built.mode, hashlib.sha256(loaded).hexdigest(), digits=32)


def _timings(answer: Json) -> tuple[Timing, ...]:
    return tuple(Timing(row["case"], row["us"], tuple(row["samples_us"]), row["cpu_us"]) for row in answer["timings"])


def _nonsense(answer: Json) -> str:
    try:
        if "evidence" in answer:
            if wrong := next(misfits(parse(Evidence, answer["evidence"])), ""):
                raise ValueError(wrong)
            _timings(answer)
    except (KeyError, TypeError, ValueError) as error:
        return f"the judge's answer is invalid: {error}"
    return ""


def _ask_s(problem: Problem, grace_s: float) -> float:
    return problem.limits.check_s * 2 + problem.limits.time_s * 4 + grace_s


def longest_s(problem: Problem, rivals: int) -> float:
    """Return the longest time in seconds that an evaluation can take, with compilation, a second attempt and waiting
    for the device."""
    asked_s = _ATTEMPTS * _ask_s(problem, LocalJudge.grace_s)
    return problem.limits.compile_s * (rivals + 1) + asked_s + 2 * device_lock.PATIENCE_S
