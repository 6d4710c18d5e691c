"""From what an importer has read to a `Problem`: the reference for the judge, the cases that fit this machine."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.formats.cases import CAPS, SeededParams, build_cases, merged_sizes, parse_cap
from ksflow.formats.checkout import path_in_checkout
from ksflow.formats.isolated import IsolatedFailure, run_isolated
from ksflow.kernels.hardware.target import default_target
from ksflow.kernels.languages import LANGUAGES
from ksflow.kernels.problem.loader import languages_of, similar_languages
from ksflow.records import Arg, Case, Check, Json, Limits, Problem, Seed, Target, digest

_REFERENCE = '''"""{title}. Made by ksflow; the files are as they were."""

from ksflow.formats.runtime import install

FILES = {files}
SPEC = {spec}
install(globals(), {format!r}, FILES, SPEC)
'''
ACCUMULATE = "bfloat16"  # the arithmetic to ask for: no format says it, and their bounds are wide
_TIMEOUT_S = 600.0
_SMALLER = dict.fromkeys(("gpumode", "kernelbench", "flashinfer"), "problem.cap=N") | {"kernel": "problem.cases=[...]"}
"""Format -> what asks for smaller cases."""
CUT = "sizes are cut to"
_HINTS = {
    "Invalid scaling configuration": "torch multiplies NVFP4 only on GPUs that have it (Blackwell): read and judge it "
    "on a machine with one",
    "huggingface.co": "its weights are not on this machine and cannot be fetched now: have them once where there is a "
    "network, or let HF_HOME name the folder that has them",
    "took longer than": "give smaller cases",
    "active drivers": "it is Triton code: read and judge it on a machine with a GPU",
    "No module named": "install that package where the problem is read and judged",
}
"""What a failure says -> what would help."""
_EMULATED_BYTES = 1 << 20  # inputs and outputs up to which an emulator is given a case
_VERSION = 8  # of what is kept of a description
_COPIES = 8  # of a case's tensors, that a judge may hold at once


@dataclass(frozen=True)
class CaseBudget:
    """What a machine may spend on a case. On CPUs sizes above a cap are cut to it; a GPU takes them as they are."""

    memory_mb: int = 2048  # of a case's inputs and outputs
    generate_s: float = 2.5
    run_s: float = 1.0
    total_s: float = 6.0  # of all cases together: each is made and run many times


_ON_GPU = CaseBudget(generate_s=60.0, run_s=60.0, total_s=600.0)


@dataclass(frozen=True)
class CaseSet:
    """The cases under a cap."""

    cap: int | None
    cases: list[Json]
    merged: Sequence[str]  # sizes that differ in the problem and are the same here, in words
    key: str  # what another set with the same sizes has, too


@dataclass(frozen=True)
class ParsedProblem:
    """What an importer found in a problem's files. What has no word here is as in `Problem`."""

    name: str
    title: str
    statement: str
    format: str  # the folder of this room whose `runtime` runs it
    files: Mapping[str, str]  # as they are
    spec: Json  # what the runtime needs to know beside the files
    tests: Sequence[SeededParams]  # cases that are checked; empty: the benchmarks
    benchmarks: Sequence[SeededParams]
    listing: str
    called: str
    origin: Json
    support: Mapping[str, str] = field(default_factory=dict)  # files that a candidate may import
    score: str = "geomean"
    limits: Limits = field(default_factory=lambda: Limits(120.0, 180.0, 180.0, 16384))
    seeds: tuple[Seed, ...] = ()
    good: tuple[Seed, ...] = ()
    bad: tuple[Seed, ...] = ()
    arg_names: tuple[str, ...] = ()  # where the format has them
    optional: str = ""  # a parameter that a case's name has only where it takes that to tell two apart
    languages: tuple[str, ...] = ("python", "triton", "cpp", "cuda", "hip")
    fixed: Sequence[int] = ()  # sizes that no cap cuts, which cut ones must not become equal to
    resize: Callable[[int], tuple[str, Sequence[str]]] | None = None
    """Of a format that cuts in its own way: cap -> (what is the same for the same sizes, what became alike)."""

    def problem(self, **known: Any) -> Problem:
        """The problem, with what is known of it beside its files."""
        unknown: Json = {"description": "", "root": "", "reference": self.listing, "languages": self.languages}
        unknown |= {"args": (), "dims": (), "tests": (), "benchmarks": (), "origin": self.origin}
        shared = ("name", "title", "statement", "score", "limits", "seeds", "good", "bad", "called", "listing")
        return Problem(**{**unknown, **{key: getattr(self, key) for key in shared}, "files": self.support, **known})


