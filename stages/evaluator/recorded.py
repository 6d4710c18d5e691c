"""`RecordedEvaluator`: repeats what a judge once said in a recorded run. Compiles and runs nothing."""

import threading
from collections import defaultdict, deque
from functools import cached_property

from ksflow.errors import BudgetError, ConfigError
from ksflow.protocols import Recording
from ksflow.records import Evaluation, Kernel, Problem, Trial


class RecordedEvaluator:
    """The verdicts of a recorded run, for each kernel in the order in which they were given. Safe for threads."""

    recorded = True
    """A replay with these verdicts is the recorded run, step by step."""
    devices = 16
    """As many as a recorded run may have judged seeds on at once: the recording says in which order they ended."""

    def __init__(self, past: Recording | None) -> None:
        """`past` is the run: its verdicts are read when the first is asked for. ConfigError without one."""
        if past is None:
            raise ConfigError(
                "evaluator=recorded repeats a recorded run: use llm=replay, and recorded.run= for its name"
            )
        self.past = past
        self._lock = threading.Lock()

    @property
    def judge(self) -> str:
        """Whose verdicts they are."""
        return self._first.judge

    @property
    def fingerprint(self) -> str:
        """The machine they were given on."""
        return self._first.target

    def __call__(self, problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        """The next verdict on this code. BudgetError when the recording has none: it ends here."""
        with self._lock:
            left = self._left[kernel.digest]
            if left:
                return left.popleft()
        raise BudgetError("the recording has no verdict on this kernel")

    @cached_property
    def _said(self) -> tuple[tuple[str, Evaluation], ...]:
        return self.past.evaluations()

    @property
    def _first(self) -> Evaluation:
        first = self._said[0][1] if self._said else self.past.first_verdict()
        if first is None:
            raise BudgetError("the recording has no verdict")
        return first

    @cached_property
    def _left(self) -> dict[str, deque[Evaluation]]:
        found: dict[str, deque[Evaluation]] = defaultdict(deque)
        for digest, evaluation in self._said:
            found[digest].append(evaluation)
        return found
