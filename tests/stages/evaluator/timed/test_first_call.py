"""A first call that compiles does not count among a kernel's others."""

import pytest

from evaluator import toy
from evaluator.conftest import Judge, in_the_end
from ksflow.records import Evaluation

ONCE = """
import time
if "compiled" not in globals():
    time.sleep(0.3)
    globals()["compiled"] = True
return data[0] + data[1]
"""
SLOW = """
import time
time.sleep(0.01)
return data[0] + data[1]
"""


@pytest.mark.slow
def test_a_kernel_whose_first_call_compiles_is_not_given_up_for_it(judge: Judge) -> None:
    def went_on(result: Evaluation) -> bool:
        enough = all(len(timing.samples_us) > 8 for timing in result.timings)
        return enough and result.evidence.against[0].speedup > 1

    in_the_end(lambda: judge(toy.python(ONCE), toy.python(SLOW)), went_on)
