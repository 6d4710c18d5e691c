"""`RecordedEvaluator`: repeats what a judge once said in a recorded run. Compiles and runs nothing."""

import threading
from collections import defaultdict
from functools import cached_property

from ksflow.errors import BudgetError, ConfigError
from ksflow.protocols import Evaluator, Recording
from ksflow.records import Evaluation, Kernel, Problem, Trial


class RecordedEvaluator(Evaluator):
    """The verdicts of a recorded run, for each kernel in the order in which they were given. Safe for threads."""

    recorded = True
    """A replay with these verdicts keeps to the order of the recorded run."""
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
        self._firsts: dict[int, Evaluation] = {}

    @property
    def judge(self) -> str:
        """Whose verdicts they are."""
        return self._first.judge

    @property
    def fingerprint(self) -> str:
        """The machine they were given on."""
        return self._first.target

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """The next verdict on this code that was not given beside others. BudgetError where the recording ends."""
        rivals = {trial.id for trial in versus}
        with self._lock:
            left = self._left[kernel.digest]
            if not left:
                raise BudgetError("the recording has no verdict on this kernel")
            fitting = (entry for entry in left if {row.id for row in entry.evidence.against} in (rivals, set()))
            evaluation = next(fitting, left[0])
            left.remove(evaluation)
            return evaluation

    @property
    def _first(self) -> Evaluation:
        """Of the session that is open now: a run asks whose verdicts they are before it opens one, too."""
        session = self.past.session
        if session not in self._firsts:
            evaluations = self.past.evaluations()
            first = evaluations[0][1] if evaluations else self.past.first_verdict()
            if first is None:
                raise BudgetError("the recording has no verdict")
            self._firsts[session] = first
        return self._firsts[session]

    @cached_property
    def _left(self) -> dict[str, list[Evaluation]]:
        by_digest: dict[str, list[Evaluation]] = defaultdict(list)
        for digest, evaluation in self.past.evaluations():
            by_digest[digest].append(evaluation)
        return by_digest
