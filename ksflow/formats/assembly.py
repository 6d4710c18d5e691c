"""From what an importer has read to a `Problem`: the reference for the judge, the cases that fit this machine."""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.formats.cases import Chosen, ladder, listed, merged, number, record, whole_numbers
from ksflow.formats.isolated import IsolatedFailure, run_isolated
from ksflow.hardware.target import default_target
from ksflow.records import Arg, Case, Check, Json, Limits, Problem, Seed, Target

_DESCRIBE = "ksflow.formats.describe"
_HOLDER = '''"""{title}. Made by ksflow; the files are as they were."""

from ksflow.formats.runtime import install

FILES = {files}
SPEC = {spec}
install(globals(), {kind!r}, FILES, SPEC)
'''
_TIMEOUT_S = 600.0
_SMALLER = {
    "gpumode": "problem.cap=N or problem.benchmarks=[...]",
    "kernelbench": "problem.cap=N or problem.overrides={NAME: N}",
    "flashinfer": "problem.cap=N",
    "kernel": "problem.cases=[...]",
}
"""Format -> what asks for smaller cases."""
CUT = "sizes are cut to"
_HINTS = {
    "Invalid scaling configuration": "torch multiplies NVFP4 only on GPUs that have it (Blackwell): read and judge it "
    "on a machine with one",
    "No module named": "install that package where the problem is read and judged",
}
"""What a failure says -> what would help."""
_EMULATED = 1 << 20
"""Bytes of inputs and outputs up to which an emulator is given a case."""
_VERSION = 6
"""Of what is kept of a description."""


@dataclass(frozen=True)
class Fit:
    """What a machine may spend on a case. On CPUs sizes above a cap are cut to it; a GPU takes them as they are."""

    memory_mb: int = 2048
    """Of a case's inputs and outputs."""
    generate_s: float = 2.5
    run_s: float = 1.0
    total_s: float = 6.0
    """Of all cases together: each is made and run many times."""

    @property
    def wider(self) -> "Fit":
        """For what is large however small it is made."""
        return Fit(4 * self.memory_mb, 10 * self.generate_s, 10 * self.run_s, 10 * self.total_s)


_ON_GPU = Fit(generate_s=60.0, run_s=60.0, total_s=600.0)
_COPIES = 8
"""Of a case's tensors, that a judge may hold at once."""


def _asked(fit: Fit) -> Fit:
    """For sizes that a user has asked for: what this machine can hold, and as long as a judge would wait."""
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _COPIES >> 20
    return Fit(max(fit.memory_mb, memory_mb), _ON_GPU.generate_s, _ON_GPU.run_s, _ON_GPU.total_s)


@dataclass(frozen=True)
class Step:
    """The cases under a cap."""

    cap: int | None
    cases: list[Json]
    merged: Sequence[str]
    """Sizes that differ in the problem and are the same here, in words."""


@dataclass(frozen=True)
class ParsedProblem:
    """What an importer found in a problem's files."""

    name: str
    """As the lineage calls it: letters, digits, `_`, `-` and `.`."""
    title: str
    statement: str
    kind: str
    """The module of this room that runs the format's problems."""
    files: Mapping[str, str]
    """As they are."""
    spec: Json
    """What `kind` needs to know beside the files."""
    tests: Sequence[Chosen]
    """(params, seed) of each case that is checked; empty: the benchmarks."""
    benchmarks: Sequence[Chosen]
    listing: str
    """What people and models read as the reference."""
    called: str
    """How a candidate is called, in words."""
    origin: Json
    support: Mapping[str, str] = field(default_factory=dict)
    """Files that a candidate may import."""
    score: str = "geomean"
    limits: Limits = field(default_factory=lambda: Limits(120.0, 180.0, 180.0, 16384))
    accumulate: str = "bfloat16"
    """The arithmetic that is asked for: `float32` has `problem check` try what bfloat16 would do."""
    seeds: tuple[Seed, ...] = ()
    good: tuple[Seed, ...] = ()
    bad: tuple[Seed, ...] = ()
    names: tuple[str, ...] = ()
    """Of the arguments, where the format has them."""
    quiet: str = ""
    """A parameter that a case's name has only where it takes that to tell two apart."""
    languages: tuple[str, ...] = ("python", "triton", "cpp", "cuda", "hip")
    """Those that the format takes, before target and arguments narrow them down."""
    fixed: Sequence[int] = ()
    """Sizes that no cap cuts, which cut ones must not become equal to."""
    under: Callable[[int], tuple[str, Sequence[str]]] | None = None
    """Of a format that cuts in its own way: cap -> (what is the same for the same sizes, what became alike)."""


