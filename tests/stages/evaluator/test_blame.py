"""No kernel is blamed for what the judge takes, nor for a rival that hangs or fails late; what probes play is whole."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from evaluator import toy
from evaluator.test_contents import pool
from ksflow.evaluation.judge.comparison import Effort, PairedComparison
from ksflow.evaluation.judge.failure import Failure
from ksflow.evaluation.judge.input_pool import InputPool, PoolLimits
from ksflow.evaluation.judge.mutants import MUTANTS, Right
from ksflow.evaluation.judge.outcome import CaseResult, CaseResults, Outcome
from ksflow.evaluation.judge.samples import Samples
from ksflow.evaluation.judge.session import _CONFIRMING, Host, Judgement
from ksflow.evaluation.judge.timing import Backend, Replicate, TimedKernel
from ksflow.evaluation.judge.tolerance import expected
from ksflow.records import Evaluation, Problem, Timing, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator


@pytest.mark.slow
@pytest.mark.soak
def test_time_in_which_contents_are_made_is_not_the_kernels(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    problem = toy.problem(tmp_path, replace(toy.PATIENT, check_s=3, time_s=3))
    slow = toy.REFERENCE.replace("def generate_input(", "import time\n\ndef generate_input(").replace(
        "    generator = ", "    time.sleep(0.6)\n    generator = ", 1
    )
    (tmp_path / "reference.py").write_text(slow)
    found = evaluator(replace(problem, benchmarks=problem.benchmarks[:1]), toy.slow(300), ())
    assert found.accepted, found.reason


@pytest.mark.slow
def test_rival_that_hangs_in_the_race_costs_the_kernel_nothing(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    problem = toy.problem(tmp_path, replace(toy.PATIENT, time_s=5))
    hangs = toy.cpp(toy.LOOP + "\nstatic int calls; if (++calls > 6) for (;;) usleep(9999);")
    slow = toy.slow(600)
    found = evaluator(problem, slow, (toy.trial(hangs), toy.trial(slow, "00002")))
    assert found.accepted, found.reason
    assert "no answer in time" in found.evidence.skipped["00001"]
    assert [row.id for row in found.evidence.against] == ["00002"]


def _outcome(us: dict[str, float], failed: str | None = None) -> Outcome:
    """Of one case in two replicates; `failed` does not start in the second."""
    results = []
    for replicate in range(2):
        samples = {
            name: Samples([each] * 9, [each] * 9, [each] * 9)
            for name, each in us.items()
            if not (replicate and name == failed)
        }
        results.append(CaseResult(samples, frozenset(samples), 9, 1, 0.0, [], 0))
    outcome = Outcome([CaseResults({"name": "only"}, results)])
    outcome.rows = [{"case": "only"}]
    outcome.skipped = {failed: ""} if failed else {}
    found = {name: outcome.ratio("", name) for name in us if name and name != failed}
    outcome.ratios = {name: row for name, row in found.items() if row}
    return outcome


def _judged(
    large: bool, *outcomes: Outcome, us: dict[str, float] | None = None, itself: Outcome | None = None
) -> dict[str, Any]:
    left = list(outcomes)

    class Played(Judgement):
        def _compare(self, phase: str, kernels: dict[str, Any], effort: Effort = Effort()) -> Outcome:  # noqa: B008
            return left.pop(0) if large else super()._compare(phase, kernels, effort)

        def _beside_itself(self, kernel: dict[str, Any]) -> Outcome | None:
            return itself

    kernel = {"language": "cpp"}
    pool = SimpleNamespace(tests=[], large=large, name="", salt="", problem={"limits": {}})
    host = SimpleNamespace(cores=())
    request = {"kernel": kernel, "against": [{**kernel, "id": "00001", "us": us or {}}]}
    backend = SimpleNamespace(evidence=dict, device_uuid="")
    with pytest.MonkeyPatch.context() as patch:
        run = SimpleNamespace(run=lambda *_: left.pop(0))
        patch.setattr("ksflow.evaluation.judge.session.PairedComparison", lambda *_: run)
        return Played(cast(Host, host), cast(InputPool, pool), cast(Backend, backend), request).run()


def test_incumbent_that_fails_when_it_is_timed_again_leaves_the_kernel_accepted_and_unranked() -> None:
    first = _outcome({"": 1.0, "00001": 2.0})
    again = {"": 1.0, "00001": 2.0, "control kernel": 2.0}
    for large in (False, True):
        found = _judged(large, first, _outcome(again, failed="00001"))
        assert found["verdict"] == "accept"
        claim = found["evidence"]["claim"]
        assert not claim["faster"]
        assert not claim["ranked"]
        assert claim["why"] == "00001 failed when it was timed again"
        assert not found["evidence"]["against"][0]["ranked"]
    found = _judged(True, first, _outcome({**again, "control kernel": 1.0}))
    assert found["evidence"]["claim"]["faster"]


def test_no_claim_is_made_of_kernels_that_were_not_held_to_one_process() -> None:
    first, again = _outcome({"": 1.0, "00001": 2.0}), {"": 1.0, "00001": 2.0, "control kernel": 2.0}
    assert _judged(False, first, _outcome(again))["evidence"]["claim"]["faster"]
    for at in range(2):
        outcomes = [_outcome({"": 1.0, "00001": 2.0}), _outcome(again)]
        outcomes[at].locked = False
        evidence = _judged(False, *outcomes)["evidence"]
        assert not evidence["one_process"]
        assert "one process" in evidence["unranked"]
        claim = evidence.get("claim", {"faster": False, "ranked": False, "why": evidence["unranked"]})
        assert (claim["faster"], claim["ranked"], claim["why"]) == (False, False, evidence["unranked"])


def test_a_quota_that_stopped_the_judge_is_blamed_and_not_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter((3, 46))
    monkeypatch.setattr("ksflow.evaluation.processes.quota.stops", lambda: next(counts))
    monkeypatch.setattr("ksflow.evaluation.processes.quota.cores", lambda: 1.5)
    first = _outcome({"": 1.0, "00001": 1.0})
    first.ratios["00001"] |= {"ranked": False, "why": "x1, x2 leave x0.5 to x2 (is the machine busy?)"}
    evidence = _judged(False, first)["evidence"]
    assert evidence["throttled"] == 43
    why = "x1, x2 leave x0.5 to x2 (a quota of 1.5 cores' CPU time stopped it 43 times: raise cpu.max)"
    assert evidence["claim"]["why"] == evidence["against"][0]["why"] == why


def _steady(*outcomes: dict[str, float]) -> list[Outcome]:
    """Comparisons in six replicates each, which agree to a tenth of a per cent."""
    made = []
    for us in outcomes:
        results = []
        for number in range(6):
            rows = {
                name: [each * (1 + 0.001 * ((turn + number) % 3)) for turn in range(12)] for name, each in us.items()
            }
            samples = {name: Samples(row, row, row) for name, row in rows.items()}
            results.append(CaseResult(samples, frozenset(samples), 12, 1, 0.0, [number], 0))
        outcome = Outcome([CaseResults({"name": "only"}, results)])
        outcome.rows = [{"case": "only"}]
        found = {name: outcome.ratio("", name) for name in us if name}
        outcome.ratios = {name: row for name, row in found.items() if row}
        made.append(outcome)
    return made


def test_the_ratio_of_a_claim_is_the_one_that_was_seen_when_it_was_confirmed() -> None:
    """By more than 1 % it is faster; what led to the second look is not in the figure."""
    for gain, faster in ((1.03, True), (1.012, True), (1.008, False)):
        first, again = _steady(
            {"": 100.0, "00001": 150.0}, {"": 100.0, "00001": 100 * gain, "control kernel": 100 * gain}
        )
        claim = _judged(False, first, again)["evidence"]["claim"]
        assert claim["faster"] is faster
        assert claim["speedup"] == pytest.approx(gain, abs=0.001)
        assert claim["first"]["speedup"] == pytest.approx(1.5, abs=0.001)
        assert (claim["low"] > 1.01) is faster


def test_the_interval_of_a_claim_has_what_the_incumbent_differs_from_itself() -> None:
    first, again = _steady({"": 100.0, "00001": 150.0}, {"": 100.0, "00001": 103.0, "control kernel": 104.0})
    claim = _judged(False, first, again)["evidence"]["claim"]
    assert claim["again"]["low"] > 1.01
    assert claim["low"] < 1 < 1.05 < claim["high"]
    assert not claim["faster"]
    assert claim["high"] - claim["low"] > 1.5 * (claim["again"]["high"] - claim["again"]["low"])


def test_no_claim_without_a_lead_of_one_per_cent() -> None:
    (first,) = _steady({"": 100.0, "00001": 100.9})
    claim = _judged(False, first)["evidence"]["claim"]
    assert "again" not in claim
    assert not claim["faster"]


@pytest.mark.parametrize(
    ("recorded", "itself", "faster"), [(100.0, 101.0, False), (100.0, 149.0, True), (145.0, 101.0, True)]
)
def test_an_incumbent_that_holds_back_makes_no_winner(recorded: float, itself: float, faster: bool) -> None:
    """It took 100 µs when it was judged and takes 150 now; who takes 100 as well is not faster. But if it takes as long
    beside itself, it is the machine that has become slower."""
    (alone,) = _steady({"": itself, "control kernel": 150.0})
    outcomes = _steady({"": 100.0, "00001": 150.0}, {"": 100.0, "00001": 150.0, "control kernel": 150.0})
    claim = _judged(False, *outcomes, us={"only": recorded}, itself=alone)["evidence"]["claim"]
    assert claim["faster"] is faster
    assert claim["ranked"] is faster
    assert faster or "00001 takes x1.50 of what it took when it was judged" in claim["why"]


def test_the_judge_is_told_what_a_rival_took_when_the_same_judge_timed_it(
    evaluator: LocalEvaluator, problem: Problem
) -> None:
    timed = Evaluation(Verdict.ACCEPT, "", 5.0, (Timing("n30000", 5.0, (5.0,)),), judge=evaluator.judge)
    here, elsewhere = replace(timed, target=evaluator.fingerprint), replace(timed, target="another machine")
    trials = [replace(toy.trial(toy.RIGHT_CPP), evaluation=each) for each in (here, elsewhere, None)]
    others, skipped, failed = evaluator._others(problem, trials)
    assert [other["us"] for other in others] == [{"n30000": 5.0}, {}, {}]
    assert not skipped
    assert not failed


@pytest.mark.parametrize("guilty", [True, False])
def test_a_rival_that_failed_is_tried_beside_itself(monkeypatch: pytest.MonkeyPatch, guilty: bool) -> None:
    """If it fails there, too, the next one is the rival; if not, the candidate may have made it fail."""
    beside = [_steady({"": 100.0, "00002": 100.0})[0], Outcome([])]
    for outcome, failed in zip(beside, ("00001", "control kernel"), strict=True):
        outcome.skipped = {failed: "killed by SIGABRT\nmore"} if guilty or outcome is beside[0] else {}
    tried: list[dict[str, Any]] = []

    class Played:
        def __init__(self, pool: object, backend: object, kernels: dict[str, Any], *_: object) -> None:
            tried.append(kernels)

        def run(self, own: object, opener: object) -> Outcome:
            return beside[len(tried) - 1]

    monkeypatch.setattr("ksflow.evaluation.judge.session.PairedComparison", Played)
    pool = SimpleNamespace(tests=[], large=False, problem={"limits": {}})
    request = {"kernel": {"id": ""}, "against": [{"id": "00001"}, {"id": "00002"}]}
    host, backend = SimpleNamespace(cores=()), SimpleNamespace(evidence=dict, device_uuid="")
    evidence = Judgement(cast(Host, host), cast(InputPool, pool), cast(Backend, backend), request).run()["evidence"]
    assert tried[1] == {"": {"id": "00001"}, "control kernel": {"id": "00001"}}
    assert evidence["skipped"] == {"00001": "killed by SIGABRT"}
    assert evidence.get("failed_rivals", {}) == (evidence["skipped"] if guilty else {})
    assert ("unranked" in evidence) is not guilty
    assert ("claim" in evidence) is guilty
    assert not guilty or evidence["claim"]["id"] == "00002"


@pytest.mark.parametrize(("alone", "places"), [(True, {0, 1, 2}), (False, {2})])
def test_who_starts_last_changes_and_nobody_is_at_work_while_another_starts(alone: bool, places: set[int]) -> None:
    """Where a sandbox cannot be held to one process, the candidate starts last each time."""
    events: list[tuple[str, str]] = []

    @contextlib.contextmanager
    def opened(name: str) -> Iterator[Any]:
        events.append(("start", name))
        noted = {word: partial(events.append, (word, name)) for word in ("close", "freeze")}
        yield SimpleNamespace(wait_ready=lambda _: None, keep_one_process=lambda: alone, **noted)

    class Starting(PairedComparison):
        def _settled(self, done: int, spent_s: float) -> bool:
            return False

    buffers: Any = lambda count: list(range(count))  # noqa: E731
    pool = SimpleNamespace(benchmarks=[], large=False, problem={"limits": {"check_s": 1.0, "time_s": 1.0}})
    pool.buffers = buffers
    made = partial(TimedKernel, limit_s=1.0)
    backend = SimpleNamespace(starts_together=False, spread=0.02, timed_kernel=lambda name, box, *_: made(name, box))
    kernels = {"": {"id": ""}, "00001": {"id": "00001"}, "00002": {"id": "00002"}}
    played = Starting(cast(Any, pool), cast(Any, backend), kernels, str, Effort(most=6))
    seen, last = set(), Counter[str]()
    for number in range(6):
        events.clear()
        with contextlib.ExitStack() as stack:
            opener = cast(Any, lambda kernel, _: opened(kernel["id"]))
            played._run_replicate(stack, cast(Any, lambda _: opened("")), opener, Replicate(number, 3))
        order = [name for word, name in events if word == "start"]
        assert events == [(word, name) for name in order for word in ("start", "freeze")]
        seen |= {order.index("")} if number else set()
        last[order[-1]] += 1
    assert seen == places
    assert last == ({"": 2, "00001": 2, "00002": 2} if alone else {"": 6})


def test_two_readings_that_differ_are_not_the_last_word_where_starting_a_kernel_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two replicates take the time there is, and leave x1.68 and x1.51 unranked; of a confirmation one takes all."""

    class Played(PairedComparison):
        def _run_replicate(self, stack: object, own: object, opener: object, replicate: Replicate) -> None:
            nonlocal now
            now += self.effort.spent_s * (0.4 if self.effort == Effort() else 0.9)
            lead = (1.68, 1.51, 1.62, 1.55)[replicate.number % 4]
            rows = {"": [1.0] * 9, "00001": [lead] * 9}
            samples = {name: Samples(each, each, each) for name, each in rows.items()}
            self.outcome.cases[0].results.append(CaseResult(samples, frozenset(samples), 9, 1, 0.0, [], 0))

    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    case = SimpleNamespace(case={"name": "only"})
    pool = cast(InputPool, SimpleNamespace(benchmarks=[case], large=False, problem={"limits": {}}))
    backend = cast(Backend, SimpleNamespace(starts_together=True, spread=0.01))
    for effort in (Effort(), _CONFIRMING):
        played = Played(pool, backend, {"": {}, "00001": {}}, str, effort)
        ratio = played.run(cast(Any, None), cast(Any, None)).ratios["00001"]
        assert len(ratio["replicates"]) == 3
        assert ratio["ranked"]
        assert ratio["low"] > 1.3


