"""Kernels that crash, hang, fork, flood and pry: contained, named, and nothing of them is left."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator import toy
from evaluator.conftest import Judge
from ksflow.evaluation.sandbox import cgroup, levels
from ksflow.kernels.hardware import target
from ksflow.records import Kernel, Limits, Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator


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
    assert result.evidence.at == "n1"


@pytest.fixture
def hasty(evaluator: LocalEvaluator, problem: Problem) -> Judge:
    """For kernels that hang."""
    return lambda kernel: evaluator(replace(problem, limits=toy.HASTY), kernel, ())


HANGS = {
    "n1": toy.cpp("for (;;) ;"),
    "import": toy.python("return data[2]", "import time\ntime.sleep(1000)"),
    "import, native": toy.cpp(toy.LOOP, "struct S { S() { pause(); } } s;"),
}


@pytest.mark.parametrize(
    ("place", "kernel"),
    [pytest.param(*row, id=row[0], marks=[] if row[0] == "n1" else pytest.mark.slow) for row in HANGS.items()],
)
def test_hang_is_cut_off(hasty: Judge, place: str, kernel: Kernel) -> None:
    result = hasty(kernel)
    assert result.verdict is Verdict.TIMEOUT
    assert place.partition(",")[0] in result.reason


def test_hang_at_exit_does_not_matter(judge: Judge) -> None:
    before = "import atexit, time\natexit.register(time.sleep, 1000)"
    assert judge(toy.python("return data[0] + data[1]", before)).accepted


def test_orphans_are_killed(judge: Judge, folder: Path) -> None:
    mark = f"{folder}/orphan"
    body = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("orphan", os.getpid(), flush=True)
        os.execv("/bin/sh", ["sh", "-c", "sleep 1000; : {mark}"])
    os._exit(0)
os.wait()
return data[0] + data[1]
"""
    assert "orphan" in judge(toy.python(body)).evidence.log
    assert not processes(mark)


@pytest.mark.slow
def test_fork_bomb_is_contained(hasty: Judge, judge: Judge, folder: Path) -> None:
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
    result = hasty(toy.python(body))
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
    result = judge(toy.python(body))
    assert result.verdict in (Verdict.ACCEPT, Verdict.TIMEOUT)
    log = result.evidence.log
    assert log.startswith("first")
    assert len(log) < 5000


def test_printing_native_kernel_is_logged(judge: Judge) -> None:
    result = judge(toy.cpp('printf("tile %d\\n", (int)n); fflush(stdout); abort();', "#include <cstdio>"))
    assert result.evidence.log == "tile 1\n"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalEvaluator, Path]]:
    """A judge that was started next to a secret, and its folder for temporary files."""
    temporary = tmp_path_factory.mktemp("temporary")
    temporary.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-secret")
        patch.setenv("TMPDIR", str(temporary))
        made = LocalEvaluator(target.detect())
        made.start()
        yield made, temporary
    made.close()


def test_no_secret_reaches_a_kernel(fresh: tuple[LocalEvaluator, Path], problem: Problem) -> None:
    body = """
import os, pathlib
seen = [repr(dict(os.environ))]
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        seen.append(path.read_bytes().decode(errors="replace"))
    except OSError:
        pass
print("OMP_NUM_THREADS" in seen[0], "sk-" + "secret" in "".join(seen), "OPENAI" in "".join(seen), os.environ["HOME"])
return data[0] + data[1]
"""
    result = fresh[0](problem, toy.python(body), ())
    assert result.accepted
    first = result.evidence.log.splitlines()[0].split()
    assert first[:3] == ["True", "False", "False"]
    assert first[3] != os.environ.get("HOME")


def test_folder_of_a_box_is_removed(fresh: tuple[LocalEvaluator, Path], problem: Problem) -> None:
    body = "open('junk', 'w').close()\nos.mkdir('more')\nprint('made')\nreturn data[0] + data[1]"
    result = fresh[0](problem, toy.python(f"import os, tempfile\nos.chdir(tempfile.mkdtemp())\n{body}"), ())
    assert result.accepted
    assert "made" in result.evidence.log
    assert not list(fresh[1].rglob("junk"))
    assert len(list(fresh[1].glob("ksflow-box-*"))) <= 1  # that of the judge's own null kernel


def test_stop_of_itself_is_named(judge: Judge) -> None:
    result = judge(toy.python("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"))
    assert result.verdict in (Verdict.TIMEOUT, Verdict.CRASH)
    assert "stopped" in result.reason
    assert judge(toy.RIGHT_CPP).accepted


@pytest.mark.slow
@pytest.mark.skipif(cgroup.parents() is None, reason="needs control groups that can be written")
def test_memory_of_the_whole_tree_is_limited_and_named(evaluator: LocalEvaluator, problem: Problem) -> None:
    body = """
import os
for _ in range(3):
    if os.fork() == 0:
        break
kept = []
while True:
    kept.append(bytearray(b"x") * (4 << 20))
"""
    small = replace(problem, limits=replace(toy.PATIENT, memory_mb=256))
    result = evaluator(small, toy.python(body), ())
    assert result.verdict is Verdict.CRASH
    assert "used up its memory" in result.reason


@pytest.mark.slow
@pytest.mark.skipif(levels.probe().level not in levels.PRIVATE, reason="needs a file system of the box's own")
def test_full_disk_is_named(evaluator: LocalEvaluator, problem: Problem) -> None:
    body = """
import os
for number in range(1000):
    with open(f"junk{number}", "wb") as file:
        file.write(bytes(8 << 20))
"""
    patient = replace(problem, limits=Limits(check_s=60, time_s=60))  # 512 MB take seconds on a slow machine
    result = evaluator(patient, toy.python(body), ())
    assert result.verdict is Verdict.CRASH
    assert "No space left" in result.reason or "disk" in result.reason


def test_closed_descriptors_are_contained(judge: Judge) -> None:
    assert judge(toy.python("import os\nos.closerange(0, 4096)\nreturn data[0] + data[1]")).verdict is Verdict.CRASH
    assert judge(toy.RIGHT_PYTHON).accepted


def test_flushed_denormals_stay_in_their_box(judge: Judge) -> None:
    before = "#include <xmmintrin.h>\nstruct S { S() { _mm_setcsr(_mm_getcsr() | 0x8040); } } s;"
    assert judge(toy.cpp(toy.LOOP, before)).accepted
    tiny = "for (int64_t i = 0; i < n; i++) { volatile float t = 1e-40f; out[i] = a[i] + b[i] + (t * 1.0f == 0.0f); }"
    assert judge(toy.cpp(tiny)).accepted


def test_a_box_learns_nothing_of_where_the_judges_libraries_lie(evaluator: LocalEvaluator, problem: Problem) -> None:
    body = "print(next(line for line in open('/proc/self/maps') if 'libc.so' in line))\nreturn data[0] + data[1]"
    result = evaluator(problem, toy.python(body), ())
    assert result.accepted, result.reason
    try:
        maps = Path(f"/proc/{evaluator._slots[0].judge.pid}/maps").read_text(encoding="utf-8")
    except PermissionError:
        pytest.skip("not for this user to see")
    judge = next(line for line in maps.splitlines() if "libc.so" in line)
    assert judge.partition("-")[0] != result.evidence.log.partition("-")[0]