def problem(read: ParsedProblem, target: Target | None, cap: int | str | None = "auto", fit: Fit = Fit()) -> Problem:
    """The problem for a target. ConfigError where its reference does not run there.

    cap: the largest size; `auto` has a CPU take the largest that `fit`s; None for none.
    """
    device = "cuda" if target and target.kind == "gpu" else "cpu"
    text = _HOLDER.format(
        title=read.title.replace('"', "'").replace("\\", "/"),
        files=repr(dict(read.files)),
        spec=repr({**read.spec, "accumulate": read.accumulate}),
        kind=read.kind,
    )
    folder = home.cache("imported", hashlib.sha256(text.encode()).hexdigest()[:24])
    folder.mkdir(parents=True, exist_ok=True)
    reference = folder / "reference.py"
    if not reference.exists():
        home.write(reference, text)
    absent = device == "cuda" and default_target().kind == "cpu"
    if absent:  # another machine judges: a small case on this one tells what arguments there are
        step = _step(read, number(cap))
        small, rows = _fitting(read, reference, "cpu", "auto", fit)
    else:
        step, rows = _fitting(read, reference, device, cap, fit)
        small = step
    chosen, known = step.cases, small.cases
    tests = [case for case in chosen if case["test"]]
    benchmarks = [case for case in chosen if not case["test"]]
    first = next(row for case, row in zip(known, rows, strict=True) if not case["test"])
    args = _args(read, first["tensors"], shown=not absent)
    cut = _cut(read, benchmarks, step)
    plain = all(row["plain"] and not row["inout"] for row in rows)
    dims = whole_numbers(benchmarks) if plain else ()
    origin = {**read.origin, "inferred": [*read.origin.get("inferred", ()), *cut], "cap": step.cap}
    return Problem(
        name=read.name,
        title=read.title,
        description=read.origin.get("path", ""),
        statement=read.statement,
        root=str(folder),
        reference=text,
        languages=_languages(read.languages, target, plain),
        args=args,
        dims=dims,
        tests=tuple(map(record, tests or benchmarks)),
        benchmarks=tuple(map(record, benchmarks)),
        small=_small(chosen, known, rows),
        seeds=read.seeds,
        score=read.score,
        limits=read.limits,
        check=Check(accumulate=read.accumulate),
        digest=_digest(read, chosen),
        files=read.support,
        called=read.called,
        listing=read.listing,
        good=read.good,
        bad=read.bad,
        origin=origin,
    )


def _digest(read: ParsedProblem, chosen: Sequence[Json]) -> str:
    """Of all that could change a verdict or a time, by content alone: where the files lie is not part of it, so a
    checkout may be moved, and two machines compare.
    """
    spec = {key: value for key, value in read.spec.items() if key != "root"}
    identity = [read.kind, dict(read.files), spec, read.accumulate, chosen, read.score]
    return hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:16]


def _fitting(
    read: ParsedProblem, reference: Path, device: str, cap: int | str | None, fit: Fit
) -> tuple[Step, list[Json]]:
    """The largest cases that fit a device of this machine, and what each is made of. ConfigError."""
    steps = _steps(read, ladder(device, cap))
    found: Json = {}
    for patience, some in _attempts(steps, device, cap, fit):
        found = _described(reference, some, device, patience, first=bool(found))
        if found["step"] is not None:
            return some[found["step"]], found["cases"]
        if "limit" not in [kind for *_, kind in found["tried"]]:
            break
    raise ConfigError(f"{read.name}: its reference does not run here: {_why(read, found['tried'], cap)}")


def _attempts(steps: list[Step], device: str, cap: int | str | None, fit: Fit) -> list[tuple[Fit, list[Step]]]:
    """What is tried one after the other: with more patience the smallest that runs will do, of those first in which no
    sizes became alike.
    """
    if device != "cpu":
        return [(_ON_GPU, steps)]
    if cap != "auto":
        return [(_asked(fit), steps)]
    apart = [step for step in steps if not step.merged]
    return [(fit, steps), *([(fit.wider, apart)] if apart else []), *([(fit.wider, steps)] if apart != steps else [])]


def _steps(read: ParsedProblem, caps: Sequence[int | None]) -> list[Step]:
    """Cases under each cap, smallest first, none twice; where sizes become alike, only those before all differ."""
    found: dict[str, Step] = {}
    for cap in caps:
        step = _step(read, cap)
        key = repr(step.cases) if read.under is None else read.under(cap or 0)[0]
        found.pop(key, None)
        found[key] = step
    steps = [*found.values()]
    apart = next((place for place, step in enumerate(steps) if not step.merged), len(steps))
    return [*steps[:apart], *(step for step in steps[apart:] if not step.merged)]


def _step(read: ParsedProblem, cap: int | None) -> Step:
    alike = merged(read.tests, read.benchmarks, cap, read.fixed) if read.under is None else read.under(cap or 0)[1]
    return Step(cap, listed(read.tests, read.benchmarks, cap, read.quiet, read.fixed), alike)


