"""The four llm stages, on the dummy and on a server; and the mixes."""

import random

import pytest

from ksflow.errors import ConfigError, StageError
from ksflow.records import (
    Document,
    Evaluation,
    Experiment,
    Kernel,
    Material,
    Note,
    Origin,
    Plan,
    Population,
    Status,
    Timing,
    Trial,
    Verdict,
)
from ksflow.stages.designer.llm import LlmDesigner
from ksflow.stages.designer.mix import Mix as DesignerMix
from ksflow.stages.digester.llm import LlmDigester
from ksflow.stages.lm import Model, render
from ksflow.stages.lm.answers import answer
from ksflow.stages.lm.engines import DummyEngine
from ksflow.stages.selector.llm import LlmSelector, shortlist
from ksflow.stages.writer.llm import LlmWriter
from ksflow.stages.writer.mix import Mix as WriterMix
from ksflow.tunables import values

NOTE = Note("Vectors", "Eight floats.", ("manual, 3.1",))


class Scripted:
    """An engine whose answers are made by a function of the good answer."""

    def __init__(self, change):
        self.change = change

    def complete(self, request):
        response = DummyEngine().complete(request)
        from dspy.lm15 import Message, Response, TextPart, Usage

        text = self.change(response.message.parts[0].text)
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant([TextPart(text)]),
            finish_reason="stop",
            usage=Usage(input_tokens=1, output_tokens=1, total_tokens=2),
        )


def scripted(change) -> Model:
    return Model("ksflow/scripted", engine=Scripted(change), cache=False)


def dummy() -> Model:
    return scripted(lambda text: text)


@pytest.mark.parametrize("where", ["dummy", "server"])
def test_a_whole_round(where, provider, calls, problem, population):
    model = dummy() if where == "dummy" else provider.model()
    choice = LlmSelector(model)(problem, population)
    plan = LlmDesigner(model)(problem, population, choice, (NOTE,))
    assert len(plan.avenues) == 10
    assert len(plan.experiments) == 5
    assert len(plan.picked) == 3
    kernels = [LlmWriter(model)(problem, choice, plan.experiments[index], (NOTE,)) for index in plan.picked]
    base = choice.base.kernel
    assert {kernel.language for kernel in kernels} == {"cpp"}
    assert all(list(kernel.files) == ["kernel.cpp"] for kernel in kernels)
    assert all(kernel.report and kernel.main != base.main for kernel in kernels)
    notes = LlmDigester(model)(problem, Material((Document("isa.md", "text"),), population, (NOTE,)))
    assert [note.sources for note in notes] == [NOTE.sources, ("isa.md",), ("00003",)]
    stages = ["selector=llm", "designer=llm", *["writer=llm"] * 3, "digester=llm"]
    assert [call.stage for call in calls] == stages
    if where == "server":
        assert len(provider.requests) == 6


def test_the_same_values_give_the_same_answers(problem, population):
    assert LlmSelector(dummy())(problem, population) == LlmSelector(dummy())(problem, population)


def test_the_selector_refuses_kernels_that_cannot_be_chosen(problem, population):
    model = scripted(lambda text: text.replace("[[ ## base ## ]]\n", "[[ ## base ## ]]\n00003\n"))
    with pytest.raises(StageError, match="is not an id in the table"):
        LlmSelector(model)(problem, population)


def test_the_selectors_table_is_bounded_and_keeps_what_matters(problem, population):
    seed, faster, _ = population.trials
    slow = [
        Trial(f"{index:05}", Origin.SEED, kernel=seed.kernel, evaluation=_slow(index), name="s")
        for index in range(10, 300)
    ]
    many = Population((seed, faster, *slow))
    shown = [trial.id for trial in shortlist(problem, many, 12)]
    assert len(shown) == 12
    assert shown[0] == "00002"
    assert "00001" in shown  # the best on one shape
    assert {"00299", "00298", "00297"} <= set(shown)  # the newest
    assert len(shortlist(problem, population, 12)) == 2


def _slow(index):
    times = (Timing("small", 100.0 + index), Timing("large", 1000.0 + index))
    return Evaluation(Verdict.ACCEPT, score_us=500.0 + index, timings=times)


