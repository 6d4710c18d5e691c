"""A trial goes from state to state as the table says, and no other way."""

import pytest

from ksflow.loop.events import Activity
from ksflow.loop.round import NEXT, State, advance, state, waits_for
from ksflow.records import Comparison, Evaluation, Evidence, Experiment, Kernel, Origin, Timing, Trial, Verdict

PLANNED = Trial("00007", Origin.EXPERIMENT, ("00001",), Experiment("unroll", "it is unrolled", (1.0, 2.0), 10.0))
KERNEL = Kernel("cpp", {"kernel.cpp": "// x"})


def accepted(moment: int = 0) -> Evaluation:
    row = Comparison(id="00001", speedup=1.5, low=1.4, high=1.6, moment=moment)
    timing = Timing("8x8", 2.0, (2.0, 2.1))
    return Evaluation(Verdict.ACCEPT, "", 2.0, (timing,), Evidence(against=(row,)))


def test_a_trial_is_planned_written_judged_and_confirmed() -> None:
    written = advance(PLANNED, kernel=KERNEL)
    judged = advance(written, evaluation=accepted())
    confirmed = advance(judged, evaluation=accepted(moment=1))
    assert [state(each) for each in (PLANNED, written, judged, confirmed)] == [
        State.PLANNED,
        State.WRITTEN,
        State.JUDGED,
        State.CONFIRMED,
    ]
    assert waits_for(PLANNED, Activity.WRITE)
    assert waits_for(written, Activity.EVALUATE)
    assert waits_for(confirmed, Activity.CONFIRM)  # whoever leads at the end of the next call is judged again


def test_no_state_is_skipped_and_what_failed_stays_so() -> None:
    with pytest.raises(ValueError, match="trial 00007 cannot be judged: it is planned"):
        advance(PLANNED, kernel=KERNEL, evaluation=accepted())
    failed = advance(PLANNED, failure="no idea")
    assert NEXT[state(failed)].step is None
    with pytest.raises(ValueError, match="cannot be failed: it is failed"):
        advance(failed, failure="still none")
