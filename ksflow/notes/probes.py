"""Probes: small programs that ask the hardware a question, and what their answers say.

Covered: reading the shipped ones (knowledge/probes), a problem for the judge of each, figures from its word. NOT
covered: running them (a bench does), keeping the notes (`probe`).
"""

import math
import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import yaml

from ksflow.arithmetic import calculate
from ksflow.errors import ConfigError
from ksflow.home import shipped
from ksflow.records import (
    LANGUAGES,
    Arg,
    Case,
    Evaluation,
    Kernel,
    Limits,
    Note,
    Problem,
    Record,
    Scalar,
    Status,
    Target,
)
from ksflow.target import label

KINDS = {"cpu": "cpp", "sm_": "cuda", "gfx": "hip"}
"""How a target begins (its kind, or its `march`) -> the language that probes ask it in."""
UNITS = {"GB/s": 1e9, "TB/s": 1e12, "GFLOP/s": 1e9, "TFLOP/s": 1e12}
"""Units of rates that a data sheet's peaks can be held against."""
LIMITS = Limits(compile_s=120, check_s=60, time_s=60, memory_mb=8192)
_SHOWN = 256
_VALUES = 16
_TIMED = re.compile(r"\bus\b")
_PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "k": 1e3, "G": 1e9, "M": 1e6, "T": 1e12}
_QUANTITY = re.compile(r"((\d[\d,]*(?:\.\d+)?) ?([nuµmkMGT]?)(B/s|FLOP/s|Hz|s|cycles)\b)")
_SENTENCE = re.compile(r"(?<=[.;:])\s")
_WORD = re.compile(r"[a-z0-9]+")


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
        return any(_TIMED.search(figure.value) for figure in self.figures.values())

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
            limits=LIMITS,
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


@dataclass(frozen=True)
class Form:
    """What probes of a kind compute."""

    doc: str
    args: tuple[Arg, ...]


@dataclass(frozen=True)
class Reading:
    """One figure as it was measured."""

    unit: str
    middle: float
    low: float
    high: float
    peak: float | None = None
    """In the same unit."""

    def __str__(self) -> str:
        spread = "" if self.low == self.high else f" ({_digits(self.low)} to {_digits(self.high)})"
        return f"{_digits(self.middle)} {self.unit}".strip() + spread

    @property
    def flag(self) -> str:
        """What is odd about it; empty for a figure that can be."""
        if self.peak is None or self.middle <= self.peak:
            return ""
        return f"{_digits(self.middle)} {self.unit} is more than the data sheet's {_digits(self.peak)}: doubt it"


def language(target: Target) -> str:
    """In which language a target is asked; empty where in none."""
    word = "cpu" if target.kind == "cpu" else target.march
    return next((name for begins, name in KINDS.items() if word.startswith(begins)), "")


@cache
def forms() -> Mapping[str, Form]:
    """What a probe can compute."""
    rows = yaml.safe_load(shipped("knowledge", "probes", "forms", "forms.yaml").read_text())
    return {name: Form(row["doc"].strip(), tuple(Arg(**arg) for arg in row["args"])) for name, row in rows.items()}


@cache
def ready() -> tuple[Probe, ...]:
    """The shipped ones. Raises ConfigError that names the file."""
    return tuple(read(file) for file in sorted(shipped("knowledge", "probes").glob("*/*.yaml")) if _is_probe(file))


def read(file: Path) -> Probe:
    """One probe: its YAML file, and the program beside it. Raises ConfigError."""
    try:
        spec: dict[str, Any] = yaml.safe_load(file.read_text())
        named = file.parent.glob(spec.pop("program", f"{file.stem}.*"))
        source = next(path for path in sorted(named) if path.suffix in LANGUAGES)
        figures = {name: Figure(**row) for name, row in spec.pop("figures", {}).items()}
        needs, keywords = (tuple(spec.pop(key, ())) for key in ("needs", "keywords"))
        kernel = Kernel(LANGUAGES[source.suffix], {source.name: source.read_text()})
        probe = Probe(file.stem, kernel=kernel, figures=figures, needs=needs, keywords=keywords, **spec)
        check(probe)
    except (OSError, StopIteration, TypeError, AttributeError, ValueError, yaml.YAMLError) as error:
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
        for case in _of(probe, figure):
            known = {"us": 1.0, **{f"y{index}": 1.0 for index in range(_VALUES)}}
            _figure(figure, {**_numbers(probe.cases[case]), **known})
    _filled(probe.text, dict.fromkeys(probe.figures, ""))


def readings(probe: Probe, evaluation: Evaluation, target: Target) -> dict[str, Reading]:
    """Every figure, by the time that the judge ranks (a CPU's calm low, a GPU's median), and the middle half of calls.

    ValueError for one that has none.
    """
    return {name: _reading(probe, figure, evaluation, target) for name, figure in probe.figures.items()}


