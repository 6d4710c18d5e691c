"""A run as the text of a pull request that puts its winner into the repository that the problem is from."""

import math
from collections.abc import Sequence

from ksflow.errors import pluralize
from ksflow.kernels.problem import licences
from ksflow.kernels.problem.texts import model_region
from ksflow.lineage import Lineage
from ksflow.records import Json, Problem, Speedup, Trial
from ksflow.records.scale import Scale
from ksflow.report.headline import baseline_name, headline, known_baselines
from ksflow.report.page.facts import run_facts
from ksflow.report.page.markdown import plain, row

_TIMES = (
    "Times are in µs, with 95 % intervals; all kernels take the same arrays by the same interface. The interval of "
    "a shape comes from the separate times of both kernels, that of the claim from kernels timed in turns."
)
_FALLBACKS = (
    "The kernel takes the shapes above, with the strides, types and device of the judged calls. Every other call, and "
    "every call where the kernel does not compile, goes to {old}."
)
_OVERHEAD = (
    "The times are those of the kernel. The check of the arguments and the call {cost}. An input that does not begin "
    "at a multiple of 64 bytes is copied first where the kernel may rely on that."
)
_ASSUMPTIONS = (
    "- {overhead}",
    "- Arguments that change in place: {changed}. They share no memory with other arguments, and no input changes "
    "during a call.",
    "- Only the machine that is named here was measured.",
)


def as_pull_request(lineage: Lineage, problem: Problem) -> str:
    """Return Markdown with the claim, every shape, fallbacks, accuracy, assumptions, reproduction and licence."""
    population, facts = lineage.last_population, run_facts(lineage, problem)
    baselines = known_baselines(population, problem.seeds)
    claimed = headline(population, baselines)
    if claimed is None or claimed.best.evaluation is None:
        return f"## {plain(facts['headline'])}\n"
    best, trust, region = claimed.best, facts["trust"], model_region(problem) or {}
    what = region.get("function") or problem.title
    old = "the code that was there before" if "function" in region else "the caller, as an exception"
    others = [trial for trial in baselines if trial is not best]
    us = region.get("overhead_us")
    cost = (
        f"take {us:.3g} µs more for the smallest shape" if us else "come on top (`ksflow apply --patch` says how much)"
    )
    changed = ", ".join(f"`{arg.name}`" for arg in problem.args if arg.role == "inout") or "none"
    ratios = [(trial, population.speedup(best, trial)) for trial in others]
    lines = [f"## A faster `{what}`", "", f"{plain(str(claimed))}, on {plain(trust['machine'])}, {trust['date']}.", ""]
    lines += [
        f"- {plain(ratio.describe(baseline_name(trial)))}" for trial, ratio in ratios if ratio and len(ratios) > 1
    ]
    lines += ["", "### Shapes", "", *_shapes(best, others, claimed.known.scale), ""]
    lines += [_TIMES, ""]
    lines += [f"On held-out shapes the winner is {plain(claimed.held_out)}.", ""] if claimed.held_out else []
    lines += ["### Fallbacks", "", _FALLBACKS.format(old=old), "", "### Accuracy", "", *_accuracy(best), ""]
    lines += [
        "### Assumptions",
        "",
        *(line.format(changed=changed, overhead=_OVERHEAD.format(cost=cost)) for line in _ASSUMPTIONS),
        "",
        "### How to reproduce",
        "",
        "```",
        *_commands(lineage, region),
    ]
    licence = licences.of_kernel(problem, population.by_id, best.id)
    lines += ["```", "", f"Trial {best.id}, commit `{facts['winner_commit']}`; judge {trust['judge']}.", ""]
    return "\n".join([*lines, "### Licence", "", f"{licence or 'Unknown: settle it before this is merged'}.", ""])


def _shapes(best: Trial, others: Sequence[Trial], scale: Scale) -> list[str]:
    """The table of all shapes, with the speed-up over each baseline."""
    ours, theirs = _intervals(best, scale), [_intervals(other, scale) for other in others]
    lines = [row(["shape", best.id, *map(baseline_name, others)]), row(["---"] * (2 + len(others)))]
    for case, own in ours.items():
        cells = [f"{own.ratio:.4g}" + (f" [{own.low:.4g}, {own.high:.4g}]" if own.low < own.high else "")]
        for time in (other.get(case) for other in theirs):
            if time is None:
                cells.append("not timed")
                continue
            half = math.exp(math.hypot(*(math.log(one.high / one.low) / 2 for one in (time, own))))
            gain = time.ratio / own.ratio
            text = str(Speedup(gain, gain / half, gain * half)) if half > 1 else f"x{gain:.3g}"
            cells.append(f"{time.ratio:.4g}, {text}")
        lines.append(row([case, *cells]))
    return lines


def _intervals(trial: Trial, scale: Scale) -> dict[str, Speedup]:
    """Of each case the time on the scale, with its interval."""
    assert trial.evaluation
    known = {one.case: one for one in trial.evaluation.evidence.timed}
    found = {}
    for case, us in scale.times_us(trial.id).items():
        timed = known.get(case)
        share = [end / timed.us for end in timed.interval_us] if timed and timed.us and timed.interval_us else [1, 1]
        found[case] = Speedup(us, us * share[0], us * share[1])
    return found


def _accuracy(best: Trial) -> list[str]:
    assert best.evaluation
    lines = []
    for one in best.evaluation.evidence.checked:
        most = one.errors[0][0] if one.errors else None
        error = f"; largest absolute error {most:.3g}" if isinstance(most, float | int) else ""
        worst = f"{one.worst:.3g}" if isinstance(one.worst, float | int) else one.worst or "not kept"
        lines.append(f"- {plain(one.case)}: {worst} of the bound{error}, {pluralize(len(one.seeds), 'draw')}")
    return lines or ["- the judge found it right on every shape; no errors are on record"]


def _commands(lineage: Lineage, region: Json) -> list[str]:
    name = f"{lineage.problem}/{lineage.run}"
    if "function" not in region:
        return [f"ksflow verify {name}"]
    command = str(region["command"]).strip("`")
    return [
        f'ksflow isolate {region["function"]} --run "{command}"',
        f"ksflow verify {name}",
        f"ksflow apply {name} --patch",
    ]
