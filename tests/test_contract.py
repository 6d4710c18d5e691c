"""What people and models are told that a kernel must define: bounded, and true for the parser and the compilers."""

import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ksflow.errors import ConfigError
from ksflow.evaluation import compilers
from ksflow.integrate.handover.winner import hand_over
from ksflow.kernels.languages import LANGUAGES, detect_language
from ksflow.kernels.problem.loader import load
from ksflow.kernels.source import launches
from ksflow.kernels.source.contract import contract, short_contract
from ksflow.records import Arg, Case, Kernel, Limits, Origin, Problem, Target, Trial
from ksflow.report import briefing

H200 = Target("h200", "gpu", "NVIDIA H200", march="sm_90a", sizes={"shared": 232448})
MI300X = Target("mi300x", "gpu", "AMD Instinct MI300X", march="gfx942", sizes={"shared": 65536})
NAMES = {"cuda": "sums.cu", "hip": "sums.hip", "triton": "sums.py"}
CASES = {"small": {"m": 40, "n": 100}, "long": {"m": 64, "n": 100_000}, "tall": {"m": 65, "n": 100_000}}
EXAMPLES = {one.name: one.seed.rstrip() for one in LANGUAGES.values() if one.launch_lines and not one.like}


@pytest.fixture
def sums() -> Problem:
    """The problem that the examples are for."""
    cases = tuple(Case(name, params, 1) for name, params in CASES.items())
    return Problem(
        name="sums",
        title="Sums of rows",
        description="y[i] is the sum of row i of x.",
        statement="",
        root="/nowhere",
        reference="",
        languages=("python", "triton", "cuda", "hip"),
        args=(Arg("x", "float32", "in"), Arg("y", "float32", "out")),
        dims=("m", "n"),
        tests=cases[:1],
        benchmarks=cases[1:],
        seeds=(),
        limits=Limits(compile_s=120.0),
    )


@pytest.mark.parametrize("target", [H200, MI300X, None])
@pytest.mark.parametrize("name", ["fp8_gemm", "softmax"])
def test_every_contract_is_short_and_about_this_problem(name: str, target: Target | None) -> None:
    problem = load(name, target=target)
    for spoken in problem.languages:
        text = contract(problem, spoken)
        assert len(text) <= 2500
        assert "custom_kernel" in text
        assert len(short_contract(problem, spoken)) <= 1000
        assert ("launch:" in text) == (spoken in EXAMPLES)
        if spoken in EXAMPLES:
            assert ", ".join(arg.name for arg in problem.args) in text
            assert f"({', '.join(problem.dims)})" in text
            assert EXAMPLES[spoken] in text


def test_on_a_cpu_it_is_told_how_calls_are_timed(sums: Problem) -> None:
    for spoken in ("cpp", "python"):
        text = contract(replace(sums, languages=("python", "cpp")), spoken)
        assert "Each call is timed alone, on one core" in text
        assert "Caches are not flushed" in text
        assert "NUM_THREADS" not in text
        several = contract(replace(sums, languages=("python", "cpp")), spoken, cores=8)
        assert "on 8 cores of its own" in several
        assert "NUM_THREADS is 8" in several
        assert "one core" not in several
        assert "the cache is flushed" in contract(sums, "cuda")


def test_host_code_for_a_gpu_gets_a_stream(sums: Problem) -> None:
    line = 'extern "C" void custom_kernel(const float *x, float *y, int64_t m, int64_t n, const int64_t *strides, '
    assert f"{line}void *stream)" in contract(sums, "cuda")
    assert "cudaStream_t" in contract(sums, "cuda")
    assert "hipStream_t" in contract(sums, "hip")
    assert "stream" not in contract(replace(sums, languages=("python", "cpp")), "cpp")


@pytest.mark.parametrize("spoken", sorted(EXAMPLES))
def test_the_examples_are_recipes(spoken: str) -> None:
    text = EXAMPLES[spoken]
    assert detect_language(NAMES[spoken], text) == spoken
    found = launches.parse(text)
    assert found is not None
    assert (len(found.workspaces), len(found.requires), len(found.dispatches)) == (1, 1, 1)
    variants, plans = launches.plan_cases(found, CASES, ("x", "y"))
    assert len(variants) == 2
    assert variants[1]["SPLIT"] == "8"
    assert {name: plan.variant for name, plan in plans.items()} == {"small": 0, "long": 1, "tall": 0}
    first, last = plans["long"].launches
    assert (first.grid, last.grid) == ((8, 64, 1), (1, 1, 1))
    assert first.args == (("arg", 0), ("workspace", 0), ("arg", 1), ("int", 100_000))
    (room,) = plans["long"].workspaces
    assert room.elements == 64 * 8
    alone = launches.parse(text.replace("SPLIT = 2", "SPLIT = 1"))
    assert alone is not None
    assert len(launches.plan_cases(alone, {"small": CASES["small"]}, ("x", "y"))[1]["small"].launches) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoken", "target"),
    [
        pytest.param("cuda", H200, marks=pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")),
        pytest.param("triton", H200, marks=pytest.mark.slow),
        ("hip", MI300X),
    ],
)
def test_the_examples_compile(sums: Problem, spoken: str, target: Target) -> None:
    made = compilers.build(sums, Kernel(spoken, {NAMES[spoken]: EXAMPLES[spoken]}), target)
    assert not made.reason, made
    assert made.mode == "strong"
    assert {row["kernel"] for row in made.resources} == {"sums", "total"}


