"""`LocalEvaluator`: compiles and judges here, as `ksflow.evaluation.judge.evaluator` does it."""

from ksflow.evaluation.judge.evaluator import LocalJudge, require_isolation
from ksflow.evaluation.sandbox.levels import LOWEST_FLOOR
from ksflow.records import Target


class LocalEvaluator(LocalJudge):
    """Judges kernels on this machine: on its CPU, or on its GPUs.

    isolation_floor: refuse to run kernels in sandboxes weaker than this. control: time the incumbent against itself
    with `claims` of being faster only, or `always`. devices: how many of the GPUs to use at once; null means all.
    profile: read hardware counters of every kernel that a GPU accepts; null means where they can be read. sanitize:
    have compute-sanitizer look at those faster than the incumbent.
    """

    def __init__(
        self,
        target: Target,
        isolation_floor: str = LOWEST_FLOOR,
        control: str = "claims",
        devices: int | None = None,
        profile: bool | None = None,
        sanitize: bool = True,
    ) -> None:
        super().__init__(target, devices, control, profile, sanitize)
        require_isolation(isolation_floor, self.level, "evaluator.")
