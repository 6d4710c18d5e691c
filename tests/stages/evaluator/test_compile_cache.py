"""What torch.compile makes is kept for a problem's own baselines, and for nothing else."""

import os
from dataclasses import replace

import pytest

from ksflow.evaluation.sandbox.levels import PRIVATE, probe
from ksflow.records import Problem, Seed, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

from . import toy

KEPT = """
import os
kept = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")  # torch.compile's
if kept and not os.path.exists(f"{kept}/made"):
    open(f"{kept}/made", "w").close()
    raise RuntimeError("made for the first time")
raise RuntimeError("found again" if kept else "nothing is kept")
"""


@pytest.mark.slow
@pytest.mark.skipif(probe().level not in PRIVATE, reason="sandboxes have no file system of their own here")
def test_what_a_baseline_compiled_is_found_by_its_next_sandbox_and_by_no_candidate(
    evaluator: LocalEvaluator, problem: Problem
) -> None:
    baseline = toy.python(f"{KEPT}# {os.getpid()}")
    own = replace(problem, seeds=(Seed("compiled.py", baseline, baseline=True), Seed("other.py", toy.python(KEPT))))

    def says(text: str) -> str:
        found = evaluator.judge_correctness(own, toy.python(text))
        assert found.verdict is Verdict.CRASH
        return found.reason

    assert "made for the first time" in says(f"{KEPT}# {os.getpid()}")
    assert "found again" in says(f"{KEPT}# {os.getpid()}")
    assert "nothing is kept" in says(f"{KEPT}# {os.getpid()}\n# and one line more")
    assert "nothing is kept" in says(KEPT), "a seed that is no baseline"
