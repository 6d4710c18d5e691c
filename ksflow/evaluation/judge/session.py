"""From a request to a verdict with its evidence: check in one sandbox, time in others, confirm a claim in more."""

import contextlib
import math
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce

import torch

from ksflow.evaluation.judge.buffers import Buffers
from ksflow.evaluation.judge.check import Rejected, WaitBudget, check
from ksflow.evaluation.judge.comparison import Effort, PairedComparison
from ksflow.evaluation.judge.failure import Failure, at_line
from ksflow.evaluation.judge.host import Host
from ksflow.evaluation.judge.input_pool import InputPool
from ksflow.evaluation.judge.outcome import Outcome
from ksflow.evaluation.judge.sandboxed import ENDLESS, Sandbox
from ksflow.evaluation.judge.timing import Backend
from ksflow.evaluation.processes import quota
from ksflow.records.base import Json, mean
from ksflow.records.evidence import BUSY, RESOLVED

_OWN, _CONTROL_KERNEL = "", "control kernel"
_OFF = 0.02  # with a larger difference of a kernel from itself, nothing is ranked
_CONFIRMING = Effort(most=24, spent_s=60.0, fewest=3)  # for a claim: the kernel beside the incumbent, and the control
_HELPED = (
    "this machine cannot limit a kernel to one process while it is timed, so others may have computed for it "
    "(Linux 5.5 or newer can, outside of gVisor; `ksflow doctor` lists a sandbox's layers)"
)
_SUSPECTED = Effort(most=2)  # for a failed rival: beside itself, in each place
_HELD_BACK = 1.1  # a rival slower than recorded by this factor may be holding back
_COMPILES = re.compile(r"compile|jit|inline|triton|numba", re.IGNORECASE)
"""Found in a Python kernel whose first call may compile."""
_UNREADABLE = ("SyntaxError: ", "IndentationError: ", "TabError: ")
"""Python's messages about a file that cannot be compiled."""


