"""Prompts are lists of sections that fit into what a model can take."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from ksflow.kernels.source.tokens import estimate
from ksflow.lm.program import Program
from ksflow.lm.prompts import brief
from ksflow.lm.prompts.brief import SLOW, STABLE, VOLATILE, Section, fill
from ksflow.records import Experiment, Note
from ksflow.stages.writer.rewrite import Rewrite, Write
from lm.scripted import dummy

_NOTES = tuple(Note(f"Note {number}", "A wave has 64 lanes. " * 20, ("isa.md",)) for number in range(20))


def quarters(text: str) -> int:
    return -(-len(text) // 4)


@pytest.fixture
def a_token_for_four_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brief, "count", quarters)


@pytest.mark.usefixtures("a_token_for_four_characters")
def test_sections_are_whole_where_no_budget_is_set() -> None:
    sections = [Section("a", STABLE, "x" * 400, priority=3), Section("b", SLOW, lambda room: "y" * 4 * room, 50, 1)]
    made = fill(sections)
    assert made == {"a": "x" * 400, "b": "y" * 200}
    assert made.left_out == ()


@pytest.mark.usefixtures("a_token_for_four_characters")
def test_what_matters_most_is_filled_first_and_of_equals_what_changes_least() -> None:
    sections = [
        Section("task", STABLE, "t" * 40),
        Section("notes", STABLE, lambda room: "n" * 4 * room, 100, priority=2),
        Section("analysis", SLOW, "a" * 80, priority=1),
        Section("other", SLOW, "o" * 400, priority=2),
        Section("experiment", VOLATILE, "e" * 40),
    ]
    made = fill(sections, 100)
    assert list(made) == [section.name for section in sections]
    assert [quarters(made[name]) for name in ("task", "analysis", "experiment", "notes")] == [10, 20, 10, 60]
    assert made["other"] == "(left out: its 100 tokens have no room here)"
    assert made.left_out == ("notes", "other")


@pytest.mark.usefixtures("a_token_for_four_characters")
def test_what_is_needed_is_there_whatever_the_budget() -> None:
    made = fill([Section("task", STABLE, "t" * 400), Section("notes", STABLE, "n", priority=1)], 10)
    assert made["task"] == "t" * 400
    assert made.left_out == ("notes",)


@pytest.mark.parametrize("most", [None, 3_300, 3_220])
def test_a_prompt_fits_into_the_context_of_the_model(most, problem, population):
    writer = Rewrite(replace(dummy(), context_tokens=most, max_tokens=1000))
    selection = population.choose(*(trial.id for trial in population.ranked[:2]), "")
    with capture_logs() as logs:
        inputs = dict(
            writer.question(problem, selection, Experiment("unroll", "it is", (1.0, 2.0), 5.0), _NOTES).inputs
        )
    assert list(inputs) == list(Write.input_fields)
    program = Program("writer=rewrite", Write, dummy())
    size = sum(estimate(str(message["content"])) for message in program.messages(inputs)) + 1000
    if most is None:
        assert all(note.title in inputs["findings"] for note in _NOTES)
        assert logs == []
    else:
        assert size <= most
        assert [log["stage"] for log in logs] == ["writer"]
        assert "findings" in logs[0]["shortened"]
