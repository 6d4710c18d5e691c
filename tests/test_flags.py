"""A C++ kernel that declares nothing is tuned by its compiler's flags, where a rule writes."""

import re
from pathlib import Path

import pytest
from test_cli import ksflow

from ksflow.kernels.source.flags import compiler_flags

PLAIN = 'extern "C" void custom_kernel(const float *x, float *y, long rows, long cols, const long *strides) {}\n'
RUN = ["recipe=dry_run", "problem=softmax", "problem.seeds=00_torch.py", "loop.evaluations=4"]


@pytest.mark.slow
@pytest.mark.parametrize("declared", ["", "constexpr int W = 1;  // tune: 1 2 4 8\n"])
def test_a_plain_kernel_gets_tunables_and_one_that_has_some_does_not(tmp_path: Path, declared: str) -> None:
    (tmp_path / "mine.cpp").write_text(declared + PLAIN)
    done = ksflow(tmp_path, *RUN, "seed_kernels=mine.cpp")
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    seeds = re.findall(r"seed +(\S+)", told)
    assert ("mine_flags.cpp" in seeds) == (not declared)
    assert len(set(re.findall(r"FLAG_\w+", told))) >= 2 * (not declared)
    assert "4 experiments" in told
    again = ksflow(tmp_path, *RUN, "seed_kernels=mine.cpp")
    assert "_flags.cpp" not in re.findall(r"seed +(\S+)", again.stdout + again.stderr)  # it is there already


def test_a_flag_may_depend_on_the_number_of_cores() -> None:
    text = f"// flags: -fopenmp if NUM_THREADS > 1\n{PLAIN}"
    assert [compiler_flags(text, cores) for cores in (1, 2)] == [(), ("-fopenmp",)]
