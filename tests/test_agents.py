"""Coding agents as a stage: scripted programs that print what each agent's command line prints, and worse."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dspy.lm15 import Message, Request
from test_cli import ksflow

from ksflow.errors import ConfigError, StageError
from ksflow.lm.agent_output import ENVELOPES
from ksflow.lm.agents import Agent
from ksflow.lm.sections import split
from ksflow.protocols import Workspace, override_call
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


def left(
    folder: Path, script: str, envelope: str = "text", check: Callable[[Kernel], Trial] = judge, **settings: Any
) -> tuple[dict[str, str], Agent, Any]:
    """What one agent leaves of the kernel it was given, section by section; the engine and its response."""
    program = agent(folder, script)
    engine = Agent([str(program)], envelope, **settings)
    request = Request(model="agent", messages=(Message.user("Make it faster."),))
    with override_call(stage="writer=agent", workspace=Workspace({"base/kernel.cpp": "int x;\n"}, START, check)):
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
            "run=agents",
            "loop.repeats=skip",
        ),
        *(f"agent.command=[{program}]", f"agent.envelope={envelope}"),
        *more,
    )
    done = ksflow(folder, *given, OTHER_API_KEY="a-secret-of-somebody-else")
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
    assert engine.answer_cost(response)[0] == usd


@pytest.mark.parametrize("printed", ["", "{", '{"result": 3, "usage": [1]}', "[[ ## code ## ]] x", "{" * 5000])
@pytest.mark.parametrize("envelope", ["claude", "codex", "gemini"])
def test_a_broken_envelope_costs_no_kernel(tmp_path: Path, printed: str, envelope: str) -> None:
    found, engine, response = left(tmp_path, f"{EDIT}\nprintf '%s' '{printed}'", envelope)
    assert "by an agent" in found["code"]
    assert engine.answer_cost(response)[0] == 0.0


def test_one_that_tells_no_usage_is_marked_as_estimated(tmp_path: Path) -> None:
    _, engine, response = left(tmp_path, f"{EDIT}\necho done")
    assert "estimated" in engine.answer_cost(response)[1]


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


@pytest.mark.slow
def test_what_it_did_until_its_time_was_over_counts(tmp_path: Path) -> None:
    found, engine, response = left(tmp_path, f"{EDIT}\n./check\nsleep 60", minutes=0.03)
    assert "by an agent" in found["code"]
    assert "Check 1: accepted" in found["checks"]
    assert "did not end within 0.03 minutes" in found["report"]
    assert "estimated" in engine.answer_cost(response)[1]


@pytest.mark.slow
def test_its_time_does_not_run_while_the_judge_is_asked(tmp_path: Path) -> None:
    def slow(kernel: Kernel) -> Trial:
        time.sleep(3)
        return judge(kernel)

    found, *_ = left(tmp_path, f"{EDIT}\n./check\necho came to its end", check=slow, minutes=0.03)
    assert found["report"].endswith("came to its end")
    assert "Check 1: accepted" in found["checks"]


def test_one_that_fails_after_it_was_paid_for_is_on_record_with_what_it_cost(tmp_path: Path) -> None:
    failed = json.dumps({**CLAUDE, "is_error": True, "result": "Credit balance is too low"})
    found, engine, response = left(tmp_path, f"echo '{failed}'; exit 1", "claude")
    assert "Credit balance is too low" in found["report"]
    assert engine.answer_cost(response)[0] == 0.25


def test_one_that_fills_the_disk_is_ended(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="folder was over 1024 MB or 50000 files"):
        left(tmp_path, "i=0; while :; do i=$((i+1)); fallocate -l 100M big.$i || sleep 1; done", minutes=0.5)


def test_nothing_that_it_builds_in_its_folder_stays(tmp_path: Path) -> None:
    deep = "import os\nfor _ in range(1200):\n os.mkdir('d')\n os.chdir('d')"
    python = f"{sys.base_prefix}/bin/python3"
    found, *_ = left(tmp_path, f'{EDIT}\nmkdir shut; : > shut/x; pwd\n{python} -c "{deep}"', readable=[sys.base_prefix])
    folder = Path(found["report"].splitlines()[0])
    assert "ksflow" in folder.name
    assert not folder.exists()


def test_it_reaches_no_service_of_the_machine(tmp_path: Path) -> None:
    python = f"{sys.base_prefix}/bin/python3"
    local, loopback = socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 0))
    local.bind(str(tmp_path / "service.sock"))
    local.listen()
    reach = f"""import os, socket
