"""The compiler box: cache, errors, limits, and the sentence for a machine without a compiler."""

import os
import shutil
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.evaluation.compilers import client, cpp
from ksflow.evaluation.sandbox.levels import probe
from ksflow.integrate.handover.loader import host_code
from ksflow.kernels.hardware import target
from ksflow.kernels.problem.loader import load
from ksflow.kernels.source.tunables import assign, effective_values, tunables, values
from ksflow.records import Kernel, Limits, Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

from . import toy
from .conftest import Judge


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KSFLOW_CACHE", str(tmp_path / "cache"))
    return home.cache("build")


def build(problem: Problem, kernel: Kernel, march: str | None = None) -> client.BuildResult:
    return cpp.compile_kernel(problem, kernel, target.detect(march=march))


BARE = toy.cpp(
    "out[0] = a[0] + UNIT * helper(b[0]);", "const int UNIT = 1; static float helper(float x) { return x * 2; }"
)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (("helper", "double_of"), True),
        (("// kernel", "// another comment\n\n"), True),
        (("UNIT = 1", "UNIT = 1, UNREAD = 7"), True),
        (("x * 2", "x * 3"), False),
        (("a[0] +", "a[1] +"), False),
        (("UNIT = 1;", "UNIT = 1; extern const char more[]; const char more[] = {65};"), False),
    ],
)
def test_code_has_a_name_that_changes_with_anything_the_sandbox_would_be_given(
    evaluator: LocalEvaluator, problem: Problem, change: tuple[str, str], same: bool
) -> None:
    text = f"// kernel\n{BARE.main}"
    other = text.replace(*change)
    assert other != text
    codes = {evaluator.code(problem, Kernel("cpp", {"kernel.cpp": one})) for one in (text, other)}
    assert len(codes) == (1 if same else 2)
    assert "" not in codes


def test_code_that_cannot_be_compiled_or_is_a_source_has_no_name(evaluator: LocalEvaluator, problem: Problem) -> None:
    assert evaluator.code(problem, toy.RIGHT_PYTHON) == evaluator.code(problem, toy.cpp("return 1")) == ""


PACKED = (("naive", "scalar"), ("ikj", "scalar"), ("dot", "vector"), ("outer", "scalar"), ("amx", "vector"))
FORMS = [
    ("fp8_gemm", "03_tiles.cpp", {"FORM": form, "PACK": pack})
    for form, pack in (
        ("naive", "scalar"),
        ("ikj", "scalar"),
        ("dot", "vector"),
        ("outer", "scalar"),
        ("amx", "vector"),
    )
] + [
    ("softmax", "02_rows.cpp", {"FORM": form, "METHOD": method, "PASSES": passes, "SHIFT": shift})
    for form, method, passes, shift in (("scalar", "library", "online", "none"), ("vector", "poly", "fused", "maximum"))
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "file", "form"), FORMS)
def test_what_a_seed_says_does_not_count_changes_no_code(name: str, file: str, form: dict[str, str]) -> None:
    problem = load(name, "cpu")
    text = assign(next(seed.kernel.main for seed in problem.seeds if seed.name == file), form)
    counts, usual = effective_values(tunables(text), values(text)), target.detect(march="sapphirerapids")

    def code(text: str) -> bytes:
        built = cpp.compile_kernel(problem, Kernel("cpp", {"kernel.cpp": text}), usual)
        return Path(built.artefact).read_bytes() if built.artefact else pytest.fail(built.reason + built.log)

    idle = [tunable for tunable in tunables(text) if tunable.name not in counts]
    assert code(text) == code(assign(text, {tunable.name: tunable.options[-1] for tunable in idle}))


def test_second_compile_is_a_cache_hit(problem: Problem, own_cache: Path) -> None:
    first, second = build(problem, toy.RIGHT_CPP), build(problem, toy.RIGHT_CPP)
    assert Path(first.artefact).is_file()
    assert not first.cached
    assert second.cached
    assert first.artefact == second.artefact
    other = build(replace(problem, defines={"N": 2}), toy.RIGHT_CPP)
    assert not other.cached
    assert list(own_cache.rglob("tmp-*")) == []


