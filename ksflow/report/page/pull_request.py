"""A run as the text of a pull request that puts its winner into the repository that the problem is from."""

import math
from collections.abc import Sequence

from ksflow.errors import pluralize
from ksflow.kernels.problem import licences
from ksflow.kernels.problem.texts import model_region
from ksflow.lineage import Lineage
from ksflow.records import Problem, Speedup, Trial
from ksflow.records.scale import Scale
from ksflow.report.headline import baseline_name, headline, known_baselines
from ksflow.report.page.facts import run_facts
from ksflow.report.page.markdown import fill, plain


def as_pull_request(lineage: Lineage, problem: Problem) -> str:
    """Return Markdown with the claim, every shape, fallbacks, accuracy, assumptions, reproduction and licence."""
    population, facts = lineage.last_population, run_facts(lineage, problem)
    baselines = known_baselines(population, problem.seeds)
    claimed = headline(population, baselines)
    if claimed is None or claimed.best.evaluation is None or claimed.over is claimed.best:
        return f"## {plain(facts['headline'])}\n"
    best, region = claimed.best, {"function": "", "fixed": "", **(model_region(problem) or {})}
    beside = region.get("beside", {"kernel": ""})
    known = best.kernel is not None and beside["kernel"] == best.kernel.digest
    others = [trial for trial in baselines if trial is not best]
    ratios = [ratio.describe(baseline_name(trial)) for trial in others if (ratio := population.speedup(best, trial))]
    return fill(
        "pull_request.md.jinja",
        claimed=claimed,
        what=region["function"] or problem.title,
        region=region,
        beside=beside if known else {"rows": (), "why": ""},
        name=f"{lineage.problem}/{lineage.run}",
        trust=facts["trust"],
        commit=facts["winner_commit"],
        ratios=ratios if len(others) > 1 else [],
        shapes=_shapes(best, others, claimed.known.scale),
        accuracy=_accuracy(best),
        changed=", ".join(f"`{arg.name}`" for arg in problem.args if arg.role == "inout") or "none",
        licence=licences.of_kernel(problem, population.by_id, best.id),
    )


def _shapes(best: Trial, others: Sequence[Trial], scale: Scale) -> list[list[str]]:
    """The table of all shapes, its head first, with the speed-up over each baseline."""
    ours, theirs = _intervals(best, scale), [_intervals(other, scale) for other in others]
    rows = [["shape", best.id, *map(baseline_name, others)]]
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
        rows.append([case, *cells])
    return rows


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
        lines.append(f"{one.case}: {worst} of the bound{error}, {pluralize(len(one.seeds), 'draw')}")
    return lines
