"""No kernel is blamed for what the judge takes, nor for a rival that hangs or fails late; what probes play is whole."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from evaluator import toy
from evaluator.timed.test_contents import pool
from ksflow.judge.comparison import CaseResult, CaseResults, Effort, Outcome, PairedComparison
from ksflow.judge.failure import Failure
from ksflow.judge.input_pool import InputPool, PoolLimits
from ksflow.judge.mutants import MUTANTS, Right
from ksflow.judge.samples import Samples
from ksflow.judge.session import _CONFIRMING, Host, Judgement
from ksflow.judge.timing import Backend, Replicate
from ksflow.judge.tolerance import expected
from ksflow.stages.evaluator.local import LocalEvaluator


@pytest.mark.slow
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


def _judged(large: bool, *outcomes: Outcome) -> dict[str, Any]:
    left = list(outcomes)

    class Played(Judgement):
        def _compare(self, phase: str, kernels: dict[str, Any], effort: Effort = Effort()) -> Outcome:  # noqa: B008
            return left.pop(0) if large else super()._compare(phase, kernels, effort)

        def _fails_alone(self, kernel: dict[str, Any]) -> bool:
            return True

    kernel = {"language": "cpp"}
    pool = SimpleNamespace(tests=[], large=large, name="", salt="", problem={"limits": {}})
    host = SimpleNamespace(sandbox_core=None)
    request = {"kernel": kernel, "against": [{**kernel, "id": "00001"}]}
    backend = SimpleNamespace(evidence=dict, device_uuid="")
    with pytest.MonkeyPatch.context() as patch:
        run = SimpleNamespace(run=lambda *_: left.pop(0))
        patch.setattr("ksflow.judge.session.PairedComparison", lambda *_: run)
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
        claim = evidence["claim"]
        assert (claim["faster"], claim["ranked"], claim["why"]) == (False, False, evidence["unranked"])


def test_a_quota_that_stopped_the_judge_is_blamed_and_not_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter((3, 46))
    monkeypatch.setattr("ksflow.processes.quota.stops", lambda: next(counts))
    monkeypatch.setattr("ksflow.processes.quota.cores", lambda: 1.5)
    first = _outcome({"": 1.0, "00001": 1.0})
    first.ratios["00001"] |= {"ranked": False, "why": "x1, x2 leave x0.5 to x2 (is the machine busy?)"}
    evidence = _judged(False, first)["evidence"]
    assert evidence["throttled"] == 43
    why = "x1, x2 leave x0.5 to x2 (a quota of 1.5 cores' CPU time stopped it 43 times: raise cpu.max)"
    assert evidence["claim"]["why"] == evidence["against"][0]["why"] == why


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
    backend = cast(Backend, SimpleNamespace(starts_together=True))
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

    ended = SimpleNamespace(alone=lambda: True, freeze=freeze, close=lambda: None)
    pool = cast(InputPool, SimpleNamespace(benchmarks=[], problem={"limits": {}}))
    backend = cast(Backend, SimpleNamespace(starts_together=False))
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
