"""What is to be compiled, and what comes of it, in terms that all compilers share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ksflow.compilers.boxes import CompileJob
from ksflow.records import Json, Kernel, Problem, Target
from ksflow.source.launches import CaseLaunch, CasePlan, with_constants

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class CompileRequest:
    """A kernel for a target, with its variants and plans where it is in strong mode."""

    problem: Problem
    kernel: Kernel
    target: Target
    variants: Sequence[Mapping[str, str]] = ()
    plans: Mapping[str, CasePlan] = field(default_factory=dict)

    @property
    def main(self) -> str:
        """The name of the file with the launch lines."""
        return next(iter(self.kernel.files))

    def files(self, values: Mapping[str, str]) -> dict[str, str]:
        """The sources of a variant."""
        return {**self.kernel.files, self.main: with_constants(self.kernel.main, values)}


@dataclass(frozen=True)
class DeviceFunction:
    """A device function that was made for a launch."""

    code: str
    """Base 64; empty where no linker was found."""
    kernel: str
    """Its name in the code."""
    block: Triple
    shared: int
    """Dynamic shared memory in bytes."""
    facts: Json
    """Figures of the compiler's; `parameters`: the size of each, where only the compiler tells."""
    spare: bool = False
    """Whether the compiler may have given it parameters that no launch line has."""


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """One compiler for GPUs."""

    platform: str
    """`cuda` or `hip`."""
    version: str
    """What is on record."""

    @property
    def note(self) -> str:
        """What cannot be had with it; empty otherwise."""
        return ""

    def jobs(self, request: CompileRequest) -> list[CompileJob]:
        """One for each variant."""
        raise NotImplementedError

    def host(self, request: CompileRequest) -> CompileJob | None:
        """For host mode; None where this cannot be had, or the compiler compiles when the kernel is run."""

    def knows(self, march: str) -> bool:
        """Whether there can be code for it, as far as can be told before a compiler says so."""
        return True

    def entry(self, request: CompileRequest, kept: Sequence[Json], variant: int, step: CaseLaunch) -> DeviceFunction:
        """What was made for a launch: the function of its name, mangled or not. ValueError says which there are."""
        kernels, name = kept[variant]["kernels"], step.kernel
        mangled = [other for other in kernels if other.startswith(f"_Z{len(name)}{name}")]
        if name not in kernels and len(mangled) != 1:
            there = f"it has {', '.join(kernels)}" if kernels else "it has no kernels"
            hint = f'{there}; declare it extern "C" __global__'
            raise ValueError(f"launch: {name}: the code has no kernel of this name, {hint}")
        name = name if name in kernels else mangled[0]
        return DeviceFunction(kept[variant]["code"], name, step.block, step.shared, kernels[name])
