"""The evaluator's side of the judge: a process for each device, requests as JSON, checks of a problem's own solutions.

Imports no torch.
"""

import re
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import Any

from ksflow.errors import ConfigError
from ksflow.evaluation.compilers import BuildResult
from ksflow.evaluation.compilers.client import digest_of, lasting_folder
from ksflow.evaluation.compilers.cpp import compile_loop
from ksflow.evaluation.processes.server_process import ServerProcess
from ksflow.kernels.hardware.cost_model import floor_us
from ksflow.kernels.hardware.target import default_target, fits, single_gpu_environment, torch_mismatch, visible_gpus
from ksflow.kernels.languages import IMPORT, LANGUAGES, ON_DEVICE
from ksflow.records import Case, Evaluation, Kernel, Problem, Target, Verdict

_CACHE_USER = 61181  # user id of sandboxes that share a cache: the owner of its files
EMULATED = "emulated"  # a GPU emulated on this machine's CPU, for tests
_ON_A_GPU = re.compile(
    rf"^\s*{IMPORT}(?:triton|cutlass|cupy|helion|tilelang|aiter|pycuda)\b|\bcuda_sources\s*=|\bload_inline\(",
    re.MULTILINE,
)


class JudgeSlot:
    """A place to judge one kernel at a time: the CPU (index None) or one GPU, with its own judge process."""

    def __init__(self, target: Target, index: int | None, shared: bool = False) -> None:
        self.environment = {**target.environment, **({} if index is None else single_gpu_environment(index))}
        self._gpu = platform(target)
        several = [f"--cores={target.cores}"] if target.cores > 1 else []
        self._cores = [*several, *(["--shared"] if shared else [])]

    @cached_property
    def judge(self) -> ServerProcess:
        """The process, started at the first access."""
        option = f"--gpu={self._gpu}" if self._gpu else f"--loop={compile_loop()}"
        return ServerProcess("ksflow.evaluation.judge", self.environment, option, *self._cores)

    @property
    def started(self) -> bool:
        return "judge" in self.__dict__

    def ensure_running(self) -> None:
        """Start the judge, or restart it if it has died."""
        if not self.judge.alive:
            self.judge.restart()


def platform(target: Target) -> str:
    """Return the judge's name for a GPU platform: `hip`, `cuda`, or `emulated`; "" for a CPU."""
    if target.kind != "gpu":
        return ""
    return EMULATED if target.march == EMULATED else "hip" if target.march.startswith("gfx") else "cuda"


def gpus(target: Target) -> list[int | None]:
    """Return the indices of the visible GPUs that match the target. Raises ConfigError if none does."""
    if platform(target) == EMULATED:
        return [0]
    visible = visible_gpus()
    numbers: list[int | None] = [number for number, gpu in enumerate(visible) if fits(target, gpu)]
    if not numbers:
        chips = ", ".join(dict.fromkeys(gpu.chip for gpu in visible or (default_target(),)))
        raise ConfigError(
            f"target={target.name} ({target.march}) is not in this machine ({chips}); use target=auto, "
            "evaluator=static for its compiler's report, or evaluator=spool for a machine that has one"
        )
    if why := torch_mismatch(target.march):
        raise ConfigError(f"{why}; or judge on the CPU: target=cpu")
    return numbers


def problem_request(problem: Problem, target: Target) -> dict[str, Any]:
    """Return a problem as part of a request."""

    def row(case: Case) -> dict[str, Any]:
        return {"name": case.name, "params": dict(case.params), "seed": case.seed}

    return {
        "root": problem.root,
        "digest": problem.digest,
        "args": [asdict(arg) for arg in problem.args],
        "dims": list(problem.dims),
        "tests": [row(case) for case in problem.tests],
        "benchmarks": [
            {**row(case), "weight": case.weight, "floor": floor_us(problem, case, target)}
            for case in problem.benchmarks
        ],
        "check": {**asdict(problem.check), "unit": problem.check.unit(target.march)},
        "limits": asdict(problem.limits),
    }


def kernel_request(problem: Problem, kernel: Kernel, built: BuildResult, cores: int = 1) -> dict[str, Any]:
    """Return a kernel as part of a request, with the problem's own files and the compiled artefact. cores: it has."""
    files = {**kernel.files, **{name: text for name, text in problem.files.items() if name not in kernel.files}}
    language = LANGUAGES[kernel.language].like or kernel.language
    cache: dict[str, Any] = {}
    baselines = [seed.kernel.digest for seed in problem.seeds if seed.baseline]
    if "torch.compile" in kernel.main and kernel.digest in baselines:
        # torch.compile's cache lasts for this baseline. A candidate has no such folder: it could pass data from one
        # sandbox to the next.
        name = kernel.digest if cores == 1 else f"{kernel.digest}-{cores}"  # the code names the number of threads
        folder, order = lasting_folder(_CACHE_USER, "inductor", name)
        cache = {"compile_cache": {**order, "compile_cache": folder}}
    made = {"artefact": built.artefact, "digest": digest_of(built.artefact), "mode": built.mode}
    return {"language": language, "files": files, **made, **cache}


def check_solutions(
    problem: Problem, judge: Callable[[Kernel], Evaluation], gpu: bool
) -> tuple[tuple[str, bool, str], ...]:
    """Return rows (name, ok, detail) for `problem.good` and `problem.bad`, the right and wrong solutions of a
    problem: ok if the judge accepts the right and rejects the wrong ones, and for those that cannot run here
    (skipped)."""
    rows = []
    for kind, seeds in (("good", problem.good), ("bad", problem.bad)):
        for seed in seeds:
            needs_gpu = seed.kernel.language in ON_DEVICE or any(map(_ON_A_GPU.search, seed.kernel.files.values()))
            skipped = needs_gpu and not gpu
            verdict = (True, "skipped: needs a GPU") if skipped else _compared(kind, judge(seed.kernel), problem)
            rows.append((f"{kind} {seed.name}", *verdict))
    return tuple(rows)


def _compared(kind: str, result: Evaluation, problem: Problem) -> tuple[bool, str]:
    words = f"{result.score_us:.1f} µs" if result.score_us else f"{result.verdict}: {result.reason}"
    if kind == "good":
        return result.accepted, words
    if not result.accepted:
        return result.verdict is not Verdict.HARNESS, words
    cap = problem.origin.get("cap")
    return False, f"accepted, in {words}{f'; sizes are cut to {cap}, which may hide what is wrong' if cap else ''}"
