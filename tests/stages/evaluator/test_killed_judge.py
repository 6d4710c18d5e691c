"""Judges, their zygotes and whoever started them, killed: each is replaced, nobody is blamed, and no box is left."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator import toy
from evaluator.test_containment import HANGS, processes
from ksflow.errors import ConfigError
from ksflow.evaluation.compilers import sanitized
from ksflow.evaluation.judge.buffers import Buffers, BufferSizes
from ksflow.evaluation.judge.failure import Failure
from ksflow.evaluation.judge.sandboxed import Sandbox, SandboxSpec
from ksflow.evaluation.sandbox import linux, supervisor
from ksflow.kernels.hardware import target
from ksflow.records import Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator


def gone(mark: str) -> None:
    """Wait until no process has it: what dies with its parent dies a moment later."""
    end = time.monotonic() + 100
    while processes(mark):
        assert time.monotonic() < end, processes(mark)
        time.sleep(0.02)


def killed_soon(evaluator: LocalEvaluator, after_s: float) -> Callable[[], None]:
    """Kill the evaluator's judge in a moment."""
    pid = evaluator._slots[0].judge.pid
    timer = threading.Timer(after_s, lambda: os.kill(pid, signal.SIGKILL))
    timer.start()
    return timer.join


@pytest.mark.slow
def test_killed_judge_is_replaced(evaluator: LocalEvaluator, problem: Problem) -> None:
    assert evaluator(problem, toy.RIGHT_CPP, ()).accepted
    join = killed_soon(evaluator, 0.3)
    assert evaluator(replace(problem, limits=toy.HASTY), HANGS["n1"], ()).verdict is Verdict.TIMEOUT
    join()
    assert evaluator(problem, toy.RIGHT_CPP, ()).accepted


@pytest.mark.slow
def test_a_judge_that_is_stopped_answers_at_once_and_judges_nothing_more(tmp_path: Path) -> None:
    evaluator = LocalEvaluator(target.detect())
    evaluator.start()
    threading.Timer(0.1, evaluator.stop).start()  # whatever the judge is at then
    for _ in range(2):
        verdict = evaluator(toy.problem(tmp_path), HANGS["n1"], ())
        assert (verdict.verdict, verdict.reason) == (Verdict.HARNESS, "the judge was stopped")


def test_a_crash_is_a_verdict_though_nobody_can_say_where_it_crashed(
    evaluator: LocalEvaluator, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def where(*_: object) -> str:
        raise ConfigError("the process that runs compilers does not answer")

    monkeypatch.setattr(sanitized, "locate_crash", where)
    found = evaluator(problem, toy.cpp("abort();"), ())
    assert found.verdict is Verdict.CRASH
    assert "SIGABRT" in found.reason


@pytest.mark.slow
def test_killed_zygotes_are_replaced(evaluator: LocalEvaluator, problem: Problem) -> None:
    assert evaluator(problem, toy.RIGHT_CPP, ()).accepted
    judge = evaluator._slots[0].judge.pid
    children = Path(f"/proc/{judge}/task/{judge}/children").read_text().split()
    assert children
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    assert evaluator(problem, toy.RIGHT_CPP, ()).accepted
    assert evaluator(problem, toy.RIGHT_PYTHON, ()).accepted


@pytest.mark.slow
def test_judge_that_keeps_dying_is_nobodys_fault(tmp_path: Path) -> None:
    broken = toy.problem(tmp_path)
    (tmp_path / "reference.py").write_text("import os\nos.write(2, b'sorry')\nos._exit(9)\n")
    result = LocalEvaluator(target.detect())(broken, toy.RIGHT_PYTHON, ())
    assert result.verdict is Verdict.HARNESS
    assert "judge" in result.reason
    assert result.evidence.log == "sorry"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    return torch.add", "    raise SystemExit(3)\n    return torch.add", "SystemExit: 3 (reference.py, line "),
        ('{"expected": a + b', '{"expected": a + b * torch.rand(())', "reference.py draws at random"),
    ],
)
def test_a_reference_that_ends_or_draws_at_random_is_named(
    tmp_path: Path, evaluator: LocalEvaluator, problem: Problem, old: str, new: str, said: str
) -> None:
    broken = toy.problem(tmp_path)
    oracle = "    a, b = data[0].double()"
    code = toy.REFERENCE.replace(oracle, f"    ref_kernel(data)\n{oracle}").replace(old, new)
    (tmp_path / "reference.py").write_text(code)
    result = evaluator(broken, toy.RIGHT_PYTHON, ())
    assert result.verdict is Verdict.HARNESS
    assert said in result.reason
    assert evaluator(problem, toy.RIGHT_PYTHON, ()).accepted


