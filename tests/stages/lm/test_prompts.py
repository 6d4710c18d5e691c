"""Compiled prompts: saved, loaded, and refused where they do not fit."""

import json

import pytest

from ksflow.errors import ConfigError
from ksflow.stages.lm.prompts import load, save, signature_hash
from ksflow.stages.selector.llm import LlmSelector
from ksflow.stages.writer.diff import Diff, Edit
from ksflow.stages.writer.rewrite import Rewrite, Write
from lm.scripted import dummy


@pytest.mark.parametrize("adapter", ["sections", "json"])
def test_a_compiled_prompt_serves_every_adapter(tmp_path, adapter, problem, population, calls):
    trained = LlmSelector(dummy())
    trained.program.predict.signature = trained.program.predict.signature.with_instructions("Toss a coin.")
    demo = {"task": "t", "population": "p", "failures": "f", "rationale": "r", "base": "00001", "reference": "00002"}
    trained.program.predict.demos = [demo]
    save(trained.program.predict, "selector", tmp_path / "coin.json")
    LlmSelector(dummy(), prompt=str(tmp_path / "coin.json"), adapter=adapter)(problem, population)
    messages = calls[0].messages
    assert messages[0]["content"].startswith("Toss a coin.")
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"].startswith("{" if adapter == "json" else "[[ ## rationale ## ]]")


def test_the_writers_do_not_take_each_others_prompts(tmp_path):
    save(Diff(dummy()).program.predict, "writer", tmp_path / "diff.json")
    assert Diff(dummy(), prompt=str(tmp_path / "diff.json"))
    with pytest.raises(ConfigError, match=r"compile it again, or set writer\.prompt=null"):
        Rewrite(dummy(), prompt=str(tmp_path / "diff.json"))
    assert signature_hash(Edit) != signature_hash(Write)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda record: {**record, "state": [[]]}, "not a compiled prompt"),
        (lambda record: {**record, "state": {}}, "holds no prompt for selector"),
        (lambda record: {**record, "state": {**record["state"], "signature": {"fields": 1}}}, "holds no prompt"),
        (lambda record: {**record, "state": {**record["state"], "evil": 1}}, "not a compiled prompt"),
        (lambda record: [record], "not a compiled prompt"),
        (lambda record: {**record, "state": {**record["state"], "demos": [5]}}, "not a compiled prompt"),
        (
            lambda record: {**record, "state": {**record["state"], "signature": {"instructions": 5, "fields": []}}},
            "not a compiled prompt",
        ),
    ],
)
def test_a_damaged_prompt_is_one_sentence(tmp_path, change, reason):
    path = tmp_path / "x.json"
    save(LlmSelector(dummy()).program.predict, "selector", path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(ConfigError, match=reason) as caught:
        load(LlmSelector(dummy()).program.predict, "selector", str(path))
    assert "\n" not in str(caught.value)


def test_a_prompt_nested_without_end_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="not JSON"):
        LlmSelector(dummy(), prompt=str(path))