def _why(read: ParsedProblem, tried: Sequence[Sequence[str]], cap: int | str | None) -> str:
    """Why no size will do, and what may help: other sizes only where they are the cause."""
    if not tried:
        return "there are no cases"
    (_, first, kind), (_, last, _) = tried[0], tried[-1]
    for word, hint in _HINTS.items():
        if found := next((str(said) for _, said, _ in tried if word in said), ""):
            return f"{found.partition(': ')[2].rstrip('.')}; {hint}"
    if kind == "always":
        return str(first).partition(": ")[2]
    why = first if first.partition(": ")[2] == last.partition(": ")[2] else f"{first}; at the largest size: {last}"
    if "limit" in [kind for *_, kind in tried]:
        return f"{why}{_remedy(read, cap)}"
    return f"{why}; another cap, or problem.cap=auto, may do" if number(cap) else why


def _remedy(read: ParsedProblem, cap: int | str | None) -> str:
    """What helps where a case takes too long or too much."""
    key = _SMALLER.get(read.origin["format"], "")
    if cap == "auto":
        return f"; {key} takes what it says, with patience" if key else ""
    return f"; smaller sizes: {key}" if key else ""


def slug(text: str) -> str:
    """A name for the lineage."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.") or "problem"


def text(file: Path) -> str:
    """A file's text. ConfigError."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error


def _cut(read: ParsedProblem, benchmarks: Sequence[Json], step: Step) -> list[str]:
    whole = [dict(params) for params, _ in read.benchmarks]
    if step.cap is None or [case["params"] for case in benchmarks] == whole:
        return []
    said = [f"{CUT} {step.cap}, batches to a sixteenth of it; problem.cap=null takes them as they are"]
    if step.merged:
        said.append(
            f"sizes that differ are the same here, so that a kernel which takes one for the other is not noticed: "
            f"{'; '.join(step.merged)}"
        )
    return said


def _described(reference: Path, steps: Sequence[Step], device: str, fit: Fit, first: bool) -> Json:
    """What running told, kept for the next time."""
    order = {
        "reference": str(reference),
        "device": device,
        "memory": fit.memory_mb << 20,
        "generate_s": fit.generate_s,
        "run_s": fit.run_s,
        "total_s": fit.total_s,
        "ladder": [step.cases for step in steps],
        "first": first,
    }
    name = hashlib.sha256(json.dumps([_VERSION, order], default=str).encode()).hexdigest()[:24]
    kept = reference.parent / f"{name}.json"
    if kept.exists():
        found: Json = json.loads(kept.read_text())
        return found
    try:
        found = run_isolated(_DESCRIBE, order, _TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{reference}: the reference ran for {_TIMEOUT_S:g} s; give smaller cases") from error
    except IsolatedFailure as error:
        last = str(error)
        hint = "; problem.device=cpu takes cuda for the CPU" if "cuda" in last.lower() and device == "cuda" else ""
        hint = next((f"; {said}" for word, said in _HINTS.items() if word in last), hint)
        raise ConfigError(f"the reference does not load: {last[:300]}{hint}") from error
    if found["step"] is not None:
        home.write(kept, json.dumps(found))
    return found


def _args(read: ParsedProblem, tensors: Sequence[Json], shown: bool) -> tuple[Arg, ...]:
    names = list(read.names)
    made = []
    for place, tensor in enumerate(tensors):
        out = bool(tensor["out"])
        default = f"out{place - sum(not one['out'] for one in tensors)}" if out else f"x{place}"
        name = names[place] if place < len(names) and not out else default
        doc = f"{tensor['shape']} in the first benchmark" if shown else ""
        made.append(Arg(name, tensor["dtype"], "out" if out else "in", doc=doc))
    return tuple(made)


def _small(chosen: Sequence[Json], known: Sequence[Json], rows: Sequence[Json]) -> tuple[Case, ...]:
    """For an emulator: the smallest case as it is, if it is small enough. None is cut: a kernel may count on sizes."""
    fits = [
        (row["bytes"], place)
        for place, (case, row) in enumerate(zip(known, rows, strict=True))
        if row["bytes"] <= _EMULATED and any(case["params"] == whole["params"] for whole in chosen)
    ]
    return (record(known[min(fits)[1]]),) if fits else ()


def _languages(wanted: Sequence[str], target: Target | None, plain: bool) -> tuple[str, ...]:
    """Python always; those that get bare pointers only where the arguments are nothing but tensors."""
    gpu, march = target is not None and target.kind == "gpu", target.march if target else ""
    fits = {
        "python": True,
        "triton": gpu,
        "cpp": plain and not gpu,
        "cuda": plain and gpu and march.startswith("sm_"),
        "hip": plain and gpu and march.startswith("gfx"),
    }
    return tuple(name for name in wanted if fits[name])
