"""Probes: small programs that ask the hardware a question.

Covered: reading the shipped ones (knowledge/probes), a problem for the judge of each. NOT covered: running them (a
bench does), what their answers say (`figures`), keeping the notes (`ksflow.cli.probe`).
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import yaml

from ksflow.errors import UNREADABLE, ConfigError
from ksflow.home import shipped
from ksflow.languages import ENDINGS
from ksflow.records import Arg, Case, Evaluation, Kernel, Limits, Problem, Record, Scalar, Target
from ksflow.source.expressions import calculate

_LANGUAGES = {"cpu": "cpp", "sm_": "cuda", "gfx": "hip"}
"""How a target begins (its kind, or its `march`) -> the language that probes ask it in."""
_LIMITS = Limits(compile_s=120, check_s=60, time_s=60, memory_mb=8192)
VALUES = 16
"""Of an output, those that figures can use: y0, y1 ..."""


class Bench(Protocol):
    """Where probes run."""

    target: Target
    present: bool
    """Whether the chip is here, so that it can be asked."""

    def __call__(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Times, and small outputs as evidence (`checked`, `outputs`). Never raises for a bad program."""


@dataclass(frozen=True)
class Figure(Record):
    """What a number means."""

    value: str
    """An expression over a case's numbers, `us` (a call's time) and y0, y1 ... (the outputs' first 16 values)."""
    unit: str
    case: str = ""
    """The case that it is of; empty for all of them."""
    peak: str = ""
    """The data sheet's rate that it cannot exceed: `bytes`, `flops.bf16` ..."""

    @property
    def timed(self) -> bool:
        """Whether it needs a time."""
        return bool(re.search(r"\bus\b", self.value))

    def calculated(self, names: Mapping[str, float]) -> float:
        """With what the names of its expression stand for. ValueError."""
        value = float(calculate(self.value, names))
        if not math.isfinite(value):
            raise ValueError(f"{self.value!r} is {value}")
        return value


@dataclass(frozen=True)
class Probe:
    """One question, as a program."""

    name: str
    title: str
    question: str
    form: str
    """One of `forms()`: what it computes, and how that is checked."""
    kernel: Kernel
    cases: Mapping[str, Mapping[str, Scalar]]
    figures: Mapping[str, Figure]
    text: str
    """The note's, with {NAME} for a figure, {places} for the outputs."""
    march: str = ""
    """How the `march` begins of the chips that can answer."""
    needs: tuple[str, ...] = ()
    """Features of a CPU."""
    keywords: tuple[str, ...] = ()
    """What a claim is about that it settles: all the words of one of them."""
    small: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    """Cases for an emulator."""

    @property
    def timed(self) -> bool:
        """Whether its answer is a time."""
        return any(figure.timed for figure in self.figures.values())

    @cached_property
    def problem(self) -> Problem:
        """What the judge is told."""
        form = forms()[self.form]
        cases = _cases(self.cases)
        return Problem(
            name=f"probe-{self.name}",
            title=self.title,
            description=self.question,
            statement=self.question,
            root=str(shipped("knowledge", "probes", "forms", self.form)),
            reference="",
            languages=(self.kernel.language,),
            args=form.args,
            dims=("n", "turns"),
            tests=cases,
            benchmarks=cases if self.timed else (),
            small=_cases(self.small),
            seeds=(),
            limits=_LIMITS,
            digest=f"{self.form}-{self.kernel.digest}",
        )

    def lacks(self, target: Target) -> str:
        """Why a target cannot answer; empty when it can."""
        if language(target) != self.kernel.language:
            return f"it asks in {self.kernel.language}"
        if not target.march.startswith(self.march):
            return f"it is for {self.march}, not for {target.march}"
        missing = [need for need in self.needs if need not in target.features]
        return f"{target.chip} has no {', '.join(missing)}" if missing else ""

    def measured(self, figure: Figure) -> Iterator[tuple[str, dict[str, float]]]:
        """The cases that a figure is of, with their numbers."""
        for case, params in self.cases.items():
            if figure.case in ("", case):
                yield case, {name: value for name, value in params.items() if isinstance(value, int | float)}

    def told(self, words: Mapping[str, object]) -> str:
        """Its text, with names in braces replaced and nothing else read into it. ValueError for an unknown one."""

        def word(match: "re.Match[str]") -> str:
            if match[1] not in {*words, "places"}:
                raise ValueError(f"text: no figure {match[1]!r}; figures: {', '.join(words)}")
            return str(words.get(match[1], ""))

        return re.sub(r"\{(\w+)\}", word, self.text)


@dataclass(frozen=True)
class Form:
    """What probes of a kind compute."""

    doc: str
    args: tuple[Arg, ...]


def language(target: Target) -> str:
    """In which language a target is asked; empty where in none."""
    word = "cpu" if target.kind == "cpu" else target.march
    return next((name for begins, name in _LANGUAGES.items() if word.startswith(begins)), "")


@cache
def forms() -> Mapping[str, Form]:
    """What a probe can compute."""
    rows = yaml.safe_load(shipped("knowledge", "probes", "forms", "forms.yaml").read_text(encoding="utf-8"))
    return {name: Form(row["doc"].strip(), tuple(Arg(**arg) for arg in row["args"])) for name, row in rows.items()}


@cache
def ready() -> tuple[Probe, ...]:
    """The shipped ones. Raises ConfigError that names the file."""
    files = sorted(shipped("knowledge", "probes").glob("*/*.yaml"))
    return tuple(read(file) for file in files if file.parent.name != "forms")


def read(file: Path) -> Probe:
    """One probe: its YAML file, and the program beside it. Raises ConfigError."""
    try:
        spec: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
        named = file.parent.glob(spec.pop("program", f"{file.stem}.*"))
        source = next(path for path in sorted(named) if path.suffix in ENDINGS)
        figures = {name: Figure(**row) for name, row in spec.pop("figures", {}).items()}
        needs, keywords = (tuple(spec.pop(key, ())) for key in ("needs", "keywords"))
        kernel = Kernel(ENDINGS[source.suffix], {source.name: source.read_text(encoding="utf-8")})
        probe = Probe(file.stem, kernel=kernel, figures=figures, needs=needs, keywords=keywords, **spec)
        check(probe)
    except (*UNREADABLE, StopIteration, yaml.YAMLError) as error:
        raise ConfigError(f"{file} is not a probe (see knowledge/probes/forms/forms.yaml): {error}") from error
    return probe


def check(probe: Probe) -> None:
    """Whether it can be asked. ValueError says what is wrong with it."""
    if probe.form not in forms():
        raise ValueError(f"form {probe.form!r} is not one of {', '.join(forms())}")
    if not probe.cases:
        raise ValueError("it has no cases")
    for name, params in (*probe.cases.items(), *probe.small.items()):
        if not {"n", "turns"} <= params.keys():
            raise ValueError(f"case {name} lacks n or turns")
    for name, figure in probe.figures.items():
        if figure.case and figure.case not in probe.cases:
            raise ValueError(f"figure {name}: no case {figure.case!r}; cases: {', '.join(probe.cases)}")
        for _, numbers in probe.measured(figure):
            known = {"us": 1.0, **{f"y{index}": 1.0 for index in range(VALUES)}}
            figure.calculated({**numbers, **known})
    probe.told(dict.fromkeys(probe.figures, ""))


def _cases(rows: Mapping[str, Mapping[str, Scalar]]) -> tuple[Case, ...]:
    return tuple(Case(name, dict(params), seed) for seed, (name, params) in enumerate(rows.items(), 1))
