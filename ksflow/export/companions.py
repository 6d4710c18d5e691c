"""Files that lie beside a kernel's main file, under names that no other kernel's files have.

A process may load the files of several winners (FlashInfer's benchmark loads every solution of a data set): were each
to bring a `helper.py`, Python would give all of them the first one's. Text in, text out: nothing is run.
Not covered: modules that are imported by a name that is computed.
"""

import ast
from collections.abc import Mapping
from pathlib import PurePath


def mark_modules(main: str, beside: Mapping[str, str], mark: str) -> tuple[str, dict[str, str]]:
    """A main file's text and the files beside it, where Python modules have a mark in their names and are imported so.

    mark: letters and digits. What is no Python is as it was.
    """
    names = {PurePath(name).stem: f"{PurePath(name).stem}_{mark}" for name in beside if name.endswith(".py")}
    files = {}
    for name, text in beside.items():
        python = name.endswith(".py")
        files[f"{names[PurePath(name).stem]}.py" if python else name] = _importing(text, names) if python else text
    return _importing(main, names), files


def _importing(text: str, names: Mapping[str, str]) -> str:
    """The text with other names where it imports modules."""
    edits = []  # line and column of each import, what it says, and what it is to say
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module in names and not node.level:
            edits.append((node.lineno, node.col_offset, f"from {node.module} ", f"from {names[node.module]} "))
        for alias in node.names if isinstance(node, ast.Import) else ():
            if alias.name in names:
                old = ast.unparse(alias)
                new = f"{names[alias.name]} as {alias.asname or alias.name}"
                edits.append((alias.lineno, alias.col_offset, old, new))
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for row, column, old, new in sorted(edits, reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + line[column:].replace(old.encode(), new.encode(), 1)
    return b"".join(lines).decode()
