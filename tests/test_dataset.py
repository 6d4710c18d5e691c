"""Lineages as training data: real runs against a server on loopback that spoils answers, exported and read again."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import accepted, draft, kernel
from lm.server import Provider, Reply
from test_cli import DRY, ksflow

from ksflow.errors import ConfigError
from ksflow.lineage import Lineage
from ksflow.lm.answers import answer
from ksflow.records import (
    Call,
    Claim,
    Evaluation,
    Evidence,
    Experiment,
    Origin,
    Plan,
    Repeat,
    Scale,
    Timing,
    Trial,
    Verdict,
    parse,
)
from ksflow.training.dataset import dataset
from ksflow.training.dataset.reward import Worth, is_better, ratio, relative_worth

Row = dict[str, Any]
SECRET = "sk-live-0123456789abcdef"
HOME = "/home/somebody/kernels/private.cpp"
TYPES = {"string": str, "float64": float, "bool": bool}
_TEXTS = ("stage", "kind", "model", "problem", "run", "about", "target", "judge", "verdict")
_OF_ALL = {**dict.fromkeys(_TEXTS, "string"), "reward": "float64", "licence": "string"}
COLUMNS = {
    "chat": {"messages": "messages", **_OF_ALL},
    "preference": {
        **dict.fromkeys(("prompt", "chosen", "rejected"), "messages"),
        "margin": "float64",
        **dict.fromkeys(("rejected_model", "rejected_about", "rejected_verdict"), "string"),
        **_OF_ALL,
    },
    "rl": {"prompt": "messages", "completion": "messages", "label": "bool", **_OF_ALL},
    "prompts": {
        "prompt": "messages",
        **dict.fromkeys(("base", "base_commit"), "string"),
        **dict.fromkeys(("base_us", "baseline_us", "score_us"), "float64"),
        **_OF_ALL,
    },
}
"""Configuration -> column -> its type; `messages` is a list of role and content."""


def spoilt(prompt: str) -> Reply:
    """No writer's first answer can be read; the next has a secret and a path in it."""
    text = answer(prompt)
    if "[[ ## report ## ]]" not in text:
        return Reply(text)
    if "Your previous answer was refused" not in prompt:
        return Reply("I would first look at the memory access pattern.")
    return Reply(text.replace("Dummy writer:", f"Dummy writer {SECRET} {HOME}:"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two problems; one has a run with a malformed answer and with failures that were repaired."""
    folder = tmp_path_factory.mktemp("dataset")
    provider = Provider()
    provider.reply = spoilt
    server = ["llm=openai_compatible", "model.name=gpt-5", "model.cache=false", "loop.repairs=1", "writer=llm"]
    more = ["loop.evaluations=6", "loop.digest_every=3", "loop.confirm=false"]
    done = ksflow(folder, *DRY, *server, *more, LLM_URL=provider.url)
    assert done.returncode == 0, done.stderr
    done = ksflow(
        folder,
        "recipe=dry_run",
        "problem=fp8_gemm",
        "llm=dummy",
        "writer=llm",
        "loop.evaluations=3",
        "loop.confirm=false",
    )
    assert done.returncode == 0, done.stderr
    yield folder
    provider.close()


@pytest.fixture(scope="module")
def out(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything, exported."""
    out = tmp_path_factory.mktemp("exported") / "all"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        patch.setenv("SOME_API_KEY", SECRET)
        assert dataset([], [f"out={out}", "test_problems=fp8_gemm"]) == 0
    return out


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    return made


def rows(out: Path, configuration: str, split: str = "train") -> list[Row]:
    """The rows of one file."""
    path = out / configuration / f"{split}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
def test_every_row_has_the_columns_of_its_configuration(out: Path) -> None:
    assert {path.parent.name for path in out.glob("*/*.jsonl")} == set(COLUMNS)
    for name, columns in COLUMNS.items():
        found = rows(out, name)
        assert found, name
        for row in found:
            assert list(row) == list(columns)
            for column, kind in columns.items():
                check(row[column], kind)


@pytest.mark.soak
@pytest.mark.slow
def test_datasets_and_trl_s_trainers_take_every_configuration(out: Path, tmp_path: Path) -> None:
    """`load_dataset` takes a configuration's folder, and each trainer that the layout is for a step of training."""
    for name in ("datasets", "trl"):
        pytest.importorskip(name, reason=f"needs {name}: pip install -e '.[dev]'")
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("trl_reads.py"), out, tmp_path / "scratch"],
        capture_output=True,
        text=True,
        env={**os.environ, **offline},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: set(one["trainers"]) for name, one in found.items()} == {
        "chat": {"SFT"},
        "preference": {"DPO", "reward"},
        "rl": {"KTO"},
        "prompts": {"GRPO"},
    }
    for name, one in found.items():
        assert one["rows"] == {split: len(rows(out, name, split)) for split in one["rows"]}
        assert set(one["rows"]) == {path.stem for path in (out / name).glob("*.jsonl")}
        assert list(one["features"]) == list(COLUMNS[name])
        for trainer, made in one["trainers"].items():
            assert made["steps"] == 1, trainer
    assert {"input_ids", "labels"} <= set(found["chat"]["trainers"]["SFT"]["columns"])
    assert {"chosen_ids", "rejected_ids"} <= set(found["preference"]["trainers"]["DPO"]["columns"])
    assert {"completion_ids", "label"} <= set(found["rl"]["trainers"]["KTO"]["columns"])
    assert {"base", "base_commit", "base_us", "problem"} <= set(found["prompts"]["trainers"]["GRPO"]["columns"])


