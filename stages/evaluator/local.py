"""`LocalEvaluator`: compiles and judges here, on the CPU or on its GPUs. `ksflow.judge.evaluator` does it."""

from ksflow.errors import ConfigError
from ksflow.judge.evaluator import LocalJudge
from ksflow.records import Target
from ksflow.sandbox.levels import LEVELS


class LocalEvaluator(LocalJudge):
    """Judges kernels on this machine: on its CPU, or on its GPUs.

    isolation_floor: refuse to run kernels in boxes weaker than this. control: time the incumbent against itself with
    `claims` of being faster only, or `always`. devices: how many of the GPUs to use at once; null means all. profile:
    read hardware counters of every kernel that a GPU accepts; null means where they can be read. sanitize: have
    compute-sanitizer look at those faster than the incumbent.
    """

    def __init__(
        self,
        target: Target,
        isolation_floor: str = "rlimits",
        control: str = "claims",
        devices: int | None = None,
        profile: bool | None = None,
        sanitize: bool = True,
    ) -> None:
        if isolation_floor not in LEVELS:
            raise ConfigError(f"evaluator.isolation_floor={isolation_floor}; valid: {', '.join(LEVELS)}")
        super().__init__(target, devices, control, profile, sanitize)
        if LEVELS.index(isolation_floor) > LEVELS.index(self.level):
            raise ConfigError(
                f"evaluator.isolation_floor={isolation_floor}, but boxes reach only {self.level} here; lower it"
            )
