"""A verdict for a person: result, speed-ups, errors against bounds, and further evidence."""

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console

from ksflow.errors import pluralize
from ksflow.kernels.hardware import compiler_report, roofline
from ksflow.records import (
    SELF_TIMED,
    Clocks,
    Evaluation,
    Ratio,
    RooflineCase,
    SanitizerFinding,
    TimedCase,
    Timing,
    Verdict,
    as_json,
)
from ksflow.report.words import format_us, grid, not_ranked, say

_OTHERS = (
    *("cores", "load", "throttled", "spent_s", "upstream", "unranked", "skipped", "one_process", "layers"),
    *("overhead_us", "device", "features", "phase", "at", "failed", "artefact", "made", "repeat"),
)  # parts of the evidence without a place of their own
_EVENTS = "device events"
# a device's state: key, name, unit
_STATE = (("sm_mhz", "SM", "MHz"), ("memory_mhz", "memory", "MHz"), ("watts", "", "W"), ("celsius", "", "°C"))
_LONG = 2000
_NOWHERE = RooflineCase(case="")
_TEXT = ("case", "kernel", "variant", "matrix instructions")  # columns of text, which may be wrapped
_DISPENSABLE = ("samples", "CPU µs", "p10 to p90", "compiler", "instructions", "roofline µs", "TFLOP/s", "GB/s")
"""Columns to drop in a narrow window, in this order."""


@dataclass(frozen=True)
class Description:
    """The sections of a verdict, in order."""

    head: list[str]  # the result
    tables: list[list[dict[str, str]]]  # a row for each timed case, and one for each compiled kernel
    lines: list[str]  # speed-ups, errors, circumstances
    texts: dict[str, str]  # output of the compiler and the kernel
    others: list[str]  # parts of the evidence without a place of their own


def describe(evaluation: Evaluation, names: Mapping[str, str] | None = None, details: bool = True) -> Description:
    """Return the description of a verdict; without `details` leave out how the judge worked.

    names: of the trials beside which it was timed.
    """
    evidence = evaluation.evidence
    timed = {row.case: row for row in evidence.timed}
    near = {row.case: row for row in evidence.roofline}
    cases = [
        _row(timing, timed.get(timing.case, TimedCase(case=timing.case)), near.get(timing.case, _NOWHERE))
        for timing in evaluation.timings
    ]
    compiled = [compiler_report.cells(row) for row in evidence.compiler]
    fields = as_json(evidence) if details else {}
    weights = ", ".join(f"{case} {weight:.3g}" for case, weight in evidence.weights.items())
    own = details or evaluation.verdict is not Verdict.HARNESS  # else a traceback of the judge's
    texts = {"error": evidence.error.strip() if details else "", "log": evidence.log.strip() if own else ""}
    return Description(
        _head(evaluation),
        [rows for rows in (cases, compiled) if rows],
        [
            *([f"weights of the cases in the score and in every ratio: {weights}"] if weights else []),
            *_beside(evaluation, names or {}),
            *_checks(evaluation, details),
            *_device(evaluation),
            *_circumstances(evaluation, details),
        ],
        {name: text[-_LONG:] for name, text in texts.items() if text},
        [f"{name}: {_words(fields[name])}" for name in (*_OTHERS, *evidence.more) if name in fields],
    )


def show(
    console: Console, evaluation: Evaluation, names: Mapping[str, str] | None = None, details: bool = True
) -> None:
    """Print the result of `describe`."""
    sections = describe(evaluation, names, details)
    say(console, "\n".join(sections.head))
    for rows in sections.tables:
        console.print(grid(console, rows, _TEXT, _TEXT, _DISPENSABLE))
    texts = [f"{name}\n{_indented(text)}" for name, text in sections.texts.items()]
    say(console, *("\n".join(sections.lines), *texts, *sections.others))


