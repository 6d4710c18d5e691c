"""The tree of kernels, and all about one of them."""

from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text
from rich.tree import Tree

from ksflow.errors import pluralize, strip_controls
from ksflow.records import Approval, Explanation, Population, Trial, base_of
from ksflow.report import evidence, explanation, words
from ksflow.report.headline import Headline, headline, known_baselines
from ksflow.report.words import STYLE, format_us, recorded_verdict, say

_LEAST = 24  # least columns of the description, in any window and depth of the tree
_GUIDE = 4  # indent of each generation, in columns


def show_tree(
    console: Console, trials: Iterable[Trial], population: Population, claimed: Headline | None,
    approved: Mapping[str, Approval],
) -> None:  # fmt: skip
    """Print the lineage as a tree: every trial below its base, with the verdict on record and its reason.

    Trials judged on another machine, by another judge or on another version of the problem than the newest are marked.
    """
    everything = tuple(trials)
    by_id = {trial.id: trial for trial in everything}
    nodes: dict[str, Tree] = {}
    depth: dict[str, int] = {}
    root = Tree("lineage", hide_root=True)
    for trial in _bases_first(everything):
        base = trial.parents[0] if trial.parents else ""
        depth[trial.id] = depth[base] + 1 if base in depth else 0
        label = _verdict(trial, population, claimed)
        if trial.id in approved:
            label.append(f"{approved[trial.id]} ", "bold green")
        room = console.width - _GUIDE * depth[trial.id]
        label.append(words.describe_changes(trial, by_id, max(room - label.cell_len, _LEAST)))
        suffix = f" (with {trial.parents[1]})" if len(trial.parents) > 1 else ""
        suffix += f" {trial.cost.dollars(4)}" if trial.cost.usd else ""
        if label.cell_len + len(suffix) <= room:
            label.append(suffix, "dim")
        if reason := words.why_unranked(trial, claimed.why_unranked(trial) if claimed else None):
            label.append(f"\n      {words.truncate(reason, max(room - 6, _LEAST))}", "dim")
        nodes[trial.id] = nodes.get(base, root).add(label)
    console.print(root, soft_wrap=True)


def _bases_first(population: Iterable[Trial]) -> Iterator[Trial]:
    """Yield the trials so that each comes after its base, else in the order of their ids.

    A branch pushed by a person may have any name, and may even be on top of a kernel that was made from it.
    """
    left = {trial.id: trial for trial in population}
    while left:
        ready = [trial for trial in left.values() if not trial.parents or trial.parents[0] not in left]
        for trial in ready or list(left.values())[:1]:
            del left[trial.id]
            yield trial


def _verdict(trial: Trial, population: Population, claimed: Headline | None) -> Text:
    """Return a trial's verdict with its ratio or time, and a remark if it was judged elsewhere than the run's
    newest."""
    verdict, evaluation = recorded_verdict(trial), trial.evaluation
    label = Text.assemble((trial.id, "bold"), " ", (verdict, STYLE.get(verdict, "red")), " ")
    ratio = claimed.ratio(trial) if claimed and not trial.stale else ""
    if evaluation and evaluation.score_us:
        label.append(f"{ratio or f'{format_us(population.time_us(trial) or evaluation.score_us)} µs'} ")
    if claimed and (place := claimed.standing(trial)):
        label.append(f"{place} ", "bold green")
    if (held := trial.held_out) and held.wrong:
        label.append(f"{held} ", "red")
    if evaluation and trial.stale:
        label.append(f"(another {trial.stale}: {evaluation.judge or 'unknown judge'} on {evaluation.target}) ", "dim")
    return label


def show_trial(
    console: Console,
    trial: Trial,
    population: Population,
    about: Mapping[str, object],
    explained: Explanation | None = None,
    details: bool = False,
) -> None:
    """Print one trial as evidence: what was tried, the result, comparisons, and reasons; then the kernel.

    known: the trials of its run. about: its branch and further facts. details: also how the judge worked.
    """
    trials = population.by_id
    console.print(f"{trial.id}  {trial.origin.value}  {recorded_verdict(trial)}", style="bold", markup=False)
    rows: dict[str, object] = {
        **about,
        **dict(zip(("base", "reference"), (_short(trials, name) for name in trial.parents), strict=False)),
        "name": trial.name,
        "designed by": trial.by,
        "cost": _cost(trial),
    }
    say(console, *(f"  {key}: {value}" for key, value in rows.items() if value))
    if trial.experiment:
        low, high = map(words.percent, trial.experiment.gain_percent)
        console.print("\nwhat was tried", style="bold", markup=False)
        promised = f"a gain of {low} to {high} %, innovation {trial.experiment.innovation:.0f} of 100"
        say(console, f"  {trial.idea}\n  predicted: {promised}\n  to be judged by: {trial.experiment.rubric}")
    if trial.review:
        console.print("\nwhat its verifier said before it was compiled", style="bold", markup=False)
        say(console, *(f"  {line}" for line in words.review(trial)))
    console.print("\nwhat came out", style="bold", markup=False)
    say(console, *_came_out(trial, population))
    if trial.evaluation:
        evidence.show(console, trial.evaluation, {name: _short(trials, name) for name in trials}, details)
        if not details:
            console.print("details=true tells how the judge went about it", style="dim")
    if explained:
        console.print("\nexplanation", style="bold", markup=False)
        say(console, *(f"  {line}".rstrip() for line in explanation.explanation_lines(explained)))
    for name, text in trial.kernel.files.items() if trial.kernel else ():
        console.print(f"\n{name}", style="bold", markup=False)
        show_source(console, text, name)


def show_source(console: Console, text: str, name: str) -> None:
    """Print a file or a diff; at a terminal in colours, with long lines wrapped between words."""
    if not console.is_terminal:
        say(console, text)
        return
    lexer = "diff" if name == "diff" else Syntax.guess_lexer(name, text)
    console.print(Syntax(strip_controls(text), lexer, theme="ansi_dark", background_color="default", word_wrap=True))


def _short(trials: Mapping[str, Trial], name: str) -> str:
    return f"{name} {trials[name].name}".strip() if name in trials else name


def _cost(trial: Trial) -> str:
    cached = f" ({trial.cost.tokens_cached} of them cached)" if trial.cost.tokens_cached else ""
    calls = [pluralize(trial.cost.calls, "model call"), f"{trial.cost.tokens} tokens{cached}", trial.cost.dollars(4)]
    return ", ".join(filter(None, [*(calls if trial.cost.calls else ()), f"{trial.wall_s:.1f} s"]))


def _came_out(trial: Trial, population: Population) -> Iterator[str]:
    if trial.failure:
        yield f"no kernel: {trial.failure}"
    elif trial.evaluation is None:
        yield "not judged yet"
    if trial.repeats:
        yield f"the same code as {trial.repeats}{', once compiled' * trial.compiles_alike}, whose verdict this is"
    base, scaled = base_of(trial, population.by_id), population.time_us(trial)
    if scaled and trial.score_us and format_us(scaled) != format_us(trial.score_us):
        yield f"{format_us(scaled)} µs as of the newest confirmation (the times below are of its own judgement)"
    if trial is population.best and (claimed := headline(population, known_baselines(population))):
        yield f"{claimed} (the speed-ups below are of its own judgement)"
    if base and trial.score_us and base.score_us:
        gain = population.speedup(trial, base)
        how = f"a gain of {words.percent(gain.gain_percent)} %, {gain.describe(base.id)}, its base" if gain else ""
        yield f"measured: {how or f'nothing connects it to its base {base.id}: the two have no ratio'}"
