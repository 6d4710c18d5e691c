"""What goes wrong for who brings a kernel and a reference for the first time is named in one line, by the command."""

import re
from pathlib import Path

import pytest
from test_cli import ksflow

from ksflow.errors import ConfigError
from ksflow.formats.kernel.importer import load
from ksflow.kernels.hardware.target import detect
from ksflow.kernels.source.signature import fault
from ksflow.lineage import Lineage
from ksflow.loop import startup
from ksflow.records import Arg, Kernel, Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

REFERENCE = """import torch

CASES = [{"m": 64, "n": 48}, {"m": 16, "n": 96}]


def generate_input(m, n, seed):
    return (torch.randn(m, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64),)


def ref_kernel(data):
    return data[0].sum(0)
"""
MINE = """constexpr long m = 64;
extern "C" void custom_kernel(const double *x, double *y, long m, long n, const long *strides) {
  for (long j = 0; j < n; j++) y[j] = 0;
  for (long i = 0; i < m; i++)
    for (long j = 0; j < n; j++) y[j] += x[i * n + j];
}
"""
PYTHON = "def custom_kernel(data):\n    total = data[0].sum(0)\n    return total\n"


GIVEN = ("problem=kernel", "problem.kernel=good.cpp", "problem.reference=ref.py", "target=cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where somebody has a kernel that is right, and its reference."""
    made = tmp_path_factory.mktemp("own")
    (made / "good.cpp").write_text(MINE)
    (made / "ref.py").write_text(REFERENCE)
    return made


@pytest.fixture(scope="module")
def problem(folder: Path) -> Problem:
    return load(kernel=str(folder / "good.cpp"), reference=str(folder / "ref.py"), target=detect())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("k.cpp", "double", "float", "compile-error: k.cpp: .*argument 1 is `const float *x` where `const double *x0`"),
        ("k.cpp", "long m, long n,", "long n,", "compile-error: k.cpp: .*argument 4 is `const long *strides` where"),
        ("k.cpp", "custom_kernel", "sums", "compile-error: k.cpp: it defines no custom_kernel, but sums; the contract"),
        ("k.cpp", 'extern "C" ', "", 'compile-error: k.cpp: custom_kernel cannot be called: define it as extern "C"'),
        ("k.cpp", "i++)\n", "i += 0)\n", "contained-timeout: check, .*an endless loop? no answer after .* reference"),
        ("k.cpp", "x[i", "x[m * n + (i << 30)", "contained-crash: .*killed by SIG.* in k.cpp, line 5: .* end of x0"),
        ("k.cpp", "j < n", "j < n - 1", "reject-incorrect: m=64 n=48: 1 of 48 elements are off, .* 1 of 48 were never"),
        ("k.py", "custom_kernel", "sums", "contained-crash: .*the kernel defines no custom_kernel, but sums"),
        ("k.py", "sum(0)", "sum(7)", "contained-crash: .*Dimension out of range .*(k.py, line 2)"),
        ("k.py", "total = data", "total = (data", r"compile-error: SyntaxError: '(' was never closed .*(k.py, line 2)"),
        ("k.py", "def", "import rms\ndef", "contained-crash: import: ModuleNotFoundError: .*'rms' (a sandbox"),
        ("k.py", "total\n", "total.numpy()\n", "reject-incorrect: .*: an array becomes a tensor with torch.from_numpy"),
        ("k.cpp", "", "", "accept: "),
    ],
)  # fmt: skip
def test_a_mistake_in_a_kernel_is_named_in_the_reason_of_the_verdict(
    evaluator: LocalEvaluator, problem: Problem, file: str, old: str, new: str, said: str
) -> None:
    text, language = (MINE, "cpp") if file == "k.cpp" else (PYTHON, "python")
    assert old in text
    found = evaluator(problem, Kernel(language, {file: text.replace(old, new) if old else text}), ())
    verdict = f"{found.verdict}: {found.reason}"
    assert re.match(re.escape(said).replace(r"\.\*", ".*").replace(r"\ ", " "), verdict), verdict
    assert "Traceback" not in verdict
    assert "  File " not in verdict
    if "SyntaxError" in said:
        assert len(found.evidence.log.splitlines()) < 6
        assert "    total = (data[0].sum(0)\n            ^\n" in found.evidence.log


@pytest.mark.slow
def test_the_command_tells_a_mistake_in_the_line_of_the_verdict(folder: Path) -> None:
    (folder / "k.py").write_text(PYTHON.replace("sum(0)", "sum(7)"))
    done = ksflow(folder, "evaluate", "k.py", *GIVEN)
    (verdict,) = [line for line in done.stdout.splitlines() if line.startswith("verdict ")]
    assert re.match(r"verdict contained-crash: .*Dimension out of range .*\(k\.py, line 2\)", verdict), done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "  File " not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["data[0] * 2", "(data[0] * 2).mT.contiguous().mT"])