def spread_us(timing: Timing) -> tuple[float, float]:
    """Return the 10th and 90th percentile of the samples, widened to include the time itself."""
    samples = timing.samples_us or (timing.us,)
    tenths = statistics.quantiles(samples, n=10, method="inclusive") if len(samples) > 1 else [timing.us]
    return min(tenths[0], timing.us), max(tenths[-1], timing.us)


def _head(evaluation: Evaluation) -> list[str]:
    evidence = evaluation.evidence
    score = f"{format_us(evaluation.score_us)} µs" if evaluation.score_us else evaluation.reason
    lines = [f"verdict {evaluation.verdict.value}: {score}"]
    if doubt := not_ranked(evaluation):
        lines.append(doubt)
    if evidence.unconfirmed:
        lines.append(f"unconfirmed: {evidence.unconfirmed}")
    if was := evidence.renewed:
        score = f" {format_us(was.score_us)} µs" if was.score_us else ""
        lines.append(f"judged again after a change; was {was.verdict}{score}, judge {was.judge or 'unknown'}")
    if cached := evidence.cached:
        lines.append(f"not judged now, known from {cached.source} on {cached.date}")
    return lines


def _row(timing: Timing, timed: TimedCase, near: RooflineCase) -> dict[str, str]:
    low, high = spread_us(timing)
    interval = timed.interval_us
    rates = {"roofline µs": near.bound_us, "TFLOP/s": near.tflops, "GB/s": near.gbs}
    return {
        "case": timing.case,
        "µs": format_us(timing.us),
        "95 % interval": f"{format_us(interval[0])} to {format_us(interval[1])}" if interval else "",
        "p10 to p90": f"{format_us(low)} to {format_us(high)}" if len(timing.samples_us) > 1 else "",
        "samples": str(timed.rounds or len(timing.samples_us) or ""),
        "CPU µs": format_us(timing.cpu_us) if timing.cpu_us else "",
        **{name: "" if rate is None else f"{rate:.3g}" for name, rate in rates.items()},
        "of roofline": f"{compiler_report.percent(near.share)} {near.bound}".strip(),
        "error of bound": "" if timed.worst is None else f"{timed.worst:.1%}",
    }


def _beside(evaluation: Evaluation, names: Mapping[str, str]) -> list[str]:
    newest = max((row.moment for row in evaluation.evidence.against), default=0)
    rows = [
        describe_ratio(row, names.get(row.id, row.id))
        + ("" if row.moment == newest else f", seen {describe_moment(row.moment)}")
        for row in evaluation.evidence.against
    ]
    if claim := evaluation.claim:
        says = "faster than" if claim.faster else "not shown to be faster than"
        control = f"; control, the same kernel twice: {claim.control}" if claim.control else ""
        first = f" (before that {claim.first})" if claim.first else ""
        each = evaluation.evidence.cores_each
        rows.append(f"claim: {says} {names.get(claim.id, claim.id)}, {claim}{each}{first}{control}")
    if held := evaluation.evidence.heldout:
        beside = (
            f"; where it is right: {describe_ratio(held.over, names.get(held.over.id, held.over.id))}"
            if held.over
            else ""
        )
        cases = {**{case: f"{format_us(time)} µs" for case, time in held.right.items()}, **held.wrong}
        rows.append(f"{replace(held, over=None)}{beside}")
        rows += [f"held out {case}: {outcome}" for case, outcome in cases.items()]
    return rows


def describe_ratio(row: Ratio, name: str) -> str:
    """Return `x1.23 [1.20, 1.25] over NumPy`, with a remark for a tie or a ratio that is not ranked."""
    doubt = "" if row.ranked else f" (not ranked: {row.why})"
    clock = f", {SELF_TIMED}" if SELF_TIMED in row.clocks else ""
    return f"{row} over {name}{doubt or (' (a tie)' if row.tie else '')}{clock}"


def describe_moment(moment: int) -> str:
    """Return the moment of a comparison that was not repeated."""
    return "in an earlier confirmation" if moment else "in the search"


