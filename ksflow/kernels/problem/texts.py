"""What of a problem folder's texts people and models read: the target's sections, what the task computes, and of which
model it is a region."""

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ksflow.kernels.hardware.target import means
from ksflow.records import Json, Problem, Target

_HEADING = re.compile(r"(#+) .*?( *<!-- target: (.*?) -->)?\s*")
REGION = "region.json"
"""Of a problem's folder: what is known of the region of a model, or of the function, that the problem is."""
START_REMEDY = (
    "write one in C++ (its signature: `problem show`) and pass seed_kernels=FILE, or have a model write (llm=NAME)"
)
_APART = 1.5  # how many times as long a call may take in one place as in the other
_TASK = ("generate_input", "ref_kernel")


def for_target(statement: str, target: Target | None) -> str:
    """A statement without the sections for others: `## Costs <!-- target: cpu h100 -->`, up to the next heading of its
    level or a higher one. The words are those of a note's targets.
    """
    kept, left_out, fenced = [], 0, False
    for line in statement.splitlines(keepends=True):
        fenced ^= line.startswith("```")
        if not fenced and (heading := _HEADING.fullmatch(line)):
            level, mark, words = len(heading[1]), heading[2] or "", heading[3] or ""
            if not left_out or level <= left_out:
                other = bool(words) and target is not None and not any(means(word, target) for word in words.split())
                left_out = level if other else 0
            line = line.replace(mark, "", 1)
        if not left_out:
            kept.append(line)
    return "".join(kept).rstrip("\n") + "\n"


def model_region(problem: Problem) -> Json | None:
    """What `model profile` wrote of the region that a problem is; None where it is none."""
    file = Path(problem.root, REGION)
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None


def start_remedy(problem: Problem) -> str:
    """Return what to do where a problem has no kernel to start from."""
    stub = Path(problem.root, "kernel.cpp")
    if not stub.is_file():
        return START_REMEDY
    shown = stub.relative_to(Path.cwd()) if stub.is_relative_to(Path.cwd()) else stub
    return f"fill in {shown} and pass seed_kernels={shown}, or have a model write (llm=NAME)"


def recorded_apart(problem: Problem, judged: Mapping[str, float]) -> str:
    """A sentence where the recorded time of a function's calls is not the judge's, by more than half; else "".

    judged: case -> the function's own time in µs.
    """
    recorded = (model_region(problem) or {}).get("recorded_us", [])
    known = zip((case.name for case in problem.benchmarks), recorded, strict=False)
    pairs = [(us / judged[name], us, name) for name, us in known if us and judged.get(name)]
    far = max(pairs, key=lambda pair: abs(math.log(pair[0])), default=(1.0, 0.0, ""))
    if 1 / _APART <= far[0] <= _APART:
        return ""
    return (
        f"{far[2]}: a call took {far[1]:.4g} µs in the recorded run, and takes {judged[far[2]]:.4g} µs here; the usual "
        "causes are a cold cache, another number of threads, or a wrapper around the function"
    )


def task_source(reference: str) -> str:
    """Of `reference.py` the inputs and the reference with what they use; all of it where it has no `ref_kernel`."""
    try:
        nodes = [node for node in ast.parse(reference).body if not isinstance(node, ast.Expr)]
    except SyntaxError:
        return reference
    made = {index: set(_made(node)) for index, node in enumerate(nodes)}
    if not any("ref_kernel" in names for names in made.values()):
        return reference
    known = _used(nodes, made)
    lines = reference.splitlines()
    parts = []
    for index, node in enumerate(nodes):
        if made[index] & known:
            block = isinstance(node, ast.FunctionDef | ast.ClassDef)
            heads = [*node.decorator_list, node] if isinstance(node, ast.FunctionDef | ast.ClassDef) else [node]
            first = min(head.lineno for head in heads) - 1
            while first and lines[first - 1].startswith("#"):
                first -= 1
            parts.append(("\n\n" if block else "") + "\n".join(lines[first : node.end_lineno]))
    return "\n".join(parts).strip("\n") + "\n"


def _used(nodes: list[ast.stmt], made: dict[int, set[str]]) -> set[str]:
    """The names of the task's functions, and all that they use, directly or not."""
    wanted, known = list(_TASK), set(_TASK)
    while wanted:
        name = wanted.pop()
        for index in (index for index, names in made.items() if name in names):
            used = {each.id for each in ast.walk(nodes[index]) if isinstance(each, ast.Name)} - known
            known |= used
            wanted += used
    return known


def _made(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in names)
        case _:
            stored = (each for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
            yield from (each.id for each in stored)
