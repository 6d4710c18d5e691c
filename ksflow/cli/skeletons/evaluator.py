"""An evaluator of one's own: another one judges, and a rule of one's own has the last word."""

from dataclasses import replace
from typing import Any

from ksflow.protocols import Evaluator
from ksflow.records import Evaluation, Kernel, Problem, Trial, Verdict


class Mine:
    """What `inner` says; a kernel with a forbidden word is rejected before anybody runs it."""

    def __init__(self, inner: Evaluator, forbidden: str = "goto") -> None:
        self.inner, self.forbidden = inner, forbidden  # a key of the command line: evaluator.forbidden=asm

    def __getattr__(self, name: str) -> Any:
        """The judge's name, the machine's and the rest are those of `inner`."""
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """Change this. Never raise for a bad kernel: a verdict says what is wrong with it."""
        if self.forbidden in kernel.main:
            return self._rejected(f"it has the word {self.forbidden}")
        return replace(self.inner(problem, kernel, versus))

    def _rejected(self, why: str) -> Evaluation:
        return Evaluation(Verdict.MALFORMED, why, judge=self.inner.judge, target=self.inner.fingerprint)
