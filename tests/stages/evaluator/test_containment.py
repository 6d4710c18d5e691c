"""Kernels that crash, hang, fork, flood and pry: contained, named, and nothing of them is left."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ksflow import target
from ksflow.records import Kernel, Limits, Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

from . import toy
from .conftest import Judge


def processes(mark: str) -> list[int]:
    """Processes whose command line or environment holds `mark`."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            text = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in text:
            found.append(int(path.name))
    return found


CRASHES = {
    "SIGSEGV": toy.cpp("*(volatile int *)8 = 1;"),
    "SIGABRT": toy.cpp("abort();"),
    "status 0": toy.cpp("exit(0);"),
    "status 3": toy.cpp("_exit(3);"),
    "status 5": toy.python("raise SystemExit(5)"),
    "SIGKILL": toy.python("import os\nos.kill(os.getpid(), 9)"),
}


@pytest.mark.parametrize(("word", "kernel"), CRASHES.items(), ids=CRASHES.keys())
def test_crash_is_named(judge: Judge, word: str, kernel: Kernel) -> None:
    result = judge(kernel)
    assert result.verdict is Verdict.CRASH
    assert word in result.reason
    assert result.evidence["at"] == "n1"


HANGS = {
    "n1": toy.cpp("for (;;) ;"),
    "import": toy.python("return data[2]", "import time\ntime.sleep(1000)"),
    "import, native": toy.cpp(toy.LOOP, "struct S { S() { pause(); } } s;"),
}


@pytest.mark.parametrize(("place", "kernel"), HANGS.items(), ids=HANGS.keys())
def test_hang_is_cut_off(judge: Judge, place: str, kernel: Kernel) -> None:
    started = time.monotonic()
    result = judge(kernel)
    assert result.verdict is Verdict.TIMEOUT
    assert place.partition(",")[0] in result.reason
    assert time.monotonic() - started < 6


def test_hang_at_exit_does_not_matter(judge: Judge) -> None:
    before = "import atexit, time\natexit.register(time.sleep, 1000)"
    assert judge(toy.python("return data[0] + data[1]", before)).accepted


def test_orphans_are_killed(judge: Judge, folder: Path) -> None:
    mark = f"{folder}/orphan"
    body = f"""
import os, subprocess, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv("/bin/sh", ["sh", "-c", "sleep 1000; : {mark}"])
    os._exit(0)
open({mark!r}, "w").close()
return data[0] + data[1]
"""
    judge(toy.python(body))
    assert Path(mark).exists()
    assert not processes(mark)


def test_fork_bomb_is_contained(judge: Judge, folder: Path) -> None:
    mark = f"{folder}/bomb"
    body = f"""
import os
os.environ["MARK"] = {mark!r}
while True:
    try:
        os.fork()
    except OSError:
        os.execvpe("sleep", ["sleep", "1000", {mark!r}], os.environ)
"""
    result = judge(toy.python(body))
    assert result.verdict in (Verdict.TIMEOUT, Verdict.CRASH)
    assert not processes(mark)
    assert judge(toy.RIGHT_CPP).accepted


HOGS = {
    "cpp": toy.cpp("std::vector<char> all(64ull << 30, 1); out[0] = all[n];"),
    "python": toy.python("return bytes(64 << 30)"),
}


@pytest.mark.parametrize("kernel", HOGS.values(), ids=HOGS.keys())
def test_memory_is_limited(judge: Judge, kernel: Kernel) -> None:
    assert judge(kernel).verdict is Verdict.CRASH


def test_flood_of_output_is_drained_and_capped(judge: Judge) -> None:
    body = "print('first')\nfor _ in range(2000): print('x' * 1000)\nprint('last')\nreturn data[0] + data[1]"
    result = judge(replace(toy.python(body), report=""))
    assert result.verdict in (Verdict.ACCEPT, Verdict.TIMEOUT)
    log = result.evidence["log"]
    assert log.startswith("first")
    assert len(log) < 5000


def test_printing_native_kernel_is_logged(judge: Judge) -> None:
    result = judge(toy.cpp('printf("tile %d\\n", (int)n); fflush(stdout); abort();', "#include <cstdio>"))
    assert result.evidence["log"] == "tile 1\n"


