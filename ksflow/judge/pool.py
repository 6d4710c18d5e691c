"""Where this machine judges kernels: on its CPU, or on those of its GPUs that are the target's."""

from functools import cached_property

from ksflow.errors import ConfigError
from ksflow.hardware.target import default_target, fits, single_gpu_environment, torch_mismatch, visible_gpus
from ksflow.processes.server_process import JudgeProcess
from ksflow.records import Target

EMULATED = "emulated"
"""A GPU that this machine's CPU plays, for tests."""


class Place:
    """Where one kernel at a time is judged: the CPU, or one of the GPUs, with a judge of its own."""

    def __init__(self, target: Target, index: int | None) -> None:
        self.environment = {**target.environment, **({} if index is None else single_gpu_environment(index))}
        self._gpu = platform(target)

    @cached_property
    def judge(self) -> JudgeProcess:
        """Started when it is first needed."""
        return JudgeProcess(self.environment, self._gpu)

    @property
    def started(self) -> bool:
        """Whether it was needed."""
        return "judge" in self.__dict__

    def wake(self) -> None:
        """Have a living judge."""
        if not self.judge.alive:
            self.judge.restart()


def platform(target: Target) -> str:
    """Of a GPU, as the judge calls it: `hip`, `cuda`, or `emulated`, which needs none; "" for a CPU."""
    if target.kind != "gpu":
        return ""
    return EMULATED if target.march == EMULATED else "hip" if target.march.startswith("gfx") else "cuda"


def gpus(target: Target) -> list[int | None]:
    """Which of the GPUs that can be seen here are the target's. Raises ConfigError when none is."""
    if platform(target) == EMULATED:
        return [0]
    found = visible_gpus()
    numbers: list[int | None] = [number for number, one in enumerate(found) if fits(target, one)]
    if not numbers:
        chips = ", ".join(dict.fromkeys(one.chip for one in found or (default_target(),)))
        raise ConfigError(
            f"target={target.name} ({target.march}) is not in this machine ({chips}); use target=auto, "
            "evaluator=static for what its compiler says, or evaluator=spool for a machine that has one"
        )
    if why := torch_mismatch(target.march):
        raise ConfigError(f"{why}; or judge on the CPU: target=cpu")
    return numbers
