"""Notes as files, what fits where, and the verb: what is known, whether it holds, and a person's doubt."""

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from conftest import accepted, draft, kernel, plant, rejected
from test_cli import DRY, ksflow

from ksflow.cli import knowledge as command
from ksflow.cli.sources import SourceCheck, Sources
from ksflow.errors import ConfigError
from ksflow.lineage import Lineage
from ksflow.notes import knowledge
from ksflow.notes.knowledge import StoredNote
from ksflow.records import Note, Status, Target

Verb = Callable[..., tuple[int, str]]
CPU = Target("cpu", "cpu", "a chip", features=("avx2",))
H200 = Target("auto", "gpu", "NVIDIA H200", march="sm_90a")
MI300X = Target("mi300x", "gpu", "AMD Instinct MI300X", march="gfx942")
NOTE = Note(
    title='Loads: a "line" is 64 bytes --- and so is a store\'s',
    text="Claim [1].\n---\nAnother: with a colon [2].",
    sources=("manual.md, 3 > Caches", "00012"),
    targets=("cpu",),
    status=Status.MEASURED,
    problems=("softmax",),
    quotes=("a line is\n64 bytes", ""),
    closes=("00012", "00013"),
    program="lines.cpp",
    challenge="I saw 128",
)


def test_a_note_comes_back_from_disk_as_it_was(tmp_path: Path) -> None:
    file = knowledge.write(NOTE, tmp_path, origin="a probe")
    assert knowledge.read_note(file) == NOTE
    assert "origin: a probe" in file.read_text()
    knowledge.write(replace(NOTE, text="Other."), tmp_path)
    assert knowledge.read_note(file).text == "Other."
    assert "origin: a probe" in file.read_text()
    assert [path.name for path in tmp_path.glob("*.md") if path.name != "index.md"] == [file.name]


