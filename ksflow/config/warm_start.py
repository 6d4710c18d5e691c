"""What a run starts with from another one: its winner as a seed, and its notes in the words of the new target.

    inherit=RUN    inherit=PROBLEM/RUN    inherit=PROBLEM/RUN/ID        of the same lineage

A measurement holds for the machine it was made on: elsewhere it is an assumption that names where it was measured. The
seed's name says where it comes from and how fast it was there, so the commit that judges it here has both results.
What this does not do: translate a kernel into another language.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

from ksflow.errors import ConfigError
from ksflow.lineage import Lineage
from ksflow.notes import knowledge
from ksflow.records import Note, Problem, Seed, Status, Target, Trial

TRIAL = re.compile(r"(?:(?P<problem>[^/\s]+)/(?P<run>[^/\s]+)/)?(?P<id>\d{5,})(?:@(?P<commit>[0-9a-f]{7,40}))?")
"""How a source names a trial: its id in the note's own run, or the whole branch; with a commit or without."""
_DIGITS = 10  # of a commit


class WarmStart(NamedTuple):
    """What there is to start with."""

    seeds: tuple[Seed, ...] = ()
    notes: tuple[Note, ...] = ()
    said: tuple[str, ...] = ()  # a line for a person on each part, and on what could not be taken over


@dataclass(frozen=True)
class _Origin:
    """The run that is inherited from."""

    name: str  # PROBLEM/RUN
    trials: Mapping[str, Trial]
    commits: Mapping[str, str]
    here: str  # the fingerprint under which the new run is judged

    def branch(self, trial: str) -> str:
        return f"{self.name}/{trial}@{self.commits[trial][:_DIGITS]}"

    def machine(self, trial: str) -> str:
        """Where a trial was judged; empty where it was not."""
        evaluation = self.trials[trial].evaluation
        return evaluation.target if evaluation else ""


def warm_start(
    opened: Callable[..., Lineage], name: str, problem: Problem, target: Target, fingerprint: str = "", run: str = ""
) -> WarmStart:
    """What `name` leaves to a run of `problem` on `target`. Raises ConfigError, LineageError.

    `opened(problem=, run=, create=False)` opens a lineage. `fingerprint`: what verdicts of the new run are given under
    (`Key.target`), by default the target's. `run`: the new one's name.
    """
    parts = name.split("/")
    if len(parts) > 3 or not all(parts):
        raise ConfigError(f"inherit={name}; valid: RUN, PROBLEM/RUN, PROBLEM/RUN/ID")
    source, branch, wanted = ([problem.name, *parts, ""] if len(parts) == 1 else [*parts, ""])[:3]
    if (source, branch) == (problem.name, run):
        raise ConfigError(f"inherit={name} is the run itself; name another, or go on with it by run={run}")
    with closing(opened(problem=source, run=branch, create=False)) as lineage:
        trials = {trial.id: trial for trial in lineage.all_trials()}
        commits = {trial: lineage.commit_of(trial) for trial in trials}
        origin = _Origin(f"{source}/{branch}", trials, commits, fingerprint or target.fingerprint)
        winner = _chosen(lineage, origin, wanted)
        notes = lineage.notes()
    seeds, remark = _seed(origin, winner, problem, target)
    inherited = tuple(_translated(note, origin) for note in notes if _comes_along(note, origin, problem, target))
    count = f"notes of {origin.name} that come along: {len(inherited)} of {len(notes)}"
    return WarmStart(seeds, inherited, (remark, *([count] if notes else [])))


def _chosen(lineage: Lineage, origin: _Origin, wanted: str) -> Trial:
    if not origin.trials:
        raise ConfigError(f"inherit: no trial of {origin.name} in {lineage.store.path}; runs: {lineage.runs()}")
    winner = origin.trials.get(wanted) if wanted else lineage.population().best
    if winner is None:
        what = f"no trial {wanted} in {origin.name}" if wanted else f"no accepted kernel in {origin.name}"
        raise ConfigError(f"inherit: {what}; `python -m ksflow lineage` lists the trials")
    if winner.kernel is None:
        raise ConfigError(f"inherit: {origin.name}/{winner.id} has no kernel ({winner.verdict}); name another trial")
    return winner


def _seed(origin: _Origin, winner: Trial, problem: Problem, target: Target) -> tuple[tuple[Seed, ...], str]:
    """The kernel that is taken over, where its language can be judged here; what to say of it."""
    assert winner.kernel is not None
    where, language = origin.branch(winner.id), winner.kernel.language
    if not problem.accepts_language(language):
        return (), f"inherited no kernel: {where} is {language}, and {target.name} takes {', '.join(problem.languages)}"
    result = winner.verdict
    if winner.score_us is not None:
        result = f"{winner.score_us:.4g} µs on {origin.machine(winner.id) or 'an unknown machine'}"
    report = f"Inherited from {where}, {result}. {winner.kernel.report}".rstrip()
    foreign = origin.name.partition("/")[0] != problem.name
    doubt = f"; it was not made for {problem.name}: where the contracts differ, the judge rejects it" if foreign else ""
    seed = Seed(f"{where}, {result}", replace(winner.kernel, report=report))
    return (seed,), f"inherited as a seed: {where}, {result}{doubt}"


def _comes_along(note: Note, origin: _Origin, problem: Problem, target: Target) -> bool:
    """A measured note always does, as an assumption if need be; the others where they fit."""
    if note.status in (Status.MEASURED, Status.REFUTED):
        return not note.problems or problem.name in note.problems
    return knowledge.is_relevant(note, target, problem.name) or origin.here in note.targets


def _translated(note: Note, origin: _Origin) -> Note:
    """The note as the new run may read it: trials by their whole names, what was measured elsewhere as assumed."""
    matches = {source: match for source in note.sources if (match := TRIAL.fullmatch(source))}
    own = {s: match for s, match in matches.items() if not match["problem"] and match["id"] in origin.trials}
    whole = {s: f"{origin.name}/{m['id']}@{(m['commit'] or origin.commits[m['id']])[:_DIGITS]}" for s, m in own.items()}
    text = re.sub(  # ids of the other run's trials mean others here
        r"(?<![\w/.])\d{5,}(?![\w.]\d)\b",
        lambda match: f"{origin.name}/{match[0]}" if match[0] in origin.trials else match[0],
        note.text,
    )
    carried = replace(note, sources=tuple(whole.get(s, s) for s in note.sources), text=text, closes=())
    away = sorted({origin.machine(match["id"]) for match in own.values()} - {"", origin.here})
    if not own and origin.here not in note.targets:  # measured by something else than trials
        away = sorted(note.targets)
    if not away or note.status not in (Status.MEASURED, Status.REFUTED):
        return carried
    status = Status.ASSUMED if note.status is Status.MEASURED else note.status
    remark = f"({note.status.value} on {', '.join(away)} in {origin.name}, not here)"
    return replace(carried, title=f"{note.title} [{origin.name}]", text=f"{text}\n{remark}", status=status, targets=())
