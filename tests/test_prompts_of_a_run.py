"""What a model is told late in a real run: the lineage of `results/fp8_gemm_h200_columns`, as its last round began."""

import re
import subprocess
from pathlib import Path

import pytest
from tokenizer import counter

from ksflow.kernels.problem.loader import load
from ksflow.kernels.source.tokens import estimate
from ksflow.lineage import Lineage
from ksflow.lm import Model
from ksflow.lm.engines import DummyEngine
from ksflow.records import Note, Population, Problem, Selection
from ksflow.stages.designer.llm import LlmDesigner
from ksflow.stages.writer.llm import LlmWriter

BUNDLE = Path(__file__).parents[1] / "results" / "fp8_gemm_h200_columns" / "lineage.bundle"


class Late:
    """The run as its last round began."""

    def __init__(self, lineage: Lineage) -> None:
        lineage.expect_as_recorded()
        whole = lineage.population()
        self.last = whole.plans[-1]
        trials = tuple(trial for trial in whole.trials if trial.id < self.last.trials[0])
        self.experiment = whole.by_id[self.last.trials[0]].experiment
        self.notes: tuple[Note, ...] = lineage.notes()
        self.known = Population(trials, plans=whole.plans[:-1]).prune(self.notes)
        self.selection: Selection = self.known.choose(self.last.base, self.last.reference, self.last.rationale)
        self.problem: Problem = load("fp8_gemm", "leaderboard")
        self.model = Model("ksflow/dummy", engine=DummyEngine(), cache=False)


@pytest.fixture(scope="module")
def late(tmp_path_factory) -> Late:
    path = tmp_path_factory.mktemp("run") / "lineage.git"
    subprocess.run(["git", "clone", "-q", "--mirror", BUNDLE, path], check=True)
    lineage = Lineage(path, "fp8_gemm", "h200_columns", create=False)
    try:
        return Late(lineage)
    finally:
        lineage.close()


def test_the_designer_sees_all_that_was_tried_and_what_was_left(late):
    asked = LlmDesigner(late.model).question(late.problem, late.known, late.selection, late.notes).inputs
    tried = asked["tried"]
    shown = set(re.findall(r"^- (\d{5}): ", tried, re.MULTILINE))
    experiments = {trial.id for trial in late.known.trials if trial.experiment and trial.id not in late.known.pruned}
    assert len(shown) >= 0.8 * len(experiments)
    assert max(experiments) in shown
    assert "- 00058: ... two copying threads. (Two copying threads, eight neighbours.) -> 49.4 us, +0.6 %" in tried
    assert "[6144x7168x256 +28.8 %, 1024x7168x256 +13.0 %" in tried
    assert "Designed earlier and not run:\n- for 00044, predicted -2 to 0.05 %: Multicast of b's panels" in tried
    assert f"Why these two were chosen: {late.last.rationale}" in asked["reference_analysis"]
    assert asked["reference_code"].startswith("(what differs from the base: ")
    assert "+// launch: prepare [cdiv(n, 128) + (FORM == 1) * cdiv(m, 128) + 1, k // 128]" in asked["reference_code"]


def test_prompts_have_the_size_that_they_may_have(late):
    """By OpenAI's o200k, where that lies here: they were 64,541 and 108,447 tokens."""
    tokens = counter("openai/gpt-5")
    designer, writer = LlmDesigner(late.model), LlmWriter(late.model).edits
    asked = {
        25_000: (designer, designer.question(late.problem, late.known, late.selection, late.notes)),
        28_000: (writer, writer.question(late.problem, late.selection, late.experiment, late.notes)),
    }
    for most, (stage, question) in asked.items():
        size = sum(tokens(str(message["content"])) for message in stage.program.messages(question.inputs))
        assert size <= most * (1.3 if tokens is estimate else 1)


def test_compiler_lines_are_those_of_what_runs_longest_and_the_score_has_room_on_short_sums(late):
    asked = LlmDesigner(late.model).question(late.problem, late.known, late.selection, late.notes).inputs
    lines = [line for line in asked["base_analysis"].split("\n") if line.startswith("Compiled")]
    assert lines[1].startswith("Compiled (runs in 70 % of the time): gemm variants=3: registers 128")
    assert "nearest one is (59.3 %): 1024x4096x512 (18.5 %): +6.7 %; 1024x576x7168" in asked["base_analysis"]
    assert "floor" not in asked["base_analysis"]


def test_the_writer_edits_what_it_is_shown_of_a_long_kernel(late):
    writer = LlmWriter(late.model).edits
    asked = writer.question(late.problem, late.selection, late.experiment, late.notes).inputs
    base = late.selection.base.kernel.main
    shown = asked["base_code"]
    assert len(shown) < 0.4 * len(base)
    whole = base.split("\n")
    assert all(line in whole for line in shown.split("\n") if "..." not in line)
    assert "are 20 more like lines 235-244, 245-254, with other numbers" in shown
    assert "// dispatch: if m == 6144 and n == 7168 and k == 256: FORM=3 STRIP=448" in shown
    assert "constexpr int COPIERS = 3;" in shown
    for name in ("prepare(", "stationary(", "strips(", "gemm("):
        assert name in shown
    assert "SHOW 120-180" in asked["edit_format"]
    assert sum(map(len, asked.values())) < 110_000