def assemble(
    parsed: ParsedProblem, target: Target | None, cap: int | str | None = "auto", budget: CaseBudget = CaseBudget()
) -> Problem:
    """The problem for a target. Raises ConfigError where its reference does not run there.

    cap: the largest size; `auto` has a CPU take the largest that fits the budget; None for none.
    """
    device = "cuda" if target and target.kind == "gpu" else "cpu"
    text = _REFERENCE.format(
        title=parsed.title.replace('"', "'").replace("\\", "/"),
        files=repr(dict(parsed.files)),
        spec=repr(dict(parsed.spec)),
        format=parsed.format,
    )
    folder = home.cache("imported", digest(text, digits=24))
    folder.mkdir(parents=True, exist_ok=True)
    reference = folder / "reference.py"
    if not reference.exists():
        home.write(reference, text)
    absent = device == "cuda" and default_target().kind == "cpu"
    if absent:  # another machine judges: a small case on this one tells what arguments there are
        chosen = _case_set(parsed, parse_cap(cap))
        described, rows = _largest_fitting(parsed, reference, "cpu", "auto", budget)
    else:
        chosen, rows = _largest_fitting(parsed, reference, device, cap, budget)
        described = chosen
    tests, benchmarks = ([case for case in chosen.cases if case["test"] is test] for test in (True, False))
    first = next(row["tensors"] for case, row in zip(described.cases, rows, strict=True) if not case["test"])
    plain = all(row["plain"] and not row["inout"] for row in rows)
    params = [case["params"] for case in benchmarks]
    dims = [key for key in params[0] if key.isidentifier() and all(type(each.get(key)) is int for each in params)]
    small = [  # for an emulator: the smallest case that is as the problem has it, as a kernel may count on its sizes
        (row["bytes"], index)
        for index, (case, row) in enumerate(zip(described.cases, rows, strict=True))
        if row["bytes"] <= _EMULATED_BYTES and any(case["params"] == whole["params"] for whole in chosen.cases)
    ]
    args = _args(parsed.arg_names, first, shown=not absent)
    same = [arg.name for arg, tensor in zip(args, first, strict=True) if tensor["same"]]
    cut = params != [dict(whole) for whole, _ in parsed.benchmarks]
    origin = {**parsed.origin, "inferred": _inferred(parsed, chosen, cut, same), "cap": chosen.cap}
    if narrowed := next((row["narrowed"] for row in rows if row["narrowed"]), ""):
        known = f"the reference answers in float64 and computes in {narrowed}: it knows no more digits than that"
        origin["narrowed"] = known
    # of all that could change a verdict or a time, not of where the files lie: checkouts move, machines compare
    spec = {key: value for key, value in parsed.spec.items() if key != "root"}
    identity = [parsed.format, dict(parsed.files), spec, ACCUMULATE, chosen.cases, parsed.score]
    # bare pointers only where the arguments are nothing but tensors
    languages = languages_of([n for n in parsed.languages if plain or LANGUAGES[n].python], target)
    return parsed.problem(
        description=path_in_checkout(Path(parsed.origin.get("path", ""))),
        root=str(folder),
        reference=text,
        languages=languages,
        alike=similar_languages(languages, target),
        args=args,
        dims=tuple(dims) if plain else (),
        tests=tuple(map(as_case, tests or benchmarks)),
        benchmarks=tuple(map(as_case, benchmarks)),
        small=(as_case(described.cases[min(small)[1]]),) if small else (),
        check=Check(accumulate=ACCUMULATE),
        digest=digest(json.dumps(identity, default=str)),
        origin=origin,
    )


def _inferred(parsed: ParsedProblem, chosen: CaseSet, cut: bool, same: list[str]) -> list[str]:
    """Return what was inferred and is not upstream's. same: the arguments that every seed fills with one value."""
    inferred = list(parsed.origin.get("inferred", ()))
    if chosen.cap is not None and cut:
        inferred.append(f"{CUT} {chosen.cap}, batches to a sixteenth of it; problem.cap=null takes them as they are")
        if chosen.merged:
            alike = "sizes that differ are the same here, so that a kernel which takes one for the other is not noticed"
            inferred.append(f"{alike}: {'; '.join(chosen.merged)}")
    if same:
        inferred.append(f"each of {', '.join(same)} is filled with one value for every seed: a kernel need not read it")
    return inferred


def _largest_fitting(
    parsed: ParsedProblem, reference: Path, device: str, cap: int | str | None, budget: CaseBudget
) -> tuple[CaseSet, list[Json]]:
    """The largest cases that fit a device of this machine, and what each is made of. Raises ConfigError."""
    description: Json = {}
    for allowed, sets in _attempts(parsed, device, cap, budget):
        description = _described(reference, sets, device, allowed, first=bool(description))
        if description["step"] is not None:
            return sets[description["step"]], description["cases"]
        if "limit" not in [kind for *_, kind in description["tried"]]:
            break
    raise ConfigError(f"{parsed.name}: its reference does not run here: {_why(parsed, description['tried'], cap)}")


