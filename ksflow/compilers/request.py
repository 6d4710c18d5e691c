"""What is to be compiled, and what comes of it, in terms that all compilers share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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

    def steps(self, variant: int) -> list[CaseLaunch]:
        """Every launch of the cases that a variant is for."""
        return [step for plan in self.plans.values() if plan.variant == variant for step in plan.launches]


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


class Toolchain(Protocol):
    """One compiler for GPUs."""

    @property
    def platform(self) -> str:
        """`cuda` or `hip`."""

    @property
    def version(self) -> str:
        """What is on record."""

    @property
    def note(self) -> str:
        """What cannot be had with it; empty otherwise."""

    def jobs(self, request: CompileRequest) -> list[CompileJob]:
        """One for each variant."""

    def entry(self, request: CompileRequest, kept: Sequence[Json], variant: int, step: CaseLaunch) -> DeviceFunction:
        """What was made for a launch. ValueError where there is nothing."""

    def host(self, request: CompileRequest) -> CompileJob | None:
        """For host mode; None where this cannot be had."""


def named(kernels: Mapping[str, Json], name: str) -> str:
    """The function of this name, mangled or not. ValueError says which there are."""
    if name in kernels:
        return name
    mangled = [other for other in kernels if other.startswith(f"_Z{len(name)}{name}")]
    if len(mangled) == 1:
        return mangled[0]
    there = f"it has {', '.join(kernels)}" if kernels else "it has no kernels"
    raise ValueError(f'launch: {name}: the code has no kernel of this name, {there}; declare it extern "C" __global__')
