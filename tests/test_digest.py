"""The verb as typed: documents become notes whose every claim can be looked up, and a kill costs nothing twice."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fpdf import FPDF
from lm.server import Provider, Reply
from test_cli import ksflow

from ksflow.cli.digest import NoteStore
from ksflow.cli.sources import Sources
from ksflow.errors import ConfigError
from ksflow.notes import documents, knowledge
from ksflow.notes.knowledge import StoredNote
from ksflow.records import Note

TASK = ["problem=softmax", "target=h100", "model.name=gpt-5", "llm=openai_compatible"]
FILLER = " ".join(f"clause {number} of the licence," for number in range(180))


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    made.reply = lambda prompt: Reply(reading(prompt))
    yield made
    made.close()


def manual(path: Path, pages: int) -> Path:
    """A reference of which a page in ten says something about the task."""
    pdf = FPDF()
    pdf.set_font("Helvetica", size=10)
    for number in range(1, pages + 1):
        pdf.add_page()
        if number % 5 == 1:
            pdf.start_section(f"Chapter {number // 5 + 1}")
        fact = f"The softmax unit reduces row {number} of float32 values in {3 * number} cycles."
        pdf.multi_cell(0, 5, f"{fact if number % 10 == 3 else 'Nothing.'}\n{FILLER}")
    pdf.output(str(path))
    return path


def reading(prompt: str) -> str:
    """A model that reads: it names places, and notes facts in the words of the page; now and then it invents one."""
    if "[[ ## places ## ]]" in prompt:
        return "[[ ## places ## ]]\n[2, 1, 3]\n[[ ## completed ## ]]"
    notes = []
    for source, text in re.findall(r"^### source: (.+)\n((?:(?!### source: |\[\[ ).*\n?)*)", prompt, re.MULTILINE):
        if fact := re.search(r"The softmax unit reduces.*?cycles\.", text, re.DOTALL):
            notes.append(note(source, fact[0]))
    refused = "Your previous answer was refused" in prompt
    if notes and not refused and len(notes) % 2:
        notes[0]["quotes"] = ["The softmax unit is free of any cost"]
    return f"[[ ## notes ## ]]\n{json.dumps(notes)}\n[[ ## completed ## ]]"


def note(source: str, fact: str) -> dict[str, object]:
    title = f"Cost on {source}"
    text = "The unit reduces a row [1].\n\n- It takes `n` cycles [1]."
    return {"title": title, "text": text, "sources": [source], "quotes": [fact], "status": "documented"}


def kept(folder: Path) -> list[Note]:
    files = sorted((folder / "runs/knowledge/h100").glob("*.md"))
    return [knowledge.read_note(file) for file in files if file.name != "index.md"]


def check(folder: Path, *paths: Path) -> int:
    """Every claim of every note stands where its source says; how many there are."""
    read = [document for file in documents.find(paths) if (document := documents.load(file))]
    claims = [pair for note in kept(folder) for pair in zip(note.sources, note.quotes, strict=True)]
    assert all(documents.locate(read, source, quote) for source, quote in claims)
    return len(claims)


@pytest.mark.slow
def test_files_and_folders_become_notes(tmp_path: Path, provider: Provider) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    facts = {
        "a.md": "# Unit\n\n{}\n",
        "b.html": "<nav>x</nav><h1>Unit</h1><p>{}</p>",
        "c.txt": "{}\n",
        "d.cu": "// {}\n",
    }
    for number, (name, text) in enumerate(facts.items()):
        (docs / name).write_text(text.format(f"The softmax unit reduces row {number} in 9 cycles."))
    (docs / "lib.so").write_bytes(b"\0\1")
    isa = manual(tmp_path / "isa.pdf", 4)
    done = ksflow(tmp_path, "digest", "docs", "isa.pdf", *TASK, LLM_URL=provider.url)
    assert done.returncode == 0, done.stderr
    assert check(tmp_path, docs, isa) == 5
    assert {source for note in kept(tmp_path) for source in note.sources} == {
        "docs/a.md, Unit",
        "docs/b.html, Unit",
        "docs/c.txt, lines 1-1",
        "docs/d.cu, lines 1-1",
        "isa.pdf, page 3, Chapter 1",
    }
    assert "left out of docs: 1 binary (docs/lib.so)" in done.stdout
    assert re.search(
        r"piece 1 of 1, docs/a.md, Unit to isa.pdf, page 4, .*: 5 notes; 3000 tokens, \$0.0\d", done.stdout
    )
    rows = json.loads((tmp_path / "runs/knowledge/h100/documents.json").read_text())
    assert [row["name"] for row in rows] == ["docs/a.md", "docs/b.html", "docs/c.txt", "docs/d.cu", "isa.pdf"]
    assert all(documents.fingerprint(Path(row["path"])) == (row["sha256"], row["size"]) for row in rows)
    assert len(provider.requests) == 2
    assert "does not stand there; copy words from it exactly" in json.dumps(provider.requests[1])
    log = ["git", "-C", str(tmp_path / "runs/lineage.git"), "log", "--format=%s", "refs/ksflow/softmax/main/calls"]
    calls = subprocess.run(log, capture_output=True, text=True, check=True).stdout.splitlines()
    assert calls == ["digester=llm: openai/gpt-5"] * 2


@pytest.mark.slow
@pytest.mark.soak
def test_a_manual_of_300_pages_stays_within_its_budget(tmp_path: Path, provider: Provider) -> None:
    isa = manual(tmp_path / "isa.pdf", 300)
    limits = ["digester.tokens=60000", "digester.findings=2000", "digester.piece_kb=40"]
    done = ksflow(tmp_path, "digest", "isa.pdf", *TASK, *limits, LLM_URL=provider.url)
    assert done.returncode == 0, done.stderr
    sent = sum(len(str(message["content"])) for request in provider.requests for message in request["messages"])
    assert 30_000 < sent / 4 < 60_000
    assert "passages (isa.pdf, page" in done.stdout
    assert check(tmp_path, isa) >= 10


@pytest.mark.slow
@pytest.mark.soak
def test_a_kill_halfway_costs_nothing_twice(tmp_path: Path, provider: Provider) -> None:
    isa = manual(tmp_path / "isa.pdf", 30)
    command = ["digest", "isa.pdf", *TASK, "digester.piece_kb=20", "digester.tokens=1000000"]

    def slowly(prompt: str) -> Reply:
        time.sleep(0.3)
        return Reply(reading(prompt))

    provider.reply = slowly
    other = tmp_path / "other"
    other.mkdir()
    whole = ksflow(other, "digest", str(isa), *command[2:], LLM_URL=provider.url, DSPY_CACHEDIR=str(other / "dspy"))
    assert whole.returncode == 0, whole.stderr
    asked = len(provider.requests)
    assert asked >= 8
    for _ in range(3):
        before = len(provider.requests)
        process = subprocess.Popen(
            [sys.executable, "-m", "ksflow", *command],
            cwd=tmp_path,
            env={**os.environ, "LLM_URL": provider.url},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and len(provider.requests) < before + 3:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = ksflow(tmp_path, *command, LLM_URL=provider.url)
    assert done.returncode == 0, done.stderr
    # each kill may lose the call that was under way, and no answer that was there
    sent = [json.dumps(request) for request in provider.requests[asked:]]
    assert len(set(sent)) == asked
    assert len(sent) <= asked + 3
    assert kept(tmp_path) == kept(other)
    assert check(tmp_path, isa) == 3


def test_documents_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    shelf = tmp_path / "notes"
    for name, fact in (("a", "A tile has sixteen rows."), ("b", "A bank is four bytes wide.")):
        file = tmp_path / name / "README.md"
        file.parent.mkdir()
        file.write_text(fact)
        NoteStore(shelf, documents.find([file])).keep(
            name, (Note(name, f"{fact} [1].", ("README.md",), quotes=(fact,)),)
        )
    sources = Sources(lambda **place: None, "softmax", "main")
    entries = [StoredNote(knowledge.read_note(shelf / f"{name}.md"), "", shelf / f"{name}.md") for name in "ab"]
    assert [found.holds for entry in entries for found in sources.check_note(entry)] == [True, True]
    lie = replace(entries[0].note, quotes=("A tile has twelve rows.",))
    assert [found.holds for found in sources.check_note(replace(entries[0], note=lie))] == [False]
    (tmp_path / "b" / "README.md").write_text("Something else.")
    assert [found.holds for found in sources.check_note(replace(entries[0], note=lie))] == [None]


def test_two_digestions_into_one_folder_forget_nothing(tmp_path: Path) -> None:
    one, two = NoteStore(tmp_path, []), NoteStore(tmp_path, [])
    one.keep("abc", ())
    two.keep("xyz", ())
    assert NoteStore(tmp_path, []).done == {"abc", "xyz"}


@pytest.mark.parametrize(("name", "text"), [("documents.json", '{"a": 1}'), (".digested.json", "[]")])
def test_a_record_that_is_none_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=f"{name} .*remove it"):
        NoteStore(tmp_path, [])


@pytest.mark.slow
def test_a_budget_ends_the_reading_and_keeps_the_notes(tmp_path: Path, provider: Provider) -> None:
    manual(tmp_path / "isa.pdf", 24)
    limits = ["digester.piece_kb=40", "loop.stages.digester.calls=2"]
    done = ksflow(tmp_path, "digest", "isa.pdf", *TASK, *limits, LLM_URL=provider.url)
    assert done.returncode == 1, done.stderr
    assert "stages.digester.calls=2 used up; raise it and give the same command again" in done.stdout
    assert len(provider.requests) == 2
    assert kept(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the command is: digest PATH..."),
        (["isa.md", "llm=offline"], "digest needs a model that reads; choose one with llm=..."),
        (["gone.md", "llm=dummy"], "no file or folder gone.md"),
        (["isa.md", "llm=dummy", "more.md"], "'more.md' is not key=value; a command's words come first"),
    ],
)
def test_what_is_missing_is_said_in_a_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "isa.md").write_text("# A\n\nSome words here.\n")
    done = ksflow(tmp_path, "digest", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_machine_that_is_found_and_the_same_one_named_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / "isa.md").write_bytes("# Tiles\n\nA tile has sixteen rows.\n".encode("utf-8-sig"))
    for target, came in (("auto", "1 note new"), ("cpu", "read before")):
        done = ksflow(tmp_path, "digest", "isa.md", "problem=softmax", f"target={target}", "llm=dummy")
        assert done.returncode == 0, done.stderr
        assert came in done.stdout
    assert [folder.name for folder in (tmp_path / "runs" / "knowledge").iterdir()] == ["cpu"]


def test_a_dry_run_needs_no_model(tmp_path: Path) -> None:
    (tmp_path / "isa.md").write_text("# Registers\n\nSome words about registers.\n")
    done = ksflow(tmp_path, "digest", "isa.md", "problem=softmax", "target=h100", "llm=dummy")
    assert done.returncode == 0, done.stderr
    assert [note.sources for note in kept(tmp_path)] == [("isa.md, Registers",)]


@pytest.mark.slow
def test_a_refused_answer_is_kept_from_no_later_command(tmp_path: Path, provider: Provider) -> None:
    (tmp_path / "isa.md").write_text("# Unit\n\nThe softmax unit reduces row 3 in 9 cycles.\n")
    provider.reply = lambda prompt: Reply("I would rather not.")
    for asked in (3, 6):
        done = ksflow(tmp_path, "digest", "isa.md", *TASK, LLM_URL=provider.url)
        assert done.returncode == 1, done.stderr
        assert "malformed answer" in done.stdout
        assert len(provider.requests) == asked
