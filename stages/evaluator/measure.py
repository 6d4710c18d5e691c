"""`Bench`: runs the programs that ask the hardware something, in the judge's boxes and by its clock.

Covered: a CPU, the GPU that is here; for AMD GPUs that are not, whether a program is right in the emulator, without a
time. NOT covered: times of a chip that is not here.
"""

from dataclasses import replace
from functools import cached_property

from ksflow import compilers
from ksflow.compilers.emulator import emulated
from ksflow.hardware.target import default_target, detect, fits
from ksflow.processes.child_environment import child_environment
from ksflow.records import Evaluation, Kernel, Problem, Target, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator


class Bench:
    """Where probes run. target: the chip they ask."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.present = target.kind == "cpu" or fits(target, default_target())
        """Whether the chip is here, so that it can be asked."""

    def __call__(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Times and small outputs (evidence `checked`, `outputs`); `untimed` where the chip is not here.

        Never raises for a bad program. Raises ConfigError where its compiler is missing.
        """
        return self._judge.measure(problem, kernel) if self.present else self._elsewhere(problem, kernel)

    def close(self) -> None:
        """End the judge, if there is one. Not needed: it ends with this process."""
        for name in ("_judge", "_cpu"):
            if name in self.__dict__:
                self.__dict__[name].close()

    @cached_property
    def _judge(self) -> LocalEvaluator:
        return LocalEvaluator(self.target)

    @cached_property
    def _cpu(self) -> LocalEvaluator:
        return LocalEvaluator(detect())

    def _elsewhere(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Compiled for the chip, and run in the emulator where there is one and the cases are small."""
        made = compilers.build(problem, kernel, self.target, child_environment({}))
        if made.reason:
            return Evaluation(Verdict.TIMEOUT if made.timed_out else Verdict.COMPILE, made.reason)
        if kernel.language != "hip" or not problem.small:
            return Evaluation(Verdict.UNTIMED, f"compiles for {self.target.march}, which is not here")
        little = replace(problem, tests=problem.small, benchmarks=(), small=())
        try:
            found = self._cpu.right(little, emulated(little, kernel, self.target.march), show=True)
        except ValueError as error:
            return Evaluation(Verdict.UNTIMED, f"compiles; not emulated: {error}")
        said = "right in the emulator" if found.verdict is Verdict.UNTIMED else found.reason
        return replace(found, reason=said)
