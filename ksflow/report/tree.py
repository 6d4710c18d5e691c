"""The tree of kernels, and everything about one of them."""

from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from ksflow.errors import counted
from ksflow.records import Approval, Explanation, Trial
from ksflow.report import evidence, explanation, headline
from ksflow.report.words import STYLE, recorded, what


def show_tree(
    console: Console,
    population: Iterable[Trial],
    baselines: tuple[Trial, ...],
    approved: Mapping[str, Approval],
    winner: str = "",
) -> None:
    """The lineage as a tree: every trial below its base, with the verdict that is on record.

    One that was judged otherwise than the run's newest (another machine, judge or version of the problem) says so.
    """
    nodes: dict[str, Tree] = {}
    root = Tree("lineage", hide_root=True)
    for trial in _bases_first(population):
        label = _verdict(trial, baselines, trial.id == winner)
        if trial.id in approved:
            label.append(f"{approved[trial.id]} ", "bold green")
        if len(trial.parents) > 1:
            label.append(f"(with {trial.parents[1]}) ", "dim")
        label.append(what(trial, 90))
        if trial.cost.usd:
            label.append(f" ${trial.cost.usd:.4f}", "dim")
        nodes[trial.id] = nodes.get(trial.parents[0] if trial.parents else "", root).add(label)
    console.print(root, soft_wrap=True)


def _bases_first(population: Iterable[Trial]) -> Iterator[Trial]:
    """The trials so that each comes after its base; in the order of their ids where that allows it.

    A branch that a person pushed may have any name, and may even sit on top of a kernel that was made from it.
    """
    left = {trial.id: trial for trial in population}
    while left:
        ready = [trial for trial in left.values() if not trial.parents or trial.parents[0] not in left]
        for trial in ready or list(left.values())[:1]:
            del left[trial.id]
            yield trial


def _verdict(trial: Trial, baselines: tuple[Trial, ...], won: bool) -> Text:
    """What is on record of a trial, and where its judge or machine is not that of the run's newest verdict."""
    verdict, found = recorded(trial), trial.evaluation
    label = Text.assemble((trial.id, "bold"), " ", (verdict, STYLE.get(verdict, "red")), " ")
    if found and found.score_us:
        label.append(f"{found.score_us:.4g} µs ")
    if ratio := headline.claim(trial, baselines):
        label.append(f"{ratio} ")
    if won:
        label.append("winner ", "bold green")
    if found and trial.stale:
        label.append(f"(another {trial.stale}: {found.judge or 'unknown judge'} on {found.target}) ", "dim")
    return label


def show_trial(
    console: Console,
    trial: Trial,
    commit: str,
    approval: Approval | None = None,
    explained: Explanation | None = None,
) -> None:
    """Everything about one trial, the verdict and what it rests on first."""
    console.print(f"{trial.id}  {trial.origin.value}  {recorded(trial)}  commit {commit}")
    rows: dict[str, object] = {
        "approval": approval,
        **dict(zip(("base", "reference"), trial.parents, strict=False)),
        "name": trial.name,
        "failure": trial.failure,
        "repeats": trial.repeats,
        "cost": f"${trial.cost.usd:.4f}, {trial.cost.tokens} tokens, {trial.wall_s:.1f} s, "
        f"{counted(trial.cost.calls, 'model call')}",
    }
    for key, value in rows.items():
        if value:
            console.print(f"  {key}: {value}", markup=False, soft_wrap=True)
    if trial.evaluation:
        console.print()
        evidence.show(console, trial.evaluation)
    if trial.experiment:
        low, high = trial.experiment.gain_percent
        console.print(
            f"\nexperiment (gain {low:g} to {high:g} %, innovation {trial.experiment.innovation:g})\n"
            f"  {trial.experiment.description}\n  rubric: {trial.experiment.rubric}",
            markup=False,
        )
    if explained:
        text = "\n".join(f"  {line}".rstrip() for line in explanation.lines(explained))
        console.print(f"\nexplanation\n{text}", markup=False, highlight=False, soft_wrap=True)
    for name, text in trial.kernel.files.items() if trial.kernel else ():
        console.print(f"\n{name}\n{text}", markup=False, soft_wrap=True)
