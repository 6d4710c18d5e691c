"""Nothing stands still: whatever hangs is given up in time, and the right one is named for it."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import again, until

from ksflow.errors import ConfigError, LineageError
from ksflow.evaluation.compilers import client, cpp
from ksflow.evaluation.judge.evaluator import LocalJudge
from ksflow.evaluation.processes import wire
from ksflow.evaluation.processes.deadline import end_process, killed_after, locked_within
from ksflow.kernels.hardware.target import detect
from ksflow.lineage import Lineage, locks
from ksflow.lineage.git_processes import Git
from ksflow.lineage.store import Store
from ksflow.records import Problem, Verdict

from . import toy


def children(pid: int) -> list[int]:
    """Those of a process' first thread."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_read_ends_with_the_process_that_it_waits_for() -> None:
    process = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; sleep 1000 & wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout
    with killed_after(process, 0.3) as watch:
        assert process.stdout.read() == b"" or watch.expired
    process.stdout.close()
    assert process.wait(60) == -signal.SIGKILL
    with killed_after(process, 1000) as watch:
        pass
    assert not watch.expired


def test_a_process_that_does_not_end_is_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    os.kill(process.pid, signal.SIGSTOP)
    end_process(process, 0.1)
    assert process.returncode == -signal.SIGKILL


def test_a_lock_is_waited_for_as_long_as_one_is_told(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as mine, (tmp_path / "lock").open("w") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        assert not locked_within(mine.fileno(), 0.1)
        fcntl.flock(theirs, fcntl.LOCK_UN)
        assert locked_within(mine.fileno(), 0.1)


def test_a_message_that_nobody_reads_is_given_up() -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(wire.Closed, match="accepted no message in time"):
            wire.send(writer, {"text": "x" * (1 << 20)}, 0.2)
        with pytest.raises(wire.Closed, match=wire.LATE):
            wire.receive(writer_to_nobody := os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY), 0.1)
        os.close(writer_to_nobody)
    finally:
        os.close(reader)
        os.close(writer)


HELD = """
import os, signal, sys, time
from ksflow.evaluation.sandbox import zygote
control = zygote.spawn()
zygote.wait(control)
me = os.getpid()
(child,) = open(f"/proc/{me}/task/{me}/children").read().split()
from ksflow.evaluation.judge.buffers import Buffers, BufferSizes
from ksflow.evaluation.judge.sandboxed import Sandbox, SandboxSpec
from ksflow.evaluation.judge.failure import Failure

def tried(what, *arguments):
    try:
        what(*arguments)
        print("fine")
    except Failure as failure:
        print(failure.kind, failure.text)

spec = SandboxSpec(control, "cpp", {}, sys.argv[1], supervisor_s=5.0)
with Sandbox(spec, Buffers(BufferSizes(4096, 4096))) as box:
    tried(box.wait_ready, 120)
    (supervisor,) = open(f"/proc/{child}/task/{child}/children").read().split()
    os.kill(int(supervisor), signal.SIGSTOP)
    tried(box.keep_one_process)
    os.kill(int(supervisor), signal.SIGCONT)
spec = SandboxSpec(control, "cpp", {}, sys.argv[3])
with Sandbox(spec, Buffers(BufferSizes(4096, 4096))) as box:
    tried(box.wait_ready, 120)
    (supervisor,) = open(f"/proc/{child}/task/{child}/children").read().split()
    begun = sum(map(int, open(f"/proc/{supervisor}/stat").read().split()[13:15]))
    time.sleep(1)
    spent = sum(map(int, open(f"/proc/{supervisor}/stat").read().split()[13:15])) - begun
    print("its supervisor waits" if spent < 10 else f"its supervisor is busy: {spent} ticks of 100")
spec = SandboxSpec(control, "cpp", {}, sys.argv[2])
with Sandbox(spec, Buffers(BufferSizes(4096, 4096))) as box:
    tried(box.wait_ready, 1)
os.kill(int(child), signal.SIGSTOP)
spec = SandboxSpec(control, "cpp", {}, sys.argv[1], supervisor_s=0.5)
with Sandbox(spec, Buffers(BufferSizes(4096, 4096))) as box:
    box.supervisor.settimeout(0.1)
    tried(box.wait_ready, 120)
    os.kill(int(child), signal.SIGCONT)
"""


@pytest.mark.slow
def test_kernel_supervisor_and_zygote_that_hang_are_told_apart(problem: Problem) -> None:
    right = cpp.compile_kernel(problem, toy.RIGHT_CPP, detect())
    start = "#include <unistd.h>\nstatic int wait = [] { for (;;) pause(); return 0; }();\n"
    hangs = cpp.compile_kernel(problem, toy.cpp(toy.LOOP, start), detect())
    leaves = cpp.compile_kernel(problem, toy.cpp(toy.LOOP, start.replace("for (;;) pause()", "_exit(3)")), detect())
    command = [sys.executable, "-c", HELD, right.artefact, hangs.artefact, leaves.artefact]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert said.stdout.splitlines() == [
        "fine",
        "harness its supervisor does not answer",
        "exit exited with status 3",
        "its supervisor waits",
        "timeout no answer in time",
        "harness it did not start: its zygote or its supervisor does not respond",
    ], said.stderr