@pytest.mark.parametrize("artefact", [__file__, "/nowhere"])
def test_a_sandbox_that_no_zygote_takes_leaves_nothing_open(artefact: str) -> None:
    control, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    zygote.close()
    buffers = Buffers(BufferSizes(4096, 4096))
    buffers.clear()
    before = len(os.listdir("/proc/self/fd"))
    with control, pytest.raises(Failure, match="no sandbox can be started"):
        Sandbox(SandboxSpec(control, "python", {"kernel.py": ""}, artefact), buffers)
    assert len(os.listdir("/proc/self/fd")) == before - 1


BROKEN = """
from ksflow.evaluation.sandbox import zygote
control = zygote.spawn("broken")
zygote.wait(control)
from ksflow.evaluation.judge.buffers import Buffers, BufferSizes
from ksflow.evaluation.judge.sandboxed import Sandbox, SandboxSpec
from ksflow.evaluation.judge.failure import Failure
spec = SandboxSpec(control, "python", {"kernel.py": "raise ImportError"})
with Sandbox(spec, Buffers(BufferSizes(4096, 4096))) as box:
    try:
        box.wait_ready(300)
    except Failure as failure:
        print(failure.kind, failure.text)
"""


@pytest.mark.slow
def test_box_whose_own_code_does_not_load_blames_no_kernel(tmp_path: Path) -> None:
    missing = 'import sys\nsys.modules["ksflow.evaluation.sandbox.runners.torch_kernel"] = None\n'
    (tmp_path / "broken.py").write_text(missing, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", BROKEN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.stdout.startswith("harness import of ksflow.evaluation.sandbox.runners.torch_kernel halted"), (
        done.stderr
    )


@pytest.mark.slow
def test_boxes_die_with_the_judge(evaluator: LocalEvaluator, problem: Problem, folder: Path) -> None:
    mark = f"{folder}/survivor"
    body = f"import os\nos.execvp('sh', ['sh', '-c', 'sleep 1000; : {mark}'])"
    join = killed_soon(evaluator, 0.7)
    result = evaluator(replace(problem, limits=toy.HASTY), toy.python(body), ())
    join()
    assert result.verdict is Verdict.TIMEOUT
    gone(mark)


@pytest.mark.slow
def test_no_kernel_is_blamed_for_the_null_kernels_end(problem: Problem) -> None:
    made = LocalEvaluator(target.detect())
    try:
        assert made(problem, toy.slow(1000), ()).accepted
        *_, null = linux.descendants(made._slots[0].judge.pid)  # between judgements no other box is there
        os.kill(null, signal.SIGKILL)
        result = made(problem, toy.RIGHT_CPP, ())  # has more calls in a turn: nothing is known of such turns yet
    finally:
        made.close()
    assert result.accepted, result.reason


@pytest.mark.slow
def test_judge_dies_with_this_process(tmp_path: Path) -> None:
    code = (
        "import sys, time; from ksflow.kernels.hardware import target\n"
        "from ksflow.stages.evaluator.local import LocalEvaluator\n"
        "made = LocalEvaluator(target.detect()); print(made._slots[0].judge.pid, flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        time.sleep(0.5)
        parent.kill()
    end = time.monotonic() + 100
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid: int) -> bool:
    """Running, and no zombie that nobody has reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_a_supervisor_ends_with_its_judge_whatever_came_before() -> None:
    """An order of the judge that arrives together with a message of the sandbox, which the order reads first."""
    (judge, ours), (status, init) = (socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    with ours, judge, status, init, subprocess.Popen(["sleep", "100"]) as candidate:
        order = {"memory_mb": 64, "level": "full", "folder": ""}
        watching = supervisor._Supervisor(order, judge, status, candidate.pid, None)
        watching.candidate = candidate.pid
        init.send(b"stopped 19")
        ours.send(b"lock")
        running = threading.Thread(target=watching.run, daemon=True)
        running.start()
        while not ours.recv(1024).startswith(b"locked"):
            pass
        ours.shutdown(socket.SHUT_RDWR)
        running.join(10)
        ended = not running.is_alive()
        init.send(b"stopped 19")  # else a supervisor that waits for a message keeps the test
        candidate.kill()
    assert ended
