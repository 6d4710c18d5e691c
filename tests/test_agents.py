"""Coding agents as a stage: scripted programs that print what each agent's command line prints, and worse."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from dspy.lm15 import Message, Request

from ksflow.errors import ConfigError, StageError
from ksflow.lm.agents import Agent
from ksflow.lm.sections import split
from ksflow.protocols import Workspace, calling
from ksflow.records import Evaluation, Kernel, Origin, Timing, Trial, Verdict

CLAUDE = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "Larger tiles.",
    "total_cost_usd": 0.25,
    "usage": {"input_tokens": 1000, "cache_read_input_tokens": 500, "output_tokens": 200},
}
CODEX = (
    {"type": "thread.started", "thread_id": "t"},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "Larger tiles."}},
    {"type": "turn.completed", "usage": {"input_tokens": 1500, "cached_input_tokens": 500, "output_tokens": 200}},
)
GEMINI = {
    "response": "Larger tiles.",
    "stats": {"models": {"gemini": {"tokens": {"prompt": 1500, "candidates": 150, "thoughts": 50}}}},
}
EDIT = 'for f in *.cpp; do echo "// by an agent" >> $f; done'


def agent(folder: Path, script: str) -> Path:
    """A program that does this, with the prompt on its stdin."""
    file = folder / "bin" / "agent"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\ncat > prompt.txt\n{script}\n")
    file.chmod(0o755)
    return file


START = Kernel("cpp", {"kernel.cpp": "int x = 1;\n"})


def judge(kernel: Kernel) -> Trial:
    timing = Timing("8x8", 2.0, (2.0, 2.1))
    return Trial("draft", Origin.EXPERIMENT, kernel=kernel, evaluation=Evaluation(Verdict.ACCEPT, "", 2.0, (timing,)))


def left(folder: Path, script: str, envelope: str = "text", **settings: Any) -> tuple[dict[str, str], Agent, Any]:
    """What one agent leaves of the kernel it was given, section by section; the engine and its response."""
    program = agent(folder, script)
    engine = Agent([str(program)], envelope, readable=[str(program.parent)], **settings)
    request = Request(model="agent", messages=(Message.user("Make it faster."),))
    with calling(stage="writer=agent", workspace=Workspace({"base/kernel.cpp": "int x;\n"}, START), check=judge):
        response = engine.complete(request)
    text = "".join(part.text for part in response.message.parts)
    names = ["report", "checks", "code"]
    return split(text, names) if "[[ ## code ## ]]" in text else {"report": text}, engine, response


def search(folder: Path, script: str, *more: str, envelope: str = "text", rounds: int = 1) -> str:
    """What `lineage` shows after a short dry run whose kernels this agent wrote."""
    program = agent(folder, script)
    given = (
        *(
            "recipe=dry_run",
            "writer=agent",
            "agent=command",
            f"loop.rounds={rounds}",
            "designer=random",
            "run=agents",
            "loop.repeats=skip",
        ),
        *(f"writer.lm.command=[{program}]", f"writer.lm.readable=[{program.parent}]", f"writer.lm.envelope={envelope}"),
        *more,
    )
    done = subprocess.run(
        [sys.executable, "-m", "ksflow", *given],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "OTHER_API_KEY": "a-secret-of-somebody-else"},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def calls(folder: Path) -> list[dict[str, Any]]:
    """The transcript's calls of the writer."""
    git = ["git", "-C", str(folder / "runs" / "lineage.git")]
    head = "refs/ksflow/fp8_gemm/agents/calls"
    commits = subprocess.run([*git, "rev-list", head], capture_output=True, text=True).stdout.split()
    texts = [
        subprocess.run([*git, "show", f"{one}:call.json"], capture_output=True, text=True).stdout for one in commits
    ]
    return [json.loads(text)["call"] for text in texts]


@pytest.mark.parametrize(
    ("envelope", "printed", "usd"),
    [("claude", [CLAUDE], 0.25), ("codex", CODEX, 0.0), ("gemini", [GEMINI], 0.0)],
)
def test_what_an_agent_leaves_is_the_kernel_and_it_says_what_it_used(
    tmp_path: Path, envelope: str, printed: list[object], usd: float
) -> None:
    said = "\n".join(f"echo '{json.dumps(line)}'" for line in printed)
    found, engine, response = left(tmp_path, f"{EDIT}\n./check\n{said}", envelope)
    assert found["code"] == "int x = 1;\n// by an agent\n"
    assert found["report"] == "Larger tiles."
    assert "Check 1: accepted" in found["checks"]
    assert (response.usage.input_tokens, response.usage.output_tokens) == (1500, 200)
    assert engine.paid(response)[0] == usd


