"""A function of a person's repository as a problem folder: from the calls that their own command makes of it.

Of what `capture` saw, the calls that a kernel could take are written with the writer of `model profile`. A function in
torch goes through `torch.export`. The reference of one in NumPy is its own source, with what that needs of its package,
or an import of the package where it cannot be cut out.
"""

import math
import os
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ksflow.errors import ConfigError, catch_foreign, one_line
from ksflow.formats.kernel import arrays
from ksflow.formats.loops import least_reads
from ksflow.integrate.model import TEXTS
from ksflow.integrate.model.calls import Case, Meta
from ksflow.integrate.model.capture import Family, Seen, fixed
from ksflow.integrate.model.folder import Folder
from ksflow.integrate.model.function import Function
from ksflow.integrate.model.graph import Forward, export_forward
from ksflow.integrate.model.problem import case_of
from ksflow.integrate.model.profile import Region
from ksflow.integrate.model.slices import Unsliceable, fingerprint, sliced
from ksflow.integrate.model.user_file import UserModel
from ksflow.kernels.source.expressions import calculate
from ksflow.records import Json, amdahl

_SHAPES = 12
"""Of a problem: those that take the most time."""
_AGAIN_S = 2.0
"""How long a function is called again with the arguments of shapes that were called once."""


def isolate(seen: Seen, folder: Path, out: Path, name: str = "") -> tuple[Json, Path]:
    """Write the calls that take most of a function's time as a problem folder below `out`, of that name or of the
    function's; the table of what was seen, and the folder. ConfigError where no kernel could take them."""
    if all(family.unfit for family in seen.families):
        raise ConfigError(f"{seen.target} {seen.families[0].unfit}")
    with torch.no_grad(), catch_foreign() as caught:
        functions = [Function(seen, family, folder) for family in seen.families if not family.unfit]
        for function in functions:
            function.call_again(_AGAIN_S / len(functions))
        function = max(functions, key=lambda one: one.family.seconds)
        _remark(seen, function.family)
        shapes: dict[str, list[Json]] = {}
        for row in function.family.rows:
            shapes.setdefault(repr(row["shapes"]), []).append(row)
        groups = sorted(shapes.values(), key=lambda rows: -sum(row["seconds"] for row in rows))
        usable = [rows for rows in groups if any(row["samples"] for row in rows)][:_SHAPES]
        own = not _recorded(seen)  # then each shape is one that the person wrote down to be optimised for
        held = [] if own or len(usable) < 3 else usable[-(len(usable) // 4 or 1) :]  # those that take the least time
        shown = [rows for rows in usable if rows not in held]
        if not held:
            why = "it was called with fewer than three shapes"
            why = "all calls are optimised for; list others in `heldout` of problem.yaml" if own else why
            seen.remarks.append(f"no shapes are held out: {why}")
        numbered = [(number, row) for number, rows in enumerate([*shown, *held]) for row in rows]
        cases = [function.case(number, row, file) for number, row in numbered for file in row["samples"]]
        made = _made(seen, function, cases, len(shown))
        seen.remarks += function.remarks
        table = _table(seen, groups, shown, held)
        made.table, made.folder = table, name
    if caught:
        if isinstance(caught[0], ConfigError):
            raise caught[0]
        raise ConfigError(f"{seen.target} is no problem: {one_line(_reason(caught[0]), 300)}") from caught[0]
    return table, made.write(out, table)


def _remark(seen: Seen, chosen: Family) -> None:
    """Say what is fixed in the calls that a problem is made of, and which calls are not taken."""
    seen.remarks.append(f"fixed: {_fixed(seen, chosen)}; a patch leaves calls with other values to the original code")
    for family in seen.families:
        if family is not chosen:
            calls, part = sum(row["calls"] for row in family.rows), family.seconds / seen.seconds
            why = family.unfit or "has other constants, types, layouts or numbers of dimensions"
            seen.remarks.append(f"not taken: {calls:,} calls, {100 * part:.3g} % of its time: {why}")


def _fixed(seen: Seen, family: Family) -> str:
    words = one_line(", ".join(fixed(family.nodes, family.leaves, seen.facts["defaults"])), 300)
    return words + (f" in all {sum(row['calls'] for row in family.rows):,} calls" if _recorded(seen) else "")


def _recorded(seen: Seen) -> bool:
    """Whether the calls are those of a person's command, and not those that `init` made."""
    return seen.command.startswith("`")


class _FunctionFolder(Folder):
    """A function as the files of a problem."""

    command, what = "isolate", "function"
    differs = "answers otherwise than in the run: it draws at random, or reads what is changed elsewhere"
    table: Json
    folder = ""

    def _name(self) -> str:
        return self.folder or super()._name()

    def _weight(self, case: Case, among: Sequence[Case]) -> Json:
        return {} if self.folder else super()._weight(case, among)  # how long example calls take says nothing

    def __init__(
        self, seen: Seen, function: Function, parts: tuple[UserModel, Region, Sequence[Case], Forward]
    ) -> None:
        self._seen, self._function = seen, function
        self._share = f", which took {100 * seen.share:.3g} % of the time" if _recorded(seen) else ""
        super().__init__(*parts)
        if function.numpy:
            self._forward = parts[3].body
            self.tools = "from ksflow.formats.kernel.arrays import as_arrays, as_tensors\n"
            self.tools += "from ksflow.evaluation.judge import contents, tolerance"

    def _oracle(self) -> str:
        places = [self._function.words.index(word) for word in self.inout]
        return TEXTS["FUNCTION_ORACLE"].format(inout=places) if self._function.numpy else super()._oracle()

    def _seeds(self) -> dict[str, str]:
        if not self._function.numpy:
            return super()._seeds()
        if "sys.path[:0]" in self._forward:
            return {}
        own = Path(arrays.__file__).read_text(encoding="utf-8").partition("\n\n")[2]
        text = TEXTS["FUNCTION_BASELINE"].format(forward=self._forward, arrays=own, count=self._count)
        return {"00_your_reference.py": text}

    def _spec(self, saved: Json) -> Json:
        made = super()._spec(saved)
        return made | {"check": {**made["check"], "c1": 1}} if self._function.numpy else made

    def _moved(self) -> list[list[str]]:
        if not self._function.numpy or self.inout:
            return super()._moved()
        dims = [dict(zip(self._dims.values(), sizes, strict=True)) for sizes in zip(*self._dims, strict=True)] or [{}]
        order = {"args": self._names, "dims": [*self._dims.values()], "cases": dims, "plain": [True] * len(self._names)}
        shapes = [case.shapes for case in self._cases]
        every = least_reads(self._function.alone, order, shapes, self._count) or [[]] * self._count
        parts = [max(each, key=lambda part: calculate("*".join(part), dims[0]), default=[]) for each in every]
        if lacking := [name for name, part in zip(self._names, parts, strict=False) if not part]:
            self._seen.remarks.append(f"the roofline leaves out {', '.join(lacking)}: a kernel may read a part of each")
        return parts

    def _description(self) -> str:
        return f"{self._seen.target}, called by {self._seen.command}{self._share}."

    def _statement(self) -> str:
        seen, function = self._seen, self._function
        with catch_foreign() as caught:
            file, root = Path(seen.facts["file"]), seen.facts["callee"].partition(".")[0]
            source = sliced(file, root, seen.facts["path"])
        return TEXTS["FUNCTION_STATEMENT"].format(
            title=self._region.title,
            target=seen.target,
            file=self._user.file.name,
            called=f"{seen.command[0].upper()}{seen.command[1:]} called it {seen.calls:,} times{self._share}",
            module=", then its parameters and buffers" if function.module is not None else "",
            call=function.call,
            changed=f" It changes {' and '.join(self.inout)} in place." if self.inout else "",
            right="an element is off by at most 8 roundings of its number format (at least 1e-4; float64: 2e-13)"
            if function.numpy
            else "within what honest arithmetic in the tensors' own types comes to",
            counts="\n".join(
                f"- {row[2]}: {row[1]} calls, {row[4]}" for row in self.table["rows"][1:] if row[5] == "a case"
            ),
            source="# its source is not at hand" if caught else textwrap.dedent(source).rstrip(),
        )

    def _facts(self, folder: Path) -> Json:
        seen, recorded = self._seen, list[float]()
        for case in filter(self._shown, self._cases):
            rows = [
                row for row in self._function.family.rows if tuple(map(tuple, row["shapes"])) == case.call.input_shapes
            ]
            recorded.append(1e6 * sum(row["seconds"] for row in rows) / max(sum(row["calls"] for row in rows), 1))
        return {
            "recorded_us": recorded if _recorded(seen) else [],
            "function": seen.target,
            "file": os.path.relpath(seen.facts["file"], folder),
            "command": seen.command,
            "call": self._function.call,
            "calls": seen.calls,
            "share": seen.share,
            "callee": seen.facts["callee"],
            "fixed": _fixed(seen, self._function.family),
            "program": seen.facts["program"],
            "library": "numpy" if self._function.numpy else "torch",
            "arguments": self._function.family.nodes,
            "returned": self._function.returned,
            "given": self._function.given,
            "path": seen.facts["path"],
            "source": fingerprint(Path(seen.facts["file"]), seen.facts["callee"], seen.facts["path"]),
        }


def _made(seen: Seen, function: Function, cases: list[Case], shown: int) -> _FunctionFolder:
    """The folder of a problem, tried on all calls on record. Raises ValueError, and what their code raises."""
    title = seen.target.partition(":")[2]
    holder = torch.nn.Module()
    holder.register_buffer("where", torch.empty(0, device=cases[0].data[0].device))
    user = UserModel(Path(seen.facts["file"]), holder, (((), {}),) * shown, ())
    region = Region(title, [seen.target], [case.call for case in cases], (), share=seen.share)
    for row in function.family.rows:
        region.times[tuple(tuple(one[3]) for one in row["metas"])] += row["seconds"]
    if not function.numpy:
        module = function.wrapped
        forward = export_forward(module, [case.call for case in cases])
        cases = [replace(case_of(module, case.call, forward.used), answer=case.answer) for case in cases]
        made = _FunctionFolder(seen, function, (user, region, cases, forward))
        made.expect_same()
        return made
    floats = [tensor.dtype for tensor in cases[0].answer if tensor.is_floating_point()]
    computed = max(floats, key=lambda kind: torch.finfo(kind).eps, default=torch.float32)
    why = ""
    for importing in (False, True):
        try:
            text = function.forward(importing)
            forward = Forward(text, [], function.words, set(), computed, [])
            made = _FunctionFolder(seen, function, (user, region, cases, forward))
            with catch_foreign() as caught:
                made.expect_same()
            if not caught:
                break
            why = _reason(caught[0])
        except Unsliceable as error:
            why = str(error)
        if importing:
            raise ValueError(why)
        lacking = ", which the sandbox does not have: so the function itself is no baseline" if function.roots else ""
        function.remarks.append(f"its reference imports your package ({why}){lacking}")
    return made


def _table(seen: Seen, groups: list[list[Json]], shown: Any, held: Any) -> Json:
    """A title, remarks, and rows with the heads first, for the terminal and for the page."""
    half, nothing = (amdahl([(min(seen.share, 0.9999), ratio)]) for ratio in (2.0, math.inf))
    title = (
        f"{seen.target}: {seen.calls:,} calls, {100 * seen.share:.3g} % of the {seen.run_s:.3g} s of {seen.command}; "
        f"the whole gains x{half:.3g} if it takes half as long, x{nothing:.3g} if it takes no time"
    )
    title = title if _recorded(seen) else f"{seen.target}: {seen.command}"
    rows = [["", "calls", "arguments", "µs a call", "of its time", "is"]]
    for at, one in enumerate(groups, 1):
        calls, seconds = (sum(row[key] for row in one) for key in ("calls", "seconds"))
        words = ", ".join(str(Meta(leaf[0], leaf[3], leaf[2], leaf[4])) for leaf in one[0]["metas"])
        role = "held out" if one in held else "a case" if one in shown else "not taken: rare, or it raised"
        single = [row for row in one if len(row["times"]) == 1]
        how = "" if not single else " (called again)" if all("again" in row for row in single) else " (one call)"
        took = f"{1e6 * seconds / max(calls, 1):.4g}{how}", f"{100 * seconds / seen.seconds:.3g} %"
        rows.append([str(at), f"{calls:,}", words, *took, role])
    return {"title": title, "remarks": seen.remarks, "rows": rows}


def _reason(error: BaseException) -> str:
    """An error's text, with its type unless it is one of our own reasons."""
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
