"""A stage's program is a `dspy.Module`: DSPy's optimisers take it as it is, and a person's metric with it."""

import json

import dspy
import pytest
from dspy.lm15 import Message, Response, TextPart, Usage
from dspy.utils.exceptions import AdapterParseError

from ksflow.errors import BudgetError
from ksflow.lm.answers import answer
from ksflow.protocols import override_call
from ksflow.stages.designer.llm import LlmDesigner
from ksflow.stages.digester.llm import LlmDigester
from ksflow.stages.prober.llm import LlmProber
from ksflow.stages.selector.llm import LlmSelector
from ksflow.stages.writer.diff import Diff
from ksflow.stages.writer.rewrite import Rewrite
from lm.scripted import dummy
from lm.server import Reply

HINT = "Weigh the numbers."


def metric(gold, pred, trace=None, pred_name=None, pred_trace=None):
    """Full marks for an answer with the hint in it."""
    score = float(HINT in pred.rationale)
    return dspy.Prediction(score=score, feedback="Say that you weigh the numbers.") if pred_name else score


def said(request) -> str:
    """An answer that has the hint where the instruction has it; to an optimiser's own question the hint."""
    prompt = request["messages"][-1]["content"]
    if "JSON object" in prompt:
        return json.dumps({"new_instruction": HINT})
    if "Answer with the sections" not in prompt:
        fields = [line for line in prompt.split("`") if line.startswith("[[ ## ")]
        names = [*dict.fromkeys(field.split()[2] for field in fields if "completed" not in field)]
        return "\n\n".join(f"[[ ## {name} ## ]]\n{HINT}" for name in names) + "\n\n[[ ## completed ## ]]"
    hinted = HINT in request["messages"][0]["content"]
    return answer(prompt).replace("Dummy:", HINT if hinted else "Dummy:")


class Fixed:
    """An engine that says the same each time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lm = dspy.LM("ksflow/fixed", engine=self, cache=False)

    def complete(self, request):
        message = Message.assistant([TextPart(self.text)])
        return Response(id=None, model=request.model, message=message, finish_reason="stop", usage=Usage())


@pytest.fixture
def program(provider, problem, population):
    provider.reply = lambda prompt: Reply(said(provider.requests[-1]))
    return LlmSelector(provider.model()).program


@pytest.fixture
def examples(problem, population):
    inputs = LlmSelector(dummy()).question(problem, population).inputs
    made = [{**inputs, "failures": f"(none, {index})"} for index in range(4)]
    return [dspy.Example(**one, n=index).with_inputs(*inputs) for index, one in enumerate(made)]


def gepa(program, examples):
    optimiser = dspy.GEPA(metric=metric, reflection_lm=program.lm, max_metric_calls=20, num_threads=1)
    return optimiser.compile(program, trainset=examples[:2], valset=examples[2:])


def copro(program, examples):
    optimiser = dspy.COPRO(metric=metric, prompt_model=program.lm, breadth=2, depth=1)
    return optimiser.compile(program, trainset=examples, eval_kwargs={"num_threads": 1, "display_progress": False})


def mipro(program, examples):
    optimiser = dspy.MIPROv2(
        metric=metric,
        prompt_model=program.lm,
        task_model=program.lm,
        auto=None,
        num_candidates=2,
        max_bootstrapped_demos=0,
        max_labeled_demos=0,
        num_threads=1,
    )
    settings = {"num_trials": 3, "minibatch": False, "program_aware_proposer": False, "data_aware_proposer": False}
    return optimiser.compile(program, trainset=examples[:2], valset=examples[2:], **settings)


def bootstrap(program, examples):
    optimiser = dspy.BootstrapFewShot(max_bootstrapped_demos=2, max_labeled_demos=0)
    return optimiser.compile(program, trainset=examples)


def simba(program, examples):
    optimiser = dspy.SIMBA(metric=metric, bsize=2, num_candidates=2, max_steps=1, max_demos=1, num_threads=1)
    with dspy.context(lm=program.lm):
        return optimiser.compile(program, trainset=examples)


@pytest.mark.parametrize("optimise", [gepa, copro, mipro, bootstrap, simba])
def test_an_optimiser_takes_it_as_it_is(optimise, program, examples, select, tmp_path, calls):
    made = optimise(program, examples)
    made.save(tmp_path / "made.json")
    asked = len(calls)
    selection = select(program.model, prompt=str(tmp_path / "made.json"))
    if optimise in (gepa, copro, mipro):
        assert HINT in made.predict.signature.instructions
        assert HINT in selection.rationale
    if optimise is bootstrap:
        assert all(demo["base_id"] in ("00001", "00002") for demo in made.predict.demos)
        assert len(calls[asked].messages) == 6
    assert {call.stage for call in calls} == {"selector=llm"}  # every call is recorded, the optimiser's own too
    assert program.predict.signature.instructions == program.declared.instructions


def test_every_model_stage_has_one(problem, population, selection):
    stages = [LlmSelector, LlmDesigner, Rewrite, Diff, LlmDigester]
    made = [stage(dummy()).program for stage in stages] + [LlmProber(dummy(), bench=None).program]
    for program in made:
        assert isinstance(program, dspy.Module)
        assert [name for name, _ in program.named_predictors()] == ["predict"]
        copied = program.deepcopy()
        assert copied.predict is not program.predict
        assert copied.model is program.model
        assert copied.predict.signature.instructions == program.declared.instructions


def test_it_asks_the_model_that_dspy_is_told_to_use(problem, population, calls):
    selector = LlmSelector(dummy())
    inputs = selector.question(problem, population).inputs
    text = "[[ ## rationale ## ]]\nr\n[[ ## base_id ## ]]\n1\n[[ ## reference_id ## ]]\n2\n[[ ## completed ## ]]"
    other = Fixed(text).lm
    with dspy.context(lm=other):
        assert selector.program(**inputs).base_id == "1"
    assert not calls
    selector.program.set_lm(other)
    assert selector.program(**inputs).base_id == "1"
    assert selector(problem, population).base.id in population.by_id  # a stage asks the model of its configuration
    assert len(calls) == 1


def test_a_prompt_with_a_hole_is_not_sent(problem, population, calls):
    selector = LlmSelector(dummy())
    inputs = dict(selector.question(problem, population).inputs)
    del inputs["failures"]
    with pytest.raises(
        TypeError, match=r"asked with target, task, population, failures, standing; wrong: \['failures'\]"
    ):
        selector.program(**inputs)
    assert not calls


def test_what_cannot_be_read_is_dspys_own_error(problem, population):
    selector = LlmSelector(dummy())
    with dspy.context(lm=Fixed("prose").lm), pytest.raises(AdapterParseError, match="the last line must be"):
        selector.program(**selector.question(problem, population).inputs)


def test_a_budget_holds_for_an_optimisers_calls_too(provider, problem, population):
    def refuse(question):
        raise BudgetError(f"no money for {question.stage}")

    selector = LlmSelector(provider.model())
    with override_call(meter=refuse):
        with pytest.raises(BudgetError, match="no money for selector=llm"):
            selector.program(**selector.question(problem, population).inputs)
        with pytest.raises(BudgetError, match="no money for selector=llm"):
            selector.program.lm("hello")
    assert not provider.requests
