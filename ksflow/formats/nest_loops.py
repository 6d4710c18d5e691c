"""The C++ of one node of a `Nest`: elementwise loops, sums along rows or down columns, and tiles of products."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ksflow.formats.nests import Node

REDUCED = {
    "sum": ("0", "{0} + {1}", "+", "ACC"),
    "max": ("-INFINITY", "larger({0}, {1})", "max", "REAL"),
    "min": ("INFINITY", "smaller({0}, {1})", "min", "REAL"),
}
"""Name -> start, step, the name that OpenMP has for it, and its number format."""
_SHARED = 1 << 14  # elements from which threads share them
_BLOCKS = Path(__file__).with_name("nest_helpers.txt").read_text(encoding="utf-8").strip().split("\n\n")
_DECLARED = re.compile(r"(\w+)(?: = |\(REAL)")
_FLOAT_ONLY = re.compile(r"  // tune: (?:double float|library poly) .*")


def preamble(real: str, body: str) -> str:
    """What stands above a kernel's function: flags, and those tunables and helpers that it uses."""
    text = body
    for each in reversed(_BLOCKS):
        declared = _DECLARED.search(each)
        if not declared or declared[1] == "THREADS" or re.search(rf"\b{declared[1]}\b", text):
            text = f"{each}\n{text}"
    text = text.removesuffix(body)
    return text if real == "float" else _FLOAT_ONLY.sub("", text.replace("REAL = float", f"REAL = {real}"))


def head(index: str, size: str) -> str:
    """The head of a loop."""
    return f"for (int64_t {index} = 0; {index} < {size}; {index}++)"


def block(heads: Sequence[str], body: Sequence[str]) -> list[str]:
    """Lines in loops; without loops in braces."""
    lines = list(body)
    for each in reversed(heads or [""]):
        lines = [*f"{each} {{".strip().split("\n"), *(f"  {line}" for line in lines), "}"]
    return lines


def parallel(node: "Node", count: int, simd: str = "") -> str:
    """A pragma: threads share the iterations of so many loops, if these are worth it."""
    work = " * ".join([*node.dims, *node.sums.reduced])
    return f"#pragma omp parallel for{simd} collapse({count}) num_threads(THREADS) if ({work} > {_SHARED})\n"


def memory(name: str, size: str) -> list[str]:
    """Memory of a thread that stays between calls: what a call gives back is faulted in again."""
    kept = f"static thread_local std::vector<REAL> {name}_;"
    return [kept, f"if ((int64_t){name}_.size() < {size}) {name}_.resize({size});",
            f"REAL *__restrict {name} = {name}_.data();"]  # fmt: skip


def kind(node: "Node") -> str:
    """each, rows, columns or tile: how a node's loops are best ordered."""
    if not node.sums.op:
        return "each"
    node.element()
    last, sizes = node.inner[-1], len(node.dims)
    column, row = f"i{sizes - 1}", f"i{sizes - 2}"

    def reads(index: Sequence[str], *names: str) -> bool:
        return {*names} <= _names(index)

    leaves = [index for _, index in node.nest.leaves if index and sizes]
    shared = [index for index in leaves if reads(index, last, column) and not reads(index, row)]
    whole = [index for index in leaves if reads(index, last, column, row)]
    single = [index for index in leaves if reads(index, last, row) and not reads(index, column)]
    if sizes > 1 and len(node.inner) == 1 and shared and single and not whole:
        return "tile"
    if any(reads(index[-1:], column) and reads(index, last) for index in leaves):
        return "rows" if any(reads(index[-1:], last) for index in leaves) else "columns"
    return "rows"


def shared(node: "Node") -> int:
    """How many of a node's loops can be shared with other nodes."""
    less = {"each": int(node.shape[-1:] != ("1",)), "rows": 0, "columns": 1, "tile": 2}
    return max(len(node.dims) - less[kind(node)], 0)


def loops(node: "Node", level: int) -> list[str]:
    """The loops of a node inside its first `level` loops."""
    return {"each": _each, "rows": _rows, "columns": _columns, "tile": _tile}[kind(node)](node, level)


def _names(index: Sequence[str]) -> set[str]:
    return {*re.findall(r"\b[ir]\d+\b", " ".join(index))}


def _heads(node: "Node", level: int, stop: int, more: Sequence[str] = ()) -> list[str]:
    """The heads of loops level to stop and of `more`, shared by threads unless they are in a shared loop."""
    heads = [*(head(f"i{at}", node.dims[at]) for at in range(level, stop)), *more]
    return [parallel(node, len(heads)) + heads[0], *heads[1:]] if heads and not level else heads


def _each(node: "Node", level: int) -> list[str]:
    assigned = f"{node.place(node.target)} = {node.element()};"
    count = len(node.dims)
    if count <= level:
        return [assigned]
    inner = head(f"i{count - 1}", node.dims[-1])
    if count == 1:
        return block([parallel(node, 1, " simd") + inner], [assigned])
    outer = _heads(node, level, count - 1)
    return block([*outer, f"#pragma omp simd\n{inner}"], [assigned])


