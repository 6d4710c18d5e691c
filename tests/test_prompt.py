"""`ksflow prompt`: what a model would be asked now, by the stage itself, without asking it."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import accepted, draft, kernel, plant
from test_cli import ksflow
from tokenizer import counter

from ksflow.cli.prompt import prompt
from ksflow.errors import ConfigError
from ksflow.home import PACKAGE
from ksflow.kernels.source.tokens import estimate
from ksflow.lineage import Lineage
from ksflow.protocols import MODEL_STAGES
from ksflow.records import Plan, Trial


def _planned(folder: Path) -> Trial:
    """A run with two seeds, and an experiment that is judged."""
    lineage = Lineage(folder / "runs/lineage.git", "softmax")
    first, second = plant(lineage, "int first;\n", 5.0), plant(lineage, "int second;\n", 4.0)
    begun = lineage.begin_round()
    lineage.select(lineage.last_population.choose(second.id, first.id, "there is room"), begun.name)
    idea = draft(second.id, first.id, idea="interleave four rows")
    assert idea.experiment is not None
    idea = replace(idea, experiment=replace(idea.experiment, changes={"ROWS": "4"}))  # a mix would write it by rule
    assert idea.experiment is not None
    (trial,) = lineage.dispatch([idea], Plan(("rows",), (idea.experiment,), (0,), "test"), begun.name)
    done = replace(lineage.write(replace(trial, kernel=kernel("int third;\n"))), evaluation=accepted(3.0))
    lineage.evaluate(done)
    lineage.close()
    return done


def test_each_stage_shows_its_question_with_the_tokens_of_its_sections_and_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = _planned(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    shown = {}
    for stage in MODEL_STAGES:
        assert prompt([stage], ["problem=softmax", "llm=anthropic", "writer=verified"]) == 0
        shown[stage] = capsys.readouterr().out
        rows = shown[stage].rpartition("section")[2].splitlines()
        figures = [int(row.split()[-1]) for row in rows if row.split() and row.split()[-1].isdigit()]
        assert sum(figures[:-1]) == figures[-1]
        assert f"{stage}=" in shown[stage]
        assert "anthropic/" in shown[stage]
    assert "You direct the search" in shown["selector"]
    assert "interleave four rows" in shown["selector"]
    assert "int second;" in shown["designer"]  # of the newest selection: a model's own is not known
    for text in ("int second;", "int first;", "interleave four rows"):
        assert text in shown["writer"]
    for text in ("int third;", "interleave four rows", "+int third;"):
        assert text in shown["verifier"]
    assert prompt(["designer", trial.id], ["problem=softmax", "llm=dummy", "selector=fastest"]) == 0
    assert "int second;" in capsys.readouterr().out
    assert prompt(["writer", str(int(trial.id))], ["problem=softmax", "llm=dummy", "sections=true"]) == 0
    alone = capsys.readouterr().out
    assert "base_code" in alone
    assert "int second;" not in alone
    lineage = Lineage(tmp_path / "runs/lineage.git", "softmax")
    assert lineage.total_cost().calls == 0
    lineage.close()


@pytest.mark.slow
def test_a_stage_that_asks_no_model_and_a_trial_that_is_not_there_are_one_line(tmp_path: Path) -> None:
    seed = "00001"
    _planned(tmp_path)
    for words, said in (
        (("digester", "problem=softmax"), "digester=RulesDigester asks no model; name one with llm="),
        (("writer", "99", "problem=softmax", "llm=dummy"), "no trial 00099; there are 00001 to 00003"),
        (("writer", seed, "problem=softmax", "llm=dummy"), "00001 is no experiment"),
        (("verifier", "problem=softmax", "llm=dummy"), "nobody would ask the verifier: add writer=verified"),
        (("selector", seed, "problem=softmax", "llm=dummy"), "the command is: prompt selector|digester"),
        (("desginer", "problem=softmax"), "no command 'prompt desginer'"),
    ):
        done = ksflow(tmp_path, "prompt", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert said in done.stderr


def test_a_run_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _planned(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no accepted kernel to go on from; runs: softmax/main"):
        prompt(["selector"], ["problem=softmax", "run=other", "llm=dummy"])


@pytest.mark.slow
def test_the_prompts_of_a_round_begin_alike(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("prompts", PACKAGE.parent / "benchmarks" / "prompts.py")
    assert spec
    assert spec.loader
    prompts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(prompts)
    bundle = PACKAGE.parent / "results" / "fp8_gemm_h200_columns" / "lineage.bundle"
    words = ["problem=fp8_gemm", "target=h200", "problem.seeds=[01_naive.cu,03_mma.cu]"]
    found = prompts.round_prompts(bundle, "h200_columns", words, tmp_path)
    assert len(found["writer"]) == 3
    assert prompts.shared(found["writer"]) >= 0.8
    tokens = counter("openai/gpt-5")  # o200k, where that lies here: they were 64,541 and 108,447 tokens
    for stage, most in (("designer", 25_000), ("writer", 28_000)):
        sizes = [sum(tokens(str(message["content"])) for message in each.messages) for each in found[stage]]
        assert max(sizes) <= most * (1.3 if tokens is estimate else 1)
    for stage in ("selector", "designer", "writer"):
        kinds = [kind for _, kind, _ in found[stage][-1].sections]
        assert kinds == sorted(kinds, key=["stable", "slow", "volatile"].index)
        text = str(found[stage][-1].messages[-1]["content"])
        assert text.startswith("[[ ## target ## ]]\nNVIDIA H200 SXM (h200): a GPU of architecture sm_90a")
        for foreign in ("CPU, one core", "CDNA3, MI300X", "### CDNA3", "AMX", "def oracle", "upstream_check"):
            assert foreign not in text