def test_a_rival_that_dies_as_it_is_frozen_is_left_out() -> None:
    """Between its warm-up and its first batch it may end of itself: nobody else is to blame."""

    def freeze() -> str:
        raise Failure("exit", "ended with status 1")

    ended = SimpleNamespace(keep_one_process=lambda: True, freeze=freeze, close=lambda: None)
    pool = cast(InputPool, SimpleNamespace(benchmarks=[], problem={"limits": {}}))
    backend = cast(Backend, SimpleNamespace(starts_together=False, spread=0.02))
    played = PairedComparison(pool, backend, {"": {}, "00001": {}}, str)
    kernels: list[Any] = []
    rival = cast(Any, SimpleNamespace(name="00001", sandbox=ended, required=False))
    played._admit([rival], kernels, [])
    assert not kernels
    assert played.outcome.skipped == {"00001": "ended with status 1"}
    rival.required = True
    with pytest.raises(Failure):
        played._admit([rival], kernels, [])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn, torch.float8_e5m2, torch.int32, torch.bool])
def test_wrong_answers_are_made_of_every_type_and_any_check_can_take_them_apart(dtype: torch.dtype) -> None:
    out = torch.arange(6.0).view(2, 3).to(dtype)
    row = {"expected": out.double(), "magnitude": 0.0, "terms": 1}
    want = expected(row, out, {"c1": 8.0, "accumulate": "float32"})
    right = Right((out,), (out,), (want,), (out,), lambda data: data, True)
    for lazy in MUTANTS:
        for answer in lazy.answers(right):
            assert all(each.is_contiguous() for each in answer), lazy.name


def test_contents_of_a_large_case_are_compared_whole(tmp_path: Path) -> None:
    case = pool(toy.problem(tmp_path), PoolLimits(large_bytes=4096)).benchmarks[1]
    assert case.large
    assert case.slots == 1
    whole = [all(want.sample is None for want in next(case.feed()).expected) for _ in range(3)]
    assert all(whole)
    assert not case.entries