@pytest.mark.parametrize("printed", ["", "{", '{"result": 3, "usage": [1]}', "[[ ## code ## ]] x", "{" * 5000])
@pytest.mark.parametrize("envelope", ["claude", "codex", "gemini"])
def test_a_broken_envelope_costs_no_kernel(tmp_path: Path, printed: str, envelope: str) -> None:
    found, engine, response = left(tmp_path, f"{EDIT}\nprintf '%s' '{printed}'", envelope)
    assert "by an agent" in found["code"]
    assert engine.paid(response)[0] == 0.0


def test_one_that_tells_no_usage_is_marked_as_estimated(tmp_path: Path) -> None:
    _, engine, response = left(tmp_path, f"{EDIT}\necho done")
    assert "estimated" in engine.paid(response)[1]


def test_it_sees_its_folder_and_neither_other_files_nor_other_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_API_KEY", "a-secret-of-somebody-else")
    private = tmp_path / "lineage.git"
    private.mkdir()
    found, *_ = left(
        tmp_path,
        f"""{EDIT}
        ls {private} && echo SAW-LINEAGE
        cat /proc/$PPID/environ && echo SAW-PARENT
        cat {Path(__file__)} && echo SAW-CODE
        ls {Path.home()}/.* && echo SAW-HOME
        kill -0 {os.getpid()} && echo CAN-SIGNAL
        echo x > {tmp_path}/outside && echo WROTE
        env
        cat base/kernel.cpp && echo SAW-BASE""",
    )
    for word in ("SAW-LINEAGE", "SAW-PARENT", "SAW-CODE", "SAW-HOME", "CAN-SIGNAL", "a-secret-of"):
        assert word not in found["report"]
    assert "SAW-BASE" in found["report"]
    assert not (tmp_path / "outside").exists()


def test_one_that_hangs_or_forks_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    mark = f"9{time.time_ns() % 10**8}"
    with pytest.raises(StageError, match="did not end within"):
        left(tmp_path, f"setsid sleep {mark} & (sleep {mark} &) ; sleep {mark}", minutes=0.02)
    assert not subprocess.run(["pgrep", "-f", f"sleep {mark}"], capture_output=True, text=True).stdout


def test_what_it_leaves_running_ends_with_it(tmp_path: Path) -> None:
    mark = f"8{time.time_ns() % 10**8}"
    left(tmp_path, f"{EDIT}\nsetsid sleep {mark} >/dev/null 2>&1 &")
    assert not subprocess.run(["pgrep", "-f", f"sleep {mark}"], capture_output=True, text=True).stdout


def test_what_it_puts_in_place_of_its_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("int precious;")
    for trick in (f"ln -s {target} kernel.cpp", "mkfifo kernel.cpp", "mkdir kernel.cpp", "true"):
        found, engine, response = left(tmp_path, f"rm kernel.cpp; {trick}; echo '{json.dumps(CLAUDE)}'", "claude")
        assert "code" not in found
        assert "left no file kernel.cpp" in found["report"] or "no plain file" in found["report"]
        assert engine.paid(response)[0] == 0.25


def test_its_questions_and_its_flood_harm_nobody(tmp_path: Path) -> None:
    found, *_ = left(tmp_path, f"{EDIT}\nrm -rf .checks; ln -s {tmp_path} .checks; yes | head -c 30000000")
    assert "by an agent" in found["code"]
    assert len(found["report"]) <= 20_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]


def test_questions_to_the_judge_are_counted(tmp_path: Path) -> None:
    found, *_ = left(tmp_path, f"{EDIT}\n./check; ./check; ./check", checks=2)
    assert "Check 2" in found["checks"]
    assert "Check 3" not in found["checks"]
    assert "asked 2 times, which is all" in found["report"]


def test_a_program_that_is_not_there_or_fails_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="the agent ended with 3 and no answer: no credit left"):
        left(tmp_path, "echo no credit left >&2; exit 3")
    (tmp_path / "bin" / "agent").unlink()
    with pytest.raises(ConfigError, match="no-such-agent is not on PATH: install it"):
        Agent(["no-such-agent"]).complete(Request(model="agent", messages=(Message.user("x"),)))


@pytest.mark.slow
def test_a_run_whose_kernels_an_agent_writes_and_its_replay_without_the_agent(tmp_path: Path) -> None:
    said = search(tmp_path, f"{EDIT}\n./check\necho '{json.dumps(CLAUDE)}'", envelope="claude")
    found = calls(tmp_path)
    assert len(found) == 3
    for call in found:
        assert call["cost"]["usd"] == 0.25
        assert "Check 1: accepted" in str(call["answer"])
    assert "$0.75" in said
    (tmp_path / "bin" / "agent").unlink()
    replay = ("llm=replay", "recorded.run=agents", "writer=agent", "agent=replay", "designer=random", "run=again")
    done = subprocess.run(
        [sys.executable, "-m", "ksflow", *replay, "selector=fastest", "digester=rules", "loop.rounds=1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
