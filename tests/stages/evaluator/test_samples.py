"""A busy machine makes no time too good and accuses nobody; the CPU clock counts where it says more than it may."""

import pytest

from ksflow.evaluation.judge.outcome import CaseResult, CaseResults
from ksflow.evaluation.judge.overhead import NullTimings
from ksflow.evaluation.judge.samples import Samples, samples_of

Batches = list[tuple[float, float]]
FLOOR = {"name": "only", "floor": (2.0, "16 kB at 8 GB/s")}


def null(batches: Batches) -> NullTimings:
    """The null batches of a benchmark, in µs of both clocks."""
    made = NullTimings()
    for wall_us, cpu_us in batches:
        made.add(wall_us * 1e-6, cpu_us * 1e-6)
    made.settle()
    return made


QUIET = [(25.0, 37.0)] * 32
BUSY = [(25.0, 37.0)] * 3 + [(130.0, 120.0)] * 9 + [(9000.0, 60.0)] * 20


def taken(batches: Batches, versus: Batches) -> Samples:
    """What is kept of a kernel's batches, in µs of both clocks."""
    return samples_of([(wall_us * 1e-6, cpu_us * 1e-6) for wall_us, cpu_us in batches], null(versus))


def row(samples: Samples) -> tuple[dict[str, object], str]:
    """What becomes of a case with a floor of 2 µs, and why it ranks nothing."""
    results = CaseResults(FLOOR, [CaseResult({"": samples}, frozenset({""}), 32, 1, 0.0, [], 0)])
    return results.row(""), results.doubt("")


@pytest.mark.parametrize("kernel", [(60.0, 72.0), (30.0, 42.0), (26.0, 38.0)])
def test_null_turns_that_a_busy_machine_delays_make_no_kernel_impossible(kernel: tuple[float, float]) -> None:
    found, _ = row(taken([kernel] * 32, BUSY))
    truth = kernel[0] - 25
    assert found["impossible"] == (truth < 2)
    samples = taken([kernel] * 5 + [(9000.0, 40.0)] * 27, [(130.0, 120.0)] * 4 + [(9000.0, 60.0)] * 28)
    found, doubt = row(samples)
    assert not found["impossible"]
    assert float(str(found["us"])) >= 2
    assert "is the machine busy" in doubt


def test_time_that_is_lost_in_the_null_turn_is_in_doubt_and_not_too_good() -> None:
    samples = taken([(30.0, 42.0)] * 32, BUSY)
    assert samples.doubt
    assert samples.low_mean() == pytest.approx(5)
    assert not taken([(30.0, 42.0)] * 32, QUIET).doubt


def test_time_below_the_floor_on_a_quiet_machine_is_impossible() -> None:
    found, _ = row(taken([(25.5, 37.5)] * 32, QUIET))
    assert found["impossible"]


@pytest.mark.parametrize(("beyond", "us"), [(0, 300), (2, 300), (3, 300), (10, 307), (100, 397), (300, 597)])
def test_cpu_time_counts_beyond_what_stopping_a_box_costs(beyond: int, us: int) -> None:
    samples = taken([(325.0, 337.0 + beyond)] * 32, QUIET)
    assert samples.low_mean() == pytest.approx(us)
    assert str(samples.notes["clock"]).startswith("cpu" if us > 300 else "wall")


def test_short_kernel_hides_next_to_nothing_in_the_allowance() -> None:
    assert taken([(35.0, 52.0)] * 32, QUIET).low_mean() == pytest.approx(14.9)


def test_a_call_in_which_a_quota_stopped_the_machine_is_disturbed() -> None:
    """However long it takes beside the stop."""
    batches = [(0.100, 0.100)] * 8 + [(0.115, 0.100)]
    null = NullTimings([1e-5] * 9, [1e-5] * 9)
    null.settle()
    assert all(samples_of(batches, null).undisturbed)
    assert samples_of(batches, null, [False] * 8 + [True]).undisturbed == [True] * 8 + [False]
