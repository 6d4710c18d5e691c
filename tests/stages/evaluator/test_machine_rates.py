"""What one core of this machine does: measured in a box and kept for a week, no honest kernel convicted."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ksflow.evaluation.judge.machine_rates import with_measured_rates
from ksflow.kernels.hardware import cpu
from ksflow.kernels.hardware.target import detect, from_data_sheet
from ksflow.records import Evaluation, Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

from . import toy


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """A cache folder of its own; the file with this machine's rates."""
    monkeypatch.setenv("KSFLOW_CACHE", str(tmp_path))
    return lambda: next(tmp_path.glob("rates/*.json"))


@pytest.mark.slow
def test_rates_of_each_level_and_type_come_out_of_a_box_and_are_kept(cache: Callable[[], Path]) -> None:
    target = detect()
    found = dict(with_measured_rates(target).measured)
    assert {"flops.fp32", "flops.fp64", "bytes", *(f"bytes.{size}" for size in cpu.cache_sizes())} <= found.keys()
    assert all(rate > 1e8 for rate in found.values())
    assert all(found[key] <= peak for key, peak in target.peaks.items() if key in found)
    assert max(found[key] for key in found if key.startswith("bytes")) <= target.peaks["bytes.cache"]
    (kept,) = json.loads(cache().read_text())
    assert kept["rates"] == found
    cache().write_text(json.dumps([{**kept, "rates": {**found, "flops.fp32": 1.0}}]))
    assert with_measured_rates(target).measured["flops.fp32"] == 1.0  # as it was kept
    again = with_measured_rates(target, again=True).measured
    assert again["flops.fp32"] > 1e8
    assert replace(target, measured=again).fingerprint == target.fingerprint


def test_a_rate_that_was_seen_once_is_forgotten(cache: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that jumped: from then on every floor would be too low."""
    target, now, rate = detect(), 1.8e9, 9e15
    monkeypatch.setattr("ksflow.evaluation.judge.machine_rates._measure", lambda _: {"bytes": rate, "flops.fp32": rate})
    monkeypatch.setattr("time.time", lambda: now)
    first = with_measured_rates(target).measured
    assert all(first[key] <= peak for key, peak in target.peaks.items() if key in first)  # whatever a clock says
    rate = 1e10
    assert with_measured_rates(target).measured == first
    now += 8 * 86400
    assert with_measured_rates(target).measured["bytes"] == 1.25e10
    rate = 2e9  # a busy machine makes them lower
    for _ in range(5):
        assert with_measured_rates(target, again=True).measured["bytes"] >= 2e9
        now += 1.0
    assert with_measured_rates(target).measured["bytes"] == 2e9
    cache().write_text(json.dumps({"bytes": 9e15}))  # as it once was: the best alone
    assert with_measured_rates(target).measured["bytes"] == 2e9


@pytest.mark.slow
def test_rates_of_several_cores_are_their_own(cache: Callable[[], Path]) -> None:
    one, two = detect(), detect(cores=2)
    assert two.peaks == {key: 2 * peak for key, peak in one.peaks.items()}
    found = dict(with_measured_rates(two).measured)
    assert {"flops.fp32", "flops.fp64", "bytes", *(f"bytes.{size}" for size in cpu.cache_sizes(2))} <= found.keys()
    assert all(1e8 < rate <= two.peaks.get(key, rate) for key, rate in found.items())
    kept = cache()
    assert with_measured_rates(one).measured.keys() >= {f"bytes.{size}" for size in cpu.cache_sizes()}
    assert len([*kept.parent.glob("*.json")]) == 2


@pytest.mark.slow
def test_two_processes_that_start_at_once_know_the_same_rates(cache: Callable[[], Path]) -> None:
    code = (
        "from ksflow.kernels.hardware.target import detect; "
        "from ksflow.evaluation.judge.machine_rates import with_measured_rates; "
        "print(sorted(with_measured_rates(detect()).measured.items()))"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
    first, second = (process.communicate()[0] for process in both)
    assert first == second
    assert b"flops.fp32" in first


def test_what_cannot_be_measured_stays_as_it_came(cache: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = from_data_sheet("x", "chip", "sm_90a", {"bytes": 1.0})
    assert with_measured_rates(gpu) is gpu
    monkeypatch.setattr("ksflow.evaluation.judge.machine_rates.find", lambda: None)
    assert with_measured_rates(detect()) == detect()
    with pytest.raises(StopIteration):
        cache()


@pytest.mark.slow
def test_a_kernel_below_a_floor_that_a_busy_machine_set_is_measured_with_again(
    problem: Problem, cache: Callable[[], Path]
) -> None:
    """The rates on file are far too low: by them, the honest kernel would be impossible."""
    bytes_needed = replace(problem, work={"bytes": "12 * n", "flops": "n"})
    with_measured_rates(detect())
    (kept,) = json.loads(cache().read_text())
    cache().write_text(json.dumps([{**kept, "rates": dict.fromkeys(kept["rates"], 1e3)}]))
    evaluator = LocalEvaluator(detect())
    try:
        found: Evaluation = evaluator(bytes_needed, toy.cpp(toy.LOOP), ())
    finally:
        evaluator.close()
    assert found.verdict is not Verdict.IMPOSSIBLE, found.reason
    assert found.accepted
    assert {row.case for row in found.evidence.roofline} == {case.name for case in problem.benchmarks}
    assert all((row.floor_us or 0) <= row.us for row in found.evidence.timed if row.us)