def check(value: Any, kind: str) -> None:
    """A value is of a declared type; messages are a conversation that trainers take."""
    if kind != "messages":
        assert type(value) is TYPES[kind]
        return
    assert value
    for message in value:
        assert set(message) == {"role", "content"}
        assert message["role"] in ("system", "user", "assistant")
        assert message["content"].strip()


@pytest.mark.slow
def test_conversations_end_where_trainers_expect_it(out: Path) -> None:
    for row in rows(out, "chat"):
        assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant"]
        assert row["reward"] > 0.5 or row["stage"] == "digester"
    for name in ("preference", "rl", "prompts"):
        for row in rows(out, name):
            assert row["prompt"][-1]["role"] == "user"
            for column in {"chosen", "rejected", "completion"} & set(row):
                assert [message["role"] for message in row[column]] == ["assistant"]


@pytest.mark.slow
def test_a_refused_answer_is_the_rejected_half_of_a_pair_and_has_no_reward(out: Path) -> None:
    prose = [row for row in rows(out, "rl") if "memory access pattern" in row["completion"][0]["content"]]
    assert len(prose) >= 6
    assert {(row["reward"], row["label"], row["verdict"]) for row in prose} == {(0.0, False, "malformed-answer")}
    formats = [row for row in rows(out, "preference") if row["kind"] == "format"]
    assert {row["rejected"][0]["content"] for row in formats} == {"I would first look at the memory access pattern."}
    for row in rows(out, "preference"):
        assert row["margin"] > 0
        assert row["chosen"] != row["rejected"]
        assert "memory access pattern" not in row["chosen"][0]["content"]
        assert row["verdict"] == "accept"
    for row in rows(out, "rl"):
        expected = {"compile-error": 0.1, "reject-incorrect": 0.2, "malformed-answer": 0.0}
        if row["stage"] == "writer" and row["verdict"] in expected:
            assert row["reward"] == expected[row["verdict"]]
        if row["verdict"] == "accept":
            assert 0.25 <= row["reward"] <= 2.5
        assert row["label"] is False or row["reward"] > 0.5


@pytest.mark.slow
def test_no_problem_is_in_two_splits(out: Path) -> None:
    for name in COLUMNS:
        assert {row["problem"] for row in rows(out, name, "train")} <= {"softmax"}
        assert {row["problem"] for row in rows(out, name, "test")} <= {"fp8_gemm"}
    assert rows(out, "rl", "test")


@pytest.mark.slow
def test_secrets_and_paths_stay_here(out: Path, made: Path) -> None:
    text = "".join(path.read_text() for path in out.rglob("*.*"))
    assert "Dummy writer [secret] [path]" in text
    for word in (SECRET, "somebody", str(made), str(out.parent), str(Path.home() / "x")[:-1]):
        assert word not in text


@pytest.mark.slow
def test_the_same_lineage_makes_the_same_files_without_doubles(folder: Path, tmp_path: Path) -> None:
    for out in ("one", "two"):
        dataset([], [f"out={tmp_path / out}"])
    names = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*"))
    assert names == sorted(path.relative_to(tmp_path / "two") for path in (tmp_path / "two").rglob("*.*"))
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    for name in ("chat", "rl", "prompts", "preference"):
        lines = (tmp_path / "one" / name / "train.jsonl").read_text().splitlines()
        talks = [[json.loads(line)[key] for key in COLUMNS[name] if COLUMNS[name][key] == "messages"] for line in lines]
        assert len({json.dumps(talk) for talk in talks}) == len(lines)


