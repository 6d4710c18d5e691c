"""The notes that ship: every claim names its source, and each chip gets the notes of its folder."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ksflow.cli.sources import Sources
from ksflow.errors import ConfigError
from ksflow.home import shipped_path
from ksflow.kernels.hardware import cpu, target
from ksflow.kernels.languages import LANGUAGES
from ksflow.notes import knowledge
from ksflow.records import Status

ROOT = shipped_path("knowledge")
FOLDERS = {"hopper": "h200", "cdna3": "mi325x", "cdna4": "mi350x"}
"""A target for each folder of a GPU."""
FILES = sorted(file for name in (*FOLDERS, "cpu", "languages") for file in (ROOT / name).glob("*.md"))
NOTES = [file for file in FILES if file.name != "index.md"]
_MARK = re.compile(r"\[(\d+)\]")


def _claims(text: str) -> list[str]:
    """Paragraphs and bullets, without code."""
    prose = re.sub(r"`[^`]+`", "", re.sub(r"^```$.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    return [claim for claim in re.split(r"\n\s*\n|^- ", prose, flags=re.MULTILINE) if claim.strip()]


@pytest.fixture(params=NOTES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def note(request: pytest.FixtureRequest) -> knowledge.Note:
    return knowledge.read_note(request.param)


def test_every_claim_names_a_source_and_every_source_is_named(note):
    marks = [set(map(int, _MARK.findall(claim))) for claim in _claims(note.text)]
    assert all(marks), _claims(note.text)[marks.index(set())]
    assert set.union(*marks) == set(range(1, len(note.sources) + 1))


def test_what_a_note_quotes_stands_there_and_what_it_does_not_quote_it_does_not_call_documented(note, request):
    file = request.node.callspec.params["note"]
    quotes = note.quotes or ("",) * len(note.sources)
    if note.status is Status.DOCUMENTED:
        assert all(quotes)
    own = [source.startswith(("problems/", "seeds/", "benchmarks/", "results/")) for source in note.sources]
    assert [bool(quote) for quote in quotes] == own, "documents that are in the project are quoted"
    findings = Sources(no_lineage, "softmax", "main").check_note(knowledge.StoredNote(note, "shipped", file, True))
    assert [found.holds for found in findings] == [True if quote else None for quote in quotes]


def no_lineage(**names):
    raise ConfigError("there is none")


def test_a_changed_document_is_found_out():
    file = ROOT / "hopper" / "memory.md"
    note = replace(knowledge.read_note(file), quotes=("", "", "", "", "The driver gives 50 MB of L2."))
    (*_, last) = Sources(no_lineage, "softmax", "main").check_note(knowledge.StoredNote(note, "shipped", file, True))
    assert (last.holds, last.said) == (False, "benchmarks/GPU.md does not say there: The driver gives 50 MB of L2.")


def test_a_note_is_short_enough_for_a_prompt_and_its_code_is_closed(note):
    assert 300 < len(note.text) <= 1600
    assert max(map(len, note.text.splitlines())) <= 120
    assert note.text.count("```") % 2 == 0
    assert not note.text.startswith("```"), "an index shows the first sentence"


def test_targets_and_problems_are_ones_that_ship(note):
    assert note.targets
    known = {file.stem for file in shipped_path("conf", "target").glob("*.yaml")} | {*cpu.FEATURES} | {*LANGUAGES}
    assert known.issuperset(note.targets)
    assert all(shipped_path("problems", name).is_dir() for name in note.problems)


def test_no_title_stands_twice():
    titles = [knowledge.read_note(file).title for file in NOTES]
    assert len(titles) == len(set(titles))


def test_sources_within_the_project_are_there():
    named = {source.split(",")[0] for file in NOTES for source in knowledge.read_note(file).sources}
    own = {name for name in named if name.startswith(("problems/", "seeds/", "benchmarks/", "README"))}
    assert own
    assert all((Path(__file__).parent.parent / name).is_file() for name in own)


@pytest.mark.parametrize("folder", [*FOLDERS, "cpu", "languages"])
def test_an_index_lists_the_folder_s_notes(folder):
    listed = re.findall(r"^- `([\w-]+\.md)`: \S.*\.$", (ROOT / folder / "index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(file.name for file in NOTES if file.parent.name == folder)


@pytest.mark.parametrize(("folder", "name"), FOLDERS.items())
def test_a_chip_gets_the_notes_that_name_it_and_no_others(tmp_path, folder, name):
    sheet = yaml.safe_load(shipped_path("conf", "target", f"{name}.yaml").read_text())
    sheet.pop("_target_")
    given = {
        note.title
        for note in knowledge.initial_notes(target.from_data_sheet(**sheet), lineage=str(tmp_path / "lineage.git"))
    }
    notes = {file: knowledge.read_note(file) for file in NOTES}
    assert {note.title for file, note in notes.items() if file.parent.name == folder} <= given
    assert {note.title for note in notes.values() if name not in note.targets}.isdisjoint(given)
