"""Text is UTF-8, whatever the locale; what a user keeps is written whole or not at all."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ksflow import home
from ksflow.kernels.problem.file import read_text

ROOT = Path(__file__).parents[1]
ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
"""A locale that has none of the letters that kernels' comments have."""
_TEXT_MODES = set("rwaxt+")


def ksflow(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ksflow", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, env={**os.environ, **ASCII}, check=False)


def problem_with_dashes(folder: Path) -> None:
    """A copy of the softmax problem with letters beyond ASCII wherever text can be."""
    problem = folder / "mine"
    (problem / "seeds").mkdir(parents=True)
    for name in ("problem.yaml", "reference.py", "statement.md"):
        text = (ROOT / "problems" / "softmax" / name).read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if not line.startswith("baselines")]
        lines[0] += " # naïve — a way" if name != "statement.md" else " naïve — a way"
        (problem / name).write_text("\n".join(lines) + "\n", encoding="utf-8-sig")  # as a Windows editor writes it
    seed = (ROOT / "seeds" / "softmax" / "01_naive.cpp").read_text(encoding="utf-8")
    (problem / "seeds" / "01_naive.cpp").write_text(f"// naïve — a way\n{seed}", encoding="utf-8-sig")


@pytest.mark.slow
@pytest.mark.soak
def test_a_locale_without_the_letters_of_a_kernel_changes_nothing(tmp_path: Path) -> None:
    problem_with_dashes(tmp_path)
    done = ksflow(tmp_path, "recipe=dry_run", "problem=./mine", "loop.evaluations=3")
    assert b"next: python -m ksflow report problem=./mine run=dry" in done.stderr
    assert done.returncode == 0, done.stderr
    kept = [file.read_text(encoding="utf-8") for file in (tmp_path / "runs/best").rglob("*.cpp")]
    assert [text.splitlines()[0] for text in kept] == ["// naïve — a way"]
    for words in (["lineage"], ["lineage", "show", "1"], ["report"]):
        shown = ksflow(tmp_path, *words, "problem=./mine", "run=dry")
        assert shown.returncode == 0, shown.stderr
    assert b"\\xb5s" in ksflow(tmp_path, "lineage", "problem=./mine", "run=dry").stdout


def test_a_file_is_read_without_the_mark_that_it_begins_with(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text("import torch  # —\n", encoding="utf-8-sig")
    assert read_text(tmp_path / "reference.py") == "import torch  # —\n"


def test_what_cannot_be_written_whole_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "best.py"
    home.write(file, "the winner before\n")
    with pytest.raises(TypeError):
        home.write(file, 3)  # type: ignore[arg-type]
    assert file.read_text(encoding="utf-8") == "the winner before\n"
    assert [*tmp_path.iterdir()] == [file]


def without_encoding(call: ast.Call) -> bool:
    """Whether it opens text in the locale's encoding."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    of_os = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "os"
    if "encoding" in given:
        return False
    if name in ("read_text", "write_text"):
        return isinstance(call.func, ast.Attribute) and len(call.args) == (name == "write_text")
    if name in ("fdopen", "open") and not (name == "open" and of_os):
        place = 0 if isinstance(call.func, ast.Attribute) and not of_os else 1
        mode = call.args[place] if len(call.args) > place else given.get("mode", ast.Constant("r"))
        text = isinstance(mode, ast.Constant) and set(str(mode.value)) <= _TEXT_MODES
        return text and len(call.args) < place + 3 and not (isinstance(call.func, ast.Attribute) and not call.args)
    return any(getattr(given.get(word), "value", False) is True for word in ("text", "universal_newlines"))


def calls_without_encoding(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*.py")):
        if not any(parent.is_symlink() for parent in file.parents):
            for node in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(node, ast.Call) and without_encoding(node):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}"


@pytest.mark.parametrize("folder", ["ksflow", "stages"])
def test_no_text_is_opened_in_the_encoding_of_the_locale(folder: str) -> None:
    assert [*calls_without_encoding(ROOT / folder)] == []