class Judgement:
    """One kernel's evaluation. Evidence is kept however the evaluation ends."""

    def __init__(self, host: Host, pool: InputPool, backend: Backend, request: Json) -> None:
        self.host = host
        self.pool = pool
        self.backend = backend
        self.kernel: Json = request["kernel"]
        self.against: dict[str, Json] = {kernel["id"]: kernel for kernel in request["against"]}
        self.always = request.get("control") == "always"
        self.only_right = bool(request.get("only_right"))
        self.show = bool(request.get("show"))
        self.limits: Json = pool.problem["limits"]
        self.at = ""
        self.stops = quota.stops()
        box = [*host.cores] if len(host.cores) > 1 else next(iter(host.cores), None)
        self.evidence: Json = {
            "cores": {"judge": sorted(os.sched_getaffinity(0)), "box": box},
            "load": round(os.getloadavg()[0], 2),
            "spent_s": {},
        }

    def run(self) -> Json:
        """Return the verdict as the evaluator gets it."""
        timings: list[Json] = []
        try:
            if self.pool.tests:
                self._check()
            timings = [] if self.only_right else self._time()
            verdict, reason = ("untimed" if self.only_right else "accept"), ""
        except Rejected as rejected:
            verdict, reason = rejected.verdict, rejected.reason
            self.evidence |= rejected.evidence
        if stops := quota.stops() - self.stops:
            self._blame_quota(stops)
        answer = {"verdict": verdict, "reason": reason, "timings": timings}
        return {**answer, "evidence": self.evidence, "device_uuid": self.backend.device_uuid}

    def _blame_quota(self, stops: int) -> None:
        """Record that the CPU quota of this process' cgroup delayed calls, instead of other programs."""
        self.evidence["throttled"] = stops
        words = f"(a quota of {quota.cores() or 0:.3g} cores' CPU time stopped it {stops} times: raise cpu.max)"
        for row in (self.evidence, self.evidence.get("claim", {}), *self.evidence.get("against", ())):
            row |= {key: row[key].replace(BUSY, words) for key in ("unranked", "why") if key in row}

    def _check(self) -> None:
        budget = WaitBudget(self.limits["check_s"])
        rows = self.evidence["checked"] = []
        texts = self.kernel.get("files", {}).values()
        compiles = not self.kernel.get("artefact") and any(map(_COMPILES.search, texts))
        with self._candidate("check", self.pool.test_buffers()) as sandbox:
            # a first call may take long if it compiles, or runs on a device without a CPU clock
            patient = compiles or bool(self.host.device)
            ask = partial(check, sandbox, budget=budget, show=self.show, patient=patient)
            for case in self.pool.tests:  # until the first secret inputs the kernel's messages may be shown
                self.at = case.name
                rows.append(ask(case, [case.public()]))
            for row, case in zip(rows, self.pool.tests, strict=True):
                self.at = case.name
                again = ask(case, case.secret_entries())
                both = {"seeds": row["seeds"] + again["seeds"], "worst": max(row["worst"], again["worst"])}
                objection = {"upstream": words} if (words := row.get("upstream", "pass")) != "pass" else {}
                row |= {**again, **both, **objection}
        if self.pool.reference.upstream is not None:
            named = [word for word in self.pool.reference.forbidden if any(word in text for text in texts)]
            objections = [f"its text has {word}, which upstream forbids" for word in named]
            objections += [f"{row['case']}: {row['upstream']}" for row in rows if row["upstream"] != "pass"]
            self.evidence["upstream"] = objections[0] if objections else "pass"

    def _time(self) -> list[Json]:
        outcome = self._compare("time", {_OWN: self.kernel, **self.against})
        self.evidence["against"] = [{"id": name, **row} for name, row in outcome.ratios.items()]
        incumbent = next(filter(outcome.ratios.__contains__, self.against), _OWN)  # or nobody
        if incumbent and "unranked" not in self.evidence:
            outcome = self._claim(incumbent, outcome)
        doubt = outcome.doubt(_OWN, *([incumbent] if incumbent else []))
        if doubt := doubt or self.evidence.get("unranked", ""):
            self.evidence["unranked"] = doubt
            if claim := self.evidence.get("claim"):
                claim |= {"faster": False, "ranked": False, "why": doubt}
        self.evidence["timed"] = [{key: row[key] for key in row if key != "samples_us"} for row in outcome.rows]
        self.evidence |= self.backend.evidence()
        return outcome.rows

    def _claim(self, incumbent: str, first: Outcome) -> Outcome:
        """Decide whether the kernel is faster than the incumbent, in fresh processes, with the incumbent against
        itself. The first comparison only decides whether to repeat it; the repetition gives the ratio on record,
        whose interval includes the control's. If memory is short, the candidate's copy is the control."""
        seen = first.ratios[incumbent]
        claim: Json = {"id": incumbent, "faster": False, **seen}
        self.evidence["claim"] = claim
        ahead = seen["ranked"] and seen["speedup"] > RESOLVED
        if not (ahead or self.always):
            return first
        rival = self.against[incumbent]
        single, copied = (_OWN, self.kernel) if self.pool.large else (incumbent, rival)
        kernels, control = {_OWN: self.kernel, incumbent: rival, _CONTROL_KERNEL: copied}, (single, _CONTROL_KERNEL)
        again = self._compare("confirm", kernels, replace(_CONFIRMING, control=None if self.pool.large else control))
        itself, decided = again.ratio(*control), again.ratio(_OWN, incumbent, control)
        if itself is None or decided is None or incumbent not in again.ratios:
            failed = incumbent if itself else single or "the kernel's control"
            self._note(incumbent, {"ranked": False, "why": f"{failed} failed when it was timed again"})
            return first
        sure = decided["ranked"] and decided["low"] > RESOLVED
        if not sure and (itself["why"] or abs(itself["speedup"] - 1) > _OFF):
            off = f"{single or 'the kernel'} against itself read x{itself['speedup']:.3f}"
            decided["why"] = decided["why"] or (f"{off}: {itself['why']}" if itself["why"] else off)
        both = first.joined(again, _OWN)
        decided["why"] = decided["why"] or (self._held_back(incumbent, both) if sure else "")
        decided["ranked"] = not decided["why"]
        self._note(incumbent, decided if ahead else {})
        claim |= {**decided, "first": seen, "again": again.ratios[incumbent], "control": itself}
        claim["faster"] = bool(ahead and sure and decided["ranked"])
        return both

    def _note(self, incumbent: str, seen: Json) -> None:
        """Update the claim and the row of the incumbent."""
        for row in (self.evidence["claim"], *self.evidence["against"]):
            row |= seen if row["id"] == incumbent else {}

    def _held_back(self, incumbent: str, outcome: Outcome) -> str:
        """Return why a lead may come from an incumbent that holds back, or "": the incumbent takes longer than
        recorded, this kernel about as long, and the incumbent beside itself is as fast as recorded, so the machine
        is not slower."""
        recorded: Json = self.against[incumbent].get("us", {})
        if recorded.keys() != {results.case["name"] for results in outcome.cases}:
            return ""
        now, own = (_times(outcome, name, recorded) for name in (incumbent, _OWN))
        if now < _HELD_BACK or own * RESOLVED < 1:
            return ""
        itself = self._beside_itself(self.against[incumbent])
        if itself and min(_times(itself, name, recorded) for name in (_OWN, _CONTROL_KERNEL)) * _HELD_BACK > now:
            return ""
        return f"{incumbent} takes x{now:.2f} of what it took when it was judged, and this kernel x{own:.2f} of that"

    def _compare(self, phase: str, kernels: dict[str, Json], effort: Effort = Effort()) -> Outcome:  # noqa: B008
        """Compare the first kernel with the others. A rival that fails beside it, and not beside itself, leaves the
        kernel unranked: the kernel may have made it fail. A rival that also fails beside itself is dropped."""

        def at(case: str) -> None:
            self.at = case

        own, *others = kernels.items()
        groups = [dict([own, other]) for other in others] if self.pool.large and others else [kernels]
        comparisons = [PairedComparison(self.pool, self.backend, group, at, effort) for group in groups]
        results = [comparison.run(partial(self._candidate, phase), self._open) for comparison in comparisons]
        outcome = reduce(lambda one, other: one.joined(other, own[0]), results)
        for name, reason in outcome.skipped.items():
            if name == _CONTROL_KERNEL:
                continue
            message = (reason.splitlines() or [""])[0][:300]
            self.evidence.setdefault("skipped", {})[name] = message
            if self._beside_itself(kernels[name]) is None:
                self.evidence.setdefault("failed_rivals", {})[name] = message
            else:
                self.evidence["unranked"] = f"{name} failed beside this kernel, and not beside itself: {message}"
        self.evidence["one_process"] = outcome.locked and self.evidence.get("one_process", True)
        if not outcome.locked:
            self.evidence["unranked"] = _HELPED
        return outcome

    def _beside_itself(self, kernel: Json) -> Outcome | None:
        """Compare a rival with itself, without the candidate; None if it fails, in its own place or in a rival's."""

        @contextlib.contextmanager
        def opened(buffers: Buffers) -> Iterator[Sandbox]:
            with self._open(kernel, buffers) as sandbox:
                sandbox.wait_ready(self.limits["check_s"])
                yield sandbox

        kernels = {_OWN: kernel, _CONTROL_KERNEL: kernel}
        comparison = PairedComparison(self.pool, self.backend, kernels, lambda _: None, _SUSPECTED)
        try:
            outcome = comparison.run(opened, self._open)
        except (Failure, Rejected):
            return None
        return None if outcome.skipped else outcome

    def _open(self, kernel: Json, buffers: Buffers) -> Sandbox:
        return self.backend.sandbox(self.host.start(kernel, self.limits), buffers)

    @contextlib.contextmanager
    def _candidate(self, phase: str, buffers: Buffers) -> Iterator[Sandbox]:
        """Open the candidate's sandbox. A Failure inside is raised as Rejected."""
        limit = self.limits["check_s" if phase == "check" else "time_s"]
        started = time.monotonic()
        spent = self.evidence["spent_s"]
        with self._open(self.kernel, buffers) as sandbox:
            try:
                self.at = "import"
                sandbox.wait_ready(limit)
                spent[f"{phase} start"] = round(time.monotonic() - started, 3)
                yield sandbox
            except Failure as failure:
                sandbox.close()
                self.backend.probe()
                raise _blame(failure, phase, self.at, limit, self.kernel["files"]) from failure
            except torch.OutOfMemoryError as error:
                if not self.backend.close_hoarding(sandbox.close):
                    raise
                hoard = Failure("error", "leaves too little of the device's memory for the judge")
                raise _blame(hoard, phase, self.at, limit, {}) from error
            finally:
                sandbox.close()
                spent[phase] = round(spent.get(phase, 0.0) + time.monotonic() - started, 3)
                self.evidence["layers"] = sandbox.layers
                if text := sandbox.log.text():
                    self.evidence.setdefault("log", text)


