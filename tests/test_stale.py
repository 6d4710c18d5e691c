"""A verdict holds for one problem, judge and machine: when one of them changes it is kept and shown, and not used."""

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import accepted, kernel, plant
from test_cli import DRY, ksflow
from test_session import SEEDS, Run, evaluate

from ksflow.kernels.hardware.target import detect
from ksflow.lineage import Lineage
from ksflow.lineage.cache import Cache
from ksflow.loop import judging
from ksflow.loop.search import search
from ksflow.records import Claim, Evaluation, Evidence, Kernel, Key, Origin, Population, Problem, Trial, Verdict
from ksflow.report.headline import known_baselines
from ksflow.stages.evaluator.local import LocalEvaluator


class Judge:
    """The session tests' evaluator, with a name and a place."""

    def __init__(self, judge: str = "judge-1", fingerprint: str = "here", speed: float = 1.0) -> None:
        self.judge, self.fingerprint, self.speed = judge, fingerprint, speed
        self.judged: list[str] = []

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        self.judged.append(kernel.main)
        found = evaluate(problem, kernel, versus)
        us = found.score_us / self.speed if found.score_us else 0.0
        timings = tuple(replace(timing, us=us) for timing in found.timings)
        return replace(found, score_us=us, timings=timings, target=self.fingerprint, judge=self.judge)


def current(judge: Judge) -> Callable[[Trial], bool]:
    return lambda trial: bool(trial.evaluation and trial.evaluation.judge == judge.judge)


def test_another_judge_makes_old_results_stale_and_judges_seeds_and_leaders_again(lineage: Lineage) -> None:
    Run(lineage, evaluate=Judge())(evaluations=20)
    new = Judge("judge-2", speed=0.5)
    run = Run(lineage, evaluate=new)
    outcome = run(evaluations=3)
    announced = [what for what, _ in run.events if what.startswith("stale")]
    assert announced == [
        "stale: 22 results from before a change (judge); judged again first, seeds and leaders: 10 of them"
    ]
    assert len(outcome.population.trials) == 10 + 3
    assert len(outcome.population.stale) == 12
    assert outcome.judged == 3
    assert all(map(current(new), outcome.population.trials))
    assert [t.id for t in outcome.baselines] == ["00001"]
    assert outcome.best in outcome.population.trials
    marked = {t.id: t.stale for t in lineage.all_trials() if t.stale}
    assert set(marked.values()) == {"judge"}
    assert all(t.verdict == "stale" and t.score_us is None and t.evaluation for t in outcome.population.stale)
    run.events.clear()
    run(evaluations=1)  # the leaders are known by now
    assert not [what for what, _ in run.events if what.startswith("stale")]
    for trial in outcome.population.trials[-3:]:  # nothing is built on what is stale
        assert not set(trial.parents) & marked.keys()


def test_a_baseline_that_the_problem_no_longer_has_stays_stale(lineage: Lineage) -> None:
    Run(lineage, evaluate=Judge())(evaluations=2)
    edited = replace(SEEDS[0], kernel=kernel("// the reference, edited"))
    outcome = search(Run(lineage, evaluate=Judge("judge-2")).made(evaluations=1), (edited, SEEDS[1]))
    (baseline,) = outcome.baselines
    assert baseline.kernel == edited.kernel
    assert known_baselines(outcome.population) == outcome.baselines
    assert [trial.kernel for trial in outcome.population.stale if trial.baseline] == [SEEDS[0].kernel]