@pytest.mark.slow
def test_a_reference_that_hangs_is_nobodys_fault_but_its_own(tmp_path: Path) -> None:
    problem = toy.problem(tmp_path, replace(toy.HASTY, check_s=1, time_s=1))
    file = tmp_path / "reference.py"
    file.write_text(
        file.read_text().replace("def oracle(data):", "def oracle(data):\n    import time; time.sleep(1e6)")
    )
    judge = LocalJudge(detect())
    judge.grace_s = 8
    try:
        found = judge(problem, toy.RIGHT_PYTHON, ())
        assert found.verdict is Verdict.HARNESS
        assert "the machine or the problem's reference" in found.reason
        assert "(14 s)" in found.reason
    finally:
        judge.close()


@pytest.mark.slow
def test_who_waits_without_using_the_cpu_is_not_taken_for_an_endless_loop(tmp_path: Path) -> None:
    judge = LocalJudge(detect())
    try:
        waits = toy.cpp(f"static bool once = (sleep(7), true);\n{toy.LOOP}")
        assert judge.judge_correctness(toy.problem(tmp_path), waits).verdict is Verdict.UNTIMED
        loops = judge.judge_correctness(toy.problem(tmp_path), toy.cpp("for (;;) out[0] += a[0];"))
        assert loops.verdict is Verdict.TIMEOUT
        assert loops.reason.startswith("check, at n1: an endless loop? no answer after ")
    finally:
        judge.close()


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A g++ that knows its version, and nothing else."""
    script = tmp_path / "bin" / "g++"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "g++ 99.1" && exit\nexec sleep 1000\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(cpp, "_TRIVIAL_S", 1.0)
    cpp.find.cache_clear()
    yield
    cpp.find.cache_clear()


def test_a_compiler_that_hangs_is_named(problem: Problem, hanging: None) -> None:
    with pytest.raises(ConfigError, match=r"bin/g\+\+ does not compile an empty file within 1 s: repair it"):
        cpp.compile_kernel(problem, toy.RIGHT_CPP, detect())


def boxed(made: Path, *command: str, limit: float) -> dict[str, Any]:
    return client.box_request(command, {}, made, limit, 256)


@pytest.mark.slow
@pytest.mark.soak
def test_boxes_that_hang_name_the_command_the_supervisor_or_the_server(tmp_path: Path) -> None:
    server, made = client.CompileServer(grace_s=30), tmp_path / "made.so"
    answer = server.ask(boxed(made, "sleep", "1000", limit=1), 1)
    assert client.outcome(answer, str(made), 1, 256).reason == "compile: took longer than 1 s"
    answers: list[dict[str, Any]] = []
    asked = threading.Thread(target=lambda: answers.append(server.ask(boxed(made, "sleep", "1000", limit=4), 4)))
    asked.start()
    (supervisor,) = until(lambda: children(server.pid))
    os.kill(supervisor, signal.SIGSTOP)
    asked.join(120)
    with suppress(ProcessLookupError):  # the server may have ended it by now
        os.kill(supervisor, signal.SIGCONT)
    with pytest.raises(ConfigError, match="the compiler's sandbox does not start: its supervisor does not respond"):
        client.outcome(answers[0], str(made), 4, 256)
    server = client.CompileServer(grace_s=0)
    server.ask(boxed(made, "true", limit=15), 60)
    os.kill(first := server.pid, signal.SIGSTOP)
    assert "exit" in server.ask(boxed(made, "true", limit=15), 15)["words"]
    assert server.pid != first


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git's processes have a second."""
    monkeypatch.setattr(Git, "patience_s", 1.0)


@pytest.mark.slow
def test_git_that_hangs_is_named_and_started_anew(tmp_path: Path, hasty: None) -> None:
    store = Store(tmp_path / "x.git")
    commit = store.commit({"a": b"1"}, (), "text", 1)

    def stopped(process: Any) -> None:
        os.kill(process.pid, signal.SIGSTOP)

    for _ in range(2):
        store.read(commit)
        stopped(store._repo.git.cat_file_all.proc)
        with pytest.raises(LineageError, match=r"git cat-file \(process \d+\) gave no answer in 1 s and was ended"):
            store.read(commit)
        assert store.read(commit)
    with pytest.raises(LineageError, match=r"git -c failed: .*did not complete in 1 secs"):
        store._git("-c", "alias.hang=!sleep 1000", "hang")
    stopped(store._repo.git.cat_file_all.proc)
    store.close()  # does not wait for it


def test_a_session_that_another_process_never_opens_is_named(lineage: Lineage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_TURN_S", 0.2)
    assert again(lineage).claims.acquire("sessions")
    with pytest.raises(LineageError, match="another process has been opening a session"):
        lineage.open_session("a: 1\n")
