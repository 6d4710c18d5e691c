"""A kernel of one's own with a reference beside it: cases, arguments and checks are found, and mistakes explained."""

from dataclasses import replace
from pathlib import Path

import pytest

from ksflow.errors import ConfigError
from ksflow.formats.isolated import IsolatedFailure, run_isolated
from ksflow.formats.kernel.importer import load
from ksflow.kernels.hardware.target import detect
from ksflow.records import Kernel, Problem, Target, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

REFERENCE = '''"""Scale every row of x."""
import torch

CASES = [{"m": 8, "n": 16}, {"m": 32, "n": 64, "seed": 3}]


def generate_input(m, n, seed):
    generator = torch.Generator().manual_seed(seed)
    x, s = torch.randn(m, n, generator=generator), torch.randn(m, generator=generator)
    return x, s


def ref_kernel(data):
    return data[0] * data[1][:, None]
'''
MINE = """#include <cstdint>
extern "C" void custom_kernel(const float *x, const float *s, float *y, int64_t m, int64_t n, const int64_t *strides) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) y[i * n + j] = FACTOR x[i * n + j] * s[i];
}
"""


H200 = Target("h200", "gpu", "NVIDIA H200", march="sm_90a")
MI300X = Target("mi300x", "gpu", "AMD Instinct MI300X", march="gfx942")


def given(folder: Path, reference: str = REFERENCE, **more: object) -> Problem:
    (folder / "mine.cpp").write_text(MINE.replace("FACTOR", ""))
    (folder / "mine_ref.py").write_text(reference)
    kernel, beside = str(folder / "mine.cpp"), str(folder / "mine_ref.py")
    return load(**{"kernel": kernel, "reference": beside, "target": detect(), **more})  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_kernel_is_judged_by_the_reference_beside_it(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    problem = given(tmp_path)
    assert [case.name for case in problem.benchmarks] == ["m=8 n=16", "m=32 n=64"]
    assert problem.signature == (
        'extern "C" void custom_kernel(const float *x, const float *s, float *out0, int64_t m, int64_t n, '
        "const int64_t *strides)"
    )
    assert [(seed.name, seed.baseline) for seed in problem.seeds] == [("00_torch.py", True), ("mine.cpp", False)]
    assert problem.statement == "Scale every row of x."
    assert all(evaluator(problem, seed.kernel, ()).accepted for seed in problem.seeds)
    off = Kernel("cpp", {"mine.cpp": MINE.replace("FACTOR", "1.001f *")})
    assert evaluator(problem, off, ()).verdict is Verdict.INCORRECT
    python = Kernel("python", {"k.py": "def custom_kernel(data):\n    return data[0].mul(data[1][:, None])\n"})
    assert evaluator(problem, python, ()).accepted


@pytest.mark.slow
@pytest.mark.parametrize("check", ["check_implementation", "oracle"])
def test_a_check_of_the_users_own_decides(tmp_path: Path, evaluator: LocalEvaluator, check: str) -> None:
    own = {
        "check_implementation": "    return torch.allclose(output, ref_kernel(data), rtol=0.01), 'not close'\n",
        "oracle": "    x = data[0].double() * data[1].double()[:, None]\n"
        "    return {'expected': x, 'magnitude': 1e4 * x.abs(), 'terms': 1}\n",
    }
    arguments = "data, output" if check == "check_implementation" else "data"
    problem = given(tmp_path, f"{REFERENCE}\n\ndef {check}({arguments}):\n{own[check]}", cases=[{"m": 8, "n": 16}])
    for factor, verdict in (("1.001f *", Verdict.ACCEPT), ("1.05f *", Verdict.INCORRECT)):
        found = evaluator(problem, Kernel("cpp", {"mine.cpp": MINE.replace("FACTOR", factor)}), ())
        assert found.verdict is verdict, found.reason


@pytest.mark.slow
def test_without_cases_the_defaults_of_generate_input_are_one(tmp_path: Path) -> None:
    plain = REFERENCE.replace("CASES", "OTHERS").replace("(m, n, seed)", "(m=4, n=8, seed=1)")
    assert [dict(case.params) for case in given(tmp_path, plain).benchmarks] == [{"m": 4, "n": 8}]


@pytest.mark.slow
def test_what_a_case_leaves_out_is_as_the_reference_has_it(tmp_path: Path) -> None:
    reference = REFERENCE.replace("(m, n, seed)", "(m=4, n=8, seed=1)")
    made = given(tmp_path, reference, cases=[{"n": 16}, {"n": 32, "m": 2}])
    assert [dict(case.params) for case in made.benchmarks] == [{"m": 4, "n": 16}, {"m": 2, "n": 32}]
    assert made.dims == ("m", "n")


@pytest.mark.slow
def test_one_tensor_is_as_good_as_several(tmp_path: Path) -> None:
    reference = REFERENCE.replace("return x, s", "return x").replace("data[0] * data[1][:, None]", "data.relu()")
    (tmp_path / "relu.cpp").write_text(MINE.replace("const float *s, ", ""))
    made = given(tmp_path, reference, kernel=str(tmp_path / "relu.cpp"))
    assert "custom_kernel(const float *x, float *out0, int64_t m, int64_t n," in made.signature
    assert not any("one value" in line for line in made.origin["inferred"])
    ones = given(
        tmp_path, reference.replace("return x", "return 2 * torch.ones(m, n)"), kernel=str(tmp_path / "relu.cpp")
    )
    assert "each of x0 is filled with one value for every seed: a kernel need not read it" in ones.origin["inferred"]


@pytest.mark.slow
def test_an_emulator_gets_the_smallest_case_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "k.hip").write_text("// launch: f [1] [64] (x, s, out0, m, n)\n")
    more = {"kernel": str(tmp_path / "k.hip"), "target": MI300X}
    assert [case.name for case in given(tmp_path, **more).small] == ["m=8 n=16"]
    assert given(tmp_path, cases=[{"m": 1024, "n": 1024}], **more).small == ()


