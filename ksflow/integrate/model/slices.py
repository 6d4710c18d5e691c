"""A function's source with all that it needs of its own package, so that it runs without that package."""

import ast
import builtins
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from ksflow.errors import catch_foreign
from ksflow.records import digest


class Unsliceable(Exception):
    """The function cannot be taken out of its package: why, as the end of a sentence."""


def sliced(file: Path, name: str, path: list[str], classes: Sequence[str] = ()) -> str:
    """Return the source of a function or class of a file, after the imports and definitions that it uses.

    path: where its process looks for modules. classes: further ones, as `module:name`. Raises Unsliceable.
    """
    made = _Slice(path)
    made.add(file, name)
    for module, _, other in (one.partition(":") for one in classes):
        other = other.partition(".")[0]
        if origin := file if module == "__main__" else made.own(file, module, 0):
            made.add(origin, other)
        else:
            made.imports.add(f"from {module} import {other}")
    return "\n\n".join([*sorted(made.imports), *made.parts.values()])


def fingerprint(file: Path, callee: str, path: list[str]) -> str:
    """What changes when a function does, or what it needs of its package; of all of its file where it cannot be cut
    out. callee: its name in the file."""
    try:
        return digest(sliced(file, callee.partition(".")[0], path))
    except Unsliceable:
        return digest(file.read_text(encoding="utf-8"))


class _Slice:
    """Definitions in the order in which they need each other."""

    def __init__(self, path: list[str]) -> None:
        self._path = path
        self._files: dict[Path, dict[str, ast.stmt]] = {}
        self._taken: dict[str, tuple[Path, str]] = {}
        """Name -> the file and the statement that it was taken from."""
        self.imports: set[str] = set()
        self.parts: dict[tuple[Path, int], str] = {}

    def add(self, file: Path, name: str) -> None:
        """Add what a name of a file's top level means, and first what that needs. Raises Unsliceable."""
        if file not in self._files:
            with catch_foreign() as caught:
                self._files[file] = _definitions(ast.parse(file.read_text(encoding="utf-8")))
            if caught:
                raise Unsliceable(f"{file.name} is no Python source")
        statement = self._files[file].get(name)
        if statement is None:
            raise Unsliceable(f"{file.name} has no definition of {name} at its top level")
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self._import(file, statement, name)
            return
        text = ast.unparse(statement)
        if self._taken.setdefault(name, (file, text)) != (file, text):
            raise Unsliceable(f"two of its files define {name}")
        if (file, statement.lineno) in self.parts:
            return
        self.parts[file, statement.lineno] = ""  # against recursion
        if any(isinstance(node, ast.Global) for node in ast.walk(statement)):
            raise Unsliceable(f"{name} changes a global variable")
        used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        for other in sorted(used):
            if other in self._files[file] and self._files[file][other] is not statement:
                self.add(file, other)
        del self.parts[file, statement.lineno]
        self.parts[file, statement.lineno] = text

    def _import(self, file: Path, statement: ast.Import | ast.ImportFrom, name: str) -> None:
        alias = next(one for one in statement.names if (one.asname or one.name.partition(".")[0]) == name)
        if isinstance(statement, ast.Import):
            if self.own(file, alias.name, 0):
                raise Unsliceable(f"it uses the module {alias.name} as a whole")
            text = ast.unparse(ast.Import([alias]))
        elif origin := self.own(file, statement.module or "", statement.level):
            if (inner := origin.parent / f"{alias.name}.py").is_file() and origin.name == "__init__.py":
                raise Unsliceable(f"it uses the module {inner.stem} as a whole")
            self.add(origin, alias.name)
            if alias.asname:
                self.parts[file, statement.lineno] = f"{alias.asname} = {alias.name}"
            return
        else:
            text = ast.unparse(ast.ImportFrom(statement.module, [alias], 0))
        if self._taken.setdefault(name, (Path(), text)) != (Path(), text):
            raise Unsliceable(f"two of its files import {name}")
        if text not in ("from __future__ import annotations",):
            self.imports.add(text)

    def own(self, file: Path, module: str, level: int) -> Path | None:
        """The file of a module that is the person's own; None for one that is installed."""
        folders = self._path
        if level:
            folders = [str(file.parents[level - 1])]
        elif module.partition(".")[0] in (*sys.stdlib_module_names, *dir(builtins)):
            return None
        origin = None
        for part in filter(None, module.split(".")):
            spec = PathFinder.find_spec(part, folders)
            if spec is None:
                return None
            origin, folders = spec.origin, [*(spec.submodule_search_locations or ())]
        origin = origin or str(Path(folders[0]) / "__init__.py")
        installed = "site-packages" in origin or "dist-packages" in origin or not origin.endswith(".py")
        return None if installed else Path(origin)


def _definitions(module: ast.Module) -> dict[str, ast.stmt]:
    """What the names of a file's top level mean, the last statement of each; what is below an `if` or a `try`, too."""
    found: dict[str, ast.stmt] = {}
    for statement in module.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found |= {one.asname or one.name.partition(".")[0]: statement for one in statement.names}
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[statement.name] = statement
        else:
            stored = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
            found |= {node.id: statement for node in stored}
            inner = [n for n in ast.walk(statement) if isinstance(n, ast.Import | ast.ImportFrom)]
            found |= {one.asname or one.name.partition(".")[0]: statement for n in inner for one in n.names}
    return found