def _attempts(
    parsed: ParsedProblem, device: str, cap: int | str | None, budget: CaseBudget
) -> list[tuple[CaseBudget, list[CaseSet]]]:
    """What is tried one after the other: with more patience the smallest that runs will do, of those first in which no
    sizes became alike. For sizes that a user has asked for: what this machine can hold, as long as a judge would wait.
    """
    if device != "cpu":
        return [(_ON_GPU, [_case_set(parsed, parse_cap(cap))])]
    if cap != "auto":
        memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _COPIES >> 20
        patient = replace(_ON_GPU, memory_mb=max(budget.memory_mb, memory_mb))
        return [(patient, [_case_set(parsed, parse_cap(cap))])]
    distinct_sets: dict[str, CaseSet] = {}
    for size in (*CAPS, None):
        cases = _case_set(parsed, size)
        distinct_sets.pop(cases.key, None)
        distinct_sets[cases.key] = cases
    sets = [*distinct_sets.values()]  # smallest first, none twice
    distinct = [each for each in sets if not each.merged]
    if distinct:  # where sizes become alike, only those before all differ
        sets = [*sets[: sets.index(distinct[0])], *distinct]
    relaxed = CaseBudget(4 * budget.memory_mb, 10 * budget.generate_s, 10 * budget.run_s, 10 * budget.total_s)
    patient_sets = [distinct, sets] if distinct not in ([], sets) else [sets]
    return [(budget, sets), *((relaxed, again) for again in patient_sets)]


def _case_set(parsed: ParsedProblem, cap: int | None) -> CaseSet:
    cases = build_cases(parsed.tests, parsed.benchmarks, cap, parsed.optional, parsed.fixed)
    if parsed.resize is None:
        return CaseSet(cap, cases, merged_sizes((*parsed.tests, *parsed.benchmarks), cap, parsed.fixed), repr(cases))
    text, merged = parsed.resize(cap or 0)
    return CaseSet(cap, cases, merged, text)


def _why(parsed: ParsedProblem, tried: Sequence[Sequence[str]], cap: int | str | None) -> str:
    """Why no size will do, and what may help: other sizes only where they are the cause."""
    if not tried:
        return "there are no cases"
    (_, first, kind), (_, last, _) = tried[0], tried[-1]
    for word, hint in _HINTS.items():
        if reason := next((str(text) for _, text, _ in tried if word in text), ""):
            return f"{reason.partition(': ')[2].rstrip('.')}; {hint}"
    if kind == "always":
        dropout = "draws at random" in first and parsed.spec.get("training")
        return str(first).partition(": ")[2] + ("; problem.training=false has dropout do nothing" if dropout else "")
    why = first if first.partition(": ")[2] == last.partition(": ")[2] else f"{first}; at the largest size: {last}"
    if "limit" not in [kind for *_, kind in tried]:
        return f"{why}; another cap, or problem.cap=auto, may do" if parse_cap(cap) else why
    if not (key := _SMALLER.get(parsed.origin["format"])):
        return why
    return f"{why}; {key} takes what it says, with patience" if cap == "auto" else f"{why}; smaller sizes: {key}"


def _described(reference: Path, sets: Sequence[CaseSet], device: str, budget: CaseBudget, first: bool) -> Json:
    """What running told, kept for the next time."""
    limits = {"memory": budget.memory_mb << 20, "generate_s": budget.generate_s, "run_s": budget.run_s}
    order = {"reference": str(reference), "device": device, **limits, "total_s": budget.total_s, "first": first}
    order["ladder"] = [each.cases for each in sets]
    name = digest(json.dumps([_VERSION, order], default=str), digits=24)
    file = reference.parent / f"{name}.json"
    if file.exists():
        return dict(json.loads(file.read_text(encoding="utf-8")))
    try:
        description: Json = run_isolated("ksflow.formats.describe", order, _TIMEOUT_S)
    except IsolatedFailure as error:
        last = str(error)
        hint = "; target=cpu takes cuda for the CPU" if "cuda" in last.lower() and device == "cuda" else ""
        hint = next((f"; {remedy}" for word, remedy in _HINTS.items() if word in last), hint)
        raise ConfigError(f"the reference does not run: {last[:400]}{hint}") from error
    if description["step"] is not None:
        home.write(file, json.dumps(description))
    return description


def _args(known: Sequence[str], tensors: Sequence[Json], shown: bool) -> tuple[Arg, ...]:
    inputs = sum(not tensor["out"] for tensor in tensors)
    names = [*known[:inputs], *(f"x{index}" for index in range(len(known), inputs))]
    names += [f"out{index}" for index in range(len(tensors) - inputs)]
    docs = [f"{tensor['shape']} in the first benchmark" if shown else "" for tensor in tensors]
    rows = zip(names, tensors, docs, strict=True)
    return tuple(Arg(name, row["dtype"], "out" if row["out"] else "in", doc=doc) for name, row, doc in rows)


def without_compile(problem: Problem, compiled: bool) -> Problem:
    """The problem, which says that `torch.compile` is no baseline of it unless it is one."""
    if compiled:
        return problem
    left_out = [*problem.origin["dropped"], "torch.compile as a second baseline: problem.compile=true has it"]
    return replace(problem, origin={**problem.origin, "dropped": left_out})


def as_case(case: Json) -> Case:
    """One of `build_cases`."""
    return Case(case["name"], case["params"], case["seed"])
