"""An assistant as the scientist: a client of the protocol's own package against `python -m ksflow mcp`."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conftest import accepted, kernel
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from test_cli import ksflow

from ksflow.cli.inbox import InboxFolder
from ksflow.cli.mcp_tools import Tools
from ksflow.errors import ConfigError
from ksflow.home import PACKAGE, shipped_path
from ksflow.loop.queue import map_parallel
from ksflow.records import Origin, Population, Trial

Ask = Callable[..., Awaitable[str]]


class Refused(Exception):
    """The tool answered with an error."""


def served(folder: Path, work: Callable[[Ask], Awaitable[Any]], *arguments: str) -> Any:
    """What `work` makes of a server's tools."""

    async def session() -> Any:
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "ksflow", "mcp", *arguments], cwd=folder, env=dict(os.environ)
        )
        async with Client(stdio_client(command)) as client:

            async def ask(tool: str, **given: Any) -> str:
                answer = await client.call_tool(tool, given)
                text = "\n".join(part.text for part in answer.content)
                if answer.is_error:
                    raise Refused(text)
                return text

            return await work(ask)

    return asyncio.run(session())


def command(folder: Path, *words: str) -> str:
    done = ksflow(folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def experiments(count: int = 5) -> list[dict[str, Any]]:
    return [
        {
            "description": f"idea {number}",
            "rubric": "it is done",
            "lowest_gain_percent": number,
            "highest_gain_percent": 10 * number,
            "innovation": 90 - number,
        }
        for number in range(count)
    ]


async def plan(ask: Ask, base: str, **more: Any) -> list[str]:
    given = {"base": base, "reference": base, "rationale": "the fastest", "avenues": ["tiles"], **more}
    text = await ask("plan", **{"experiments": experiments(), **given})
    return [json.loads(line)["id"] for line in text.splitlines()[1:]]


async def judged(ask: Ask, answer: str) -> str:
    ticket = re.match(r"ticket (\w+):", answer)
    assert ticket, answer
    while True:
        text = await ask("result", ticket=ticket[1], wait_s=50)
        if "ask again" not in text:
            return text


async def best_of(ask: Ask) -> str:
    return re.search(r"best: (\d+)", await ask("lineage_population"))[1]  # type: ignore[index]


async def ready(ask: Ask) -> str:
    """The best seed's id, once the seeds are judged."""
    await ask("lineage_best")
    return await best_of(ask)


def tiles(mr: int) -> dict[str, str]:
    """The tunable CPU seed with another height of its tile."""
    text = next(file.read_text() for file in shipped_path("seeds", "fp8_gemm", "cpu").glob("*tiles.cpp"))
    return {"kernel.cpp": re.sub(r"(constexpr int MR = )\d+", rf"\g<1>{mr}", text)}


@pytest.mark.slow
def test_plans_and_kernels_become_trials_like_any_other(tmp_path: Path) -> None:
    async def work(ask: Ask) -> tuple[list[str], str]:
        base = await ready(ask)
        ids = await plan(ask, base)
        tickets = [await ask("submit", trial=name, language="cpp", files=tiles(4 + at)) for at, name in enumerate(ids)]
        verdicts = [await judged(ask, ticket) for ticket in tickets]
        assert all(re.search(r"verdict (accept|reject|contained)", verdict) for verdict in verdicts)
        return ids, await judged(ask, await ask("finish"))

    ids, won = served(tmp_path, work, "recipe=dry_run")
    assert re.match(r"winner \d+|\d+ and \d+: a tie", won)
    shown = command(tmp_path, "lineage", "recipe=dry_run")
    assert all(name in shown for name in ids)
    told = command(tmp_path, "lineage", "show", ids[0], "recipe=dry_run")
    assert "idea 0" in told
    assert list((tmp_path / "runs" / "best" / "fp8_gemm" / "dry").iterdir())


@pytest.mark.slow
def test_predictions_are_on_record_before_any_kernel_and_what_is_left_is_written_next_time(tmp_path: Path) -> None:
    async def first(ask: Ask) -> list[str]:
        return await plan(ask, await ready(ask))

    async def second(ask: Ask) -> str:
        await ready(ask)
        (name, *_) = ids
        return await judged(ask, await ask("submit", trial=name, language="cpp", files=tiles(6)))

    ids = served(tmp_path, first, "recipe=dry_run")
    assert ids[0] in served(tmp_path, second, "recipe=dry_run")


@pytest.mark.slow
def test_what_a_client_must_not_do_is_refused_in_one_line(tmp_path: Path) -> None:
    async def refusal(ask: Ask, tool: str, **given: Any) -> str:
        with pytest.raises(Refused) as caught:
            await ask(tool, **given)
        return str(caught.value)

    async def work(ask: Ask) -> None:
        base = await ready(ask)
        assert "no trial '../../etc/passwd'" in await refusal(ask, "lineage_trial", trial="../../etc/passwd")
        assert "no question" in await refusal(ask, "inbox_read", question="../../../etc/passwd")
        assert "no question" in await refusal(ask, "inbox_answer", question="new.md", text="x")
        assert "no experiment '00099'" in await refusal(ask, "submit", trial="00099", language="cpp", files=tiles(4))
        assert "not a kernel's file name" in await refusal(ask, "evaluate", language="cpp", files={"../a.cpp": "x"})
        assert "language 'cobol'" in await refusal(ask, "evaluate", language="cobol", files={"a.cpp": "x"})
        assert "at most" in await refusal(ask, "evaluate", language="cpp", files={"a.cpp": "x" * 500_000})
        assert "no note has the title" in await refusal(ask, "knowledge_read", title="x" * 20)
        assert "kernl" in await refusal(ask, "evaluate", language="cpp", files=tiles(4), kernl="x")
        wrong = [{**experiments(1)[0], "lowest_gain_percent": 9, "highest_gain_percent": 1}]
        assert "gain range" in await refusal(
            ask, "plan", base=base, reference=base, rationale="", avenues=[], experiments=wrong
        )
        other = [{**experiments(1)[0], "novelty": 3}]
        assert "novelty" in await refusal(
            ask, "plan", base=base, reference=base, rationale="", avenues=[], experiments=other
        )
        nan = [{**experiments(1)[0], "innovation": 101}]
        assert "innovation" in await refusal(
            ask, "plan", base=base, reference=base, rationale="", avenues=[], experiments=nan
        )

    served(tmp_path, work, "recipe=dry_run")


NOISY = """
import ctypes, os, time
from ksflow.stages.evaluator.fake import FakeEvaluator
print("imported")
class Noisy(FakeEvaluator):
    def __call__(self, *given):
        print("judging", flush=True)
        os.write(1, b"raw\\n")
        os.system("echo by a child")  # meanwhile SIGINT is ignored
        print("held", flush=True)
        while os.path.exists("hold"):
            time.sleep(0.02)
        return super().__call__(*given)
"""


@pytest.mark.slow
def test_what_a_stage_prints_does_not_spoil_the_protocol_and_neither_does_a_broken_request(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    ask = {"name": "lineage_best", "arguments": {}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        "\x00 no request",
        "[" * 50_000,
        json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": ask}),
    ]
    server = subprocess.Popen(
        [sys.executable, "-m", "ksflow", "mcp", "recipe=dry_run", "evaluator._target_=noisy.Noisy"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdin
    assert server.stdout
    server.stdin.write("\n".join(lines) + "\n")
    server.stdin.flush()
    answers = []
    while not answers or answers[-1].get("id") != 2:
        answers.append(json.loads(server.stdout.readline()))
    rest, errors = server.communicate()
    assert not rest
    assert "Kernel 0" in json.dumps(answers[-1])
    assert "by a child" in errors
    assert "imported" in errors


@pytest.mark.slow
def test_a_kernel_whose_server_was_killed_is_judged_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    given = ("recipe=dry_run", "evaluator._target_=noisy.Noisy")

    async def first(ask: Ask) -> str:
        (name, *_) = await plan(ask, await ready(ask))
        (tmp_path / "hold").touch()
        await ask("submit", trial=name, language="cpp", files=tiles(6))
        children = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "ksflow mcp"], capture_output=True, text=True)
        for pid in children.stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        return name

    async def second(ask: Ask) -> str:
        (tmp_path / "hold").unlink()
        await ready(ask)
        while "not been judged" in (text := await ask("lineage_trial", trial=left)):
            await asyncio.sleep(0.1)
        return text

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tmp_path)
    try:
        left = served(tmp_path, first, *given)
        assert f"Kernel {left}, score" in served(tmp_path, second, *given)
    finally:
        os.environ.pop("PYTHONPATH")
        os.environ |= {"PYTHONPATH": before} if before else {}


@pytest.mark.slow
def test_a_signal_ends_a_server_when_the_judge_is_done_and_a_second_one_at_once(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    (tmp_path / "hold").touch()
    command = [sys.executable, "-m", "ksflow", "mcp", "recipe=dry_run", "evaluator._target_=noisy.Noisy"]
    for second in (signal.SIGINT, None):
        with subprocess.Popen(
            command,
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        ) as server:
            assert server.stderr is not None
            assert any("held" in line for line in server.stderr)
            server.send_signal(signal.SIGTERM)
            assert any("finishing what the judge is at work on" in line for line in server.stderr)
            if second:
                server.send_signal(second)
            else:
                (tmp_path / "hold").unlink()
            assert server.wait(300) == (130 if second else 0)
    assert "accept" in ksflow(tmp_path, "lineage", "recipe=dry_run").stdout


def test_no_two_trials_are_compared_for_a_page_of_a_large_population(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 of them would take minutes."""
    trials = [Trial(f"{n:05}", Origin.SEED, kernel=kernel(f"// {n}"), evaluation=accepted(n)) for n in range(1, 301)]
    study = SimpleNamespace(population=Population(trials), waiting=list)
    tools = SimpleNamespace(_run=SimpleNamespace(remaining_budgets=dict), _study=study)

    def compared(*_: object) -> bool:
        raise AssertionError("two trials are compared")

    monkeypatch.setattr(Trial, "__eq__", compared)
    lines = Tools.lineage_population(cast(Any, tools), limit=200).splitlines()
    assert lines[0].startswith("300 trials; ")
    assert len(lines) == 201


def test_an_answer_in_parts_is_whole_and_nothing_outside_the_inbox_is_read(tmp_path: Path) -> None:
    inbox = InboxFolder(tmp_path)
    (tmp_path / "writer-1.md").write_text("the question")
    (tmp_path / "link.md").symlink_to("/etc/passwd")
    assert inbox.waiting_questions() == ["writer-1.md"]
    with pytest.raises(ConfigError, match=r"no question 'link\.md' waits"):
        inbox.read("link.md")
    with pytest.raises(ConfigError, match="empty answer"):
        inbox.answer("writer-1.md", " ")
    map_parallel(lambda part: inbox.answer("writer-1.md", part, complete=False), ["a" * 100] * 8)
    inbox.answer("writer-1.md", "!")
    assert (tmp_path / "writer-1.answer.md").read_text() == "a" * 800 + "!"
    (tmp_path / "writer-1.answer.md").unlink()
    stale = tmp_path / "writer-1.part.md"
    stale.write_text("of another time")
    os.utime(stale, (1, 1))
    inbox.answer("writer-1.md", "new")
    assert (tmp_path / "writer-1.answer.md").read_text() == "new"


@pytest.mark.slow
def test_the_budget_is_the_servers(tmp_path: Path) -> None:
    async def work(ask: Ask) -> None:
        base = await ready(ask)
        ids = await plan(ask, base)
        assert len(ids) == 2
        for name in ids:
            await judged(ask, await ask("submit", trial=name, language="cpp", files=tiles(int(name))))
        with pytest.raises(Refused, match="evaluations=2 used up"):
            await ask("evaluate", language="cpp", files=tiles(5))

    served(tmp_path, work, "recipe=dry_run", "loop.evaluations=2")


@pytest.mark.slow
def test_several_clients_share_a_run(tmp_path: Path) -> None:
    async def client(ask: Ask, height: int) -> list[str]:
        ids = await plan(ask, await ready(ask))
        tickets = [await ask("submit", trial=name, language="cpp", files=tiles(height + int(name))) for name in ids]
        for ticket in tickets:
            await judged(ask, ticket)
        return ids

    async def both() -> list[list[str]]:
        def one(height: int) -> list[str]:
            found: list[str] = served(tmp_path, lambda ask: client(ask, height), "recipe=dry_run")
            return found

        return await asyncio.gather(asyncio.to_thread(one, 4), asyncio.to_thread(one, 40))

    first, second = asyncio.run(both())
    assert len({*first, *second}) == 6
    shown = command(tmp_path, "lineage", "recipe=dry_run")
    assert all(name in shown for name in (*first, *second))


@pytest.mark.slow
def test_questions_of_a_run_are_answered_in_parts(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "ksflow", "recipe=dry_run", "llm=inbox", "run=asks", "loop.rounds=1"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        inbox = tmp_path / "runs" / "inbox"

        async def work(ask: Ask) -> str:
            while (name := await ask("inbox")).startswith("no question"):
                assert run.poll() is None
                await asyncio.sleep(0.1)
            question = name.splitlines()[0]
            assert "##" in await ask("inbox_read", question=question)
            assert "kept" in await ask("inbox_answer", question=question, text="READ", complete=False)
            assert not list(inbox.glob("*.answer.md"))
            await ask("inbox_answer", question=question, text="Y")
            while not list((inbox / "done").glob("*.answer.md")):
                assert run.poll() is None
                await asyncio.sleep(0.1)
            return next((inbox / "done").glob("*.answer.md")).read_text()

        assert served(tmp_path, work, "recipe=dry_run", "llm=inbox", "run=other") == "READY"
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", folder / "runs/lineage.git", *words], capture_output=True, text=True, check=True
    )
    return done.stdout


def record(folder: Path) -> dict[str, Any]:
    """A run as its lineage has it, commit by commit, without who did it, what they said of it, time and cost."""
    said: dict[str, Any] = {}
    for ref in git(folder, "for-each-ref", "--format=%(refname)", "refs/heads/").split():
        trial = json.loads(git(folder, "show", f"{ref}:trial.json"))["trial"]
        trial["kernel"].pop("report")
        verdict = json.loads(git(folder, "show", f"{ref}:evaluation.json"))["evaluation"]
        form = "--format=%s %(trailers:key=Base,key=Reference,key=Verdict,separator=%x20)"
        said[ref] = {
            "commits": sorted(git(folder, "log", form, ref).splitlines()),
            "files": git(folder, "ls-tree", "-r", "--name-only", ref),
            "trial": {name: value for name, value in trial.items() if name not in ("by", "cost")},
            "verdict": {name: value for name, value in verdict.items() if name != "wall_s"},
        }
    rounds = "refs/ksflow/fp8_gemm/dry/rounds"
    said["rounds"] = git(folder, "log", "--format=%s", rounds)
    said["plan"] = {**json.loads(git(folder, "show", f"{rounds}:plan.json"))["plan"], "by": ""}
    return said


@pytest.mark.slow
@pytest.mark.soak
def test_a_run_on_the_cpu_ends_with_a_winner_whose_record_holds(tmp_path: Path) -> None:
    rows = shipped_path("seeds", "softmax", "02_rows.cpp").read_text()

    async def work(ask: Ask) -> str:
        while True:
            with suppress(Refused):  # the seeds are being judged
                base = await ready(ask)
                break
        ids = await plan(ask, base)
        broken = await judged(ask, await ask("submit", trial=ids[0], language="cpp", files={"k.cpp": "int x = ;"}))
        assert "verdict compile-error" in broken
        cosine = {"k.cpp": rows.replace("expf(", "cosf(")}
        wrong = await judged(ask, await ask("evaluate", language="cpp", files=cosine))
        assert "reject-incorrect" in wrong
        assert not [word for word in ("expected", "seed", "/judge", str(shipped_path())) if word in wrong]
        raises = {"k.py": "import sys\nprint(sys.path)\ndef custom_kernel(data):\n    raise ValueError"}
        failed = await judged(ask, await ask("evaluate", language="python", files=raises))
        assert "ValueError" in failed
        assert not [
            word for word in (str(shipped_path()), str(PACKAGE), sys.prefix, str(Path.home())) if word in failed
        ]
        again = {"k.cpp": f"// once more\n{rows}\nstatic int unused_here = 1;\n"}
        right = await judged(ask, await ask("submit", trial=ids[1], language="cpp", files=again))
        assert "verdict accept" in right
        return await judged(ask, await ask("finish"))

    won = served(tmp_path, work, "problem=softmax")
    winner = re.match(r"winner (\d+): ", won)
    assert winner, won
    assert "holds" in command(tmp_path, "verify", winner[1], "problem=softmax")


@pytest.mark.parametrize(
    ("name", "file"),
    [("claude", ".claude/skills"), ("codex", ".agents/skills"), ("gemini", ".gemini/skills")],
)
def test_the_skill_lies_where_the_agent_looks_and_names_tools_that_there_are(
    tmp_path: Path, name: str, file: str
) -> None:
    said = command(tmp_path, "skill", "install", name)
    text = (tmp_path / file / "ksflow" / "SKILL.md").read_text()
    assert text.startswith("---\nname: ksflow\ndescription: ")
    assert f"ksflow mcp install {name} problem=" in said
    tools = {tool for tool in re.findall(r"`(\w+)`", text) if tool != "ksflow"}
    assert tools <= set(vars(Tools))
    assert {"plan", "submit", "result", "finish"} <= tools
