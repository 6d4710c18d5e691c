"""The four llm stages, on the dummy and on a server; and the mixes."""

from functools import partial
from itertools import product

import pytest

from ksflow.errors import ConfigError, StageError
from ksflow.kernels.source.tunables import values
from ksflow.lm.answers import answer
from ksflow.lm.prompts.findings import findings
from ksflow.records import (
    Document,
    Experiment,
    Kernel,
    Material,
    Note,
    Origin,
    Passage,
    Plan,
    Population,
    Status,
    Trial,
)
from ksflow.stages.designer.llm import LlmDesigner
from ksflow.stages.designer.mix import MixDesigner as DesignerMix
from ksflow.stages.digester.llm import LlmDigester
from ksflow.stages.selector.llm import LlmSelector
from ksflow.stages.writer.diff import Diff
from ksflow.stages.writer.mix import MixWriter as WriterMix
from ksflow.stages.writer.rewrite import Rewrite
from lm.scripted import dummy, scripted

NOTE = Note("Vectors", "Eight floats.", ("manual, 3.1",))


WRITERS = {
    "rewrite": Rewrite,
    "blocks": Diff,
    "unified": partial(Diff, style="unified"),
}


@pytest.mark.parametrize("how", [*product(["dummy", "server"], WRITERS)], ids="-".join)
def test_a_whole_round(how, provider, calls, problem, population):
    where, writer = how
    model = dummy() if where == "dummy" else provider.model()
    selection = LlmSelector(model)(problem, population)
    plan = LlmDesigner(model)(problem, population, selection, (NOTE,))
    assert len(plan.avenues) == 10
    assert len(plan.experiments) == 5
    assert len(plan.picked) == 3
    write = WRITERS[writer](model)
    kernels = [write(problem, selection, plan.experiments[index], (NOTE,)) for index in plan.picked]
    base = selection.base.kernel
    assert {kernel.language for kernel in kernels} == {"cpp"}
    assert all(list(kernel.files) == ["kernel.cpp"] for kernel in kernels)
    assert all(kernel.report and kernel.main != base.main for kernel in kernels)
    digest = LlmDigester(model)
    notes = digest(problem, Material((Document("isa.md", (Passage("", "text"),)),), population, (NOTE,)))
    assert [note.sources for note in notes] == [NOTE.sources, ("isa.md",), ("00003",)]
    name = "rewrite" if writer == "rewrite" else "diff"
    stages = ["selector=llm", "designer=llm", *[f"writer={name}"] * 3, "digester=llm"]
    assert [call.stage for call in calls] == stages
    if where == "server":
        assert len(provider.requests) == 6


def test_the_same_values_give_the_same_answers(problem, population):
    assert LlmSelector(dummy())(problem, population) == LlmSelector(dummy())(problem, population)


def test_the_selector_refuses_kernels_that_cannot_be_chosen(problem, population):
    model = scripted(lambda text: text.replace("[[ ## base_id ## ]]\n", "[[ ## base_id ## ]]\n00003\n"))
    with pytest.raises(StageError, match="is not an id in the table"):
        LlmSelector(model)(problem, population)


def test_the_selectors_prompt_shows_lineage_times_and_failures(problem, population, calls):
    LlmSelector(dummy())(problem, population)
    prompt = calls[0].messages[1]["content"]
    assert "| 00002 | 00001 | 15.81 | 5 | 50 | - | Unroll the loop. |" in prompt
    assert "00003 from 00002: Unroll the loop. -> reject-incorrect c[3] is off" in prompt


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("Dummy experiment 2", "Dummy experiment 2", None),
        ('"rubric": "the mark is in the code"', '"rubric": " "', "must say something"),
        ('"changes": {"MR": "', '"changes": {"XX": "', "no tunable XX; declared: MR"),
        ('"changes": {"MR": "', '"changes": {"MR": "7', "MR can be 4 6 8 12, not 7"),
        ('"Dummy avenue 1", ', "", "10 were asked for, 9 given"),
    ],
)
def test_the_designer_checks_what_json_cannot(problem, population, selection, old, new, reason):
    designer = LlmDesigner(scripted(lambda text: text.replace(old, new)), attempts=1)
    if reason is None:
        assert designer(problem, population, selection, ())
        return
    with pytest.raises(StageError, match=reason):
        designer(problem, population, selection, ())


def test_the_designer_sees_the_code_its_analysis_and_what_was_tried(problem, population, selection, calls):
    LlmDesigner(dummy())(problem, population, selection, (NOTE,))
    prompt = calls[0].messages[1]["content"]
    assert selection.base.kernel.main in prompt
    assert "| large | 100 | 50 | +100.0 % |" in prompt
    assert "Predicted gain: 0 to 20 percent" in prompt
    assert "Eight floats." in prompt
    assert "manual, 3.1" in prompt
    assert "Failed:\n- 00003: Unroll the loop. -> reject-incorrect c[3] is off" in prompt
    assert "Why these two were chosen: because" in prompt