def test_no_secret_reaches_a_kernel(
    evaluator: LocalEvaluator, problem: Problem, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    fresh = LocalEvaluator(target.detect())
    body = f"""
import os, pathlib
seen = [repr(dict(os.environ))]
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        seen.append(path.read_bytes().decode(errors="replace"))
    except OSError:
        pass
pathlib.Path({str(folder)!r}, str(os.getpid())).write_text("".join(seen))
return data[0] + data[1]
"""
    assert fresh(problem, toy.python(body), ()).accepted
    seen = "".join(path.read_text() for path in folder.iterdir())
    assert "OMP_NUM_THREADS" in seen
    assert "sk-secret" not in seen
    assert "OPENAI" not in seen


def test_folder_of_a_box_is_removed(judge: Judge, folder: Path) -> None:
    body = f"""
import os
open("junk", "w").close()
os.makedirs(os.path.join({str(folder)!r}, os.path.basename(os.getcwd())), exist_ok=True)
return data[0] + data[1]
"""
    assert judge(toy.python(body)).accepted
    names = [path.name for path in folder.iterdir()]
    assert names
    assert not [name for name in names if Path(tempfile.gettempdir(), name).exists()]


def test_flushed_denormals_stay_in_their_box(judge: Judge) -> None:
    before = "#include <xmmintrin.h>\nstruct S { S() { _mm_setcsr(_mm_getcsr() | 0x8040); } } s;"
    assert judge(toy.cpp(toy.LOOP, before)).accepted
    tiny = "for (int64_t i = 0; i < n; i++) { volatile float t = 1e-40f; out[i] = a[i] + b[i] + (t * 1.0f == 0.0f); }"
    assert judge(toy.cpp(tiny)).accepted


def killed_soon(evaluator: LocalEvaluator, after_s: float) -> Callable[[], None]:
    """Kill the evaluator's judge in a moment."""
    pid = evaluator._judge.pid
    timer = threading.Timer(after_s, lambda: os.kill(pid, signal.SIGKILL))
    timer.start()
    return timer.join


def test_killed_judge_is_replaced(evaluator: LocalEvaluator, problem: Problem) -> None:
    assert evaluator(problem, toy.RIGHT_CPP, ()).accepted
    join = killed_soon(evaluator, 0.3)
    patient = replace(problem, limits=Limits(check_s=1.0, time_s=20))
    assert evaluator(patient, HANGS["n1"], ()).verdict is Verdict.TIMEOUT
    join()
    assert evaluator(problem, toy.RIGHT_CPP, ()).accepted


def test_killed_zygotes_are_replaced(evaluator: LocalEvaluator, problem: Problem) -> None:
    assert evaluator(problem, toy.RIGHT_CPP, ()).accepted
    judge = evaluator._judge.pid
    children = Path(f"/proc/{judge}/task/{judge}/children").read_text().split()
    assert children
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    assert evaluator(problem, toy.RIGHT_CPP, ()).accepted
    assert evaluator(problem, toy.RIGHT_PYTHON, ()).accepted


def test_judge_that_keeps_dying_is_nobodys_fault(tmp_path: Path) -> None:
    broken = toy.problem(tmp_path)
    (tmp_path / "reference.py").write_text("import os\nos.write(2, b'sorry')\nos._exit(9)\n")
    result = LocalEvaluator(target.detect())(broken, toy.RIGHT_PYTHON, ())
    assert result.verdict is Verdict.HARNESS
    assert "judge" in result.reason
    assert result.evidence["log"] == "sorry"


def test_boxes_die_with_the_judge(evaluator: LocalEvaluator, problem: Problem, folder: Path) -> None:
    mark = f"{folder}/survivor"
    body = f"import os\nos.execvp('sh', ['sh', '-c', 'sleep 1000; : {mark}'])"
    join = killed_soon(evaluator, 0.7)
    result = evaluator(replace(problem, limits=Limits(check_s=1.5)), toy.python(body), ())
    join()
    assert result.verdict is Verdict.TIMEOUT
    assert not processes(mark)


def test_judge_dies_with_this_process(tmp_path: Path) -> None:
    code = (
        "import sys, time; from ksflow import target; from ksflow.stages.evaluator.local import LocalEvaluator;"
        "made = LocalEvaluator(target.detect()); print(made._judge.pid, flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        time.sleep(0.5)
        parent.kill()
    end = time.monotonic() + 20
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid: int) -> bool:
    """Running, and no zombie that nobody has reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
