"""What every importer asks of a user's own files: a name for the lineage, what they define, where they lie."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from ksflow.errors import ConfigError
from ksflow.home import text_of
from ksflow.records import Json


def slug(text: str) -> str:
    """A name for the lineage: letters, digits, `_`, `-` and `.`."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.") or "problem"


def parse_python(file: Path, source: str, needed: Sequence[str], what: str) -> ast.Module:
    """A file's module. Raises ConfigError where it does not define the needed names. `what` the file is."""
    try:
        module = ast.parse(source)
    except SyntaxError as error:
        raise ConfigError(f"{file}:{error.lineno} is not Python: {error.msg}") from error
    names = {node.name for node in module.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    if missing := [name for name in needed if name not in names]:
        raise ConfigError(f"{file} defines no {' and no '.join(missing)}; {what} defines {' and '.join(needed)}")
    return module


def path_in_checkout(path: Path) -> str:
    """Where a file or folder lies within its git checkout; its name alone outside of one, or for the checkout itself.

    Prompts have it: they tell nobody where a user keeps his files.
    """
    root = _checkout(path)
    return str(path.relative_to(root)) if root and root != path else path.name


def provenance(folder: Path) -> Json:
    """Commit and licence of the checkout that a folder is in; outside of one, the licence in the folder itself."""
    above = (folder, *folder.parents)
    root = _checkout(folder)
    inside = above[: above.index(root) + 1] if root else above[:1]
    facts: Json = {}
    licences = (sorted(file for file in parent.glob("LICEN[SC]E*") if file.is_file()) for parent in inside)
    if files := next(filter(None, licences), None):
        facts["licence"] = files[0].read_text("utf-8", "replace").strip().partition("\n")[0].strip()[:80]
    if root:  # what HEAD is, read without git; empty where it cannot be
        git = root / ".git"
        if git.is_file():  # of a submodule: it says where the folder is
            git = git.parent / text_of(git).removeprefix("gitdir: ")
        head = text_of(git / "HEAD")
        ref = head.removeprefix("ref: ")
        packed = (line.split() for line in text_of(git / "packed-refs").splitlines() if line.endswith(f" {ref}"))
        facts["commit"] = head if ref == head else text_of(git / ref) or next(packed, [""])[0]
    return facts


def _checkout(path: Path) -> Path | None:
    return next((parent for parent in (path, *path.parents) if (parent / ".git").exists()), None)