def test_the_selectors_prompt_shows_lineage_times_and_failures(problem, population, calls):
    LlmSelector(dummy())(problem, population)
    prompt = calls[0].messages[1]["content"]
    assert "| 00002 | 00001 | 15.81 | 5 | 50 | Unroll the loop. |" in prompt
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
def test_the_designer_checks_what_json_cannot(problem, population, choice, old, new, reason):
    designer = LlmDesigner(scripted(lambda text: text.replace(old, new)), attempts=1)
    if reason is None:
        assert designer(problem, population, choice, ())
        return
    with pytest.raises(StageError, match=reason):
        designer(problem, population, choice, ())


def test_the_designer_sees_the_code_its_analysis_and_what_was_tried(problem, population, choice, calls):
    LlmDesigner(dummy())(problem, population, choice, (NOTE,))
    prompt = calls[0].messages[1]["content"]
    assert choice.base.kernel.main in prompt
    assert "| large | 100 us | 50 us | +100.0 % |" in prompt
    assert "Predicted gain: 0 to 20 percent" in prompt
    assert "Eight floats." in prompt
    assert "manual, 3.1" in prompt
    assert "00003 from 00002" in prompt


def test_the_writer_keeps_files_and_language(problem, population, choice):
    two = Kernel("cpp", {"main.cpp": population.trials[0].kernel.main, "more.h": "int x;\n"})
    base = Trial("00001", Origin.SEED, kernel=two, evaluation=choice.base.evaluation)
    chosen = Population((base,)).choose("00001", "00001", "alone")
    experiment = Experiment("Set MR.", "MR is 4", (0.0, 1.0), 1.0, {"MR": "4"})
    kernel = LlmWriter(dummy())(problem, chosen, experiment, ())
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
def test_the_writer_refuses_what_is_no_new_kernel(problem, choice, code, reason):
    text = choice.base.kernel.main if code is None else code
    model = scripted(lambda good: f"[[ ## report ## ]]\nr\n[[ ## code ## ]]\n{text}\n[[ ## completed ## ]]")
    with pytest.raises(StageError, match=reason):
        LlmWriter(model)(problem, choice, choice.base.experiment, ())


def test_a_repair_shows_the_evidence_and_must_change_the_code(problem, population, choice, calls):
    failed = population.trials[2]
    writer = LlmWriter(dummy())
    repaired = writer(problem, choice, failed.experiment, (), failed)
    prompt = calls[0].messages[1]["content"]
    assert '{"seed": 7}' in prompt
    assert "c[3] is off" in prompt
    assert "// wrong" in prompt
    assert repaired.main not in {failed.kernel.main, choice.base.kernel.main}
    assert problem.signature in prompt


def test_the_digester_reads_in_pieces_and_keeps_old_notes(problem, population, calls):
    documents = (Document("a.md", "x" * 2500), Document("b.md", "y" * 100))
    notes = LlmDigester(dummy(), piece_kb=1)(problem, Material(documents, Population(()), (NOTE,)))
    assert len(calls) == 3
    assert [note.title for note in notes] == [
        "Vectors",
        "Dummy finding on a.md",
        "Dummy finding on b.md",
    ]
    assert LlmDigester(dummy())(problem, Material(notes=(NOTE,))) == (NOTE,)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('["isa.md"]', '["the web"]', "neither a given document nor a trial id"),
        ('["isa.md"]', "[]", "at least one source"),
        ('"documented"', '"measured"', "names the trials"),
        ('"It was read."', '""', "title, text"),
    ],
)
def test_notes_without_a_source_are_refused(problem, old, new, reason):
    model = scripted(lambda text: text.replace(old, new))
    with pytest.raises(StageError, match=reason):
        LlmDigester(model)(problem, Material((Document("isa.md", "text"),)))


def test_findings_are_bounded_and_the_trusted_come_first():
    notes = [Note(f"n{status}", "x" * 100, ("s",), ("gfx942",), status) for status in reversed(Status)]
    text = render.findings(notes)
    assert text.index("Measured here") < text.index("Documented") < text.index("Refuted")
    assert "(for gfx942)" in text
    assert "3 more notes have no room" in render.findings(notes, room=200)


