"""Which cores a judge and a kernel with several threads get: a function of the machine's topology, read from sysfs."""

import math
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ksflow.errors import ConfigError
from ksflow.evaluation.processes import quota
from ksflow.home import text_of

_SYSFS = Path("/sys/devices/system/cpu")


class Core(NamedTuple):
    """One processor of the operating system: a core, or one of a core's hardware threads (SMT siblings)."""

    number: int
    physical: int  # lowest number among its siblings
    node: int  # of NUMA


class CoreChoice(NamedTuple):
    """Where the judge runs, where kernels run, and in which way that was possible."""

    judge: int
    box: tuple[int, ...]
    how: str


def choose(cores: Iterable[Core], count: int) -> CoreChoice | None:
    """Return the judge's core and `count` others for kernels; None if there are too few.

    In order of importance: kernels do not share a physical core with the judge, have one thread of each physical core,
    stay in one NUMA node, and the judge, who writes their inputs, is in the same node.
    """
    known = sorted(cores)
    nodes = [{node} for node in sorted({core.node for core in known})]
    scopes = nodes if len(nodes) == 1 else [*nodes, {core.node for core in known}]
    for siblings in (False, True):
        for scope in scopes:
            inside = [core for core in known if core.node in scope]
            outside = [core for core in known if core.node not in scope]
            for judge in (inside[0], *outside[:1]):
                free = [core for core in inside if core.physical != judge.physical]
                usable = free if siblings else [*{core.physical: core for core in reversed(free)}.values()]
                if len(usable) >= count:
                    box = sorted(core.number for core in usable)[-count:]
                    return CoreChoice(judge.number, tuple(box), _words(siblings, scope, judge))
    box = [core.number for core in known[1:]][-count:]
    how = "the judge shares a physical core with the kernel"
    return CoreChoice(known[0].number, tuple(box), how) if len(box) == count else None


def _words(siblings: bool, scope: set[int], judge: Core) -> str:
    threads = "several hardware threads of a core" if siblings else "one hardware thread of each core"
    where = f"NUMA node {min(scope)}" if len(scope) == 1 else f"NUMA nodes {', '.join(map(str, sorted(scope)))}"
    return f"{threads}, {where}{'' if judge.node in scope else f', the judge in node {judge.node}'}"


def read(numbers: Iterable[int], folder: Path = _SYSFS) -> list[Core]:
    """Return what sysfs says of these cores; a core of which it says nothing has no siblings and is in node 0."""
    found = []
    for number in numbers:
        physical, node = number, 0
        with suppress(ValueError):
            siblings = text_of(folder / f"cpu{number}" / "topology" / "thread_siblings_list")
            physical = min(int(word) for part in siblings.strip().split(",") for word in part.split("-"))
        with suppress(ValueError):
            node = min((int(path.name[4:]) for path in (folder / f"cpu{number}").glob("node[0-9]*")), default=0)
        found.append(Core(number, physical, node))
    return found


def most(available: int, allowed: float | None) -> int:
    """Return how many cores a kernel can have beside the judge's one: of those `available`, within a quota."""
    return max(min(available, math.floor(allowed) if allowed else available) - 1, 1)


def require(count: int) -> None:
    """Raise ConfigError if a kernel cannot have so many cores on this machine."""
    available, allowed = len(os.sched_getaffinity(0)), quota.cores()
    if count > (fits := most(available, allowed)):
        held = f"a quota of {allowed:.3g} cores' CPU time (cpu.max)" if allowed and allowed < available else ""
        why = held or f"the {available} cores that this process may use"
        raise ConfigError(f"target.cores={count} and one for the judge do not fit into {why}; use target.cores={fits}")


def describe(cores: Sequence[Core], allowed: float | None) -> str:
    """Return the choice for as many cores as fit, on one physical core each, in words."""
    physical = len({core.physical for core in cores})
    count = most(min(len(cores), max(physical, 2)), allowed)
    choice = choose(cores, count)
    if choice is None:
        return "one core, which judge and kernel share"
    fits = f"target.cores up to {most(len(cores), allowed)}"
    box = ", ".join(map(str, choice.box))
    return f"{fits}; with {count}: kernels on {box}, the judge on {choice.judge} ({choice.how})"
