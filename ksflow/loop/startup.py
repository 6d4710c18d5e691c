"""How a session begins: what an earlier one left undone, what has become stale, and the seeds."""

import math
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from ksflow.errors import ConfigError, NothingTried, pluralize
from ksflow.evaluation.processes import quota
from ksflow.home import shipped_path
from ksflow.kernels.problem.texts import recorded_apart, start_remedy
from ksflow.kernels.source.families import values_in
from ksflow.kernels.source.flags import TUNABLE_FLAGS
from ksflow.kernels.source.tunables import tunables
from ksflow.lineage import Lineage
from ksflow.loop.events import Notice
from ksflow.loop.judging import current_key
from ksflow.loop.queue import map_parallel
from ksflow.loop.round import judge
from ksflow.loop.run import Run
from ksflow.records import EarlierVerdict, Evaluation, Kernel, Origin, Population, Problem, Seed, Trial, Verdict

_LOOK_S = 0.2
_OWN = ("00_your_reference.py", "00_eager.py")  # seeds that are the function itself
_REASON = 200  # letters for each seed that failed
_LEADERS = 8
"""So many of the best that one judge said of one problem on one machine are judged again where they became stale."""


def places(problem: Problem) -> tuple[str, ...]:
    """The user's folder or file that it was read from, and its reference where that is a file of its own.

    Empty texts for what came with ksflow or is not on this machine.
    """
    path = Path(problem.origin.get("path") or problem.root)
    path = path / problem.origin.get("file", "") if path.is_dir() else path
    given = (path, *(Path(name) for name in [problem.origin.get("reference")] if name))
    shipped_ones = shipped_path("problems").resolve()
    return tuple(str(one) if one.exists() and not one.is_relative_to(shipped_ones) else "" for one in given)


def no_other(problem: Problem, lineage: Lineage) -> None:
    """ConfigError where the run's newest session had a problem that lies elsewhere still, or another reference.

    One that was moved is the same problem; two that are there share a name alone.
    """
    known = lineage.made_with.get("place") or ()
    for before, now in zip(known, places(problem), strict=False):
        if now not in ("", before) and before and Path(before).exists():
            raise ConfigError(
                f"run={lineage.run} of {problem.name} is for {before}, and {now} is another problem of that name: give "
                "it a run of its own with run=ANOTHER, or another name"
            )


def start(run: Run, seeds: tuple[Seed, ...]) -> None:
    """Bring the population up to date. Raises ConfigError when there is nothing to start from, NothingTried where that
    is so because of an interruption.
    """
    lineage = run.lineage
    if (allowed := quota.cores()) is not None:
        held = (
            f"this process has a quota of {allowed:.3g} cores' CPU time (cpu.max), which stops kernels that are timed"
        )
        run.tell(Notice(f"{held}: raise it, or expect times that rank nothing"))
    lineage.expect(current_key(run.problem, run.stages.evaluate))
    lineage.population()
    _revalidate(run, seeds)
    lost = [t for t in lineage.last_population.trials if t.evaluation and t.evaluation.verdict is Verdict.HARNESS]
    todo = iter((*lineage.claim_unfinished(Origin.SEED), *lineage.reclaim(lost), *_add_seeds(run, seeds)))

    def judge_all(trials: Iterable[Trial]) -> None:
        for trial in trials:
            try:
                if not run.limits.is_reached():
                    judge(run, trial)
            finally:
                lineage.release(trial)  # another device's thread may wait for its verdict

    devices = run.device.places
    judge_all(todo if devices == 1 else islice(todo, 1))
    map_parallel(judge_all, [todo] * devices)  # what is left is timed beside the first one: each device takes the next
    _wait_for_others(run, judge_all)
    if not lineage.last_population.ranked and run.interrupted:
        raise NothingTried("interrupted before a seed was accepted; the same command begins again")
    if not lineage.last_population.ranked:
        raise ConfigError(no_start(lineage.last_population))
    for trial in lineage.last_population.ranked:
        times = {timing.case: timing.us for timing in trial.evaluation.timings} if trial.evaluation else {}
        if trial.name in _OWN and (apart := recorded_apart(run.problem, times)):
            run.tell(Notice(apart))
    judge_all(_add_seeds(run, _tunable(run)))


def expect_tunables(problem: Problem, lineage: Lineage, seeds: Iterable[Seed]) -> None:
    """ConfigError where neither a seed nor a kernel of the run has anything that `writer=tune` could vary."""
    known = [seed.kernel for seed in seeds]
    known += [trial.kernel for trial in lineage.all_trials() if trial.kernel]
    if not any(values_in(kernel) or _takes_flags(problem, kernel) for kernel in known):
        lacking = f"{problem.name} has no kernel to start from, and no stage asks a model"
        raise ConfigError(f"{lacking}: {start_remedy(problem)}")


def _wait_for_others(run: Run, judge_all: Callable[[Iterable[Trial]], None]) -> None:
    """Wait while another process judges the seeds and none is accepted yet; judge those that it leaves behind."""
    lineage = run.lineage
    told, waiting = False, True
    while waiting and not lineage.population().ranked and not run.interrupted:
        waiting = lineage.others_at_work()  # first: what a process leaves behind when it ends is taken up below
        judge_all(lineage.claim_unfinished(Origin.SEED))
        if waiting and not told:
            run.tell(Notice("waiting for another process of this run, which judges the seeds; Ctrl-C ends the waiting"))
            told = True
        time.sleep(_LOOK_S if waiting else 0)