def test_the_writer_keeps_files_and_language(problem, population, selection):
    two = Kernel("cpp", {"main.cpp": population.trials[0].kernel.main, "more.h": "int x;\n"})
    base = Trial("00001", Origin.SEED, kernel=two, evaluation=selection.base.evaluation)
    chosen = Population((base,)).choose("00001", "00001", "alone")
    experiment = Experiment("Set MR.", "MR is 4", (0.0, 1.0), 1.0, {"MR": "4"})
    kernel = Rewrite(dummy())(problem, chosen, experiment, ())
    assert list(kernel.files) == ["main.cpp", "more.h"]
    assert kernel.files["more.h"] == "int x;\n"
    assert values(kernel.main) == {"MR": "4"}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (None, "unchanged"),
        ("int main() {}", "does not define custom_kernel"),
        ("custom_kernel \0", "NUL"),
        ("custom_kernel " * 16_000, "more than 200 kB"),
    ],
)
def test_the_writer_refuses_what_is_no_new_kernel(problem, selection, code, reason):
    text = selection.base.kernel.main if code is None else code
    model = scripted(lambda good: f"[[ ## report ## ]]\nr\n[[ ## code ## ]]\n{text}\n[[ ## completed ## ]]")
    with pytest.raises(StageError, match=reason):
        Rewrite(model)(problem, selection, selection.base.experiment, ())


def test_a_repair_shows_the_evidence_and_must_change_the_code(problem, population, selection, calls):
    failed = population.trials[2]
    writer = Rewrite(dummy())
    repaired = writer(problem, selection, failed.experiment, (), failed)
    prompt = calls[0].messages[1]["content"]
    assert '{"seed": 7}' in prompt
    assert "c[3] is off" in prompt
    assert "// wrong" in prompt
    assert repaired.main not in {failed.kernel.main, selection.base.kernel.main}
    assert problem.signature in prompt


def test_findings_are_bounded_and_the_trusted_come_first():
    notes = [Note(f"n{status}", "x" * 100, ("s",), ("gfx942",), status) for status in reversed(Status)]
    text = findings(notes)
    assert text.index("Measured here") < text.index("Documented") < text.index("Refuted")
    assert "(for gfx942)" in text
    assert f"{len(Status) - 1} more notes have no room" in findings(notes, tokens=60)


class Fixed:
    """A designer with a name, or one with nothing to give."""

    def __init__(self, name, empty=False):
        self.name = name
        self.empty = empty

    def __call__(self, problem, population, selection, notes):
        if self.empty:
            raise StageError(self.name, "nothing left")
        return Plan((self.name,), (Experiment("d", "r", (0.0, 1.0), 1.0),), (0,))


def test_mixed_designers_take_turns_by_weight(problem, population, selection):
    mix = DesignerMix({"llm": Fixed("llm"), "tune": Fixed("tune")}, {"llm": 3})
    for stride in (1, 2, 3, 5):
        turns = [mix.turn(step * stride) for step in range(400)]
        assert abs(turns.count("llm") - 300) <= 6
    assert mix(problem, population, selection, ()).avenues[0] == mix.turn(3)
    assert mix.turn(3) == DesignerMix(mix.designers, {"llm": 3}).turn(3)


def test_a_designer_with_nothing_to_give_passes_its_turn(problem, population, selection):
    mix = DesignerMix({"tune": Fixed("tune", empty=True), "llm": Fixed("llm")})
    assert mix(problem, population, selection, ()).avenues == ("llm",)
    empty = DesignerMix({"tune": Fixed("tune", empty=True), "llm": Fixed("llm", empty=True)})
    with pytest.raises(StageError, match="nothing left; nothing left"):
        empty(problem, population, selection, ())


@pytest.mark.parametrize("weights", [{"x": 1}, {"llm": -1}, {"llm": 0}])
def test_weights_must_make_sense(weights):
    with pytest.raises(ConfigError, match=r"designer\.weights"):
        DesignerMix({"llm": Fixed("llm")}, weights)


def test_mixed_writers_share_by_what_the_experiment_is(problem, population, selection):
    def writer(name):
        return lambda *args: Kernel("cpp", {"k.cpp": name})

    mix = WriterMix(tune=writer("tune"), llm=writer("llm"))
    code = Experiment("Pack.", "packed", (0.0, 1.0), 1.0)
    values = Experiment("MR", "MR", (0.0, 1.0), 1.0, {"MR": "4"})
    failed = population.trials[2]
    assert mix(problem, selection, code, ()).main == "llm"
    assert mix(problem, selection, values, ()).main == "tune"
    assert mix(problem, selection, values, (), failed).main == "llm"


def test_the_dummy_answers_signatures_it_does_not_know():
    asked = "[[ ## q ## ]]\nx\n\nAnswer with the sections [[ ## a ## ]], then [[ ## completed ## ]]"
    assert answer(asked) == "[[ ## a ## ]]\ndummy\n[[ ## completed ## ]]"