def test_two_thousand_malformed_answers_end_as_stage_errors(problem, population, choice):
    """Whatever is done to an answer, a stage gives a valid record or raises StageError."""
    chance = random.Random(3)
    engine = Scripted(lambda text: mangle(text, chance))
    model = Model("ksflow/fuzz", engine=engine, cache=False)
    experiment = choice.base.experiment
    material = Material((Document("isa.md", "text"),), population)
    stages = (
        lambda: LlmSelector(model, attempts=1)(problem, population),
        lambda: LlmDesigner(model, attempts=1)(problem, population, choice, ()),
        lambda: LlmWriter(model, attempts=1)(problem, choice, experiment, ()),
        lambda: LlmDigester(model, attempts=1)(problem, material),
    )
    refused = [told for index in range(2000) if (told := _refusal(stages[index % 4]))]
    assert 500 < len(refused) < 2000
    assert all("malformed answer after 1 attempts" in told for told in refused)
    assert max(map(len, refused)) < 1200


def _refusal(stage):
    try:
        stage()
    except StageError as error:
        return str(error)
    return ""


NASTY = (
    "", "\n", "\0", "\ud800", "\f", "\u2028", "```", "```json\n", "[[ ## completed ## ]]\n", "[[ ## ",
    "[[ ## base ## ]]\n", "[[ ## code ## ]]\n", '"', "'", "\\", "{", "}", "[", "]", ",", "NaN",
    "Infinity", "-1e400", "null", "true", "\\ud800", "[" * 5000, '{"a":' * 500, "9" * 5000, "🦀",
)  # fmt: skip


def mangle(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice([0, 0, 1, 5, 50, 5000]))
        text = text[:start] + chance.choice(NASTY) + text[end:]
    return text


class Fixed:
    """A designer with a name, or one with nothing to give."""

    def __init__(self, name, empty=False):
        self.name = name
        self.empty = empty

    def __call__(self, problem, population, choice, notes):
        if self.empty:
            raise StageError(self.name, "nothing left")
        return Plan((self.name,), (Experiment("d", "r", (0.0, 1.0), 1.0),), (0,))


def test_mixed_designers_take_turns_by_weight(problem, population, choice):
    mix = DesignerMix({"llm": Fixed("llm"), "tune": Fixed("tune")}, {"llm": 3})
    for stride in (1, 2, 3, 5):
        turns = [mix.turn(step * stride) for step in range(400)]
        assert abs(turns.count("llm") - 300) <= 6
    assert mix(problem, population, choice, ()).avenues[0] == mix.turn(3)
    assert mix.turn(3) == DesignerMix(mix.designers, {"llm": 3}).turn(3)


def test_a_designer_with_nothing_to_give_passes_its_turn(problem, population, choice):
    mix = DesignerMix({"tune": Fixed("tune", empty=True), "llm": Fixed("llm")})
    assert mix(problem, population, choice, ()).avenues == ("llm",)
    empty = DesignerMix({"tune": Fixed("tune", empty=True), "llm": Fixed("llm", empty=True)})
    with pytest.raises(StageError, match="nothing left; nothing left"):
        empty(problem, population, choice, ())


@pytest.mark.parametrize("weights", [{"x": 1}, {"llm": -1}, {"llm": 0}])
def test_weights_must_make_sense(weights):
    with pytest.raises(ConfigError, match=r"designer\.weights"):
        DesignerMix({"llm": Fixed("llm")}, weights)


def test_mixed_writers_share_by_what_the_experiment_is(problem, population, choice):
    def writer(name):
        return lambda *args: Kernel("cpp", {"k.cpp": name})

    mix = WriterMix(tune=writer("tune"), llm=writer("llm"))
    code = Experiment("Pack.", "packed", (0.0, 1.0), 1.0)
    values = Experiment("MR", "MR", (0.0, 1.0), 1.0, {"MR": "4"})
    failed = population.trials[2]
    assert mix(problem, choice, code, ()).main == "llm"
    assert mix(problem, choice, values, ()).main == "tune"
    assert mix(problem, choice, values, (), failed).main == "llm"


def test_the_dummy_answers_signatures_it_does_not_know():
    asked = "[[ ## q ## ]]\nx\n\nAnswer with the sections [[ ## a ## ]], then [[ ## completed ## ]]"
    assert answer(asked) == "[[ ## a ## ]]\ndummy\n[[ ## completed ## ]]"
