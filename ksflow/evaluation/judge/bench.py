"""`Bench`: runs hardware probes in the judge's sandboxes and by its clock.

Covered: a CPU, the GPU that is here; for other GPUs, whether a program is right in an emulator, without a time.
NOT covered: times of a chip that is not here.
"""

import re
from dataclasses import asdict, replace
from functools import cached_property

from ksflow.evaluation import compilers
from ksflow.evaluation.compilers.emulator import emulate_kernel
from ksflow.evaluation.judge.evaluator import LocalJudge
from ksflow.kernels.hardware.target import default_target, detect, fits
from ksflow.kernels.languages import LANGUAGES, detect_language
from ksflow.kernels.source.launches import parse, plan_cases
from ksflow.records import Evaluation, Json, Kernel, Limits, Problem, Target, Verdict

_PATIENT = Limits(compile_s=120, check_s=120, time_s=1, memory_mb=8192)


class Bench:
    """Runs probes. target: the chip that they ask about."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.present = target.kind == "cpu" or fits(target, default_target())  # whether the chip is in this machine
        self._emulator = Emulator()

    def __call__(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Return times and small outputs; `untimed` if the chip is not here. Raises ConfigError without a compiler."""
        return self._judge.measure(problem, kernel) if self.present else self._elsewhere(problem, kernel)

    def close(self) -> None:
        """End the judge, if there is one. Optional: it ends with this process."""
        self._emulator.close()
        if "_judge" in self.__dict__:
            self._judge.close()

    @cached_property
    def _judge(self) -> LocalJudge:
        return LocalJudge(self.target)

    def _elsewhere(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Compile for the chip, and run in the emulator if there is one and the cases are small."""
        build = compilers.build(problem, kernel, self.target)
        if build.reason:
            return Evaluation(Verdict.TIMEOUT if build.timed_out else Verdict.COMPILE, build.reason)
        if LANGUAGES[kernel.language].interpreter != "emulator" or not problem.small:
            return Evaluation(Verdict.UNTIMED, f"compiles for {self.target.march}; this machine has no such device")
        try:
            evaluation = self._emulator(problem, kernel, self.target.march, show=True)
        except ValueError as error:
            return Evaluation(Verdict.UNTIMED, f"compiles; not emulated: {error}")
        reason = "right in the emulator" if evaluation.verdict is Verdict.UNTIMED else evaluation.reason
        return replace(evaluation, reason=reason)


_UNTOLD = re.compile(r"NotImplementedError[^\w\n]*((?:\w[^\"\n]*)?)")
"""Matches the message of Triton's interpreter about a missing feature."""


class Emulator:
    """Runs GPU kernels on this CPU: HIP by the wave emulator, Triton by its interpreter."""

    @cached_property
    def _judge(self) -> LocalJudge:
        return LocalJudge(detect())

    def __call__(self, problem: Problem, kernel: Kernel, march: str, show: bool = False) -> Evaluation:
        """Check a kernel on the problem's small cases; `untimed` if it is right. show: with small outputs in the
        evidence. Raises ValueError if the kernel cannot be checked."""
        if not problem.small:
            raise ValueError("the problem has no small cases")
        small = replace(problem, tests=problem.small, benchmarks=(), small=(), limits=_PATIENT)
        names = {detect_language(*file, LANGUAGES) for file in kernel.files.items()}
        kinds = [LANGUAGES[kernel.language], *(kind for kind in LANGUAGES.values() if kind.name in names and kind.like)]
        if lacking := next((kind.name for kind in kinds if not kind.interpreter), ""):
            raise ValueError(f"ksflow has no emulator or interpreter of {lacking}")
        if kinds[0].interpreter == "emulator":
            return self._judge.judge_correctness(small, emulate_kernel(small, kernel, march), show=show)
        found = self._judge.judge_correctness(small, kernel, _interpreted_launches(small, kernel), show)
        if found.verdict is Verdict.CRASH and (untold := _UNTOLD.search(found.reason)):
            raise ValueError(
                f"Triton's interpreter gives no result: {untold[1] or 'the kernel needs a feature that it lacks'}"
            )
        return found

    def close(self) -> None:
        """End the judge, if there is one. Optional: it ends with this process."""
        if "_judge" in self.__dict__:
            self._judge.close()


def _interpreted_launches(problem: Problem, kernel: Kernel) -> Json:
    """Return the launches of every case, for Triton's interpreter; empty in host mode. Raises ValueError."""
    launch_plan = parse(kernel.main, kernel.language)
    if launch_plan is None:
        return {}
    cases = {case.name: case.params for case in problem.tests}
    variants, plans = plan_cases(launch_plan, cases, [arg.name for arg in problem.args])
    return {"variants": variants, "plans": {name: asdict(plan) for name, plan in plans.items()}}
