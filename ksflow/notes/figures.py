"""Results of probes: figures, the note with them, and the claims that they concern."""

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ksflow.kernels.hardware.target import label
from ksflow.notes.probes import VALUES, Probe
from ksflow.records import Evaluation, Note, Status, Target

_RATES = {"GB/s": 1e9, "TB/s": 1e12, "GFLOP/s": 1e9, "TFLOP/s": 1e12}
"""Units of rates that can be compared with a data sheet's peaks."""
_SHOWN = 256  # values of an output
_PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "k": 1e3, "G": 1e9, "M": 1e6, "T": 1e12}
_QUANTITY = re.compile(r"((\d[\d,]*(?:\.\d+)?) ?([nuµmkMGT]?)(B/s|FLOP/s|Hz|s|cycles)\b)")
_SENTENCE = re.compile(r"(?<=[.;:])\s")
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class FigureReading:
    """One measured figure."""

    unit: str
    middle: float
    low: float
    high: float
    peak: float | None = None  # in the same unit

    def __str__(self) -> str:
        spread = "" if self.low == self.high else f" ({_digits(self.low)} to {_digits(self.high)})"
        return f"{_digits(self.middle)} {self.unit}".strip() + spread

    @property
    def flag(self) -> str:
        """A warning if the figure exceeds its peak, or ""."""
        if self.peak is None or self.middle <= self.peak:
            return ""
        return f"{_digits(self.middle)} {self.unit} is more than the data sheet's {_digits(self.peak)}: doubt it"


def readings(probe: Probe, evaluation: Evaluation, target: Target) -> dict[str, FigureReading]:
    """Return every figure, by the judge's ranked time, with the middle half of calls. ValueError without a value."""
    timings, shown = {timing.case: timing for timing in evaluation.timings}, outputs(evaluation)
    readings = {}
    for name, figure in probe.figures.items():
        ranked, values = [], []
        for case, numbers in probe.measured_cases(figure):
            names = numbers | {f"y{i}": y for i, y in enumerate(shown.get(case, ())[:VALUES])}
            if not figure.timed:
                ranked.append(figure.calculated(names))
            elif case in timings:
                ranked.append(figure.calculated({**names, "us": timings[case].us}))
                values += [figure.calculated({**names, "us": us}) for us in timings[case].samples_us]
        if not ranked:
            raise ValueError(f"nothing was timed for {figure.value!r}")
        middle, values = statistics.median(ranked), sorted(values or ranked)
        cut = len(values) // 4
        low, high = min(values[cut], middle), max(values[-1 - cut], middle)
        peak, per = target.peaks.get(figure.peak), _RATES.get(figure.unit)
        readings[name] = FigureReading(figure.unit, middle, low, high, peak / per if peak and per else None)
    return readings


def note(probe: Probe, evaluation: Evaluation, target: Target) -> Note:
    """Return the note of an accepted result. Raises ValueError if a figure cannot be computed."""
    figures = readings(probe, evaluation, target)
    values = next(iter(outputs(evaluation).values()), [])
    places = " ".join(f"{value:g}" for value in values[:_SHOWN])
    if len(values) > _SHOWN:
        places += f" ... ({len(values)} in all)"
    text = probe.render_text({**{name: str(reading) for name, reading in figures.items()}, "places": places})
    flags = [reading.flag for reading in figures.values() if reading.flag]
    return Note(
        title=probe.title,
        text=" ".join([text.strip(), *(f"NOTE: {flag}." for flag in flags)]),
        sources=(source(probe, target),),
        targets=(label(target),),
        status=Status.MEASURED,
        program=next(iter(probe.kernel.files)),
    )


def source(probe: Probe, target: Target) -> str:
    """Return the source of its note, which is the same for the same program on the same machine."""
    machine = replace(target, name=label(target)).fingerprint
    return f"probe {probe.name} on {target.chip} ({machine}, program {probe.kernel.digest[:8]})"


def outputs(evaluation: Evaluation) -> dict[str, list[float]]:
    """Return case -> the values of its first output, if small enough."""
    rows = evaluation.evidence.checked
    return {row.case: [float(value) for value in row.outputs[0]] for row in rows if row.outputs}


def measures_claim(probe: Probe, text: str) -> bool:
    """Return whether it measures a claim's topic: a sentence has all words of a keyword, and a quantity in its unit."""
    return any(_claimed(text, probe))


def find_contradiction(claim: str, reading: str, probe: Probe, times: float) -> str:
    """Return a claim's figure that differs from all measured ones by more than a factor, or "". Only figures in the
    probe's units count, and of those the ones said of its keywords; if there are none, one close figure is enough for
    agreement.
    """
    measured = [value for _, value, _ in _quantities(reading, probe)]
    bound, quantities = list(_claimed(claim, probe)), list(_quantities(claim, probe))
    far = [
        words
        for _, value, words in bound or quantities
        if measured and not any(value / times <= near <= value * times for near in measured)
    ]
    return far[0] if far and (bound or len(far) == len(quantities)) else ""


def _claimed(text: str, probe: Probe) -> Iterator[tuple[int, float, str]]:
    """Yield the quantity that a sentence states for each keyword whose words it has: the next one, else the last."""
    for sentence in _SENTENCE.split(text):
        first = {word[0]: word.start() for word in reversed(list(_WORD.finditer(sentence.lower())))}
        quantities = list(_quantities(sentence, probe))
        for words in (_WORD.findall(keyword.lower()) for keyword in probe.keywords):
            if quantities and words and all(word in first for word in words):
                yield next((quantity for quantity in quantities if quantity[0] > first[words[0]]), quantities[-1])


def _quantities(text: str, probe: Probe) -> Iterator[tuple[int, float, str]]:
    """Yield (place, value, text) of each quantity with a unit of the probe's figures, with any prefix."""
    units = [figure.unit for figure in probe.figures.values()]
    bases = {unit[1:] if unit[:1] in _PREFIXES else unit for unit in units}
    for match in _QUANTITY.finditer(text):
        words, number, prefix, unit = match.groups()
        if unit in bases:
            yield match.start(), float(number.replace(",", "")) * _PREFIXES[prefix], words


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
