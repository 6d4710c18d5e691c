"""Times of a kernel as prompt text: a table by shape, and where its score can gain most."""

from ksflow.errors import shorten
from ksflow.records import Evidence, Problem, RooflineCase, Step, TimedCase, Trial

_ROOM_LEFT = 4  # shapes


def times(trial: Trial, step: Step, second: bool = False) -> str:
    """Return a row for each shape: the parent's time, this kernel's with its interval, the gain, the roofline, its
    share.

    second: beside another such table, without the rooflines and the explanation of columns.
    """
    evidence = trial.evaluation.evidence if trial.evaluation else Evidence()
    timed, near = {row.case: row for row in evidence.timed}, {row.case: row for row in evidence.roofline if not second}
    lines = []
    for case, now in step.after_us.items():
        row, before = timed.get(case, TimedCase(case=case)), step.before_us.get(case)
        gain = "" if before is None else percent(before / now)
        was = "-" if before is None else figure(before)
        lines.append([case, was, f"{figure(now)}{_interval(row, now)}", gain, *_roofline(near.get(case), now)])
    parent = " ".join(filter(None, ["parent", step.parent, "us"]))
    titles = ["shape", parent, f"this {trial.id} us", "gain", "roofline us", "of roofline", "bound"]
    filled = [index for index in range(len(titles)) if index < 4 or any(line[index] for line in lines)]
    text = table([titles[index] for index in filled], [[line[index] for index in filled] for line in lines])
    if any("[" in line[2] for line in lines) and not second:
        text += "\nIn brackets: the 95 % interval. A difference inside the intervals is noise."
    if 5 in filled:
        text += "\nThe roofline: the least time at the hardware's rates. What stays in a faster cache may pass 100 %."
    return text


def room_left(trial: Trial, problem: Problem | None) -> list[str]:
    """Return where the score could gain most: the shapes with the lowest shares of the roofline, and the gain of the
    score if they reached the highest share. Empty without rooflines.
    """
    rows = {row.case: row.share for row in trial.evaluation.evidence.roofline} if trial.evaluation else {}
    us = {timing.case: timing.us for timing in trial.evaluation.timings} if trial.evaluation else {}
    known = {case: share for case, share in rows.items() if share and case in us}
    if problem is None or len(known) < 2:
        return []
    best, weights = max(known.values()), problem.weights
    if problem.score == "geomean":
        gains = {case: (best / share) ** (weights.get(case, 1.0) / len(us)) - 1 for case, share in known.items()}
    else:
        weighted = {case: time * weights.get(case, 1.0) for case, time in us.items()}
        counted = weighted if problem.score == "mean" else dict([list(us.items())[-1]])
        whole = sum(counted.values())
        gains = {case: 1 / (1 - counted.get(case, 0) * (1 - share / best) / whole) - 1 for case, share in known.items()}
    first = sorted(gains.items(), key=lambda pair: -pair[1])[:_ROOM_LEFT]
    gaining = "; ".join(f"{case} ({100 * known[case]:.3g} %): {percent(1 + gain)}" for case, gain in first if gain > 0)
    nearest = f"if a shape came as near its roofline as the nearest one is ({100 * best:.3g} %)"
    return [f"Where the score can gain most, {nearest}: {gaining}"] if gaining else []


def _interval(row: TimedCase, now: float) -> str:
    if not (row.interval_us and row.us):
        return ""
    low, high = (now * end / row.us for end in row.interval_us)
    return f" [{figure(low)}, {figure(high)}]"


def _roofline(row: RooflineCase | None, now: float) -> tuple[str, str, str]:
    if row is None or not row.bound_us:
        return "", "", ""
    return figure(row.bound_us), f"{figure(round(100 * row.bound_us / now, 1))} %", shorten(row.bound, 80)


def table(titles: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_time(value: float | None) -> str:
    """Return a time with its unit."""
    return "-" if value is None else f"{figure(value)} us"


def figure(value: float) -> str:
    """Return four digits, without an exponent for large values."""
    return f"{value:.4g}" if value < 10_000 else f"{value:.0f}"


def percent(ratio: float) -> str:
    """Return a gain in percent of the speed before: 100 means twice as fast."""
    return f"{(ratio - 1) * 100:+.1f} %"
