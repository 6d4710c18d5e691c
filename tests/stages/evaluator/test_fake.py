"""The stand-in: deterministic, sensible, and honest about being one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ksflow.errors import ConfigError
from ksflow.records import Kernel, Origin, Population, Problem, Seed, Trial, Verdict, geomean
from ksflow.report import evidence
from ksflow.report.headline import headline
from ksflow.stages.evaluator.fake import FakeEvaluator

from . import toy

TEXT = """
constexpr int MR = {mr};  // tune: 2 4 6 8 12
constexpr int NR = {nr};  // tune: 8 16 32
constexpr int UNROLL = {unroll};  // tune: 1 2 4
"""


def tuned(mr: int = 4, nr: int = 16, unroll: int = 2) -> Kernel:
    return Kernel("cpp", {"k.cpp": TEXT.format(mr=mr, nr=nr, unroll=unroll)})


EVERY = [tuned(mr, nr, unroll) for mr in (2, 4, 6, 8, 12) for nr in (8, 16, 32) for unroll in (1, 2, 4)]


def test_same_text_same_answer(problem: Problem) -> None:
    for kernel in (tuned(), toy.RIGHT_CPP, toy.RIGHT_PYTHON):
        assert FakeEvaluator()(problem, kernel, ()) == FakeEvaluator()(problem, kernel, ())
    assert FakeEvaluator(seed=1)(problem, tuned(), ()) != FakeEvaluator()(problem, tuned(), ())


def test_it_says_that_it_is_fake(problem: Problem) -> None:
    result = FakeEvaluator()(problem, tuned(), (toy.trial(tuned(8)),))
    assert result.evidence.more["fake"] is True
    assert result.evidence.against[0].id == "00001"
    assert result.evidence.claim.id == "00001"
    assert result.evidence.claim.faster == (result.evidence.against[0].low > 1.01)
    assert result.isolation == "none"


def test_the_score_the_ratio_and_what_is_said_of_them_follow_the_weights_of_cases(problem: Problem) -> None:
    def judged(*weights: float) -> tuple[Trial, Trial, str]:
        cases = zip(problem.benchmarks, weights, strict=True)
        weighted = replace(problem, benchmarks=tuple(replace(case, weight=weight) for case, weight in cases))
        slow = replace(toy.trial(tuned(8)), baseline=True, origin=Origin.SEED, name="00_numpy.py")
        slow = replace(slow, evaluation=FakeEvaluator()(weighted, tuned(8), ()))
        fast = Trial("00002", Origin.SEED, kernel=tuned(), evaluation=FakeEvaluator()(weighted, tuned(), (slow,)))
        claimed = headline(Population((slow, fast)), (slow,), fast)
        assert claimed
        return slow, fast, f"{claimed.claim}; {' '.join(evidence.describe(fast.evaluation).lines)}"

    (_, plain, said), (_, heavy, weighted_said) = judged(1, 1), judged(0.9, 0.3)
    assert judged(0.3, 0.3)[1] == plain
    first, second = (timing.us for timing in plain.evaluation.timings)
    assert heavy.evaluation.score_us == pytest.approx(first**0.75 * second**0.25)
    assert plain.evaluation.score_us == geomean([first, second])
    assert heavy.evaluation.evidence.weights == {"n30000": 1.5, "n65536": 0.5}
    assert "weight" not in said
    assert "over NumPy, cases weighted; " in weighted_said
    assert "weights of the cases in the score and in every ratio: n30000 1.5, n65536 0.5" in weighted_said


def test_another_landscape_is_another_target(problem: Problem, tmp_path: Path) -> None:
    path = tmp_path / "landscape.json"
    path.write_text('[{"values": {"MR": 4}, "us": {"n30000": 10.0}}]')
    fakes = [FakeEvaluator(), FakeEvaluator(seed=1), FakeEvaluator(str(path))]
    assert len({fake.fingerprint for fake in fakes}) == 3
    for fake in fakes:
        found = fake(problem, tuned(), ())
        assert (found.judge, found.target) == (fake.judge, fake.fingerprint)


def test_made_up_landscape_has_an_optimum_and_corners(problem: Problem) -> None:
    verdicts, spreads = set(), []
    for seed in range(12):
        results = [FakeEvaluator(seed=seed)(problem, kernel, ()) for kernel in EVERY]
        verdicts |= {result.verdict for result in results}
        scores = [result.score_us for result in results if result.score_us is not None]
        spreads.append(max(scores) / min(scores))
        assert len(scores) > len(EVERY) * 0.7
    assert verdicts == {Verdict.ACCEPT, Verdict.COMPILE, Verdict.INCORRECT}
    assert min(spreads) > 1.3
    assert max(spreads) < 50


def test_a_search_can_begin_from_every_seed(problem: Problem) -> None:
    fakes = [FakeEvaluator(seed=seed) for seed in range(12)]
    wrong = [(fake, kernel) for fake in fakes for kernel in EVERY if not fake(problem, kernel, ()).accepted]
    assert wrong
    for fake, kernel in wrong:
        begun = replace(problem, seeds=(Seed("k.cpp", kernel),))
        assert fake(begun, kernel, ()).accepted


def test_recorded_landscape_answers_with_the_nearest(problem: Problem, tmp_path: Path) -> None:
    path = tmp_path / "landscape.json"
    rows = [
        {"values": {"MR": 4, "NR": 16}, "us": {"n30000": 10.0, "n65536": 20.0}},
        {"values": {"MR": "12", "NR": "32"}, "verdict": "compile-error"},
        {"values": {"MR": "4", "NR": "8"}, "us": {"n30000": 30.0, "n65536": 30.0}},
    ]
    path.write_text(json.dumps(rows))
    fake = FakeEvaluator(str(path))
    assert [timing.us for timing in fake(problem, tuned(4, 16), ()).timings] == [10.0, 20.0]
    assert fake(problem, tuned(12, 32), ()).verdict is Verdict.COMPILE
    assert fake(problem, tuned(6, 8), ()).score_us == pytest.approx(30.0)
    other = {"values": {"FORM": "other"}, "us": {"n30000": 999.0, "n65536": 999.0}}
    path.write_text(json.dumps([other, *rows]))  # a kernel of another family has no differing value
    assert FakeEvaluator(str(path))(problem, tuned(6, 8), ()).score_us == pytest.approx(30.0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '[{"values": {}}]', '[{"values": {}, "verdict": "good"}]'])
def test_unusable_landscape_is_a_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "landscape.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"evaluator.landscape="):
        FakeEvaluator(str(path))