def test_titles_that_come_to_one_name_stay_two_files(tmp_path: Path) -> None:
    names = {
        knowledge.write(replace(NOTE, title=title), tmp_path).name for title in ("A b", "a B", "a-b", "...", "Index")
    }
    assert len(names) == 5
    assert "index.md" not in names
    again = {
        knowledge.write(replace(NOTE, title=title), tmp_path).name for title in ("A b", "a B", "a-b", "...", "Index")
    }
    assert again == names


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no front matter", "does not begin with"),
        ("---\ntitle: x\n---\ntext", "title or sources are missing"),
        ("---\ntitle: x\nsources: one\n---\n", "sources is not a list"),
        (
            "---\ntitle: x\nsources: [a]\nstatus: sure\n---\n",
            "status 'sure'; valid: documented, cited, measured, assumed, refuted; mend or remove it",
        ),
        ("---\ntitle: x\nsources: [a]\nstate: measured\n---\n", "unknown key 'state'; valid: title"),
        ("---\ntitle: x\nsources: [a, b]\nquotes: [q]\n---\n", "1 quotes for 2 sources"),
        ("---\ntitle: [\n---\n", "is not a note"),
    ],
)
def test_a_broken_file_is_named_in_one_line(tmp_path: Path, text: str, reason: str) -> None:
    folder = tmp_path / "knowledge" / "cpu"
    folder.mkdir(parents=True)
    (folder / "bad.md").write_text(text)
    with pytest.raises(ConfigError) as caught:
        knowledge.initial_notes(CPU, lineage=str(tmp_path / "lineage.git"))
    assert reason in str(caught.value)
    assert str(folder / "bad.md") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ids_of_trials_are_text(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("---\ntitle: 012\nsources: [00012]\nchallenge:\ntargets:\n---\nx\n")
    assert knowledge.read_note(tmp_path / "a.md") == Note("012", "x", ("00012",))


@pytest.mark.parametrize(
    ("targets", "fits"),
    [
        ((), {"cpu", "auto", "mi300x"}),
        (("cpu",), {"cpu"}),
        (("gpu",), {"auto", "mi300x"}),
        (("h100",), {"auto"}),
        (("mi325x",), {"mi300x"}),
        (("gfx94",), {"mi300x"}),
        (("mi355x", "b200"), set()),
        ((f"{CPU.fingerprint}-g++", "h100"), {"cpu", "auto"}),
        (("avx2", "amx_tile"), {"cpu"}),
        (("amx_tile",), set()),
        (("../../etc/passwd",), set()),
    ],
)
def test_notes_fit_their_targets_and_their_family(targets: tuple[str, ...], fits: set[str]) -> None:
    note = replace(NOTE, targets=targets)
    assert {target.name for target in (CPU, H200, MI300X) if knowledge.is_relevant(note, target, "softmax")} == fits
    assert not knowledge.is_relevant(note, CPU, "fp8_gemm")


def test_the_users_notes_join_the_shipped_ones_and_replace_them(tmp_path: Path) -> None:
    shipped = {note.title: note for note in knowledge.initial_notes(CPU, lineage=str(tmp_path / "lineage.git"))}
    title = next(title for title in shipped if title.startswith("Softmax"))
    mine = knowledge.user_folder(tmp_path / "lineage.git")
    assert mine == tmp_path / "knowledge"
    knowledge.write(replace(shipped[title], text="Better."), mine / "cpu")
    knowledge.write(NOTE, mine / "cpu")
    knowledge.write(replace(NOTE, title="Elsewhere", targets=("h100",)), mine / "h100")
    found = {
        note.title: note for note in knowledge.initial_notes(CPU, "softmax", lineage=str(tmp_path / "lineage.git"))
    }
    assert found[title].text == "Better."
    assert NOTE.title in found
    assert found.keys() == shipped.keys() | {NOTE.title}
    assert NOTE.title not in {
        n.title for n in knowledge.initial_notes(CPU, "other", lineage=str(tmp_path / "lineage.git"))
    }


def test_a_rewritten_note_keeps_the_doubt() -> None:
    assert knowledge.keep_challenges([replace(NOTE, text="new", challenge="")], [NOTE])[0].challenge == "I saw 128"
    assert knowledge.keep_challenges([replace(NOTE, title="new", challenge="")], [NOTE])[0].challenge == ""


# -- sources ---------------------------------------------------------------------------------------


def looked_up(lineage: Lineage, one: StoredNote) -> tuple[SourceCheck, ...]:
    """By somebody who has not looked before."""
    sources = Sources(partial(Lineage, lineage.store.path), "toy", "main")
    try:
        return sources.check_note(one)
    finally:
        sources.close()


def entry(*names: str, folder: Path | None = None, quotes: tuple[str, ...] = (), program: str = "") -> StoredNote:
    note = Note("t", "x", names, quotes=quotes, program=program)
    return StoredNote(note, "here", folder / "t.md" if folder else None)


def test_trials_hold_as_long_as_the_judge_says_the_same(lineage: Lineage) -> None:
    seed = plant(lineage, "int a;\n", 100.0)
    (trial,) = lineage.dispatch([draft(seed.id)])
    lineage.write(replace(trial, kernel=kernel("int b;\n")))
    lineage.evaluate(replace(trial, kernel=kernel("int b;\n"), evaluation=accepted(50.0)))
    then = lineage.commit_of(trial.id)[:10]
    names = (f"{trial.id}@{then}", trial.id, f"toy/main/{trial.id}@{then}", "00099", f"{seed.id}@{then}", "x/../00001")
    assert [found.holds for found in looked_up(lineage, entry(*names))] == [True, True, True, False, False, None]
    lineage.evaluate(replace(trial, kernel=kernel("int b;\n"), evaluation=accepted(51.0)), "confirmed")
    assert [found.holds for found in looked_up(lineage, entry(*names[:2]))] == [True, True]
    lineage.evaluate(replace(trial, kernel=kernel("int b;\n"), evaluation=rejected()), "refuted")
    cited, bare = looked_up(lineage, entry(*names[:2]))
    assert (cited.holds, bare.holds) == (False, None)
    assert cited.said == "accept 50 µs when it was cited, reject-incorrect now"
    assert "unroll the loop" in cited.context


def test_quotes_are_looked_up_in_the_documents(tmp_path: Path, lineage: Lineage) -> None:
    document = tmp_path / "manual.md"
    document.write_text("# Caches\n\nA line is 64\nbytes, always.\n\n# Else\n\nNothing.\n")
    sha256 = hashlib.sha256(document.read_bytes()).hexdigest()
    rows = [{"name": "manual.md", "path": str(document), "sha256": sha256}]
    rows += [{"name": "gone.md", "path": str(tmp_path / "gone.md"), "sha256": sha256}]
    (tmp_path / "documents.json").write_text(json.dumps(rows))
    names = ("manual.md, Caches", "manual.md, Caches", "manual.md, Else", "gone.md, X", "other.md, Y", "manual.md")
    quotes = ("A line is 64 bytes", "A line is 32 bytes", "A line is 64 bytes", "q", "q", "")
    found = looked_up(lineage, entry(*names, folder=tmp_path, quotes=quotes))
    assert [each.holds for each in found] == [True, False, False, None, None, None]
    assert "always." in found[0].context
    assert found[3].said.endswith("gone.md is missing")
    document.write_text("changed")
    changed = looked_up(lineage, entry(*names[:2], folder=tmp_path, quotes=quotes[:2]))
    assert {(each.holds, each.said.endswith("has changed since it was read")) for each in changed} == {(None, True)}


def test_a_probe_holds_while_its_program_lies_there(tmp_path: Path, lineage: Lineage) -> None:
    one = entry("probe memory-read on cpu-1", folder=tmp_path, program="read.cpp")
    assert looked_up(lineage, one)[0].holds is None
    (tmp_path / "read.cpp").write_text("int x;")
    assert looked_up(lineage, one)[0].holds is True


# -- the verb --------------------------------------------------------------------------------------


@pytest.fixture
def verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    """The verb in an empty folder: its exit code, and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("sys.path", [*sys.path])

    def said(*words: str) -> tuple[int, str]:
        cut = next((at for at, word in enumerate(words) if "=" in word), len(words))
        code = command.show_knowledge([*words[:cut]], [*words[cut:], "target=cpu", "problem=softmax", "evaluator=fake"])
        return code, capsys.readouterr().out

    return said


def test_a_shipped_note_is_doubted_in_a_copy_and_upheld(verb: Verb, tmp_path: Path) -> None:
    code, listed = verb()
    assert code == 0
    assert "Softmax is bound by passes" in listed
    assert "wgmma" not in listed
    code, done = verb("challenge", "softmax-is-bound", "note=I saw one pass")
    assert code == 0
    assert "Elementary Functions" in done
    assert "it is assumed now; prompts show the doubt" in done
    (file,) = (tmp_path / "runs/knowledge/cpu").glob("softmax*.md")
    assert file.name == "softmax.md"
    doubted = knowledge.read_note(file)
    assert (doubted.status, doubted.challenge) == (Status.ASSUMED, "I saw one pass (was cited)")
    shown = verb("show", file.stem)[1]
    assert "assumed, challenged; runs/knowledge/cpu" in shown
    assert "challenged: I saw one pass" in shown
    assert doubted in knowledge.initial_notes(CPU, "softmax")
    assert verb("uphold", file.stem)[0] == 0
    assert (knowledge.read_note(file).status, knowledge.read_note(file).challenge) == (Status.CITED, "")
    with pytest.raises(ConfigError, match="nobody challenges"):
        verb("uphold", file.stem)


def test_what_a_model_wrote_does_not_steer_the_terminal(verb: Verb, tmp_path: Path) -> None:
    title = "Lines\x1b[2J are\u202e wide"
    knowledge.write(replace(NOTE, title=title, text="It is \x1b[31mso [1]."), tmp_path / "runs/knowledge/cpu")
    for said in (verb()[1], verb("show", "lines")[1]):
        assert "Lines" in said
        assert "\x1b" not in said
        assert "\u202e" not in said


def test_a_challenged_note_that_its_source_bears_out_keeps_its_status(verb: Verb, tmp_path: Path) -> None:
    folder = kept(tmp_path, "A line is 64 bytes")
    code, done = verb("challenge", "Lines")
    assert code == 0
    assert "holds: manual.md, Caches: it says so: A line is 64 bytes" in done
    assert knowledge.read_note(folder / "lines.md").status is Status.DOCUMENTED
    assert knowledge.read_note(folder / "lines.md").challenge == "a person doubts it"


def test_check_names_what_does_not_hold(verb: Verb, tmp_path: Path) -> None:
    folder = kept(tmp_path, "A line is 64 bytes")
    code, done = verb("check")
    assert code == 0
    assert "sources that hold: 2, that do not: 0" in done
    kept(tmp_path, "A line is 32 bytes")
    (folder / "broken.md").write_text("?")
    code, done = verb("check")
    assert code == 1
    assert "DOES NOT HOLD: manual.md, Caches: manual.md does not say there: A line is 32 bytes" in done
    assert "broken.md is not a note" in done


def test_a_wrong_word_names_what_there_is(verb: Verb) -> None:
    with pytest.raises(ConfigError, match=r"no command 'knowledge burn'; commands: knowledge, knowledge show TITLE"):
        verb("burn")
    with pytest.raises(ConfigError, match="no note 'VL=64 wins'; `python -m ksflow knowledge` lists them"):
        verb("show", "VL=64 wins")


def kept(root: Path, quote: str) -> Path:
    """A folder with a note on a document that says something of lines, quoted so."""
    folder, document = root / "runs/knowledge/cpu", root / "manual.md"
    document.write_text("# Caches\n\nA line is 64 bytes.\n")
    knowledge.write(Note("Lines", "64 bytes [1].", ("manual.md, Caches",), quotes=(quote,)), folder)
    row = {"name": "manual.md", "path": str(document), "sha256": hashlib.sha256(document.read_bytes()).hexdigest()}
    (folder / "documents.json").write_text(json.dumps([row]))
    return folder


@pytest.mark.slow
def test_what_a_run_learnt_can_be_doubted_and_passed_on(tmp_path: Path) -> None:
    assert ksflow(tmp_path, *DRY, "loop.evaluations=12").returncode == 0
    run = ["problem=softmax", "run=dry", "evaluator=fake"]
    listed = ksflow(tmp_path, "knowledge", *run).stdout
    assert "run softmax/dry" in listed
    git = Lineage(tmp_path / "runs/lineage.git", "softmax", "dry", create=False)
    title = git.notes()[-1].title
    assert ksflow(tmp_path, "knowledge", "check", *run).returncode == 0
    done = ksflow(tmp_path, "knowledge", "challenge", title, "note=noise?", *run)
    assert done.returncode == 0, done.stderr
    assert "holds: 000" in done.stdout
    assert [note.challenge for note in git.notes() if note.challenge] == ["noise?"]
    assert ksflow(tmp_path, "knowledge", "uphold", title, *run).returncode == 0
    assert not any(note.challenge for note in git.notes())
    git.close()
    two = ksflow(tmp_path, *DRY, "run=two", "inherit=dry", "loop.evaluations=1")
    assert two.returncode == 0, two.stderr
    assert "inherited as a seed: softmax/dry/000" in " ".join(two.stderr.split())
    lineage = Lineage(tmp_path / "runs/lineage.git", "softmax", "two", create=False)
    heirs = [trial for trial in lineage.all_trials() if trial.name.startswith("softmax/dry/")]
    assert len(heirs) == 1
    assert heirs[0].evaluation
    assert heirs[0].evaluation.accepted
    lineage.close()
