"""Compiled prompts: DSPy's own files, loaded both ways, and refused where they do not fit."""

import json
from dataclasses import dataclass, make_dataclass
from typing import Any

import dspy
import pytest

from ksflow.errors import ConfigError
from ksflow.lm.compiled import signature_hash
from ksflow.stages.designer.llm import Design, LlmDesigner
from ksflow.stages.digester.llm import Digest, Places
from ksflow.stages.explainer.llm import Explain
from ksflow.stages.prober.llm import Ask
from ksflow.stages.selector.llm import LlmSelector, Select
from ksflow.stages.writer.diff import Diff, EditSignature
from ksflow.stages.writer.rewrite import Rewrite, Write
from lm.scripted import dummy

SIGNATURES = [Select, Design, Write, EditSignature, Digest, Places, Ask, Explain]
DEMO = {
    "target": "m",
    "task": "t",
    "population": "p",
    "failures": "f",
    "standing": "s",
    "rationale": "r",
    "base_id": "00001",
    "reference_id": "00002",
}


class Plain(dspy.Module):
    """What somebody who knows DSPy and the signature would write."""

    def __init__(self, signature: type[dspy.Signature]) -> None:
        super().__init__()
        self.predict = dspy.Predict(signature)


def coin(program: Any) -> Any:
    """The program with another prompt, as an optimiser leaves one."""
    program.predict.signature = program.predict.signature.with_instructions("Toss a coin.")
    program.predict.demos = [DEMO]
    return program


