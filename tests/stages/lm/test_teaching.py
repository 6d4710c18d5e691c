"""What a course asks and grades, with a model that is a function."""

import dspy
import pytest

from ksflow.config import compose
from ksflow.errors import BudgetError, ConfigError, StageError
from ksflow.protocols import override_call
from ksflow.stages.selector.llm import LlmSelector
from ksflow.training.optimize.examples import Case
from ksflow.training.optimize.teaching import Course, Settings, compiled
from lm.scripted import scripted


def _course(change, grade, problem, population, count=2):
    stage = LlmSelector(scripted(change))
    case = Case(stage.question(problem, population), grade)
    return Course(stage.program, [[case] * count, [case] * count, [case]])


def _compiled(course, optimizer, rollouts, start=0.0):
    configured = compose.build(compose.compose(["llm=dummy"], "optimize").optimizers[optimizer])
    with course.open():
        return compiled(course, Settings(rollouts=rollouts), start, **configured)[0]


def _examined(course, examples):
    with course.open():
        return course.examine(course.program, examples)


def test_a_stage_says_what_it_would_ask_and_nobody_is_asked(problem, population, calls):
    course = _course(lambda text: text, lambda made: (1.0, ""), problem, population)
    assert not calls
    assert "00002" in course.train[0].population


def test_answers_are_read_by_the_stage_itself_and_kept(problem, population, calls):
    course = _course(lambda text: text, lambda made: (len(made.base.id) / 10, ""), problem, population)
    assert _examined(course, course.train) == [0.5, 0.5]
    assert {call.stage for call in calls} == {"selector=llm"}
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("[[ ## completed ## ]]", ""), "completed"),
        (lambda text: "", "empty"),
        (lambda text: text.replace("[[ ## base_id ## ]]\n", "[[ ## base_id ## ]]\n9"), "is not an id in the table"),
    ],
)
def test_a_bad_answer_is_graded_with_its_reason(change, reason, problem, population):
    course = _course(change, lambda made: (1.0, ""), problem, population)
    with course.open():
        (question,) = course.held_out
        graded = course.metric(question, course.program(**question.inputs()), pred_name="predict")
    assert graded.score == 0.0
    assert graded.feedback.startswith("The answer was refused: ")
    assert reason in graded.feedback


@pytest.mark.parametrize("error", [BudgetError("usd=1 used up"), StageError("evaluator", "gone"), ConfigError("no")])
@pytest.mark.parametrize("optimiser", ["gepa", "mipro", "bootstrap", "simba"])
def test_what_cannot_be_measured_ends_every_optimiser(error, optimiser, problem, population, capsys):
    def grade(made):
        raise error

    course = _course(lambda text: text, grade, problem, population)
    with pytest.raises(type(error)) as caught:
        _compiled(course, optimiser, rollouts=6)
    assert caught.value is error
    capsys.readouterr()


def test_worked_examples_of_a_selector_are_whole(problem, population, tmp_path, capsys):
    course = _course(lambda text: text, lambda made: (0.9, ""), problem, population, 1)
    _compiled(course, "bootstrap", rollouts=4, start=0.5).save(tmp_path / "x.json")
    stage = LlmSelector(scripted(lambda text: text))
    stage.program.load(tmp_path / "x.json")
    (demo,) = stage.program.predict.demos
    assert {"task", "population", "failures", "rationale", "base_id", "reference_id"} <= set(demo)
    capsys.readouterr()


def test_an_unknown_prompt_names_both_places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stage = LlmSelector(scripted(lambda text: text))
    stage.program.save(tmp_path / "runs/prompts/selector/mine.json")
    assert LlmSelector(scripted(lambda text: text), prompt="mine")
    with pytest.raises(ConfigError, match=r"cannot read yours; there are: mine in runs.*; .* in .*stages.prompts"):
        LlmSelector(scripted(lambda text: text), prompt="yours")


def test_a_course_is_what_dspys_own_tools_take(problem, population, calls):
    course = _course(lambda text: text, lambda made: (0.5, "half"), problem, population)
    with course.open():
        assert dspy.Evaluate(devset=course.held_out, metric=course.metric)(course.program).score == 50.0
        assert course.teacher("hello")
    assert [call.stage for call in calls] == ["selector=llm", "selector=teacher"]
    assert course.program.predict is not course.original.predict


def test_a_budget_ends_a_plain_optimiser(problem, population):
    def refuse(question):
        raise BudgetError("usd=1 used up")

    course = _course(lambda text: text, lambda made: (0.5, "half"), problem, population)
    with override_call(meter=refuse), pytest.raises(BudgetError, match="usd=1 used up"), course.open() as course:
        dspy.BootstrapFewShot(metric=course.metric).compile(course.program, trainset=course.train)