def test_what_was_changed_in_the_cache_is_made_again(
    problem: Problem, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name alone says nothing of what is in it: a kernel that runs as this user can write there."""
    made = Path(build(problem, toy.RIGHT_CPP).artefact)
    whole, wrong = made.read_bytes(), toy.cpp("nonsense")

    def replaced() -> None:
        made.write_bytes(b"other")

    def linked() -> None:
        made.rename(made.with_name("elsewhere"))
        made.symlink_to("elsewhere")

    for change in (replaced, linked, lambda: made.chmod(0o666)):
        change()
        assert not build(problem, toy.RIGHT_CPP).cached
        assert made.read_bytes() == whole
        assert build(problem, toy.RIGHT_CPP).cached
    assert not build(problem, wrong).cached
    assert build(problem, wrong).cached
    next(own_cache.rglob("*.log")).write_text("kernel.cpp:1:1: error: another")
    assert "nonsense" in build(problem, wrong).reason
    monkeypatch.setattr(client, "_DIGESTS", {})
    assert client._is_kept(made)
    monkeypatch.setattr(client, "_DIGESTS", {})
    monkeypatch.setattr(client, "_HELD", ())  # as where no level that holds kernels is reached
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert not client._is_kept(made)


@pytest.mark.slow
def test_an_artefact_that_changed_after_it_was_compiled_is_not_loaded(
    evaluator: LocalEvaluator, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = cpp.compile_kernel(problem, toy.slow(77), evaluator.target)
    assert client.digest_of(built.artefact)
    monkeypatch.setattr(evaluator, "_build", lambda *_: built)
    Path(built.artefact).write_bytes(
        Path(cpp.compile_kernel(problem, toy.RIGHT_CPP, evaluator.target).artefact).read_bytes()
    )
    found = evaluator.judge_correctness(problem, toy.slow(77))
    assert found.verdict is Verdict.HARNESS
    assert "is not what was compiled" in found.reason


def test_defines_and_target_reach_the_compiler(problem: Problem, own_cache: Path) -> None:
    kernel = toy.cpp("#if N != 2\n#error no N\n#endif\n#ifdef __AVX512F__\n#error too much\n#endif\n" + toy.LOOP)
    assert build(replace(problem, defines={"N": 2}), kernel, "x86-64-v3").artefact
    assert "no N" in build(problem, kernel, "x86-64-v3").reason


@pytest.mark.slow
def test_a_kernel_gets_the_flags_that_it_may_ask_for_and_no_others(
    judge: Judge, problem: Problem, own_cache: Path
) -> None:
    text = "constexpr int ERRNO = 1;  // tune: 0 1\n// flags: -fno-math-errno if not ERRNO\n"
    asking = toy.cpp(f"{text}#ifndef __NO_MATH_ERRNO__\n#error it is set\n#endif\n{toy.LOOP}")
    assert "it is set" in build(problem, asking).reason
    quiet = Kernel("cpp", {"kernel.cpp": assign(asking.main, {"ERRNO": "0"})})
    assert build(problem, quiet).artefact
    assert "['-fno-math-errno']" in host_code(problem, target.detect(), quiet)
    for flag in ("-ffast-math", "-Wl,-rpath=/tmp", "@/etc/passwd", "-fplugin=x.so", "-mprefer-vector-width=1"):
        result = judge(toy.cpp(f"// flags: -funroll-loops {flag}\n{toy.LOOP}"))
        assert result.verdict is Verdict.COMPILE
        assert f"{flag} is not among those a kernel may ask for: -funroll-loops" in result.reason
    assert "cannot be computed" in build(problem, toy.cpp(f"// flags: -funroll-loops if 1 / 0\n{toy.LOOP}")).reason


@pytest.mark.slow
def test_error_is_trimmed_to_what_matters(judge: Judge, own_cache: Path) -> None:
    result = judge(toy.cpp("int x = missing;\n" * 500))
    assert result.verdict is Verdict.COMPILE
    assert "'missing' was not declared" in result.reason or "undeclared" in result.reason
    assert len(result.evidence.log) <= 4000
    assert "tmp-" not in result.evidence.log
    again = judge(toy.cpp("int x = missing;\n" * 500))
    assert again.reason == result.reason


def test_unresolved_symbol_is_a_compile_error(judge: Judge) -> None:
    result = judge(toy.cpp("nowhere();", "void nowhere();"))
    assert result.verdict is Verdict.COMPILE
    assert "nowhere" in result.reason


def test_endless_compile_is_cut_off(problem: Problem, own_cache: Path) -> None:
    deep = "template <int N> struct F { static constexpr long v = F<N-1>::v + F<N-2>::v; };"
    loop = "constexpr long spin() { long s = 0; for (long i = 0; i < 20000000; i++) s += i; return s; }"
    body = "\n".join(f"static_assert(spin() + {i} >= 0);" for i in range(200))
    kernel = toy.cpp(body, f"{deep}\n{loop}")
    limits = Limits(compile_s=0.5)
    built = cpp.compile_kernel(replace(problem, limits=limits), kernel, target.detect())
    assert built.timed_out or "constexpr" in built.log
    assert list(own_cache.rglob("tmp-*")) == []


@pytest.mark.skipif(probe().level not in ("full", "userns", "landlock"), reason="a box sees the user's files here")
def test_of_a_compiler_in_a_home_only_its_own_parts_are_shown(
    problem: Problem, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.which("g++") or pytest.skip("needs g++")
    with tempfile.TemporaryDirectory(prefix="ksflow-test-", dir="/var/tmp") as name:
        at_home = Path(name, "bin", "g++")
        at_home.parent.mkdir()
        at_home.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
        Path(name, "include").mkdir()
        for place, text in (("bin/token", "word"), ("token", "word"), ("include/own.h", "#define OWN 1")):
            Path(name, place).write_text(text)
        for path in (Path(name), at_home, *Path(name).iterdir()):
            path.chmod(0o755)
        monkeypatch.setenv("PATH", str(at_home.parent), prepend=os.pathsep)
        cpp.find.cache_clear()
        try:
            assert build(problem, toy.cpp(toy.LOOP, f'#include "{name}/include/own.h"')).artefact
            for hidden in ("token", "bin/token"):
                built = build(problem, toy.cpp(toy.LOOP, f'#include "{name}/{hidden}"'))
                assert "No such file" in built.reason or "denied" in built.reason, built
        finally:
            monkeypatch.undo()
            cpp.find.cache_clear()


HIDDEN = {
    "include": '#include "{path}"',
    "incbin": 'asm(".incbin \\"{path}\\"");',
}


@pytest.mark.skipif(probe().level == "rlimits", reason="needs a list of the files that a box may read")
@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN.keys())
def test_compiler_cannot_read_the_users_files(problem: Problem, own_cache: Path, text: str) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        secret = Path(folder, "secret.h")
        secret.write_text("#error sesame\n")
        Path(folder).chmod(0o755)
        built = build(problem, toy.cpp(toy.LOOP, text.format(path=secret)))
    assert not built.artefact
    assert "sesame" not in built.log
    assert "secret.h" in built.log


@pytest.mark.slow
def test_memory_of_a_compiler_is_limited(problem: Problem, own_cache: Path) -> None:
    limits = Limits(compile_s=20, memory_mb=256)
    built = build(replace(problem, limits=limits), toy.cpp(toy.LOOP, '#include "/dev/zero"'))
    assert not built.artefact
    assert "memory" in built.reason
    assert list(own_cache.rglob("*.log")) == []


def test_killed_compile_server_is_replaced(problem: Problem, own_cache: Path) -> None:
    assert build(problem, toy.slow(4)).artefact
    child = client.SHARED_SERVER._child
    assert child is not None
    os.kill(child.pid, 9)
    assert build(problem, toy.slow(5)).artefact


def test_unknown_march_is_a_sentence(problem: Problem, own_cache: Path) -> None:
    with pytest.raises(ConfigError, match=r"^target.march=x86-64-v33: \S+ does not know it; [^\n]+$"):
        build(problem, toy.RIGHT_CPP, "x86-64-v33")


def test_cache_forgets_what_nobody_used(problem: Problem, own_cache: Path) -> None:
    old, used = own_cache / "ab" / "old.so", own_cache / "ab" / "used.so"
    old.parent.mkdir(parents=True)
    for file in (old, used):
        file.write_bytes(b"x")
    os.utime(old, (1, 1))
    build(problem, toy.RIGHT_CPP)
    assert used.exists()
    assert not old.exists()


def test_two_at_once_share_the_cache(problem: Problem, own_cache: Path) -> None:
    results: list[client.BuildResult] = []
    threads = [threading.Thread(target=lambda: results.append(build(problem, toy.slow(3)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({built.artefact for built in results}) == 1
    assert len(list(own_cache.rglob("*.so"))) == 1


def test_no_compiler_is_a_sentence(
    problem: Problem, own_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cpp.find.cache_clear()
    try:
        if cpp.find() is None:
            with pytest.raises(ConfigError, match=r"apt install g\+\+, or pip install ksflow\[compiler\]"):
                build(problem, toy.RIGHT_CPP)
    finally:
        monkeypatch.undo()
        cpp.find.cache_clear()


@pytest.mark.skipif(probe().level != "full", reason="needs root, and namespaces")
def test_a_device_that_only_a_group_may_use_is_open_to_the_box_it_is_given_to() -> None:
    folder = Path("/dev", f"ksflow-{os.getpid()}")
    folder.mkdir()
    try:
        for name, mode in (("render", 0o660), ("card", 0o600)):
            (folder / name).write_text(f"this is {name}\n")
            os.chown(folder / name, 0, 4242)
            (folder / name).chmod(mode)
        command = ["/bin/sh", "-c", f"cat {folder}/render; cat {folder}/card; id -G"]
        order = {"level": "full", "command": command, "makes": "", "environment": {}, "memory_mb": 512, "cpu_s": 60}
        order |= {"disk_mb": 1, "devices": [f"{folder}/render", f"{folder}/card"]}
        request = {"files": {}, "order": order, "wall_s": 60, "into": ""}
        log = str(client.SHARED_SERVER.ask(request, 60)["log"])
    finally:
        shutil.rmtree(folder)
    assert "this is render" in log
    assert "this is card" not in log
    assert log.split()[-1] == "4242"