def test_an_old_result_stays_in_the_branch(lineage: Lineage) -> None:
    Run(lineage, evaluate=Judge())(evaluations=1)
    Run(lineage, evaluate=Judge("judge-2"))(evaluations=1)
    log = subprocess.run(
        ["git", "-C", lineage.store.path, "log", "--format=%s", "toy/main/00001"],
        check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    assert sum("accept" in line for line in log) == 2


def test_two_machines_with_one_lineage_each_see_their_own_results(lineage: Lineage) -> None:
    here, there = Judge(fingerprint="here"), Judge(fingerprint="there", speed=3.0)
    Run(lineage, evaluate=here)(evaluations=3, confirm=False)
    Run(lineage, evaluate=there)(evaluations=3, confirm=False)
    here.judged.clear()
    run = Run(lineage, evaluate=here)
    outcome = run(evaluations=2, confirm=False)
    theirs = [t.id for t in lineage.all_trials() if t.stale]
    assert theirs == []  # the three that only the other had judged are among the leaders: judged here, once
    assert len(here.judged) == 3 + 2
    assert len([what for what, _ in run.events if what.startswith("stale")]) == 1
    seeds = [t for t in outcome.population.trials if t.origin is Origin.SEED]
    assert [t.evaluation.target for t in seeds if t.evaluation] == ["here", "here"]  # from below the tip
    there.judged.clear()
    Run(lineage, evaluate=there)(evaluations=1, confirm=False)
    assert len(there.judged) == 2 + 1  # what was new, and no seed again


def test_what_changed_is_named() -> None:
    found = replace(accepted(3.0), problem="p", judge="j")
    assert Key("p", "j", "t").describe_changes(found) == ""
    assert Key("q", "j", "elsewhere").describe_changes(found) == "problem, target"
    assert Key("p", "k").describe_changes(found) == "judge"  # a machine that nobody names is not compared
    assert Key("p", "j", "t").describe_changes(accepted(3.0)) == "problem, judge"  # a record from before keys


def test_a_stale_trial_is_known_by_its_id_only() -> None:
    old = Trial("00001", Origin.SEED, kernel=kernel("a"), evaluation=accepted(1.0), stale="judge")
    new = Trial("00002", Origin.EXPERIMENT, ("00001",), kernel=kernel("b"), evaluation=accepted(9.0))
    population = Population((new,), (old,))
    assert population.best == new
    assert population.ranked == (new,)
    assert population.choose("00002", "00002", "").base_step.before_us == {}
    assert population.by_id["00001"].kernel == kernel("a")


def test_a_branch_is_read_for_the_key_that_is_asked(lineage: Lineage) -> None:
    trial = plant(lineage, "int a;", 20.0)
    both = [replace(accepted(us), judge="j", problem="p", target=target) for us, target in ((5.0, "a"), (7.0, "b"))]
    for evaluation in both:
        lineage.evaluate(replace(trial, evaluation=evaluation))
    for target, us in (("a", 5.0), ("b", 7.0)):
        lineage.expect(Key("p", "j", target))
        assert lineage.population().trials[0].score_us == us
    lineage.expect(Key("p", "j", "c"))
    assert lineage.population().trials == ()
    assert [t.stale for t in lineage.last_population.stale] == ["target"]
    assert lineage.last_population.best is None


@pytest.mark.slow
def test_a_changed_problem_shows_in_tables_and_the_run_goes_on(tmp_path: Path) -> None:
    dry = [*DRY, "loop.confirm=false"]
    assert ksflow(tmp_path, *dry, "loop.evaluations=3").returncode == 0
    changed = ["problem=softmax", "run=dry", "problem.cases=tests"]
    as_recorded = ksflow(tmp_path, "lineage", "problem=softmax", "run=dry").stdout
    tree = ksflow(tmp_path, "lineage", *changed).stdout
    assert tree == as_recorded  # looking is not comparing
    assert "judged by fake-1 on fake" in tree
    shown = ksflow(tmp_path, "lineage", "show", "00004", *changed).stdout
    assert shown.startswith("00004  seed  accept")
    done = ksflow(tmp_path, *dry, "problem.cases=tests", "loop.evaluations=1")
    assert done.returncode == 0, done.stderr
    assert "7 results from before a change (problem)" in done.stderr
    (older,) = re.findall(r"stale and not ranked: (\d+) older", done.stderr)
    for words in (changed, ["problem=softmax", "run=dry"]):
        tree = ksflow(tmp_path, "lineage", *words).stdout
        assert "stale" not in tree
        assert 0 < tree.count("(another problem: fake-1 on fake)") == int(older)


# -- the cache -------------------------------------------------------------------------------------

KEY = Key("p", "judge-1", "here")
NOISE = Claim(id="1", speedup=1.1, low=1.0, high=1.2, faster=False, ranked=False, why="noise")
FOUND = replace(accepted(3.0), problem="p", judge="judge-1", target="here")


def test_only_the_very_same_key_is_answered_from_the_cache(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "evaluations")
    cache.keep(kernel("a"), "toy", "evaluate", FOUND)
    kept = cache.find(kernel("a"), KEY)
    assert kept is not None
    assert kept.evaluation == FOUND
    assert cache.find(kernel("b"), KEY) is None
    for other in (replace(KEY, problem="q"), replace(KEY, judge="judge-2"), replace(KEY, target="there")):
        assert cache.find(kernel("a"), other) is None
        old = cache.find_outdated(kernel("a"), "toy", other)
        assert old is not None
        assert old.evaluation == FOUND
        assert cache.find_outdated(kernel("a"), "another problem", other) is None


def test_a_verdict_from_a_weaker_box_is_not_taken_for_one_from_a_stronger(tmp_path: Path) -> None:
    cache, held = Cache(tmp_path), replace(FOUND, isolation="landlock")
    cache.keep(kernel("a"), "toy", "evaluate", held)
    assert cache.find(kernel("a"), replace(KEY, isolation="full")) is None
    cache.keep(kernel("a"), "toy", "evaluate", replace(held, isolation="full"))
    for level in ("landlock", "full"):
        kept = cache.find(kernel("a"), replace(KEY, isolation=level))
        assert kept is not None
        assert kept.evaluation.isolation == level
    newest = cache.find(kernel("a"), KEY)  # who has the worker judge does not know how it will hold the kernel
    assert newest is not None
    assert newest.evaluation.isolation == "full"
    assert replace(KEY, isolation="full").describe_changes(held) == ""
    evaluator = LocalEvaluator(detect())
    problem = Problem("p", "p", "", "", "", "", ("python",), (), (), (), (), ())
    assert judging.current_key(problem, evaluator).isolation == evaluator.level


@pytest.mark.parametrize(
    "evaluation",
    [
        Evaluation(Verdict.HARNESS, "x", judge="judge-1", target="here", problem="p"),
        Evaluation(Verdict.TIMEOUT, "x", judge="judge-1", target="here", problem="p"),
        replace(FOUND, evidence=Evidence(claim=NOISE)),
        replace(FOUND, judge=""),
    ],
)
def test_what_the_machine_may_have_caused_is_not_cached(tmp_path: Path, evaluation: Evaluation) -> None:
    cache = Cache(tmp_path / "evaluations")
    cache.keep(kernel("a"), "toy", "evaluate", evaluation)
    assert not list(tmp_path.rglob("*.json"))


def test_a_damaged_entry_is_as_good_as_absent(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.keep(kernel("a"), "toy", "evaluate", FOUND)
    (file,) = tmp_path.glob("*.json")
    file.write_bytes(file.read_bytes()[:-30])
    assert cache.find(kernel("a"), KEY) is None
    assert not file.exists()


def test_the_cache_stays_small(tmp_path: Path) -> None:
    cache = Cache(tmp_path, most=3)
    for number in range(5):
        before = set(tmp_path.glob("*"))
        cache.keep(kernel(f"{number}"), "toy", "evaluate", FOUND)
        (new,) = set(tmp_path.glob("*")) - before
        os.utime(new, (number, number))  # files of one moment have one time
    assert len(list(tmp_path.glob("*"))) == 3
    assert cache.find(kernel("0"), KEY) is None
    assert cache.find(kernel("4"), KEY) is not None