@pytest.mark.parametrize(
    ("old", "new", "more", "said"),
    [
        (
            "CASES",
            "OTHERS",
            {},
            r"no default for m, n; write CASES = \[{\"m\": 64, \"n\": 64}\] in it, or give "
            r"problem.cases='\[{m: 64, n: 64}\]'",
        ),
        ("32, ", "4 * 8, ", {}, "CASES is computed; give problem.cases"),
        ("CASES =", "CASES: list =  3 and", {}, "CASES is computed; give problem.cases"),
        ("CASES =", "CASES: int = 3\nOTHERS =", {}, "CASES is not a list of cases such as"),
        ('"seed": 3', '"seed": "x"', {}, "a case's seed is a whole number, not 'x'"),
        ("def ref_kernel", "def ref", {}, "defines no ref_kernel; a reference defines generate_input and ref_kernel"),
        ("def", "def def", {}, "is not Python"),
        ("x", "x", {"cases": [3]}, "3 is not a case"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    tmp_path: Path, old: str, new: str, more: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        given(tmp_path, REFERENCE.replace(old, new), **more)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "returned", "target", "said"),
    [
        ("k.hip", "x, s", None, r"k\.hip is hip, for a GPU such as target=mi300x; .* evaluator=static"),
        ("k.cpp", "x, s", H200, r"k\.cpp is cpp, for a CPU: target=cpu"),
        ("k.cpp", "x, s, 0.5", None, r"k\.cpp is cpp, which takes tensors alone: have generate_input of .*mine_ref"),
        ("k.cpp", "x, t", None, r"k: .* name 't' is not defined \(mine_ref\.py, line 10\)$"),
    ],
)
def test_a_kernel_that_cannot_be_is_told_what_would_help(
    tmp_path: Path, name: str, returned: str, target: Target | None, said: str
) -> None:
    (tmp_path / name).write_text("\n")
    more = {"target": target} if target else {}
    with pytest.raises(ConfigError, match=said):
        given(tmp_path, REFERENCE.replace("return x, s", f"return {returned}"), kernel=str(tmp_path / name), **more)


IN_NUMPY = '''"""Scale every row of x."""
import numpy as np

CASES = [{"m": 8, "n": 16}, {"m": 32, "n": 64, "seed": 3}]


def generate_input(m, n, seed):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((m, n), np.float32)[::-1], generator.standard_normal(m, np.float32)


def ref_kernel(data):
    return data[0] * data[1][:, None]


def check_implementation(data, output):
    return np.allclose(output, ref_kernel(data), rtol=1e-5)
'''


@pytest.mark.slow
@pytest.mark.parametrize("own_check", [True, False])
def test_a_reference_in_numpy_is_as_good(tmp_path: Path, evaluator: LocalEvaluator, own_check: bool) -> None:
    problem = given(tmp_path, IN_NUMPY if own_check else IN_NUMPY.partition("\n\n\ndef check")[0])
    assert "const float *x0, const float *x1, float *out0, int64_t m" in problem.signature
    assert [(seed.name, seed.baseline) for seed in problem.seeds] == [("00_numpy.py", True), ("mine.cpp", False)]
    for seed in problem.seeds:
        found = evaluator(problem, seed.kernel, ())
        assert found.accepted, found.reason
    off = Kernel("cpp", {"mine.cpp": MINE.replace("FACTOR", "1.001f *")})
    assert evaluator(problem, off, ()).verdict is Verdict.INCORRECT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            REFERENCE.replace("data[0] *", "data[0] * torch.rand(1) *"),
            r"k: .* ref_kernel draws at random: .*; seed",
        ),
        (f"import torch\n{IN_NUMPY}", "have its file import numpy and not torch"),
        (REFERENCE.replace("    return data[0]", "    import sys; sys.exit(3)\n    return data[0]"), "SystemExit: 3"),
    ],
)
def test_a_reference_that_cannot_be_one_is_told_why(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "k.cpp").write_text("\n")
    with pytest.raises(ConfigError, match=said) as caught:
        given(tmp_path, text, kernel=str(tmp_path / "k.cpp"))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_kernel_that_takes_other_arguments_is_told_the_right_ones(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"takes 6 .* `int64_t m` where `float \*out0` is .* float \*out0, int64_t m",
    ):
        given(tmp_path, REFERENCE.replace("return x, s", "return x, s, s.clone()"))


