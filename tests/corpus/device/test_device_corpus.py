"""What can be said of the device corpus without a GPU: its headers are whole, its kernels compile, its problems run."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest
from ksflow.kernels.source.launches import parse, plan_cases
from ksflow.records import Problem

from .specimens import CATEGORIES, EXPECTED, Specimen, folder, problems, specimens

_FEWEST = {"cheats": 40, "dangers": 8, "honest": 20}
_EVERY = [specimen for category in CATEGORIES for specimen in specimens(category)]
_CUDA = ["nvcc", "-O1", "-std=c++20", "-gencode=arch=compute_90a,code=sm_90a"]


@pytest.mark.parametrize("category", CATEGORIES)
def test_corpus_is_large_and_its_headers_are_whole(category: str) -> None:
    found = specimens(category)
    assert len(found) >= _FEWEST[category]
    for specimen in found:
        assert specimen.expect in EXPECTED[category], specimen.name
        assert specimen.kernel.language in problems()[specimen.problem].languages, specimen.name
        assert "honest" in specimen.header or specimen.twin.language == specimen.kernel.language, specimen.name
        assert specimen.gain >= 1.0, specimen.name


@pytest.mark.parametrize("specimen", [one for one in _EVERY if one.path.suffix == ".py"], ids=lambda one: one.name)
def test_python_compiles(specimen: Specimen) -> None:
    compile(specimen.kernel.main, specimen.name, "exec")


@pytest.mark.parametrize("problem", problems().values(), ids=lambda one: one.name)
def test_plain_kernel_is_right_on_the_cpu(problem: Problem) -> None:
    torch = pytest.importorskip("torch")
    reference, kernel = (_module(folder(problem.name) / name) for name in ("reference.py", "plain.py"))
    for case in problem.tests:
        data = reference.generate_input(**case.params, seed=case.seed)
        row = reference.oracle(data)
        bound = problem.check.c1 * torch.finfo(torch.float32).eps * (row["terms"] ** 0.5 * row["magnitude"] + 1e-3)
        for function in (reference.ref_kernel, kernel.custom_kernel):
            given = tuple(tensor.clone() for tensor in data)
            assert bool(((function(given).double() - row["expected"]).abs() <= bound).all()), case.name


def test_recipes_plan_every_case() -> None:
    strong = [one for one in _EVERY if "launch: " in one.kernel.main]
    assert len(strong) >= 4
    for specimen in strong:
        problem = problems()[specimen.problem]
        recipe = parse(specimen.kernel.main)
        assert recipe is not None, specimen.name
        cases = {case.name: case.params for case in (*problem.tests, *problem.benchmarks)}
        _, made = plan_cases(recipe, cases, [arg.name for arg in problem.args])
        assert made.keys() == cases.keys(), specimen.name


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
@pytest.mark.parametrize(
    "specimen",
    [
        pytest.param(one, id=one.name, marks=[pytest.mark.soak] * (at % 4 > 0))
        for at, one in enumerate(one for one in _EVERY if one.path.suffix == ".cu")
    ],
)
def test_cuda_compiles(specimen: Specimen, tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(specimen.kernel.main)
    mode = ["-cubin"] if parse(specimen.kernel.main) else ["-shared", "-Xcompiler", "-fPIC"]
    done = subprocess.run([*_CUDA, *mode, "-o", str(tmp_path / "out"), str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _module(path: Path) -> object:
    spec = importlib.util.spec_from_file_location(f"device_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