def no_start(population: Population) -> str:
    """Why a search cannot begin."""
    judged = [trial.evaluation for trial in population.trials if trial.evaluation]
    if judged and all(evaluation.verdict in (Verdict.UNTIMED, Verdict.COMPILE) for evaluation in judged):
        return (
            "nothing was timed, and a search needs times: evaluator=local where the target is, evaluator=spool where "
            "it is not; `python -m ksflow evaluate KERNEL` shows what the compilers said"
        )
    rows = [
        textwrap.shorten(f"{t.name or t.id}: {t.verdict} {t.evaluation.reason}", _REASON, placeholder=" ...")
        for t in population.trials
        if t.evaluation
    ]
    return f"no seed is accepted by the judge, so there is nothing to start from ({'; '.join(rows) or 'no seeds'})"


def _add_seeds(run: Run, seeds: tuple[Seed, ...]) -> tuple[Trial, ...]:
    """Those seeds that the lineage does not have yet, in it now."""
    lineage = run.lineage
    with lineage.claims.turn("seeds", "adding the seeds"):
        known = {trial.kernel.digest for trial in lineage.all_trials() if trial.kernel}
        new = [seed for seed in seeds if seed.kernel.digest not in known]
        planned = [Trial("", Origin.SEED, kernel=seed.kernel, name=seed.name, baseline=seed.baseline) for seed in new]
        return lineage.add_seeds(planned)


def _tunable(run: Run) -> tuple[Seed, ...]:
    """The fastest C++ kernel with tunables for its compiler, where the writer works by rule and none in C++ has any."""
    own = (
        t
        for t in run.lineage.last_population.trials
        if t.kernel and t.kernel.language == "cpp" and tunables(t.kernel.main)
    )
    if run.stages.repairs or any(own):
        return ()
    for trial in run.lineage.last_population.ranked:
        if trial.kernel and _takes_flags(run.problem, trial.kernel):
            (main, text), *others = trial.kernel.files.items()
            stem, _, ending = (trial.name or main).rpartition(".")
            idea = f"{trial.name or trial.id} with tunables for the compiler"
            return (Seed(f"{stem}_flags.{ending}", Kernel("cpp", {main: TUNABLE_FLAGS + text, **dict(others)}, idea)),)
    return ()


def _takes_flags(problem: Problem, kernel: Kernel) -> bool:
    """Whether a kernel can get tunables for its compiler: a repository's own commands compile without them."""
    return kernel.language == "cpp" and problem.origin.get("format") != "command"


def _revalidate(run: Run, seeds: tuple[Seed, ...]) -> None:
    """Judge again what has become stale and matters: seeds, and the leaders of wherever they were judged.

    A trial that was judged again keeps what it was before in its evidence (`renewed`), so nobody judges a leader's
    runners-up again at every start. The rest stays stale.
    """
    stale, lineage = run.lineage.last_population.stale, run.lineage
    due = {trial.id: trial for trial in _due(lineage.last_population, {seed.kernel.digest for seed in seeds})}
    if due:
        changed = ", ".join(sorted({word for t in stale for word in t.stale.split(", ")}))
        results = pluralize(len(stale), "result")
        again = f"judged again first, seeds and leaders: {len(due)} of them"
        run.tell(Notice(f"stale: {results} from before a change ({changed}); {again}"))
    for trial in lineage.reclaim(due.values()):
        was = due[trial.id].evaluation
        if was and not run.limits.is_reached():
            judge(run, trial, _earlier(was))


def _due(population: Population, seeds: set[str]) -> tuple[Trial, ...]:
    """The stale trials to judge again, seeds (also by their kernels' digests) first, then by their old scores."""
    planted = [trial for trial in population.stale if _is_seed(trial, seeds)]
    # a baseline that the problem no longer has was a reference, which was edited since
    planted = [t for t in planted if not (t.baseline and t.kernel and t.kernel.digest not in seeds)]
    groups: dict[tuple[str, ...], list[tuple[float, str]]] = defaultdict(list)
    for trial in (*population.stale, *population.trials):
        was = _was(trial)
        if was and not _is_seed(trial, seeds):
            groups[was.problem, was.judge, was.target].append((was.score_us or math.inf, trial.id))
    leaders = {name for group in groups.values() for _, name in sorted(group)[:_LEADERS]}
    others = [trial for trial in population.stale if trial.id in leaders]
    return (*planted, *sorted(others, key=lambda t: (t.evaluation.score_us if t.evaluation else None) or math.inf))


def _earlier(evaluation: Evaluation) -> EarlierVerdict:
    """What an evaluation was, for the evidence of the one that replaces it."""
    problem, judge, target = evaluation.key
    verdict, score_us = evaluation.verdict.value, evaluation.score_us
    return EarlierVerdict(verdict=verdict, score_us=score_us, problem=problem, judge=judge, target=target)


def _was(trial: Trial) -> EarlierVerdict | None:
    """What was once said of a trial, if it was accepted then."""
    evaluation = trial.evaluation
    if evaluation is None:
        return None
    was = _earlier(evaluation) if trial.stale else evaluation.evidence.renewed
    return was if was and was.score_us else None


def _is_seed(trial: Trial, seeds: set[str]) -> bool:
    return trial.origin is Origin.SEED or (trial.kernel is not None and trial.kernel.digest in seeds)
