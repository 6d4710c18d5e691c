"""What a run starts with from another one: its winner as a seed, and its notes in the words of the new target.

    inherit=RUN    inherit=PROBLEM/RUN    inherit=PROBLEM/RUN/ID        of the same lineage

A measurement holds for the machine it was made on: elsewhere it is an assumption that names where it was measured. The
seed's name says where it comes from and how fast it was there, so the commit that judges it here has both results.
What this does not do: translate a kernel into another language.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ksflow.cli.sources import TRIAL
from ksflow.errors import ConfigError
from ksflow.lineage import Lineage
from ksflow.notes import knowledge
from ksflow.records import Note, Problem, Seed, Status, Target, Trial

_DIGITS = 10  # of a commit


class Heritage(NamedTuple):
    """What there is to start with."""

    seeds: tuple[Seed, ...] = ()
    notes: tuple[Note, ...] = ()
    said: tuple[str, ...] = ()
    """A line for a person on each part, and on what could not be taken over."""


@dataclass(frozen=True)
class _Origin:
    """The run that is inherited from."""

    name: str
    """PROBLEM/RUN"""
    trials: Mapping[str, Trial]
    commits: Mapping[str, str]
    here: str
    """The fingerprint under which the new run is judged."""

    def branch(self, trial: str) -> str:
        return f"{self.name}/{trial}@{self.commits[trial][:_DIGITS]}"

    def machine(self, trial: str) -> str:
        """Where a trial was judged; empty where it was not."""
        evaluation = self.trials[trial].evaluation
        return evaluation.target if evaluation else ""


def inherit(
    opened: Callable[..., Lineage], name: str, problem: Problem, target: Target, fingerprint: str = "", run: str = ""
) -> Heritage:
    """What `name` leaves to a run of `problem` on `target`. Raises ConfigError, LineageError.

    `opened(problem=, run=, create=False)` opens a lineage. `fingerprint`: what verdicts of the new run are given under
    (`Key.target`), by default the target's. `run`: the new one's name.
    """
    source, branch, wanted = _parsed(name, problem.name)
    if (source, branch) == (problem.name, run):
        raise ConfigError(f"inherit={name} is the run itself; name another, or go on with it by run={run}")
    lineage = opened(problem=source, run=branch, create=False)
    try:
        trials = {trial.id: trial for trial in lineage.all_trials()}
        commits = {trial: lineage.commit_of(trial) for trial in trials}
        origin = _Origin(f"{source}/{branch}", trials, commits, fingerprint or target.fingerprint)
        heir = _chosen(lineage, origin, wanted)
        notes = lineage.notes()
    finally:
        lineage.close()
    seeds, said = _seed(origin, heir, problem, target)
    kept = tuple(_translated(note, origin) for note in notes if _comes_along(note, origin, problem, target))
    count = f"notes of {origin.name} that come along: {len(kept)} of {len(notes)}"
    return Heritage(seeds, kept, (said, *([count] if notes else [])))


def _parsed(name: str, problem: str) -> tuple[str, str, str]:
    parts = name.split("/")
    if len(parts) > 3 or not all(parts):
        raise ConfigError(f"inherit={name}; valid: RUN, PROBLEM/RUN, PROBLEM/RUN/ID")
    if len(parts) == 1:
        return problem, name, ""
    return parts[0], parts[1], parts[2] if len(parts) == 3 else ""


def _chosen(lineage: Lineage, origin: _Origin, wanted: str) -> Trial:
    if not origin.trials:
        raise ConfigError(f"inherit: no trial of {origin.name} in {lineage.store.path}; runs: {lineage.runs()}")
    heir = origin.trials.get(wanted) if wanted else lineage.population().best
    if heir is None:
        what = f"no trial {wanted} in {origin.name}" if wanted else f"no accepted kernel in {origin.name}"
        raise ConfigError(f"inherit: {what}; `python -m ksflow lineage` lists the trials")
    if heir.kernel is None:
        raise ConfigError(f"inherit: {origin.name}/{heir.id} has no kernel ({heir.verdict}); name another trial")
    return heir


def _seed(origin: _Origin, heir: Trial, problem: Problem, target: Target) -> tuple[tuple[Seed, ...], str]:
    """The kernel that is taken over, where its language can be judged here; what to say of it."""
    assert heir.kernel is not None
    where, language = origin.branch(heir.id), heir.kernel.language
    if language not in problem.languages:
        return (), f"inherited no kernel: {where} is {language}, and {target.name} takes {', '.join(problem.languages)}"
    result = heir.verdict
    if heir.score_us is not None:
        result = f"{heir.score_us:.4g} µs on {origin.machine(heir.id) or 'an unknown machine'}"
    report = f"Inherited from {where}, {result}. {heir.kernel.report}".rstrip()
    foreign = origin.name.partition("/")[0] != problem.name
    doubt = f"; it was not made for {problem.name}: where the contracts differ, the judge rejects it" if foreign else ""
    seed = Seed(f"{where}, {result}", replace(heir.kernel, report=report))
    return (seed,), f"inherited as a seed: {where}, {result}{doubt}"


def _comes_along(note: Note, origin: _Origin, problem: Problem, target: Target) -> bool:
    """A measured note always does, as an assumption if need be; the others where they fit."""
    if note.status in (Status.MEASURED, Status.REFUTED):
        return not note.problems or problem.name in note.problems
    return knowledge.fits(note, target, problem.name) or origin.here in note.targets


def _translated(note: Note, origin: _Origin) -> Note:
    """The note as the new run may read it: trials by their whole names, what was measured elsewhere as assumed."""
    rests = [found["id"] for source in note.sources if (found := TRIAL.fullmatch(source)) and not found["problem"]]
    cited = [trial for trial in rests if trial in origin.trials]
    sources = tuple(_whole(source, origin) for source in note.sources)
    text = _renamed(note.text, origin)
    away = sorted({origin.machine(trial) for trial in cited} - {"", origin.here}) or _away(note, origin, cited)
    kept = replace(note, sources=sources, text=text, closes=())
    if not away or note.status not in (Status.MEASURED, Status.REFUTED):
        return kept
    word = note.status.value
    status = Status.ASSUMED if note.status is Status.MEASURED else note.status
    remark = f"({word} on {', '.join(away)} in {origin.name}, not here)"
    return replace(kept, title=f"{note.title} [{origin.name}]", text=f"{text}\n{remark}", status=status, targets=())


def _away(note: Note, origin: _Origin, cited: Collection[str]) -> list[str]:
    """The other machines that a note without trials was measured on."""
    return [] if cited or origin.here in note.targets else sorted(note.targets)


def _whole(source: str, origin: _Origin) -> str:
    found = TRIAL.fullmatch(source)
    if not found or found["problem"] or found["id"] not in origin.trials:
        return source
    commit = found["commit"] or origin.commits[found["id"]]
    return f"{origin.name}/{found['id']}@{commit[:_DIGITS]}"


def _renamed(text: str, origin: _Origin) -> str:
    """Ids of the other run's trials, which mean others here, by their branches."""

    def whole(found: re.Match[str]) -> str:
        return f"{origin.name}/{found[0]}" if found[0] in origin.trials else found[0]

    return re.sub(r"(?<![\w/.])\d{5,}(?![\w.]\d)\b", whole, text)
