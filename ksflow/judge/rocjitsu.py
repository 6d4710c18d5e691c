"""`Rocjitsu`: a second word on a kernel's own machine code, by AMD's instruction-set emulator where it is installed.

Covered: code objects for gfx942 and gfx950 of kernels in strong mode, HIP's and Triton's: right or wrong on the
problem's small cases, races within a workgroup. It is found on the PATH, and believed once it has run a sum, a matrix
instruction and atomic additions in LDS, and has found a race that was planted. It runs in the sandbox that kernels are
judged in. NOT covered: speed, races between workgroups, what the emulator does not know (which is no word at all).
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ksflow import compilers
from ksflow.compilers.emulator import SELFTEST
from ksflow.hardware.executables import find, version
from ksflow.judge.evaluator import LocalJudge
from ksflow.records import Arg, Case, Evaluation, Json, Kernel, Limits, Problem, Target, Verdict
from ksflow.sandbox.runners import kfd
from ksflow.sandbox.runners.rocjitsu import CODE, CONFIG, PROGRAM

_CONFIGS = {
    "gfx942": ("gfx942_cdna3_kmd.json", "amdgpu_cdna3_kmd.json"),
    "gfx950": ("gfx950_mi355x_kmd.json", "gfx950_cdna4_kmd.json", "amdgpu_cdna4_kmd.json"),
}
"""Architecture -> the names that rocjitsu's versions have for its configuration."""
_CALL_S = 100
_LIMITS = Limits(compile_s=120, check_s=300, time_s=1, memory_mb=16384)
_ROOM = {"deadline_s": _CALL_S, "open_files": 8192, "processes": 256, "file_mb": 4096}
_PLUGIN: Json = {"plugins": {"race": {}}}
"""How newer versions are told to look for races; older ones go by the environment."""


class Rocjitsu:
    """The emulator of this machine, if there is one. judge: whose sandboxes it runs in."""

    def __init__(self, judge: LocalJudge) -> None:
        self._judge = judge
        self._tested: dict[str, Json | str] = {}

    @cached_property
    def version(self) -> str:
        """In short; empty where it is not installed."""
        number = re.search(r"\d+\.\d+(\.\d+)?", version("rocjitsu"))
        return f"rocjitsu-{number[0] if number else 'unknown'}" if find("rocjitsu") else ""

    def __call__(self, problem: Problem, kernel: Kernel, target: Target) -> Evaluation:
        """`untimed` for a kernel that is right on the small cases, `reject-incorrect` for one that is wrong or racy.

        ValueError where it has no word, and why.
        """
        march = target.march.partition(":")[0]
        if march not in _CONFIGS:
            raise ValueError(f"it is asked about {' and '.join(_CONFIGS)} alone")
        if march not in self._tested:
            self._tested[march] = self._self_test(replace(target, march=march))
        config = self._tested[march]
        if isinstance(config, str):
            raise ValueError(config)
        if not problem.small:
            raise ValueError("the problem has no small cases")
        return self._run(replace(problem, tests=problem.small, benchmarks=(), small=()), kernel, target, config)

    def _run(self, problem: Problem, kernel: Kernel, target: Target, config: Json) -> Evaluation:
        problem = replace(problem, limits=_LIMITS)
        built = compilers.build(problem, kernel, target)
        if built.reason or built.mode != "strong" or not built.artefact:
            raise ValueError(built.reason or "it runs kernels with launch lines, once they are linked")
        code, program = (Path(path).read_text(encoding="utf-8") for path in (built.artefact, kfd.__file__))
        files = {CODE: code, CONFIG: json.dumps(config), PROGRAM: program}
        order = {**_ROOM, "rocjitsu": find("rocjitsu"), "extra": list(_folders())}
        evaluation = self._judge.right(problem, Kernel("python", files), order)
        if evaluation.verdict not in (Verdict.UNTIMED, Verdict.INCORRECT):
            raise ValueError(evaluation.reason)
        return evaluation

    def _self_test(self, target: Target) -> Json | str:
        """The configuration to use; in words why it is not to be asked."""
        path = next(iter(_configs(target.march)), None)
        if path is None:
            return f"its configuration share/rocjitsu/configs/{_CONFIGS[target.march][0]} is not beside it"
        shipped: Json = json.loads(path.read_text(encoding="utf-8"))
        right, racy = (
            Kernel("hip", {name: (SELFTEST / name).read_text(encoding="utf-8")}) for name in ("kernel.hip", "race.hip")
        )
        why = ""
        for config in (shipped, shipped | _PLUGIN):
            try:
                evaluation = self._run(_selftest(), right, target, config)
                race = self._run(_selftest(), racy, target, config) if evaluation.verdict is Verdict.UNTIMED else None
            except ValueError as error:
                why = why or f"it fails its self-test: {error}"
                continue
            if race is None:
                return f"it fails its self-test: {evaluation.reason}; a newer version may not"
            if "race: " in race.reason:
                return config
            why = "it fails its self-test: it does not find a race that was planted"
        return why


def _configs(march: str) -> Iterator[Path]:
    """Its own configurations for an architecture: as it is installed, and in its source tree where it was built."""
    program = Path(find("rocjitsu"))
    places = dict.fromkeys([*program.parents[1:5], *program.resolve().parents[1:5], *Path("/opt").glob("rocm*")])
    for name in _CONFIGS[march]:
        for place in places:
            yield from filter(Path.is_file, (place / "share/rocjitsu/configs" / name, place / "configs" / name))


def _folders() -> Iterator[str]:
    """What a sandbox has to see of it."""
    program = Path(find("rocjitsu"))
    for path in dict.fromkeys([program, program.resolve()]):
        yield str(path.parent)
        parts = (path.parents[1] / name for name in ("lib", "lib64", "share/rocjitsu"))
        yield from map(str, filter(Path.is_dir, parts))
    for config in _configs("gfx942"):
        if config.parents[1].name != "rocjitsu":
            yield str(config.parents[1])  # a source tree


def _selftest() -> Problem:
    reference = (SELFTEST / "reference.py").read_text(encoding="utf-8")
    args = (Arg("a", "float32", "in"), Arg("b", "float32", "in"), Arg("out", "float32", "out"))
    words = ("rocjitsu_selftest", "", "", "")
    tests = (Case("selftest", {"n": 256}, 1),)
    return Problem(*words, str(SELFTEST), reference, ("hip",), args, ("n",), tests, (), seeds=(), limits=_LIMITS)