@pytest.mark.slow
def test_formats_and_stages_are_chosen(folder: Path, tmp_path: Path) -> None:
    dataset([], [f"out={tmp_path / 'some'}", "format=rl", "stages=selector,writer", "run=dry", "problem=softmax"])
    assert {path.parent.name for path in (tmp_path / "some").glob("*/*")} == {"rl", "prompts"}
    dataset([], [f"out={tmp_path / 'asked'}", "format=prompts"])
    assert {path.parent.name for path in (tmp_path / "asked").glob("*/*")} == {"prompts"}
    assert {row["stage"] for row in rows(tmp_path / "some", "rl")} == {"selector", "writer"}
    for row in rows(tmp_path / "some", "prompts"):
        assert "Your previous answer was refused" not in row["prompt"][-1]["content"]
        assert re.fullmatch("[0-9a-f]{40}", row["base_commit"])
        assert row["base_us"] >= row["baseline_us"] * 0.1 > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["format=parquet"], "format=parquet; valid: chat, preference, rl, prompts, all"),
        (["stages=judge"], "stages: judge; valid: writer, designer"),
        (["test_problems=gemm"], "test_problems: gemm; valid: fp8_gemm, softmax"),
        (["run=nowhere"], "its runs: fp8_gemm/dry, softmax/dry"),
        (["out=."], "exists and is no data set"),
    ],
)
def test_what_cannot_be_is_said(folder: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        dataset([], arguments)
    assert not list(folder.glob(".*-*"))


@pytest.mark.slow
def test_a_folder_that_cannot_be_replaced_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lineage = (folder / "runs" / "lineage.git").resolve()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"out=\. cannot be replaced: .*; name another folder"):
        dataset([], [f"lineage.path={lineage}", "out=.", "format=chat"])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_export_takes_the_place_of_an_older_one_only_when_complete(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "all"
    dataset([], [f"out={out}", "format=chat"])
    before = (out / "chat/train.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="makes no row"):
        dataset([], [f"out={out}", "format=chat", "stages="])
    assert (out / "chat/train.jsonl").read_bytes() == before
    dataset([], [f"out={out}", "format=rl"])
    assert not (out / "chat").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["all"]


# -- what the record says is worth -----------------------------------------------------------------


def judged(id: str, us: float, *rows_: tuple[str, float, float, float], **changes: Any) -> Trial:
    """An accepted trial with its ratios to others: id, speedup, low, high."""
    versus = [dict(zip(("id", "speedup", "low", "high"), row, strict=True)) for row in rows_]
    said = replace(accepted(us), evidence=parse(Evidence, {"against": versus}), judge="local-1", problem="p")
    return Trial(id, Origin.EXPERIMENT, kernel=kernel(id), evaluation=replace(said, **changes))


def test_of_two_that_are_right_the_interval_decides() -> None:
    base = judged("00001", 100)
    fast, near = judged("00002", 50, ("00001", 2.0, 1.9, 2.1)), judged("00003", 98, ("00001", 1.02, 0.99, 1.05))
    alone, other, most = judged("00004", 50), judged("00005", 100), judged("00006", 1, ("00001", 900.0, 890.0, 910.0))
    scale = Scale.from_trials((base, fast, near, alone, other, most))
    assert (relative_worth(fast, base, scale), relative_worth(near, base, scale)) == (
        (1.5, True),
        (pytest.approx(0.5286), False),
    )
    assert is_better(fast, base, scale)
    assert not is_better(base, fast, scale)
    assert not is_better(near, base, scale)
    assert is_better(fast, near, scale)  # beside the same third
    assert ratio(alone, other, scale) is None  # never side by side
    assert relative_worth(most, base, scale) == (2.5, True)


@pytest.mark.parametrize("changes", [{"judge": "local-2"}, {"problem": "q"}, {"target": "other"}])
def test_verdicts_under_different_keys_are_not_compared(changes: dict[str, str]) -> None:
    base, other = judged("00001", 100), judged("00002", 50, ("00001", 2.0, 1.9, 2.1), **changes)
    scale = Scale.from_trials((base, other))
    assert relative_worth(other, base, scale) is None
    assert not is_better(other, base, scale)


def test_what_says_nothing_of_the_kernel_has_no_worth() -> None:
    base, good = judged("00001", 100), judged("00002", 50, ("00001", 2.0, 1.9, 2.1))

    def worth_of(trial: Trial) -> Worth | None:
        return relative_worth(trial, base, Scale.from_trials((base, trial)))

    assert worth_of(replace(good, stale="judge")) is None
    assert good.evaluation is not None
    claim = Claim(id="00001", speedup=2.0, low=1.9, high=2.1, ranked=False, why="busy", faster=True)
    assert worth_of(replace(good, evaluation=good.evaluation.with_evidence(claim=claim))) is None
    assert worth_of(replace(good, evaluation=good.evaluation.with_evidence(repeat=Repeat(of="00001")))) is None
    for verdict in (Verdict.HARNESS, Verdict.TIMEOUT, Verdict.UNTIMED):
        assert worth_of(Trial("00003", Origin.EXPERIMENT, evaluation=Evaluation(verdict))) is None
    for verdict in (Verdict.CHEAT, Verdict.IMPOSSIBLE):
        assert worth_of(Trial("00003", Origin.EXPERIMENT, evaluation=Evaluation(verdict))) == (0.0, False)


# -- a lineage made by hand: what no dry run brings ------------------------------------------------


def grow(lineage: Lineage, base: Trial, text: str, said: Evaluation, answer_: str) -> Trial:
    """A trial of a round of its own, with the writer's call."""
    turn = lineage.begin_round()
    lineage.select(lineage.population().choose(base.id, base.id, "it is fast"), turn.name)
    experiment = Experiment("unroll", "it is unrolled", (1.0, 5.0), 10.0)
    (trial,) = lineage.dispatch([draft(base.id)], Plan(("a",), (experiment,), (0,)), turn.name)
    messages = ({"role": "user", "content": "Write it."},)
    lineage.record(Call("writer=rewrite", "some/model", messages, answer_, about=trial.id))
    trial = replace(trial, kernel=replace(kernel(text), report=answer_), form=text)
    lineage.write(trial)
    trial = replace(trial, evaluation=replace(said, judge="j", problem="p", target="t"))
    lineage.evaluate(trial)
    return trial


@pytest.fixture
def by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lineage]:
    """A run of the problem `toy` with one seed."""
    monkeypatch.chdir(tmp_path)
    made = Lineage(tmp_path / "runs/lineage.git", "toy", clock=lambda: 1_700_000_000)
    made.open_session("")
    yield made
    made.close()


def seed(lineage: Lineage, text: str) -> Trial:
    (planted,) = lineage.add_seeds([Trial("", Origin.SEED, kernel=kernel(text), name="seed.cpp")])
    planted = replace(planted, evaluation=replace(accepted(100), judge="j", problem="p"))
    lineage.evaluate(planted)
    return planted


def faster(us: float, than: str) -> Evaluation:
    row = {"id": than, "speedup": 100 / us, "low": 99 / us, "high": 101 / us}
    claim = {**row, "faster": True, "ranked": True}
    return Evaluation(
        Verdict.ACCEPT, "", us, (Timing("8x8", us),), parse(Evidence, {"against": [row], "claim": claim}), "none", "t"
    )


def test_a_cheat_is_never_chosen_and_a_repeat_is_written_once(by_hand: Lineage, tmp_path: Path) -> None:
    base = seed(by_hand, "// SPDX-License-Identifier: MIT\n")
    grow(by_hand, base, "good", faster(50, base.id), "the good one")
    grow(by_hand, base, "cheat", Evaluation(Verdict.CHEAT, "kept a result", target="t"), "the cheat")
    grow(by_hand, base, "wrong", Evaluation(Verdict.INCORRECT, "off", target="t"), "the wrong one")
    grow(by_hand, base, "good", faster(50, base.id), "the good one in other words")
    by_hand.close()
    assert dataset([], [f"out={tmp_path / 'out'}", "stages=writer"]) == 0
    found = rows(tmp_path / "out", "rl")
    assert {row["completion"][0]["content"]: (row["reward"], row["label"]) for row in found} == {
        "the good one": (1.5, True),
        "the cheat": (0.0, False),
        "the wrong one": (0.2, False),
    }
    assert {row["licence"] for row in found} == {"MIT AND unknown"}  # of the problem nobody knows the reference
    assert [row["messages"][-1]["content"] for row in rows(tmp_path / "out", "chat")] == ["the good one"]
    pairs = rows(tmp_path / "out", "preference")
    same = {(r["chosen"][0]["content"], r["rejected"][0]["content"]) for r in pairs if r["kind"] == "answers"}
    assert len(same) == 2
    assert {other for _, other in same} == {"the cheat", "the wrong one"}
    assert sorted(row["rejected_verdict"] for row in pairs if row["kind"] == "kernels") == [
        "reject-cheat",
        "reject-incorrect",
    ]
    assert {row["verdict"] for row in pairs} == {"accept"}


def test_an_answer_that_the_record_does_not_hold_is_left_out(by_hand: Lineage, tmp_path: Path) -> None:
    base = seed(by_hand, "int x;\n")
    trial = grow(by_hand, base, "good", faster(50, base.id), "the good one")
    late = ({"role": "user", "content": "Write it otherwise."},)
    by_hand.record(Call("writer=rewrite", "some/model", late, "nobody took this", about=trial.id))
    by_hand.close()
    with pytest.raises(ConfigError, match="makes no row"):
        dataset([], [f"out={tmp_path / 'out'}", "stages=writer", "format=chat"])