def _stored(node: "Node") -> str:
    return f"{node.place(node.target)} = {node.finished()};"


def _rows(node: "Node", level: int) -> list[str]:
    start, step, name, acc = REDUCED[node.sums.op]
    *outer, last = node.inner
    *sizes, size = node.sums.reduced
    text = node.element()
    body = [
        f"{acc} v = {start}, parts[LANES];",
        "std::fill_n(parts, LANES, v);",
        *block(
            [head(each, of) for each, of in zip(outer, sizes, strict=True)],
            [
                "int64_t at = 0;",
                f"for (; at + LANES <= {size}; at += LANES)",
                "#pragma omp simd",
                "  for (int lane = 0; lane < LANES; lane++) {",
                f"    const int64_t {last} = at + lane;",
                f"    parts[lane] = {step.format('parts[lane]', text)};",
                "  }",
                f"#pragma omp simd reduction({name}:v)",
                f"for (int64_t {last} = at; {last} < {size}; {last}++) v = {step.format('v', text)};",
            ],
        ),
        f"#pragma omp simd reduction({name}:v)",
        f"for (int lane = 0; lane < LANES; lane++) v = {step.format('v', 'parts[lane]')};",
        _stored(node),
    ]
    return block(_heads(node, level, len(node.dims)), body)


def _columns(node: "Node", level: int) -> list[str]:
    start, step, _, acc = REDUCED[node.sums.op]
    count = len(node.dims)
    column, size = f"i{count - 1}", node.dims[-1]
    each = ["#pragma omp simd\nfor (int64_t b = 0; b < width; b++)"]
    reduced = [f"const int64_t {column} = from + b;", f"parts[b] = {step.format('parts[b]', node.element())};"]
    body = [
        f"const int64_t width = std::min<int64_t>(COLS, {size} - from);",
        f"{acc} parts[COLS];",
        f"std::fill_n(parts, COLS, {acc}({start}));",
        *block([*(head(i, of) for i, of in zip(node.inner, node.sums.reduced, strict=True)), *each], reduced),
        *block(each, [f"const int64_t {column} = from + b;", f"const {acc} v = parts[b];", _stored(node)]),
    ]
    return block(_heads(node, level, count - 1, [f"for (int64_t from = 0; from < {size}; from += COLS)"]), body)


def _tile(node: "Node", level: int) -> list[str]:
    start, step, _, acc = REDUCED[node.sums.op]
    count, r, size = len(node.dims), node.inner[0], node.sums.reduced[0]
    row, column, (rows, columns) = f"i{count - 2}", f"i{count - 1}", node.dims[-2:]
    packing, packed = list[str](), {}
    node.element()
    leaves = [leaf for leaf in dict.fromkeys(node.nest.leaves) if {r, column} <= _names(leaf[1])]
    for number, leaf in enumerate(leaves):
        name, index = f"{node.name}p{number}", leaf[1]
        packed[leaf] = f"{name}[{r} * NR + b]"
        b = ["for (int64_t b = 0; b < NR; b++)", head(r, size)]
        packing += [
            *memory(name, f"{size} * NR"),
            *block(
                b if r in _names(index[-1:]) else b[::-1],
                [f"const int64_t {column} = from + std::min(b, width - 1);",
                 f"{packed[leaf]} = {node.nest.texts[leaf]};"],
            ),
        ]  # fmt: skip
    node.nest.packed = packed
    text = node.element()
    node.nest.packed = {}
    body = [
        f"const int64_t width = std::min<int64_t>(NR, {columns} - from);",
        *packing,
        "const auto tile = [&](auto full, int64_t top) {",
        f"  const int64_t height = full ? MR : {rows} - top;",
        f"  {acc} parts[MR][NR];",
        f"  std::fill_n(&parts[0][0], MR * NR, {acc}({start}));",
        f"  {head(r, size)}",
        "#pragma GCC unroll MR",
        "    for (int64_t a = 0; a < height; a++) {",
        f"      const int64_t {row} = top + a;",
        "#pragma omp simd",
        f"      for (int64_t b = 0; b < NR; b++) parts[a][b] = {step.format('parts[a][b]', text)};",
        "    }",
        *(f"  {line}" for line in block(
            ["for (int64_t a = 0; a < height; a++)", "for (int64_t b = 0; b < width; b++)"],
            [f"const int64_t {row} = top + a, {column} = from + b;", f"const {acc} v = parts[a][b];", _stored(node)])),
        "};",
        "int64_t top = 0;",
        f"for (; top + MR <= {rows}; top += MR) tile(std::true_type{{}}, top);",
        f"if (top < {rows}) tile(std::false_type{{}}, top);",
    ]  # fmt: skip
    return block(_heads(node, level, count - 2, [f"for (int64_t from = 0; from < {columns}; from += NR)"]), body)
