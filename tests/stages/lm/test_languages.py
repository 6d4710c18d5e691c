"""Model writers on a problem of several languages: what they are told, and how an answer changes the language."""

from dataclasses import replace

import pytest

from ksflow.errors import StageError
from ksflow.kernels.source.contract import contract
from ksflow.lm.prompts import render
from ksflow.records import Experiment, Kernel, Origin, Population, Problem, Trial
from ksflow.stages.writer.diff import Diff
from ksflow.stages.writer.rewrite import Rewrite
from lm.conftest import accepted
from lm.scripted import scripted

TRY = Experiment("Do it.", "done", (0.0, 1.0), 1.0)
PLAIN = "import torch\n\n\ndef custom_kernel(data):\n    return data[1].copy_(data[0])\n"
CUDA = """// file: copy.cu
// launch: copy [cdiv(m, 256)] [256] (a, c, m)
extern "C" __global__ void copy(const float *a, float *c, int m) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < m) c[i] = a[i];
}
"""
TRITON = """import triton
import triton.language as tl


# launch: copy [cdiv(m, 256)] warps 4 stages 1 (a, c, m)
@triton.jit
def copy(a, c, m):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    tl.store(c + at, tl.load(a + at, mask=at < m), mask=at < m)
"""


@pytest.fixture
def gpu(problem: Problem) -> Problem:
    return replace(problem, languages=("python", "triton", "cuda"))


def chosen(kernel: Kernel):
    base = Trial("00001", Origin.SEED, kernel=kernel, evaluation=accepted(4.0, 100.0))
    return Population((base,)).choose("00001", "00001", "alone")


def written(code: str):
    """A model whose new file is this."""
    return scripted(lambda good: f"[[ ## report ## ]]\nr\n[[ ## code ## ]]\n{code}\n[[ ## completed ## ]]")


@pytest.mark.parametrize(
    ("code", "name", "spoken", "kept"),
    [
        (CUDA, "copy.cu", "cuda", False),
        (TRITON, "k.py", "triton", True),
        (f"# file: faster.py\n{PLAIN}", "faster.py", "python", True),
    ],
)
def test_the_files_name_and_text_tell_the_language(gpu, code, name, spoken, kept):
    selection = chosen(Kernel("python", {"k.py": PLAIN, "help.py": "x = 1\n"}))
    kernel = Rewrite(written(code))(gpu, selection, TRY, ())
    assert (kernel.language, next(iter(kernel.files))) == (spoken, name)
    assert kernel.main == code
    assert ("help.py" in kernel.files) == kept


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (CUDA.replace("copy.cu", "copy.hip"), "copy.hip is hip; the task takes: python, triton, cuda"),
        (CUDA.replace("copy.cu", "copy.rs"), "copy.rs is of no known language"),
        (CUDA.replace("copy.cu", "../copy.cu"), "not a kernel's file name"),
        (CUDA.replace("launch:", "lunch:"), "does not define custom_kernel and has no `launch:` line"),
        (TRITON.replace("import triton\n", "").replace("import triton.language as tl\n", ""), "custom_kernel .python."),
        (f"# file: help.py\n{PLAIN}", "help.py is the name of another file"),
    ],
)
def test_what_is_no_kernel_of_the_task_is_refused(gpu, code, reason):
    selection = chosen(Kernel("python", {"k.py": PLAIN, "help.py": "x = 1\n"}))
    with pytest.raises(StageError, match=reason):
        Rewrite(written(code), attempts=1)(gpu, selection, TRY, ())


def test_a_repair_stays_in_the_failed_attempts_language(gpu, calls):
    selection = chosen(Kernel("python", {"k.py": PLAIN}))
    failed = Trial("00002", Origin.EXPERIMENT, ("00001",), TRY, Kernel("cuda", {"copy.cu": CUDA}))
    code = CUDA.partition("\n")[2].replace("256", "128")
    whole = Rewrite(written(code))(gpu, selection, TRY, (), failed)
    assert (whole.language, dict(whole.files)) == ("cuda", {"copy.cu": code})
    edits = "<<<<<<< SEARCH\n  if (i < m) c[i] = a[i];\n=======\n  if (i < m) c[i] = a[i] + 0;\n>>>>>>> REPLACE"
    model = scripted(lambda good: f"[[ ## report ## ]]\nr\n[[ ## edits ## ]]\n{edits}\n[[ ## completed ## ]]")
    edited = Diff(model)(gpu, selection, TRY, (), failed)
    assert (edited.language, list(edited.files)) == ("cuda", ["copy.cu"])
    assert contract(gpu, "cuda") in calls[0].messages[1]["content"]


def test_a_writer_is_told_its_language_in_full_and_others_in_short(gpu, problem, calls):
    selection = chosen(Kernel("cuda", {"copy.cu": CUDA}))
    Rewrite(written(TRITON.join(["# file: copy.py\n", ""])))(gpu, selection, TRY, ())
    prompt = calls[0].messages[1]["content"]
    assert f"Language: cuda. File: the main one, whose name stays\n{contract(gpu, 'cuda')}" in prompt
    assert "`# file: kernel.py`" in prompt
    assert "python (NAME.py): " in prompt
    assert "triton (NAME.py that imports triton): " in prompt
    assert "hip" not in render.interface(gpu, selection.base.kernel)
    assert len(render.interface(gpu, selection.base.kernel)) < 4500
    assert "Another language" not in render.interface(problem, Kernel("cpp", {"k.cpp": "custom_kernel"}))
