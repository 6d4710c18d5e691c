"""A release of DSPy breaks one file at most, and its test says what is gone."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

from ksflow.home import PACKAGE

SEAMS = PACKAGE / "lm" / "dspy_seams.py"
DOCUMENTED = ("dspy", "dspy.lm15")


def names(file: Path) -> list[tuple[str, str]]:
    """(module, name) of everything that a file takes of DSPy."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dspy":
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names if alias.name.partition(".")[0] == "dspy"]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dspy":
            found.append(("dspy", node.attr))
    return found


def sources() -> Iterator[Path]:
    for folder in (PACKAGE, PACKAGE / "stages"):  # the second is a link
        yield from (file for file in folder.rglob("*.py") if "dspy" in file.read_text())


def there(module: str, name: str) -> bool:
    try:
        found = importlib.import_module(module)
    except ImportError:
        return False
    return not name or hasattr(found, name)


def test_what_is_used_of_dspy_is_there():
    used = {pair for file in sources() for pair in names(file)}
    assert {("dspy", "LM"), ("dspy.lm15", "Request"), ("dspy.clients.costs", "estimate_cost")} <= used
    missing = sorted(f"{module}.{name}".rstrip(".") for module, name in used if not there(module, name))
    assert not missing, f"this version of DSPy has no {', '.join(missing)}"


def test_one_file_alone_knows_what_dspy_does_not_document():
    others = {(file.name, module) for file in sources() if file != SEAMS for module, _ in names(file)}
    assert not {(file, module) for file, module in others if module not in DOCUMENTED}
    assert not {module for module, _ in names(SEAMS)} & set(DOCUMENTED)


def test_every_seam_is_used():
    text = "".join(file.read_text() for file in PACKAGE.rglob("*.py") if file != SEAMS)
    assert [name for _, name in names(SEAMS) if name not in text] == []