def test_a_reference_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"needs problem.reference=FILE.py, and may have problem.kernel=FILE"):
        load(kernel="mine.cpp", target=detect())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imports", "answer", "why"),
    [
        ("numpy as np", "np.exp(data[0] - data[0].max(axis=1, keepdims=True)) @ data[1]", ""),
        ("torch", "torch.relu(data[0]).sum(-1, keepdim=True) * data[1][: data[0].shape[0], None]", ""),
        ("numpy as np", "data[0][1:, 1:-1] - 0.5 * (data[0][:-1, :-2] + data[0][:-1, 2:]) + data[1].mean()", ""),
        ("numpy as np", "np.sort(data[0])", "it calls sort"),
        ("numpy as np", "np.stack([row * 2 for row in data[0]])", "it loops over an array in Python"),
    ],
)
def test_without_a_kernel_a_search_starts_from_plain_loops(
    tmp_path: Path, evaluator: LocalEvaluator, imports: str, answer: str, why: str
) -> None:
    random = "np.random.default_rng(seed).random({})" if "numpy" in imports else "torch.rand({})"
    drawn = f"{random.format('(m, n)')}, {random.format('n')}"
    (tmp_path / "mine.py").write_text(
        f"import {imports}\n\nCASES = [{{'m': 9, 'n': 20, 'seed': 1}}, {{'m': 12, 'n': 17, 'seed': 2}}]\n\n\n"
        f"def generate_input(m, n, seed):\n    return {drawn}\n\n\ndef ref_kernel(data):\n    return {answer}\n"
    )
    problem = load(reference=str(tmp_path / "mine.py"), target=detect())
    loops = [seed.kernel for seed in problem.seeds if seed.name == "01_loops.cpp"]
    assert [one for one in problem.origin["dropped"] if "loop nest" in one] == (
        [f"a C++ loop nest to start from: {why}"] if why else []
    )
    assert len(loops) == (not why)
    for kernel in loops:
        found = evaluator(problem, kernel, ())
        assert found.accepted, found.reason


@pytest.mark.slow
def test_what_a_reference_changes_in_place_a_kernel_finds_as_it_was(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    body = "    data[0].mul_(data[1][:, None])\n"
    reference = REFERENCE.replace("    return data[0] * data[1][:, None]\n", body)
    (tmp_path / "mine.py").write_text(f"def custom_kernel(data):\n{body}")
    problem = given(tmp_path, reference, kernel=str(tmp_path / "mine.py"), cases=[{"m": 8, "n": 16}])
    untimed = replace(problem, benchmarks=())

    def said(kernel: str) -> str:
        found = evaluator.measure(untimed, Kernel("python", {"k.py": f"def custom_kernel(data):\n{kernel}"}))
        return "" if found.verdict is Verdict.UNTIMED else found.reason

    assert said(body) == ""
    assert "128 of 128 were left as they were before the call" in said("    pass\n")
    assert "elements are off" in said(body + body)


def test_a_process_that_takes_too_long_is_named_without_its_command() -> None:
    with pytest.raises(IsolatedFailure, match=r"^it took longer than 0\.05 s$"):
        run_isolated("ksflow.formats.describe", {}, 0.05)