def _checks(evaluation: Evaluation, details: bool) -> list[str]:
    rows = evaluation.evidence.checked
    if details:
        errors = (f"{row.worst:.1%}" if isinstance(row.worst, float) else row.worst for row in rows)
        return [f"checked {row.case}: error {error} of the bound" for row, error in zip(rows, errors, strict=True)]
    known = [(row.worst, row.case) for row in rows if isinstance(row.worst, float)]
    worst = f"; the largest error is {max(known)[0]:.1%} of the bound (on {max(known)[1]})" if known else ""
    theirs = evaluation.evidence.upstream
    objection = [f"upstream: {theirs}"] if theirs not in ("", "pass") else []
    return [f"right on {pluralize(len(rows), 'tested shape')}{worst}", *objection] if rows else []


def _device(evaluation: Evaluation) -> list[str]:
    evidence = evaluation.evidence
    near = roofline.share(evidence.roofline, evidence.weights)
    theirs = roofline.share(evidence.roofline, evidence.weights, theirs=True)
    also = f"; {theirs:.1%} by the formula of the problem's format" if theirs else ""
    lines = [f"roofline: {near:.1%} of what the hardware's rates allow, as a geometric mean{also}"] if near else []
    compilers = dict.fromkeys(row.compiler for row in evidence.compiler)
    lines += [f"compiled by: {name}" for name in compilers if name]
    cases: dict[str, list[str]] = {}  # by clock, where a kernel's own events were not believed
    for row in evidence.timed:
        if row.clock not in ("", _EVENTS):
            cases.setdefault(row.clock, []).append(row.case)
    lines += [f"clock: {clock} (of {', '.join(names)})" for clock, names in cases.items()]
    if evidence.clocks:
        lines.append(f"clocks: {_clocks(evidence.clocks)}")
    if evidence.transfer:
        pairs = ", ".join(f"{key.replace('_', ' ')} {_words(value)}" for key, value in evidence.transfer.items())
        lines.append(f"transfer: {pairs}")
    if evidence.emulated:
        lines.append(f"emulated: {evidence.emulated}")
    lines += map(_sanitized, evidence.sanitizer)
    if profile := evidence.profile:
        head = " ".join(filter(None, ["profile:", profile.tool, profile.case]))
        lines += [f"{head}: none: {profile.refused}"] if profile.refused else [head, _indented(profile.page)]
    return lines


def _clocks(clocks: Clocks) -> str:
    """Return `SM 1980 MHz, memory 3201 MHz, 512 W, 61 °C (not throttled)`."""
    known = [
        f"{name} {value} {unit}".strip() for key, name, unit in _STATE if (value := getattr(clocks, key)) is not None
    ]
    reasons = ", ".join(clocks.throttled or ()) or "not throttled"
    if clocks.throttled is None:
        reasons = "whether it was throttled is not told"
    return f"{', '.join(known)} ({reasons})" if known else clocks.state


def _sanitized(row: SanitizerFinding) -> str:
    if row.refused:
        outcome = f"did not run: {row.refused}"
    else:
        outcome = f"{row.errors} errors; first: {row.finding}" if row.finding else "no errors"
    return f"sanitizer {row.tool}{f' on {row.case}' if row.case else ''}: {outcome}"


def _circumstances(evaluation: Evaluation, details: bool) -> list[str]:
    rows = [row for row in evaluation.evidence.checked if row.seeds and details]
    rest = {row.case: f" and {len(row.seeds) - 4} more" if len(row.seeds) > 4 else "" for row in rows}
    seeds = [f"{row.case}: {', '.join(map(str, row.seeds[:4]))}{rest[row.case]}" for row in rows]
    return [
        *([f"seeds: {'; '.join(seeds)}"] if seeds else []),
        f"isolation {evaluation.isolation}, judge {evaluation.judge or 'unknown'}, "
        f"target {evaluation.target or 'unknown'}, problem {evaluation.problem or 'unknown'}, "
        f"took {evaluation.wall_s:.1f} s",
    ]


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