@pytest.mark.slow
@pytest.mark.parametrize("target", [H200, MI300X])
def test_gluon_is_told_from_triton_where_it_is_asked_for_and_compiles(sums: Problem, target: Target) -> None:
    text = LANGUAGES["gluon"].seed.replace("WARP = 32", f"WARP = {64 if target is MI300X else 32}")
    assert (detect_language("k.py", text), detect_language("k.py", text, ("gluon",))) == ("triton", "gluon")
    made = compilers.build(sums, Kernel("gluon", {"k.py": text}), target)
    assert (made.reason, made.mode, [row["kernel"] for row in made.resources]) == ("", "strong", ["twice"])


TRACED = [one.name for one in LANGUAGES.values() if one.compiler == "traced"]


@pytest.mark.parametrize("spoken", TRACED)
def test_a_language_that_is_asked_for_is_told_of_and_has_seeds(spoken: str, tmp_path: Path) -> None:
    for name, variant in (("softmax", None), ("fp8_gemm", None), ("fp8_gemm", "e4m3fn_kmajor")):
        problem = load(name, variant=variant, target=H200).keeping_to(spoken)
        assert problem.writable_languages == (spoken,)
        assert [(seed.kernel.language, seed.baseline) for seed in problem.seeds] == [("python", True), (spoken, False)]
        assert LANGUAGES[spoken].seed.rstrip() in contract(problem, spoken)
        assert "Sizes that a tile" in contract(problem, spoken) or spoken != "tilelang"
        assert len(contract(problem, spoken)) <= 3500
        assert all(seed.kernel.language != spoken for seed in load(name, variant=variant, target=H200).seeds)
    handed = hand_over(tmp_path, problem, H200, Trial("00001", Origin.SEED, kernel=problem.seeds[1].kernel))
    assert handed.files[0].read_text().endswith(problem.seeds[1].kernel.main)
    with pytest.raises(ValueError, match=f"softmax takes here: .*{spoken}"):
        load("softmax", target=H200).keeping_to("tilelong")
    with pytest.raises(ValueError, match="softmax takes here: python, cpp"):
        load("softmax").keeping_to(spoken)


@pytest.mark.parametrize("spoken", TRACED)
def test_a_package_that_is_missing_is_an_error_of_the_set_up(spoken: str) -> None:
    if LANGUAGES[spoken].installed:
        pytest.skip(f"{spoken} is installed")
    problem = load("softmax", target=H200).keeping_to(spoken)
    with pytest.raises(ConfigError, match="is not installed: pip install"):
        compilers.build(problem, problem.seeds[1].kernel, H200)


@pytest.mark.soak
@pytest.mark.parametrize("spoken", TRACED)
def test_seeds_compile_without_a_gpu_and_an_error_names_its_line(spoken: str) -> None:
    if not LANGUAGES[spoken].installed:
        pytest.skip(LANGUAGES[spoken].missing)
    for name in ("softmax", "fp8_gemm"):
        problem = load(name, target=H200).keeping_to(spoken)
        made = compilers.build(problem, problem.seeds[1].kernel, H200)
        assert not made.reason, made.log
        assert all(row["target"] == "sm_90a" for row in made.resources)
    broken = {
        file: text.replace("x, y = data", "x, y, z = data") for file, text in problem.seeds[1].kernel.files.items()
    }
    broken = {file: text.replace("a, b, a_scale, b_scale, c = data", "a, b = data") for file, text in broken.items()}
    line = next(n for n, text in enumerate(next(iter(broken.values())).splitlines(), 1) if text.endswith(" = data"))
    assert f":{line}: ValueError" in compilers.build(problem, Kernel(spoken, broken), H200).reason


def test_a_person_is_shown_the_same() -> None:
    problem = load("fp8_gemm", target=H200)
    screen = io.StringIO()
    briefing.show_problem(Console(file=screen, width=200), problem, H200)
    for spoken in ("python", "triton", "cuda"):
        assert contract(problem, spoken) in screen.getvalue()
    assert "A kernel in cuda (NAME.cu)" in screen.getvalue()
    assert "A kernel in hip" not in screen.getvalue()
    assert "+ 0.004 * sqrt(sum of squares)" in screen.getvalue()
