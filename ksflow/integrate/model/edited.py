"""A person's file with a kernel called in it, as text: nothing is imported, and no file is changed."""

import ast
import difflib
import io
import os
from typing import Any

from ksflow.errors import ConfigError
from ksflow.integrate.model.slices import fingerprint
from ksflow.records import Json

_HARMLESS = ("torch.no_grad()", "torch.inference_mode()")
"""Decorators below which a kernel may be called instead of a function."""


def definition(facts: Json) -> tuple[str, ast.FunctionDef]:
    """The text of a function's file, and the function. ConfigError where it is not as it was, or cannot be replaced."""
    file, path = facts["file"], facts["callee"].split(".")
    if not file.is_file() or fingerprint(file, facts["callee"], facts["path"]) != facts["source"]:
        raise ConfigError(f"{file} has changed since {facts['function']} was isolated: isolate it again, and search")
    with file.open(encoding="utf-8", newline="") as stream:
        text = stream.read()
    found: Any = ast.parse(text)
    names = {node.name for node in ast.walk(found) if isinstance(node, ast.FunctionDef)}
    for part in path:
        kinds = ast.FunctionDef | ast.ClassDef
        inner = [node for node in found.body if isinstance(node, kinds) and node.name == part]
        if not inner:
            raise ConfigError(f"{file} has no plain definition of {facts['callee']}, which a patch needs")
        found = inner[-1]
    why = ""
    if found.args.vararg or found.args.kwarg:
        why = "takes any number of arguments"
    elif other := [one for one in map(ast.unparse, found.decorator_list) if one not in _HARMLESS]:
        why = f"has the decorator {other[0]}, which a kernel would be called below"
    elif f"_{path[-1].strip('_')}_reference" in names:
        why = f"has a _{path[-1].strip('_')}_reference beside it"
    elif found.body[0].lineno == found.lineno:
        why = "is written on one line"
    if why:
        raise ConfigError(f"{facts['function']} {why}: patch by hand, or isolate a function that it calls")
    return text, found


def dispatching(text: str, node: ast.FunctionDef, facts: Json, name: str) -> str:
    """The person's file with the kernel called where it fits."""
    end = "\r\n" if "\r\n" in text else "\n"
    lines = [line.rstrip("\r\n") for line in io.StringIO(text, newline="\n")]
    first = node.body[0]
    documented = ast.get_docstring(node, clean=False) is not None and len(node.body) > 1
    head = lines[node.lineno - 1 : first.lineno - 1]
    at = (first.end_lineno or first.lineno) if documented else first.lineno - 1
    if isinstance(first, ast.FunctionDef | ast.ClassDef) and first.decorator_list:
        at = first.decorator_list[0].lineno - 1
        head = lines[node.lineno - 1 : at]
    indent, outer = " " * first.col_offset, " " * node.col_offset
    reference = f"_{name}_reference"
    every = [*node.args.posonlyargs, *node.args.args]
    words = [one.arg for one in every] + [f"{one.arg}={one.arg}" for one in node.args.kwonlyargs]
    own = words.pop(0) if facts["arguments"] and facts["arguments"][0][0] == "" else ""
    given = [one.arg for one in (*every, *node.args.kwonlyargs)]
    added = [
        f"{indent}_found = _ksflow_{name}.try_kernel({', '.join(f'{one}={one}' for one in given)})",
        f"{indent}if _found:",
        f"{indent}    return _found[0]",
        f"{indent}return {f'{own}.' if own else ''}{reference}({', '.join(words)})",
        *([""] if own else ["", ""]),
        head[0].replace(f"def {node.name}", f"def {reference}", 1),
        *head[1:],
        f'{indent}"""What `{node.name}` does where its kernel is not for the call."""',
    ]
    assert head[0].startswith(f"{outer}def ")
    place, imported = _import(ast.parse(text), facts, name)
    lines[at:at] = added
    lines[place:place] = [imported]
    return end.join(lines) + (end if text.endswith("\n") else "")


def name_of(facts: Json) -> str:
    """The function's name, as the module with its kernel has it."""
    return str(facts["callee"].rpartition(".")[2].strip("_"))


def folders(facts: Json) -> list[str]:
    """The package that a function's file is in, as the program imports it."""
    found: list[str] = []
    folder = facts["file"].parent
    while (folder / "__init__.py").is_file():
        found.insert(0, folder.name)
        folder = folder.parent
    dotted = facts["function"].partition(":")[0]
    if not found and dotted.rpartition(".")[2] == facts["file"].stem:
        found = dotted.split(".")[:-1]
    return found


def _import(tree: ast.Module, facts: Json, name: str) -> tuple[int, str]:
    """Before which line (from 0) the module is imported, and how."""
    package = ".".join(folders(facts))
    place = 0
    for at, statement in enumerate(tree.body):
        documented = at == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not documented and not isinstance(statement, ast.Import | ast.ImportFrom):
            break
        place = statement.end_lineno or statement.lineno
    return place, f"from {package} import _ksflow_{name}" if package else f"import _ksflow_{name}"


def diff(name: str, old: str | None, new: str) -> str:
    """One file's part of a patch; `old` is None for a new file."""
    before, after = (list(io.StringIO(text or "", newline="\n")) for text in (old, new))
    head = f"diff --git a/{name} b/{name}\n" + ("new file mode 100644\n" if old is None else "")
    lines = difflib.unified_diff(before, after, os.devnull if old is None else f"a/{name}", f"b/{name}")
    return head + "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
