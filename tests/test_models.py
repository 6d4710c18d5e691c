"""Runs with models, as typed: budgets, estimates, interruption, a person as the model. The server is on loopback."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lm.server import Provider, Reply
from test_cli import DRY, ksflow
from test_replay import story

from ksflow.lineage import Lineage
from ksflow.lm.answers import answer

SERVER = [*DRY, "llm=openai_compatible", "model.name=gpt-5", "model.cache=false"]


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.close()


@pytest.mark.slow
def test_a_run_says_what_it_may_cost_and_what_it_did_cost(tmp_path: Path, provider: Provider) -> None:

    def together(prompt: str) -> Reply:
        """The writers of the first round have their answers when all three have asked."""
        end = time.monotonic() + 60
        while "[[ ## report ## ]]" in prompt and provider.busiest < 3 and time.monotonic() < end:
            time.sleep(0.01)
        return Reply(answer(prompt))

    provider.reply = together
    done = ksflow(tmp_path, *SERVER, "loop.evaluations=6", "loop.rounds_in_flight=2", LLM_URL=provider.url)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert re.search(r"estimate for 2 rounds of 3: 1\d model calls, \d+k tokens of prompts; \$0.\d+, up to \$\d", said)
    assert re.search(r"cost of the run so far: \$0.\d+, \d+.\dk tokens", said)
    assert provider.busiest >= 3  # the writers of a round
    tree = ksflow(tmp_path, "lineage", "problem=softmax", "run=dry").stdout
    assert re.search(r"00005 .* \$0\.0\d+", tree)
    assert re.search(r"cost of the run so far: \$0.\d+, \d+.\dk tokens; an experiment \$0.0\d+", tree)
    log = subprocess.run(
        ["git", "-C", tmp_path / "runs/lineage.git", "log", "-1", "--format=%B", "softmax/dry/00005"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.search(r"^Cost-usd: 0\.0\d+$", log, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["loop.usd=0.001"], r"loop.usd=0.001 does not cover one call of selector=llm, which may take .*max_tokens"),
        pytest.param(
            ["loop.usd=5", "model.name=own"],
            r"loop.usd cannot be kept: no price is known for openai/own; set usd_per_mt",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["loop.stages.writer.usd=0.01"],
            r"loop.stages.writer.usd=0.01 does not cover one call of writer=rewrite",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_cap_that_cannot_be_kept_is_said_before_the_first_call(
    tmp_path: Path, provider: Provider, arguments: list[str], message: str
) -> None:
    done = ksflow(tmp_path, *SERVER, *arguments, LLM_URL=provider.url)
    assert done.returncode == 2
    assert re.search(message, done.stderr.splitlines()[-1])
    assert not provider.requests


@pytest.mark.slow
def test_money_runs_out_cleanly(tmp_path: Path, provider: Provider) -> None:
    """Every call is taken to cost what it may: 1,000 tokens of answer at $10 for a million."""
    settings = [
        "model.name=own",
        "model.max_tokens=4000",
        "model.usd_per_mtok_in=0",
        "model.usd_per_mtok_out=10",
        "loop.usd=0.1",
    ]
    done = ksflow(tmp_path, *SERVER, *settings, "loop.rounds_in_flight=3", LLM_URL=provider.url)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "stopped: usd=0.1 used up" in said
    spent = len(provider.requests) * 500 * 10 / 1e6
    assert 0.1 - 0.04 - 1e-9 <= spent <= 0.1 + 1e-9  # the next call might have been as long as it may
    assert "runs/best/softmax/dry/" in said
    lineage = Lineage(tmp_path / "runs/lineage.git", "softmax", "dry")
    left = len(lineage.claim_unfinished())
    lineage.close()
    before = len(provider.requests)
    again = ksflow(tmp_path, *SERVER, f"loop.evaluations={left or 3}", "loop.confirm=false", LLM_URL=provider.url)
    assert again.returncode == 0, again.stderr
    assert len(provider.requests) > before
    if left:  # what was planned comes first, and there is nothing else to pay for
        asked = [request["messages"][0]["content"] for request in provider.requests[before:]]
        assert not any(words.startswith(("You direct", "You design")) for words in asked)


@pytest.mark.slow
def test_ctrl_c_twice_says_what_it_abandons_and_the_next_run_takes_it_up(tmp_path: Path, provider: Provider) -> None:
    asked = threading.Barrier(4)  # the three writers and this test

    def stall(prompt: str) -> Reply:
        writing = "[[ ## report ## ]]" in prompt.rpartition("Answer with the sections")[2]
        if writing:
            asked.wait(300)
        return Reply(answer(prompt), fault="stall" if writing else "")

    provider.reply = stall
    process = subprocess.Popen(
        [sys.executable, "-m", "ksflow", *SERVER, "writer=llm", "loop.evaluations=3"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LLM_URL": provider.url, "COLUMNS": "160"},
    )
    assert process.stderr is not None
    asked.wait(300)
    process.send_signal(signal.SIGINT)
    said = ""
    while "abandons it" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    said += process.communicate(timeout=300)[1]
    assert process.returncode == 130
    assert "Traceback" not in said
    said = " ".join(said.split())
    assert "finishing write 00005 00006 00007; Ctrl-C again abandons it" in said
    assert "abandoned: write 00005 00006 00007; the next run takes it up" in said
    provider.reply = lambda prompt: Reply(answer(prompt))
    before = len(provider.requests)
    words = ["writer=llm", "loop.evaluations=3", "loop.confirm=false", "loop.repeats=judge"]
    again = ksflow(tmp_path, *SERVER, *words, LLM_URL=provider.url)
    assert again.returncode == 0, again.stderr
    assert len(provider.requests) - before == 3  # the three that were planned, and no other question


@pytest.mark.slow
def test_a_person_can_be_the_model(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ksflow", *DRY, "llm=inbox", "writer=llm", "loop.evaluations=3", "loop.confirm=false"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    folder, answered = tmp_path / "runs/inbox", 0
    while process.poll() is None:
        for question in folder.glob("*-*.md"):
            reply = question.with_suffix(".answer.md")
            if ".answer" in question.name or reply.exists():
                continue
            with contextlib.suppress(FileNotFoundError):  # it was answered before, and has just been filed
                reply.write_text(answer(question.read_text()))
                answered += 1
        time.sleep(0.05)
    said = process.communicate()[1]
    assert process.returncode == 0, said
    assert answered >= 5
    assert "runs/inbox/selector-" in said  # where to answer is said on the console
    assert len(list((folder / "done").glob("*.answer.md"))) == answered
    assert not list(folder.glob("*.md"))


@pytest.mark.slow
def test_a_refused_key_ends_the_run_with_one_line(tmp_path: Path, provider: Provider) -> None:
    provider.reply = lambda prompt: (401, "who are you")
    arguments = [*SERVER, "loop.evaluations=3", "loop.rounds_in_flight=3"]
    done = ksflow(tmp_path, *arguments, LLM_URL=provider.url, LLM_API_KEY="sk-not-a-key-at-all")
    assert done.returncode == 2
    assert "refused the key" in done.stderr.splitlines()[-1]
    assert "sk-not-a-key" not in done.stderr
    kept = subprocess.run(
        ["git", "-C", tmp_path / "runs/lineage.git", "log", "-p", "--all"], capture_output=True, text=True, check=True
    ).stdout
    assert "who are you" in kept
    assert "sk-not-a-key" not in kept


@pytest.mark.slow
def test_without_an_answer_no_seed_is_judged_and_the_exit_status_says_so(tmp_path: Path, provider: Provider) -> None:
    provider.close()
    done = ksflow(tmp_path, *SERVER, LLM_URL=provider.url)
    assert done.returncode == 4, done.stderr
    assert re.fullmatch(r"ksflow: nothing was tried: openai/gpt-5 cannot be reached: .*refused.*\n", done.stderr)


@pytest.mark.slow
def test_a_sign_of_life_is_asked_for_once_before_the_seeds_and_is_paid_for(tmp_path: Path, provider: Provider) -> None:
    done = ksflow(tmp_path, *SERVER, "loop.evaluations=0", LLM_URL=provider.url)
    assert done.returncode == 0, done.stderr
    assert (provider.greeted, provider.requests) == (1, [])
    assert "$0.01;" in done.stderr
    calls = ["git", "-C", tmp_path / "runs/lineage.git", "log", "--format=%s", "refs/ksflow/softmax/dry/calls"]
    log = subprocess.run(calls, capture_output=True, text=True, check=True).stdout
    assert log == "sign of life: openai/gpt-5\n"


@pytest.mark.slow
def test_a_stage_that_always_raises_ends_with_nothing_tried_and_why(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def design(*_):\n    raise RuntimeError('my part is broken')\n")
    (tmp_path / "conf" / "designer").mkdir(parents=True)
    (tmp_path / "conf" / "designer" / "broken.yaml").write_text("_target_: broken.design\n_partial_: true\n")
    done = ksflow(tmp_path, "--config-dir=conf", "designer=broken", *DRY)
    assert done.returncode == 4, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ksflow: nothing was tried: 3 rounds in a row brought no trial: designer: RuntimeError: my")
    assert done.stderr.count("no plan: designer: RuntimeError: my part is broken") == 1
    assert done.stderr.count("my part is broken") == 2  # there, and in the last line


@pytest.mark.slow
def test_a_replay_has_the_sign_of_life_in_its_place(tmp_path: Path, provider: Provider) -> None:
    assert ksflow(tmp_path, *SERVER, "loop.evaluations=3", LLM_URL=provider.url).returncode == 0
    provider.close()
    done = ksflow(tmp_path, "problem=softmax", "llm=replay", "recorded.run=dry")
    assert done.returncode == 0, done.stderr
    assert story(tmp_path, "replay") == story(tmp_path, "dry")
