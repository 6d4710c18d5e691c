"""A model's questions: through a server and the judge's boxes, and what is refused."""

import json

import pytest
from lm.scripted import dummy, scripted
from lm.server import Provider

from ksflow.cli.probe import ask_own, settle
from ksflow.errors import ConfigError, StageError
from ksflow.evaluation.judge.bench import Bench
from ksflow.kernels.hardware.target import detect, from_data_sheet
from ksflow.notes import probes
from ksflow.records import Arg, Case, Note, Problem, Status
from ksflow.stages.prober.llm import LlmProber

PROBLEM = Problem(
    name="toy",
    title="Toy",
    description="Copy a to c.",
    statement="c = a, exactly.",
    root="/nowhere",
    reference="",
    languages=("cpp",),
    args=(Arg("a", "float32", "in"), Arg("c", "float32", "out")),
    dims=("m",),
    tests=(),
    benchmarks=(Case("small", {"m": 16}, 1),),
    seeds=(),
)


@pytest.fixture(scope="module")
def bench():
    made = Bench(detect())
    yield made
    made.close()


@pytest.fixture
def provider(tmp_path, monkeypatch):
    monkeypatch.setenv("DSPY_CACHEDIR", str(tmp_path / "dspy"))
    made = Provider()
    yield made
    made.close()


def changed(**changes):
    """A model whose question has other fields."""

    def change(text: str) -> str:
        head, mark, rest = text.partition("[[ ## question ## ]]\n")
        question, _, code = rest.partition("\n[[ ## code ## ]]")
        return f"{head}{mark}{json.dumps({**json.loads(question), **changes})}\n[[ ## code ## ]]{code}"

    return scripted(change)


@pytest.mark.slow
def test_questions_over_a_server_become_measured_notes(bench, provider, tmp_path):
    prober = LlmProber(bench=bench, lm=provider.model(), most=2)
    answers = list(ask_own(prober, PROBLEM, (), tmp_path / "notes"))
    assert [answer.state for answer in answers] == ["measured", "measured"]
    assert len({answer.note.title for answer in answers}) == 2
    assert all(answer.note.status is Status.MEASURED for answer in answers)
    assert all((tmp_path / "notes" / answer.note.program).exists() for answer in answers)


def test_programs_of_titles_that_begin_alike_stay_apart(bench):
    alike = "What an fp32 addition costs that waits for the one before it, "
    titles = [f"{alike}alone", f"{alike}beside others", "\u5ef6\u8fdf", "\u5e26\u5bbd"]
    asked = [LlmProber(bench=bench, lm=changed(title=title))(PROBLEM, ()) for title in titles]
    assert len({name for one in asked for name in one.kernel.files}) == len(titles)


@pytest.mark.slow
def test_a_program_that_does_not_compile_goes_back_once(bench, tmp_path):
    asked = []

    def spoil(text: str) -> str:
        asked.append(text)
        return text.replace("float sum = 0;", "float sum = ;") if len(asked) == 1 else text

    (answer,) = ask_own(LlmProber(bench=bench, lm=scripted(spoil), most=1), PROBLEM, (), tmp_path)
    assert (answer.state, len(asked)) == ("measured", 2)


@pytest.mark.slow
def test_a_program_that_fails_twice_is_no_note(bench, tmp_path):
    model = scripted(lambda text: text.replace("turn < turns", "turn < 1"))
    (answer,) = ask_own(LlmProber(bench=bench, lm=model, most=1), PROBLEM, (), tmp_path)
    assert answer.state == "failed"
    assert "the loop was not done" in answer.line
    assert not list(tmp_path.iterdir())


def test_a_claim_without_a_shipped_probe_is_measured_by_a_program_of_the_model(bench, tmp_path):
    doubted = Note("Additions", "An fp32 addition takes 900 us.", ("a book",), challenge="no")
    found = settle(doubted, LlmProber(bench=bench, lm=dummy()), PROBLEM, (), tmp_path)
    assert found is not None
    assert found.status is Status.REFUTED
    assert "This contradicts 900 us." in found.text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"form": "anything"}, "form 'anything' is not one of"),
        ({"cases": {"chain": {"n": 1 << 40, "turns": 1}}}, "n=1099511627776 is not a number from 0 to"),
        ({"cases": {"chain": {"n": 1 << 28, "turns": 1, "line": 64}}}, "more than 268435456 elements"),
        ({"cases": {"chain": {"n": 1, "turns": 1, "seed": 3}}}, "seed=3 is not a number"),
        ({"figures": {"each": {"value": "__import__('os')", "unit": "ns"}}}, "is not allowed"),
        ({"text": "It takes {nothing}."}, "no figure 'nothing'"),
        ({"title": "x" * 121}, "title must have 1 to 120 characters"),
        ({"figures": {}}, "1 to 8 figures"),
    ],
)
def test_a_question_that_cannot_be_run_is_refused(changes, reason):
    with pytest.raises(StageError, match="malformed answer") as refused:
        LlmProber(bench=Bench(detect()), lm=changed(**changes), attempts=1)(PROBLEM, ())
    assert reason in str(refused.value)


@pytest.mark.parametrize(("march", "language"), [("sm_90a", "cuda"), ("gfx942", "hip")])
def test_it_asks_in_the_language_of_the_target(march, language):
    bench = Bench(from_data_sheet("other", "Some other chip", march, {}))
    probe = LlmProber(bench=bench, lm=dummy())(PROBLEM, ())
    assert probe.kernel.language == language
    assert not probe.lacks(bench.target)
    assert probe.cases.keys() == {"chain"}


def test_it_needs_a_model():
    with pytest.raises(ConfigError, match="needs a model"):
        LlmProber(bench=Bench(detect()))


def test_a_claim_that_a_shipped_probe_measures_needs_no_question(bench):
    claim = Note("Clock", "The clock frequency is 3 GHz.", ("a book",))
    found = LlmProber(bench=bench, lm=scripted(lambda text: ""))(PROBLEM, (), claim)
    assert found in probes.shipped_probes()