for family, address in ((1, {str(tmp_path / "service.sock")!r}), (2, ("127.0.0.1", {loopback.getsockname()[1]}))):
    try:
        socket.socket(family).connect(address)
        print("REACHED", family)
    except OSError as error:
        print("refused", family)
print(sorted(name for name in os.listdir("/proc") if name.isdigit()), sorted(os.environ))
"""
    (tmp_path / "reach.py").write_text(reach)
    seen = [sys.base_prefix, str(tmp_path / "reach.py")]
    found, *_ = left(tmp_path, f"{EDIT}\n{python} {tmp_path}/reach.py 2>&1", readable=seen)
    local.close()
    loopback.close()
    assert "REACHED" not in found["report"]
    assert found["report"].count("refused") == 2
    assert "PYTHONPATH" not in found["report"]
    assert str(os.getpid()) not in re.findall(r"\d+", found["report"])


def test_it_gets_copies_of_its_settings_and_renews_its_credentials_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".tool").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for name in ("settings", "token", "other", "link"):
        (home / ".tool" / f"{name}.json").write_text('{"key": "old"}')
    script = f"""{EDIT}
        cat ~/.tool/settings.json; ls {home} && echo SAW-HOME
        for f in settings token; do echo '{{"key": "new"}}' > ~/.tool/$f.json; done
        echo '{{"key": "new", "hook": "rm"}}' > ~/.tool/other.json
        rm ~/.tool/link.json; ln -s ../../TASK.md ~/.tool/link.json"""
    credentials = [f"~/.tool/{name}.json" for name in ("token", "other", "link")]
    found, *_ = left(tmp_path, script, settings=["~/.tool/settings.json"], credentials=credentials)
    assert '{"key": "old"}' in found["report"]
    assert "SAW-HOME" not in found["report"]
    texts = {file.stem: json.loads(file.read_text())["key"] for file in (home / ".tool").iterdir()}
    assert texts == {"settings": "old", "token": "new", "other": "old", "link": "old"}


@pytest.mark.slow
def test_its_task_is_two_pages_that_name_the_files_with_the_rest_and_asks_for_no_markers(tmp_path: Path) -> None:
    told = "{ cat TASK.md; echo; find given base reference -type f -size +0 | sed 's|^|there: |'; cat given/task.md; }"
    said = search(tmp_path, f"for f in *.cpp; do {told} | sed 's|^|// told: |' >> $f; done; echo More.")
    (call, *_) = calls(tmp_path)
    lines = re.findall(r"// told: (.*)", call["answer"])
    assert "[[ ##" not in str(call["messages"]), said
    assert sum(len(str(message["content"])) for message in call["messages"]) < 6_000
    there = {line.removeprefix("there: ") for line in lines if line.startswith("there: ")}
    named = set(re.findall(r"`(given/[^`]+)`", str(call["messages"])))
    assert {"given/findings.md", "given/task.md", "given/interface.md", "given/base_analysis.md"} <= named
    assert named <= there
    assert {name.partition("/")[0] for name in there} == {"given", "base", "reference"}
    assert any(line.startswith("Rubric: ") for line in lines)
    assert any("Languages that a kernel may be in" in line for line in lines)


@pytest.mark.parametrize("cost", ["NaN", "-5", "1e300", '"7"', "true", "null", "9" * 5000])
def test_a_price_that_cannot_be_is_none(cost: str) -> None:
    output = json.dumps(CLAUDE).replace("0.25", cost)
    said = ENVELOPES["claude"](output)
    assert said.usd is None
    assert said.text or len(cost) > 4000


def test_an_envelope_after_other_words_is_found_and_half_characters_can_be_kept(tmp_path: Path) -> None:
    envelope = json.dumps({**CLAUDE, "result": "\ud800 Larger \x1b[2J tiles."}, indent=1)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "said.json").write_text(f"a warning\n{envelope}\n")
    file = str(tmp_path / "bin" / "said.json")
    found, engine, response = left(tmp_path, f"{EDIT}\ncat {file}", "claude", readable=[file])
    assert engine.answer_cost(response)[0] == 0.25
    assert found["report"].encode().decode().isprintable()
    assert "Larger" in found["report"]


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
        assert engine.answer_cost(response)[0] == 0.25


def test_its_questions_and_its_flood_harm_nobody(tmp_path: Path) -> None:
    found, *_ = left(tmp_path, f"{EDIT}\nrm -rf .checks; ln -s {tmp_path} .checks; yes | head -c 30000000")
    assert "by an agent" in found["code"]
    assert len(found["report"]) <= 20_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]


def test_a_flood_of_questions_costs_no_more_than_it_may_ask(tmp_path: Path) -> None:
    asked: list[Kernel] = []
    program = agent(
        tmp_path, f"{EDIT}\nfor i in $(seq 1000); do : > .checks/$i.ask; done\nmkdir .checks/d.ask\n./check"
    )
    engine = Agent([str(program)], checks=2)
    request = Request(model="agent", messages=(Message.user("Make it faster."),))
    work = Workspace({}, START, lambda kernel: asked.append(kernel) or judge(kernel))
    with override_call(stage="w", workspace=work):
        text = engine.complete(request).message.parts[0].text
    assert len(asked) == 2
    assert "asked 2 times, which is all" in text


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
def test_an_agent_that_is_not_installed_is_said_before_a_seed_is_judged(tmp_path: Path) -> None:
    words = ("recipe=dry_run", "problem=fp8_gemm", "writer=agent", "agent=command", "agent.command=[no-such-agent]")
    done = ksflow(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ksflow: the agent's program no-such-agent is not on PATH: install it\n"


DESIGN = """[[ ## avenues ## ]]
["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]
[[ ## experiments ## ]]
%s
[[ ## completed ## ]]"""


@pytest.mark.slow
def test_a_run_whose_kernels_an_agent_designs_and_writes_and_its_replay_without_the_agent(tmp_path: Path) -> None:
    ideas = [
        {"description": f"an agent's idea {at}", "rubric": "there", "gain_percent": [at, 9 * at], "innovation": 90 - at}
        for at in range(5)
    ]
    said = {**CLAUDE, "result": DESIGN % json.dumps(ideas)}
    (tmp_path / "bin").mkdir()
    for name, text in (("design", said), ("write", CLAUDE)):
        (tmp_path / "bin" / name).write_text(json.dumps(text))
    file = tmp_path / "bin"
    # without ./check it is asked to design
    script = f"{EDIT.replace('$f;', '$f 2>/dev/null;')}\nif ./check; then cat {file}/write; else cat {file}/design; fi"
    more = ("designer=agent", f"designer.lm.command=[{file}/agent]", "designer.lm.envelope=claude")
    shown = [f"{stage}.lm.readable=[{file}]" for stage in ("designer", "writer")]
    said_by_run = search(tmp_path, script, *more, *shown, envelope="claude")
    found = calls(tmp_path)
    assert sorted(call["stage"] for call in found) == ["designer=llm", *["writer=agent"] * 3]
    for call in found:
        assert call["cost"]["usd"] == 0.25
        assert call["messages"]
    assert all("Check 1: accepted" in str(call["answer"]) for call in found if "writer" in call["stage"])
    assert "$1.00" in said_by_run
    lineage = ksflow(tmp_path, "lineage", "recipe=dry_run", "run=agents")
    assert "an agent's idea" in lineage.stdout
    (tmp_path / "bin" / "agent").unlink()
    replay = ("llm=replay", "recorded.run=agents", "writer=agent", "agent=replay", "designer=agent", "run=again")
    done = ksflow(tmp_path, *replay, "selector=fastest", "digester=rules", "loop.rounds=1")
    assert done.returncode == 0, done.stderr