def _times(outcome: Outcome, name: str, recorded: Json) -> float:
    """Return the weighted geometric mean of the fastest replicate's times, relative to those recorded."""
    replicates = zip(*(results.samples(name) for results in outcome.cases), strict=False)
    before = [math.log(recorded[results.case["name"]]) for results in outcome.cases]
    logs = [[math.log(each.low_mean()) - log for each, log in zip(row, before, strict=True)] for row in replicates]
    weights = [results.case.get("weight", 1.0) for results in outcome.cases]
    return math.exp(min(mean(row, weights) for row in logs))


def _blame(failure: Failure, phase: str, at: str, limit: float, files: Json) -> Rejected:
    """Return the verdict on a kernel whose sandbox failed."""
    first = (failure.text.splitlines() or [""])[0]
    if at == "import" and first.startswith("ModuleNotFoundError"):
        first += " (a sandbox has the kernel's own files and the installed packages)"
    if location := at_line(failure.text, files):
        first += f" ({location[0]})"
    evidence = {"phase": "import" if at == "import" else phase, "at": at, "error": failure.text}
    if at == "import" and first.startswith(_UNREADABLE):
        return Rejected("compile-error", first, evidence | {"log": failure.text})
    if failure.kind == "harness":
        return Rejected("harness-error", first, evidence)
    if failure.kind == "timeout":
        where = "import" if at == "import" else f"{phase}, at {at}"
        limited = "" if failure.text.startswith(ENDLESS) else f" ({limit:g} s)"
        return Rejected("contained-timeout", f"{where}: {first}{limited}", evidence)
    verdict = {"wrong": "reject-incorrect", "cheat": "reject-cheat"}.get(failure.kind, "contained-crash")
    return Rejected(verdict, f"{at}: {first}", evidence)
