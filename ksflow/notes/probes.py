"""Probes: small programs that measure the hardware.

Covered: reading the shipped ones (knowledge/probes), and making a problem for the judge of each. NOT covered: running
them (a bench does), interpreting their results (`figures`), storing notes (`ksflow.cli.probe`).
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
from ksflow.home import shipped_path
from ksflow.kernels.languages import ENDINGS
from ksflow.kernels.source.expressions import calculate
from ksflow.records import Arg, Case, Evaluation, Kernel, Limits, Problem, Record, Scalar, Target

_LANGUAGES = {"cpu": "cpp", "sm_": "cuda", "gfx": "hip"}
"""Prefix of a target's kind or `march` -> the language of its probes."""
_LIMITS = Limits(compile_s=120, check_s=60, time_s=60, memory_mb=8192)
VALUES = 16  # values of an output that figures can use: y0, y1 ...


class ProbeBench(Protocol):
    """Runs probes."""

    target: Target
    present: bool  # whether the chip is in this machine

    def __call__(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Return times, and small outputs as evidence (`checked`, `outputs`). Never raises for a bad program."""


@dataclass(frozen=True)
class Figure(Record):
    """A figure of a probe."""

    value: str
    """An expression over a case's numbers, `us` (a call's time) and y0, y1 ... (the outputs' first 16 values)."""
    unit: str
    case: str = ""  # its case; empty for all cases
    peak: str = ""  # the data sheet's rate that it cannot exceed: `bytes`, `flops.bf16`

    @property
    def timed(self) -> bool:
        """Whether it needs a time."""
        return bool(re.search(r"\bus\b", self.value))

    def calculated(self, names: Mapping[str, float]) -> float:
        """Return the value for these names. Raises ValueError."""
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
    form: str  # one of `forms()`: the computation, and its check
    kernel: Kernel
    cases: Mapping[str, Mapping[str, Scalar]]
    figures: Mapping[str, Figure]
    text: str  # the note's, with {NAME} for a figure, {places} for the outputs
    march: str = ""  # prefix of the `march` of its chips
    needs: tuple[str, ...] = ()  # required features of a CPU
    keywords: tuple[str, ...] = ()  # topics of claims that it decides; a claim must have all words of one of them
    small: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)  # cases for an emulator

    @property
    def timed(self) -> bool:
        """Whether a figure needs a time."""
        return any(figure.timed for figure in self.figures.values())

    @cached_property
    def problem(self) -> Problem:
        """The problem for the judge."""
        form = forms()[self.form]
        cases = _cases(self.cases)
        return Problem(
            name=f"probe-{self.name}",
            title=self.title,
            description=self.question,
            statement=self.question,
            root=str(shipped_path("knowledge", "probes", "forms", self.form)),
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
        """Return why a target cannot run it, or ""."""
        if language(target) != self.kernel.language:
            return f"it asks in {self.kernel.language}"
        if not target.march.startswith(self.march):
            return f"it is for {self.march}, not for {target.march}"
        missing = [need for need in self.needs if need not in target.features]
        return f"{target.chip} has no {', '.join(missing)}" if missing else ""

    def measured_cases(self, figure: Figure) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield the cases of a figure, with their numbers."""
        for case, params in self.cases.items():
            if figure.case in ("", case):
                yield case, {name: value for name, value in params.items() if isinstance(value, int | float)}

    def render_text(self, words: Mapping[str, object]) -> str:
        """Return its text, with names in braces replaced. Raises ValueError for an unknown name."""
        if unknown := {*re.findall(r"\{(\w+)\}", self.text)} - {*words, "places"}:
            raise ValueError(f"text: no figure {min(unknown)!r}; figures: {', '.join(words)}")
        return re.sub(r"\{(\w+)\}", lambda match: str(words.get(match[1], "")), self.text)


@dataclass(frozen=True)
class Form:
    """The computation of a kind of probes."""

    doc: str
    args: tuple[Arg, ...]


def language(target: Target) -> str:
    """Return the language of a target's probes, or ""."""
    word = "cpu" if target.kind == "cpu" else target.march
    return next((name for begins, name in _LANGUAGES.items() if word.startswith(begins)), "")


@cache
def forms() -> Mapping[str, Form]:
    """Return the computations of probes, by name."""
    rows = yaml.safe_load(shipped_path("knowledge", "probes", "forms", "forms.yaml").read_text(encoding="utf-8"))
    return {name: Form(row["doc"].strip(), tuple(Arg(**arg) for arg in row["args"])) for name, row in rows.items()}


@cache
def shipped_probes() -> tuple[Probe, ...]:
    """Return the shipped probes. Raises ConfigError, which names the file."""
    files = sorted(shipped_path("knowledge", "probes").glob("*/*.yaml"))
    return tuple(read_probe(file) for file in files if file.parent.name != "forms")


def read_probe(file: Path) -> Probe:
    """Return one probe from its YAML file and the program beside it. Raises ConfigError."""
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
    """Raise ValueError if the probe is invalid."""
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
        for _, numbers in probe.measured_cases(figure):
            known = {"us": 1.0, **{f"y{index}": 1.0 for index in range(VALUES)}}
            figure.calculated({**numbers, **known})
    probe.render_text(dict.fromkeys(probe.figures, ""))


def _cases(rows: Mapping[str, Mapping[str, Scalar]]) -> tuple[Case, ...]:
    return tuple(Case(name, dict(params), seed) for seed, (name, params) in enumerate(rows.items(), 1))
