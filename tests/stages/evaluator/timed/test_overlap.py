"""Compiling the next kernel while another is judged, and keeping off the cores that judges sit on."""

import os
import threading
import time
from pathlib import Path

import pytest

from evaluator import toy
from ksflow.evaluation.processes import core_pinning
from ksflow.home import cache
from ksflow.records import Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

WAITS = """
import os, time
open({begun!r}, "w").close()
end = time.monotonic() + 300
while not os.path.exists({over!r}) and time.monotonic() < end:
    time.sleep(0.01)
"""


@pytest.mark.slow
def test_a_kernel_is_compiled_while_another_is_judged(
    evaluator: LocalEvaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator, "overlap", True)
    problem, begun, over = toy.problem(tmp_path), tmp_path / "begun", tmp_path / "over"
    (tmp_path / "reference.py").write_text(WAITS.format(begun=str(begun), over=str(over)) + toy.REFERENCE)
    judged = []
    judging = threading.Thread(target=lambda: judged.append(evaluator(problem, toy.RIGHT_PYTHON, ())))
    judging.start()
    while not begun.exists():
        assert judging.is_alive()
        time.sleep(0.01)
    before = set(cache("build").glob("*/*.so"))
    evaluator.prepare(problem, toy.cpp("for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i] + 0 * 41;"))
    assert judging.is_alive()
    assert len(set(cache("build").glob("*/*.so")) - before) == 1
    over.touch()
    judging.join()
    assert judged[0].verdict is Verdict.ACCEPT


def test_without_cores_to_spare_nothing_is_compiled_ahead(
    evaluator: LocalEvaluator, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator, "overlap", False)
    before = set(cache("build").glob("*/*"))
    evaluator.prepare(problem, toy.cpp("for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i] + 0 * 43;"))
    assert set(cache("build").glob("*/*")) == before


def test_a_core_that_a_judge_sits_on_is_not_spare() -> None:
    core = 4095 if 4095 not in os.sched_getaffinity(0) else 4094
    held = core_pinning.reserve_core(core)
    assert held is not None
    assert core_pinning.reserve_core(core) is None
    held.close()
    again = core_pinning.reserve_core(core)
    assert again is not None
    again.close()
    mine = min(os.sched_getaffinity(0))
    taken = core_pinning.reserve_core(mine)
    assert mine not in core_pinning.unreserved_cores()
    if taken:
        taken.close()