def test_an_output_that_lies_otherwise_in_memory_is_told(
    evaluator: LocalEvaluator, tmp_path: Path, answer: str
) -> None:
    given = MINE.replace("  for (long j = 0; j < n; j++) y[j] = 0;\n", "").replace(
        "y[j] += x[i * n + j]", "y[OUT] = 2 * x[i * n + j]"
    )
    rows, columns = given.replace("OUT", "i * n + j"), given.replace("OUT", "j * m + i")
    right, wrong = (rows, columns) if answer.startswith("data") else (columns, rows)
    (tmp_path / "ref.py").write_text(REFERENCE.replace("data[0].sum(0)", answer))
    (tmp_path / "k.cpp").write_text(right)
    problem = load(kernel=str(tmp_path / "k.cpp"), reference=str(tmp_path / "ref.py"), target=detect())
    found = evaluator(problem, Kernel("cpp", {"k.cpp": wrong}), ())
    assert "they are right with rows and columns exchanged" in found.reason
    assert evaluator(problem, Kernel("cpp", {"k.cpp": right}), ()).accepted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("data[0].sum(0)", "data[0].sum(3)", r"Dimension out of range .*\(ref\.py, line 11\)"),
        (
            "import torch\n",
            "import torch\n\n1 / 0\n",
            r"ZeroDivisionError: division by zero \(ref\.py, line 3\)",
        ),
    ],
)
def test_a_mistake_in_a_reference_is_told_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "k.cpp").write_text(MINE)
    (tmp_path / "ref.py").write_text(REFERENCE.replace(old, new))
    done = ksflow(tmp_path, "problem", "check", "problem=kernel", "problem.kernel=k.cpp", "problem.reference=ref.py")
    assert done.returncode
    assert re.search(said, done.stderr), done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_reference_that_answers_in_more_digits_than_it_has_is_named(
    tmp_path: Path, evaluator: LocalEvaluator
) -> None:
    (tmp_path / "good.cpp").write_text(MINE)
    (tmp_path / "ref.py").write_text(REFERENCE.replace("data[0].sum(0)", "data[0].float().sum(0).double()"))
    said = "answers in float64 and computes in float32 (ref.py, line 11)"
    assert said in ksflow(tmp_path, "problem", "show", *GIVEN).stdout
    narrow = load(kernel=str(tmp_path / "good.cpp"), reference=str(tmp_path / "ref.py"), target=detect())
    found = evaluator(narrow, Kernel("cpp", {"k.cpp": MINE}), ())
    assert found.verdict is Verdict.INCORRECT
    assert said in found.reason


def of(*args: tuple[str, str], dims: tuple[str, ...] = ("n",)) -> Problem:
    """A problem with inputs of these names and types, and an output."""
    made = tuple(Arg(name, dtype, "in") for name, dtype in args)
    texts = dict.fromkeys(("name", "title", "description", "statement", "root", "reference"), "")
    more = {"languages": ("cpp", "cuda"), "tests": (), "benchmarks": (), "seeds": ()}
    return Problem(**texts, **more, args=(*made, Arg("out", "float32", "out")), dims=dims)  # type: ignore[arg-type]


TWO = (("a", "float32"), ("b", "int64"))


@pytest.mark.slow
def test_a_second_reference_of_a_kernel_is_another_problem(folder: Path, problem: Problem, lineage: Lineage) -> None:
    (folder / "other.py").write_text(REFERENCE.replace(".sum(0)", ".mean(0)"))
    other = load(kernel=str(folder / "good.cpp"), reference=str(folder / "other.py"), target=detect())
    lineage.open_session(f"place: {[*startup.places(problem)]}")
    startup.no_other(problem, lineage)
    with pytest.raises(ConfigError, match=r"is for .*/ref.py, and .*/other.py is another problem .*run=ANOTHER"):
        startup.no_other(other, lineage)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("const float *a, const int64_t *b, float *out, int64_t n, const int64_t *strides", ""),
        ("const float* __restrict__ a, const long b[], float *out, int n", ""),
        ("const std::uint32_t *, const unsigned char *, void *, unsigned long int, const long long *", ""),
        ("const T *a, Index b, vec8 *out, size n, const long *", ""),
        ("const float *a, const long *b, float *out, MACRO", ""),
        ("const float *a, const int *b, float *out, long n, const long *", "argument 2 is `const int *b`"),
        ("const float *a, float *out, const long *b, long n, const long *", "argument 2 is `float *out`"),
        ("const double *a, const long *b, float *out, long n, const long *", "argument 1 is `const double *a`"),
        ("const float *a, const long *b, float *out, float n, const long *", "argument 4 is `float n`"),
        ("const float *a, const long *b, float *out", "takes 3 arguments and is called with 5: `int64_t n` is missing"),
        ("", "takes 0 arguments and is called with 5"),
        ("const float *a, const long *b, float *out, long n, const long *s, int q", "nothing is passed for `int q`"),
    ],
)
def test_only_what_cannot_be_meant_is_held_against_a_signature(declared: str, said: str) -> None:
    found = fault(of(*TWO), Kernel("cpp", {"k.cpp": f'extern "C" void custom_kernel({declared}) {{}}\n'}))
    assert said in found
    assert bool(found) is bool(said)


def test_names_in_another_order_and_types_on_a_device_are_only_suspected() -> None:
    swapped = Kernel("cpp", {"k.cpp": "void custom_kernel(float *out, long *b, float *a, long n, long *s) {}\n"})
    assert not fault(of(*TWO), swapped)
    assert "argument 1 is `float *out` where `const float *a` is passed" in fault(of(*TWO), swapped, suspected=True)
    device = "void custom_kernel(double *a, long *b, float *out, long n, long *s, cudaStream_t stream) {}\n"
    assert not fault(of(*TWO), Kernel("cuda", {"k.cu": device}))
    assert "argument 1" in fault(of(*TWO), Kernel("cuda", {"k.cu": device}), suspected=True)
    assert not fault(of(*TWO), Kernel("cuda", {"k.cu": "// launch: f [1] [32] (a, out, n)\n"}))
    assert not fault(of(*TWO), Kernel("cpp", {"k.cpp": "#define N(x) custom_##x\nvoid N(kernel)(int) {}\n"}))


def test_of_several_definitions_one_that_fits_is_enough() -> None:
    right = "void custom_kernel(const float *a, const long *b, float *out, long n, const long *s) {}"
    text = f"#if A\nvoid custom_kernel(int) {{}}\n#else\n{right}\n#endif\n// void custom_kernel() {{}}\n"
    assert not fault(of(*TWO), Kernel("cpp", {"k.cpp": text}))