def note(probe: Probe, evaluation: Evaluation, target: Target) -> Note:
    """What an accepted answer says. ValueError where a figure cannot be computed."""
    found = readings(probe, evaluation, target)
    words: dict[str, object] = {name: str(reading) for name, reading in found.items()}
    rows = outputs(evaluation)
    text = _filled(probe.text, {**words, "places": _listed(next(iter(rows.values()), []))})
    flags = [reading.flag for reading in found.values() if reading.flag]
    return Note(
        title=probe.title,
        text=" ".join([text.strip(), *(f"NOTE: {flag}." for flag in flags)]),
        sources=(source(probe, target),),
        targets=(label(target),),
        status=Status.MEASURED,
        program=next(iter(probe.kernel.files)),
    )


def source(probe: Probe, target: Target) -> str:
    """What a note of it rests on: the same for the same program on the same machine, found or named."""
    machine = replace(target, name=label(target)).fingerprint
    return f"probe {probe.name} on {target.chip} ({machine}, program {probe.kernel.digest[:8]})"


def outputs(evaluation: Evaluation) -> dict[str, list[float]]:
    """Case -> the values of its first output, where they are small enough to be shown."""
    rows = evaluation.evidence.get("checked", ())
    return {row["case"]: [float(value) for value in row["outputs"][0]] for row in rows if row.get("outputs")}


def about(probe: Probe, text: str) -> bool:
    """Whether it measures what a claim says: a sentence has all words of a keyword, and a quantity in its unit."""
    for sentence in _SENTENCE.split(text):
        said = set(_WORD.findall(sentence.lower()))
        named = any(set(_WORD.findall(keyword.lower())) <= said for keyword in probe.keywords)
        if named and any(_quantities(sentence, _bases(probe))):
            return True
    return False


def contradicted(claim: str, found: str, probe: Probe, times: float) -> str:
    """A claim's figure that no measured one comes near, by a factor; empty where there is none.

    Only figures in the probe's own units count, those with a prefix of theirs (TB/s for GB/s) included.
    """
    bases = _bases(probe)
    measured = [value for _, value, _ in _quantities(found, bases)]
    for _, value, words in _quantities(claim, bases):
        if measured and not any(value / times <= one <= value * times for one in measured):
            return words
    return ""


# -- inside ----------------------------------------------------------------------------------------


def _bases(probe: Probe) -> set[str]:
    """The units of its figures, without prefixes."""
    units = (figure.unit for figure in probe.figures.values())
    return {unit[1:] if unit[:1] in _PREFIXES else unit for unit in units}


def _quantities(text: str, bases: set[str]) -> Iterator[tuple[str, float, str]]:
    """(unit, value, the words) of each quantity in a text that has one of these units."""
    for words, number, prefix, unit in _QUANTITY.findall(text):
        if unit in bases:
            yield unit, float(number.replace(",", "")) * _PREFIXES[prefix], words


def _is_probe(file: Path) -> bool:
    return file.parent.name != "forms"


def _cases(rows: Mapping[str, Mapping[str, Scalar]]) -> tuple[Case, ...]:
    return tuple(Case(name, dict(params), seed) for seed, (name, params) in enumerate(rows.items(), 1))


def _numbers(params: Mapping[str, Scalar]) -> dict[str, float]:
    return {name: value for name, value in params.items() if isinstance(value, int | float)}


def _of(probe: Probe, figure: Figure) -> Iterator[str]:
    return (case for case in probe.cases if figure.case in ("", case))


def _figure(figure: Figure, names: Mapping[str, float]) -> float:
    value = float(calculate(figure.value, names))
    if not math.isfinite(value):
        raise ValueError(f"{figure.value!r} is {value}")
    return value


def _reading(probe: Probe, figure: Figure, evaluation: Evaluation, target: Target) -> Reading:
    timings = {timing.case: timing for timing in evaluation.timings}
    shown = outputs(evaluation)
    ranked, values = [], []
    for case in _of(probe, figure):
        names = _numbers(probe.cases[case]) | {f"y{i}": y for i, y in enumerate(shown.get(case, ())[:_VALUES])}
        if not _TIMED.search(figure.value):
            ranked.append(_figure(figure, names))
        elif case in timings:
            timing = timings[case]
            ranked.append(_figure(figure, {**names, "us": timing.us}))
            values += [_figure(figure, {**names, "us": us}) for us in timing.samples_us]
    if not ranked:
        raise ValueError(f"nothing was timed for {figure.value!r}")
    middle, values = statistics.median(ranked), sorted(values or ranked)
    cut = len(values) // 4
    peak, per = target.peaks.get(figure.peak), UNITS.get(figure.unit)
    low, high = min(values[cut], middle), max(values[-1 - cut], middle)
    return Reading(figure.unit, middle, low, high, peak / per if peak and per else None)


def _filled(text: str, words: Mapping[str, object]) -> str:
    """Names in braces replaced, and nothing else read into the text. ValueError for an unknown one."""

    def word(found: "re.Match[str]") -> str:
        if found[1] not in {*words, "places"}:
            raise ValueError(f"text: no figure {found[1]!r}; figures: {', '.join(words)}")
        return str(words.get(found[1], ""))

    return re.sub(r"\{(\w+)\}", word, text)


def _listed(values: list[float]) -> str:
    more = f" ... ({len(values)} in all)" if len(values) > _SHOWN else ""
    return " ".join(f"{value:g}" for value in values[:_SHOWN]) + more


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
