"""Right and wrong kernels get the verdict they deserve, with evidence a person can use."""

import json
import re

import pytest

from evaluator import toy
from evaluator.conftest import Judge
from ksflow.evaluation.sandbox.levels import LEVELS
from ksflow.records import Kernel, Problem, Verdict, as_json
from ksflow.stages.evaluator.local import LocalEvaluator


@pytest.mark.parametrize("kernel", [toy.RIGHT_CPP, toy.RIGHT_PYTHON], ids=["cpp", "python"])
def test_right_kernel_is_accepted_and_timed(evaluator: LocalEvaluator, problem: Problem, kernel: Kernel) -> None:
    result = evaluator(problem, kernel, ())
    assert result.verdict is Verdict.ACCEPT, result.reason
    assert [timing.case for timing in result.timings] == ["n30000", "n65536"]
    assert all(0 < len(timing.samples_us) <= 64 for timing in result.timings)
    assert result.evidence.upstream == "pass"
    assert result.evidence.checked[0].worst <= 1
    assert result.isolation in LEVELS[1:]
    assert result.evidence.artefact == evaluator.code(problem, kernel)
    assert bool(result.evidence.artefact) == (kernel.language == "cpp")
    for row in result.evidence.timed:
        low, high = row.interval_us
        assert low <= row.us <= high
        assert len(set(row.contents)) == len(row.contents) > 0
    json.dumps(as_json(result.evidence), allow_nan=False)


WRONG = {
    "value": toy.cpp("for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i] * 1.001f;"),
    "one element": toy.cpp(toy.LOOP + "out[n / 2] += 1;"),
    "nan": toy.cpp(toy.LOOP + "out[n - 1] = 0.0f / 0.0f;"),
    "infinity": toy.python("data[2].copy_(data[0] + data[1])[0] = float('inf')\nreturn data[2]"),
    "untouched": toy.cpp(""),
    "untouched python": toy.python("return data[2]"),
    "zeros": toy.python("return data[2].zero_()"),
    "half done": toy.cpp("for (int64_t i = 0; i < n / 2; i++) out[i] = a[i] + b[i];"),
}


@pytest.mark.parametrize("kernel", WRONG.values(), ids=WRONG.keys())
def test_wrong_values_are_rejected(judge: Judge, kernel: Kernel) -> None:
    result = judge(kernel)
    assert result.verdict is Verdict.INCORRECT
    failed = result.evidence.failed
    assert failed["bad"] >= 1
    assert {"case", "seed", "index", "got", "expected", "bound", "of"} <= failed.keys()
    assert str(failed["index"]) in result.reason


def test_shape_dtype_and_return_type_are_checked(judge: Judge) -> None:
    for body, word in (
        ("return (data[0] + data[1]).double()", "float64"),
        ("return torch.cat([data[0] + data[1], data[0]])", "expected (1,)"),
        ("return None", "NoneType"),
        ("return data[2], data[2]", "2 values"),
    ):
        result = judge(toy.python(body))
        assert result.verdict is Verdict.INCORRECT
        assert word in result.reason


def test_returning_a_new_tensor_is_fine(judge: Judge) -> None:
    assert judge(toy.python("return data[0] + data[1]")).accepted


def test_writing_inputs_is_rejected(judge: Judge) -> None:
    for kernel in (
        toy.cpp(toy.LOOP + "const_cast<float *>(a)[0] = 1;"),
        toy.python("data[2].copy_(data[0] + data[1])\ndata[1].zero_()\nreturn data[2]"),
    ):
        result = judge(kernel)
        assert result.verdict is Verdict.INCORRECT
        assert "inputs" in result.reason


def test_stale_output_is_rejected(judge: Judge) -> None:
    body = "key = data[0].numel()\nif key not in seen: seen[key] = data[0] + data[1]\nreturn seen[key]"
    assert judge(toy.python(body, "seen = {}")).verdict is Verdict.INCORRECT


def test_right_on_public_seeds_only_is_rejected(judge: Judge) -> None:
    body = """
for n, seed in ((1, 3), (7, 4), (1000, 5), (30000, 6), (65536, 7)):
    if n == len(data[0]) and torch.randn(n, generator=torch.Generator().manual_seed(seed)).equal(data[0]):
        return data[0] + data[1]
return data[2].fill_(0.5)
"""
    result = judge(toy.python(body))
    assert result.verdict is Verdict.INCORRECT
    assert result.evidence.failed["seed"] not in (3, 4, 5)


def test_memory_of_contents_gains_nothing(judge: Judge) -> None:
    """No contents come twice, so a cache of answers never hits and the kernel has its true speed."""
    body = """
key = (len(data[0]), float(data[0][0]))
if key not in seen:
    end = time.perf_counter() + 0.003
    while time.perf_counter() < end: pass
    seen[key] = data[0] + data[1]
return data[2].copy_(seen[key])
"""
    result = judge(toy.python(body, "import time\nseen = {}"))
    assert result.accepted, result.reason
    assert result.score_us is not None
    assert result.score_us > 3000


def test_raised_error_names_the_line(judge: Judge) -> None:
    result = judge(toy.python("raise ValueError('tile too large')"))
    assert result.verdict is Verdict.CRASH
    assert "ValueError: tile too large" in result.reason
    assert "custom_kernel" in result.evidence.error


def test_import_error_is_named(judge: Judge) -> None:
    result = judge(toy.python("return data[2]", "import no_such_module"))
    assert result.verdict is Verdict.CRASH
    assert result.reason.startswith("import: ")
    assert "no_such_module" in result.reason
    assert judge(Kernel("cpp", {"k.cpp": "int x = 1;\n"})).verdict is Verdict.COMPILE


@pytest.mark.parametrize("line", ["return data[", "  return data[0]\n\treturn data[1]", "x = = 3"])
def test_python_that_cannot_be_compiled_is_a_compile_error(judge: Judge, line: str) -> None:
    result = judge(Kernel("python", {"k.py": f"def custom_kernel(data):\n    pass\n{line}\n"}))
    assert result.verdict is Verdict.COMPILE
    assert re.search(r"^(Syntax|Indentation|Tab)Error: .*k\.py, line 3", result.reason), result.reason
    assert result.reason.partition(" (")[0] in result.evidence.log


def test_unknown_language_is_malformed(judge: Judge) -> None:
    assert judge(Kernel("cuda", {"k.cu": "x"})).verdict is Verdict.MALFORMED
