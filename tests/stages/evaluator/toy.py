"""A small problem of the tests' own: `out = a + b`, with kernels that get it right and wrong."""

from dataclasses import replace
from pathlib import Path

from ksflow.records import Arg, Case, Kernel, Limits, Origin, Problem, Trial

REFERENCE = """
import torch

def generate_input(n, seed, device="cpu"):
    generator = torch.Generator(device=device).manual_seed(seed)
    a, b = (torch.randn(n, generator=generator) for _ in range(2))
    return a, b, torch.zeros(n)

def ref_kernel(data):
    return torch.add(data[0], data[1], out=data[2])

def oracle(data):
    a, b = data[0].double(), data[1].double()
    return {"expected": a + b, "magnitude": a.abs() + b.abs(), "terms": 1}

def upstream_check(data, output):
    return "" if torch.allclose(output, data[0] + data[1]) else "not close"
"""

PATIENT = Limits(compile_s=120, check_s=60, time_s=60, memory_mb=1024)
"""Nothing that ends by itself is cut off, on any machine."""
HASTY = replace(PATIENT, check_s=3)
"""For what never ends by itself."""


def problem(folder: Path, limits: Limits | None = None) -> Problem:
    """The problem, with its reference written to `folder`."""
    (folder / "reference.py").write_text(REFERENCE)
    return Problem(
        name="add",
        title="add",
        description="",
        statement="",
        root=str(folder),
        reference=REFERENCE,
        languages=("python", "cpp"),
        args=(Arg("a", "float32", "in"), Arg("b", "float32", "in"), Arg("out", "float32", "out")),
        dims=("n",),
        tests=tuple(Case(f"n{n}", {"n": n}, seed) for n, seed in ((1, 3), (7, 4), (1000, 5))),
        benchmarks=tuple(Case(f"n{n}", {"n": n}, seed) for n, seed in ((30000, 6), (65536, 7))),
        seeds=(),
        limits=limits or PATIENT,
    )


def python(body: str, before: str = "import torch") -> Kernel:
    """A Python kernel with this body."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return Kernel("python", {"kernel.py": f"{before}\n\ndef custom_kernel(data):\n{lines}\n"})


def cpp(body: str, before: str = "") -> Kernel:
    """A C++ kernel with this body."""
    head = "#include <cstdint>\n#include <cstdlib>\n#include <vector>\n#include <unistd.h>\n"
    signature = (
        'extern "C" void custom_kernel(const float *a, const float *b, float *out, int64_t n, const int64_t *strides)'
    )
    return Kernel("cpp", {"kernel.cpp": f"{head}{before}\n{signature} {{\n{body}\n}}\n"})


LOOP = "for (int64_t i = 0; i < n; i++) out[i * strides[2]] = a[i] + b[i];"
RIGHT_CPP = cpp(LOOP)
RIGHT_PYTHON = python("a, b, out = data\nreturn torch.add(a, b, out=out)")


def slow(turns: int) -> Kernel:
    """Right, and the slower the more turns it takes."""
    work = f'float x = a[i] + b[i]; for (int k = 0; k < {turns}; k++) asm volatile("" : "+x"(x));'
    return cpp(f"for (int64_t i = 0; i < n; i++) {{ {work} out[i] = x; }}")


def trial(kernel: Kernel, name: str = "00001") -> Trial:
    """A kernel as something to compare with."""
    return Trial(name, Origin.SEED, kernel=kernel)
