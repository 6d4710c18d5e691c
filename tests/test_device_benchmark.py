"""`benchmarks/device.py`, as far as it goes without a GPU."""

import runpy
import subprocess
import sys
from pathlib import Path

from ksflow.home import PACKAGE
from ksflow.kernels.problem.loader import load

SCRIPT = PACKAGE.parent / "benchmarks/device.py"


def test_a_described_problem_is_read_and_seeds_are_told_by_language(tmp_path: Path) -> None:
    words = [sys.executable, str(SCRIPT), "describe", "fp8_gemm", "e4m3fn_kmajor"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "problem.json").write_text(done.stdout)
    script = runpy.run_path(str(SCRIPT))
    told, known = script["read_problem"](tmp_path / "problem.json"), load("fp8_gemm", "leaderboard", "e4m3fn_kmajor")
    assert (told.benchmarks, told.args, told.defines) == (known.benchmarks, known.args, known.defines)
    seed = PACKAGE.parent / "seeds/fp8_gemm/e4m3fn_kmajor/gpu/05_tile_tilelang.py"
    assert script["_kernel"](seed).language == "tilelang"