def test_a_compiled_prompt_is_used(tmp_path, problem, population, calls):
    coin(LlmSelector(dummy()).program).save(tmp_path / "coin.json")
    LlmSelector(dummy(), prompt=str(tmp_path / "coin.json"))(problem, population)
    messages = calls[0].messages
    assert messages[0]["content"].startswith("Toss a coin.")
    assert "the base's id" in messages[0]["content"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"].startswith("[[ ## rationale ## ]]")


def test_dspy_loads_what_a_stage_saved(tmp_path):
    path = tmp_path / "coin.json"
    coin(LlmSelector(dummy()).program).save(path)
    plain = Plain(Select)
    plain.load(path)
    assert plain.predict.signature.instructions == "Toss a coin."
    assert [*map(dict, plain.predict.demos)] == [DEMO]
    metadata = json.loads(path.read_text())["metadata"]
    assert metadata["dependency_versions"]["dspy"] == dspy.__version__
    assert metadata["ksflow"] == {"stage": "selector", "signature": signature_hash(Select)}


@pytest.mark.parametrize("alone", [False, True])
def test_a_stage_loads_what_dspy_saved(tmp_path, alone, problem, population, calls):
    """A program's file or that of a predictor alone; the model in it is not taken."""
    path = tmp_path / "coin.json"
    plain = coin(Plain(Select))
    plain.set_lm(dspy.LM("openai/theirs", api_base="http://127.0.0.1:9/v1"))
    (plain.predict if alone else plain).save(path)
    selector = LlmSelector(dummy(), prompt=str(path))
    selector(problem, population)
    assert calls[0].messages[0]["content"].startswith("Toss a coin.")
    assert calls[0].model == "ksflow/scripted"
    assert selector.program.predict.lm is None


def test_a_saved_prompt_holds_no_model_and_no_key(tmp_path, provider, monkeypatch):
    monkeypatch.setenv("TEST_KEY", "sk-very-secret")
    program = LlmSelector(provider.model(key="TEST_KEY", api_key="sk-very-secret")).program
    program.set_lm(dspy.LM("openai/mine", api_key="sk-very-secret", api_base=provider.url))
    program.save(tmp_path / "x.json")
    text = (tmp_path / "x.json").read_text()
    assert "sk-very-secret" not in text
    assert provider.url not in text
    for name, whole in (("x.pkl", False), ("x", True)):
        with pytest.raises(ConfigError, match="a prompt is saved as JSON"):
            program.save(tmp_path / name, save_program=whole)
        assert not (tmp_path / name).exists()


def test_worked_examples_that_are_records_can_be_saved_and_shown_again(tmp_path, problem, population, selection, calls):
    designer = LlmDesigner(dummy())
    inquiry = designer.question(problem, population, selection, ())
    answer = designer.program(**inquiry.inputs)
    designer.program.predict.demos = [dspy.Example(**inquiry.inputs, **answer.toDict())]
    designer.program.save(tmp_path / "shown.json")
    again = LlmDesigner(dummy(), prompt=str(tmp_path / "shown.json"))
    assert again(problem, population, selection, ()).experiments == answer.experiments
    assert "Dummy experiment 1" in calls[1].messages[2]["content"]


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.__name__)
def test_dspy_drops_no_field(signature):
    fields = {name: f"the {name}" for name in signature.fields}
    assert dspy.Prediction(**fields).toDict() == fields
    assert dspy.Example(**fields).with_inputs(*signature.input_fields).toDict() == fields
    assert all(getattr(dspy.Prediction(**fields), name) == text for name, text in fields.items())


def test_the_writers_do_not_take_each_others_prompts(tmp_path):
    Diff(dummy()).program.save(tmp_path / "diff.json")
    assert Diff(dummy(), prompt=str(tmp_path / "diff.json"))
    with pytest.raises(ConfigError, match=r"compile it again with `python -m ksflow optimize stage=writer`, or set"):
        Rewrite(dummy(), prompt=str(tmp_path / "diff.json"))
    with pytest.raises(ConfigError, match=r"was compiled for writer \w+, this is selector \w+"):
        LlmSelector(dummy(), prompt=str(tmp_path / "diff.json"))


def test_the_hash_changes_with_what_a_signature_means():
    changed = [
        Select.with_instructions("Other words."),
        Select.delete("failures"),
        Select.append("more", dspy.InputField(desc="x"), str),
        Select.with_updated_fields("task", desc="another description"),
        Select.with_updated_fields("base_id", type_=int),
        Select.delete("task").append("task", dspy.InputField(desc="the task and its score"), str),
    ]
    hashes = [signature_hash(signature) for signature in [Select, *changed]]
    assert len({*hashes}) == len(hashes)
    assert signature_hash(Select) == signature_hash(Select.with_instructions(Select.instructions))


@dataclass
class Point:
    """A place."""

    x: int
    near: "list[Point] | None" = None


def test_a_type_counts_by_its_values_and_not_by_its_place():
    def hashed(kind: type) -> str:
        return signature_hash(dspy.Signature({"q": (str, dspy.InputField(desc="q")), "a": (kind, dspy.OutputField())}))

    more = make_dataclass("Point", [("x", int), ("y", int)])
    other = make_dataclass("Point", [("x", float)])
    moved = make_dataclass("Renamed", [("x", int), ("y", int)], namespace={"__module__": "elsewhere", "__doc__": "!"})
    assert hashed(more) == hashed(moved)
    assert hashed(tuple[more, ...]) != hashed(more)
    assert len({hashed(kind) for kind in (Point, more, other, str, list[str])}) == 5


def test_a_plain_file_for_another_signature_is_refused(tmp_path):
    Plain(Write).save(tmp_path / "x.json")
    with pytest.raises(ConfigError, match=r"compiled for other fields than selector has now"):
        LlmSelector(dummy(), prompt=str(tmp_path / "x.json"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda state: [[]], "not a compiled prompt"),
        (lambda state: {}, "not a compiled prompt"),
        (lambda state: {**state, "signature": {"fields": 1}}, "not a compiled prompt"),
        (lambda state: {**state, "evil": 1}, "not a compiled prompt"),
        (lambda state: {**state, "demos": [5]}, "not a compiled prompt"),
        (lambda state: {**state, "demos": 5}, "not a compiled prompt"),
        (lambda state: {**state, "signature": {"instructions": 5, "fields": []}}, "not a compiled prompt"),
        (lambda state: {**state, "signature": {**state["signature"], "fields": [{}]}}, "not a compiled prompt"),
        (lambda state: {**state, "signature": {"instructions": "x", "fields": []}}, "compiled for other fields"),
    ],
)
def test_a_damaged_prompt_is_one_sentence(tmp_path, change, reason):
    path = tmp_path / "x.json"
    LlmSelector(dummy()).program.save(path)
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "predict": change(record["predict"])}))
    with pytest.raises(ConfigError, match=reason) as caught:
        LlmSelector(dummy()).program.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("{}", "not a compiled prompt"),
        ("[1]", "not a compiled prompt"),
        ("[" * 100_000, "not JSON"),
        ('{"metadata": 1, "predict": {}}', "not a compiled prompt"),
    ],
)
def test_what_is_no_prompt_is_refused(tmp_path, text, reason):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        LlmSelector(dummy(), prompt=str(path))


def test_an_unknown_prompt_is_a_sentence():
    with pytest.raises(ConfigError, match=r"selector.prompt: cannot read .*there are: none"):
        LlmSelector(dummy(), prompt="nope")
