"""Every stage's prompt begins with the machine, in the same words, whether it is here or not."""

import pytest
import yaml

from ksflow.home import shipped_path
from ksflow.kernels.hardware.target import detect, from_data_sheet
from ksflow.lm.prompts.target import describe
from ksflow.records import Experiment, Target
from ksflow.stages.designer.llm import LlmDesigner
from ksflow.stages.selector.llm import LlmSelector
from ksflow.stages.writer.diff import Diff
from ksflow.stages.writer.rewrite import Rewrite
from lm.scripted import dummy


def sheet(name: str) -> Target:
    raw = yaml.safe_load(shipped_path("conf", "target", f"{name}.yaml").read_text())
    raw.pop("_target_")
    return from_data_sheet(**raw)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("b200", ("NVIDIA B200", "sm_100a, 148 multiprocessors", "8 TB/s", "fp4 9 PFLOP/s", "227 KB", "compute_100a")),
        (
            "h200",
            ("NVIDIA H200", "sm_90a, 132 multiprocessors", "141 GB of memory at 4.8 TB/s", "cache before it 60 MB"),
        ),
        ("mi300x", ("MI300X", "gfx942, 304 compute units", "LDS of a block at most 64 KB", "--offload-arch=gfx942")),
    ],
)
def test_every_stage_is_told_the_same_of_a_chip_that_is_not_here(name, words, problem, population, selection):
    target, tried = sheet(name), Experiment("unroll", "it is", (1.0, 2.0), 5.0)
    problem = problem.__class__(**{**problem.__dict__, "languages": ("python", "cuda", "hip", "triton")})
    asked = [
        LlmSelector(dummy(), target=target).question(problem, population),
        LlmDesigner(dummy(), target=target).question(problem, population, selection, ()),
        *(writer(dummy(), target=target).question(problem, selection, tried, ()) for writer in (Rewrite, Diff)),
    ]
    texts = {inquiry.inputs["target"] for inquiry in asked}
    assert texts == {describe(target, problem)}
    (text,) = texts
    assert all(next(iter(inquiry.inputs)) == "target" for inquiry in asked)
    for word in (*words, "no network", "torch", "4096 MB"):
        assert word in text


def test_a_cpu_is_told_with_its_instruction_sets_and_what_a_core_of_it_does(problem):
    target = detect("cpu")
    text = describe(target, problem)
    assert text.startswith(f"{target.chip} (cpu): a CPU, of which a kernel has one core and one thread.")
    assert f"(-march=native): {', '.join(target.features) or 'none beyond the baseline'}." in text
    assert "-std=c++20 -O3" in text
    assert "Caches and memory (reading, measured on one core)" in text
    assert text == describe(detect("cpu"), problem)


def test_nothing_is_made_up_where_no_target_or_no_data_sheet_is_known(problem):
    assert describe(None, problem) == "(not named)"
    text = describe(Target("auto", "gpu", "NVIDIA X1", march="sm_90a"), problem)
    assert "NVIDIA X1 (sm_90a): a GPU of architecture sm_90a.\nIts data sheet is not known.\nCompilers" in text
