"""Probes: can a problem be judged? Its parts must fit together, and its check must reject common wrong answers.

The first four rows check that the problem is sound; if one fails, the others are skipped. Every other row plays a wrong
kernel: it must be rejected on every benchmark case and on at least one test case (tiny tests may be too small to tell).
Shortcuts, which leave out a part of the work, are played on the benchmark cases, where they would pay; one that is
accepted once is played on more contents, because the judge draws many for each case.
"""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ksflow.errors import catch_foreign
from ksflow.evaluation.judge.bounds import ALLOWED
from ksflow.evaluation.judge.buffers import Tensors
from ksflow.evaluation.judge.cases import Reference
from ksflow.evaluation.judge.mistakes import score
from ksflow.evaluation.judge.mutants import MUTANTS, Mutant, Right, WrongAnswer, unread_substitutes
from ksflow.evaluation.judge.shortcuts import KINDS, UNREAD, answers, shortcuts_on
from ksflow.evaluation.judge.tolerance import bits, first_error, is_constant, same_bits, worst_error
from ksflow.kernels.hardware.cost_model import extents
from ksflow.records import Scalar

Case = dict[str, Any]
Row = tuple[str, bool, str]

_STRIDES = re.compile(r"strides\s*(\(.*\))")
_SHORTCUTS_S = 15.0  # for the first look on all cases together; as long again for a closer look
_SCORE_S = 120.0  # for the mutation score
_CONTENTS, _FEWEST_CONTENTS = 8, 2  # contents of a case that must all accept a shortcut; fewer where each takes long
_REMEDY = (
    "draw contents in which every part weighs more than the bound (around zero rather than far from it, of mixed size, "
    "shorter sums), or lower check.c1 or the oracle's magnitude; check.allow permits lower precision by name"
)
_FOREIGN_REMEDY = (
    "the format's own tolerance, on its own contents, cannot tell: take sizes at which every part weighs more, a "
    "tighter tolerance where the format has one (problem.rtol=0 problem.atol=0 where answers are exact), or a problem "
    "folder with an oracle of your own (problems/README.md)"
)


def probe(reference: Reference, shortcuts: bool = True) -> list[Row]:
    """Return rows of (name, ok, detail) over every case at its public seed. shortcuts: play shortcuts too."""
    cases = [*reference.problem["tests"], *reference.problem["benchmarks"]]
    rows: list[Row] = []
    for name, ask, passed in _SOUND:
        faults = [fault for fault in (ask(reference, case) for case in cases) if fault]
        rows.append((name, not faults, faults[0] if faults else passed))
        if faults:
            return rows
    inputs: _Inputs | None = None
    accepted: dict[str, dict[str, bool]] = {mutant.name: {} for mutant in MUTANTS}
    share = 0.0
    for case in cases:
        right = _right(reference, case)
        share = max(share, *(worst_error(want, out) for want, out in zip(right.want, right.outputs, strict=False)), 0.0)
        inputs = inputs or _Inputs(reference, right)
        inputs.look(right)
        for mutant in MUTANTS:
            if wrong := mutant.answers(right):
                passes = any(_accepts(reference, right, answer) for answer in wrong)
                accepted[mutant.name][case["name"]] = passes
    if reference.oracle is not None:
        rows[-1] = (*rows[-1][:2], f"the reference's largest error is {share:.3g} of its bound")
    assert inputs
    rows[1] = (*rows[1][:2], rows[1][2] + inputs.seeds())
    rows += [_verdict(mutant, accepted[mutant.name], reference.problem) for mutant in MUTANTS]
    rows.append(inputs.row())
    if shortcuts:
        kills = score(_contents(reference), partial(_accepts, reference), _SCORE_S)
        rows += [*_shortcuts(reference), ("mutation score", True, kills)]
    return rows


class _Inputs:
    """Which inputs affect the verdict: in some case an input must vary with the seed and a kernel that replaces it must
    be rejected."""

    def __init__(self, reference: Reference, first: Right) -> None:
        self._reference, self._foreign = reference, first.foreign
        self._names = [first.name(index) for index in range(len(first.inputs))]
        self._open = dict.fromkeys(range(len(first.inputs)), "")  # inputs without any effect so far, and why
        self._constants = dict.fromkeys(self._open)  # inputs that were the same for every seed in all cases so far

    def look(self, right: Right) -> None:
        same = [same_bits(*pair) for pair in zip(right.inputs, right.other[: len(right.inputs)], strict=True)]
        for index in [index for index in self._constants if index < len(same) and not same[index]]:
            del self._constants[index]
        for index in [index for index in self._open if index < len(same)]:
            if same[index] and is_constant(right.data[index]):
                self._open[index] = self._open[index] or "is the same for every seed"
            elif any(self._takes(right, index, instead) for instead in unread_substitutes(right, index)):
                self._open[index] = "may be any other within the bound"
            else:
                del self._open[index]

    def row(self) -> Row:
        name = "rejects inputs that are never read"
        words = "; ".join(f"{self._names[index]} {why}" for index, why in self._open.items())
        if not words:
            return name, True, f"each of {len(self._names)} matters in some case"
        if self._foreign:
            return name, True, f"as the format has it, {words}: a kernel need not read it"
        remedy = "draw contents from the seed that change the outputs by more than the bound, or remove it"
        return name, False, f"in every case {words}: a kernel that never reads it would win; {remedy}"

    def seeds(self) -> str:
        names = ", ".join(self._names[index] for index in self._constants)
        return f", but for {names}: the same for every seed, so a kernel may reuse its results" if names else ""

    def _takes(self, right: Right, index: int, instead: torch.Tensor) -> bool:
        with catch_foreign():  # the reference may raise on these contents: then it reads the input
            return _accepts(self._reference, right, right.rerun({index: instead}))
        return False


def _shortcuts(reference: Reference) -> list[Row]:
    cases = reference.problem["benchmarks"] or reference.problem["tests"]
    played = [_Played(reference, case, _SHORTCUTS_S / len(cases)) for case in cases]
    rows: list[Row] = []
    for kind, otherwise in KINDS.items():
        name, tries = f"rejects {kind}", sum(each.tries[kind] for each in played)
        passed = {each.name: each.passed[kind] for each in played if each.passed[kind]}
        late = sum(each.late[kind] for each in played)
        note = f"; {late} more were left out for lack of time" if late else ""
        words = f"{tries} answers on {len(played)} cases{note}" if tries else f"does not apply: {otherwise}{note}"
        if passed:
            what = f"a kernel that {next(iter(passed.values()))} would win"
            remedy = _FOREIGN_REMEDY if played[0].foreign else _REMEDY
            words = f"accepted on case {', '.join(passed)}: {what}; {remedy}"
        rows.append((name, not passed or (kind == UNREAD and played[0].foreign), words))
    return rows


class _Played:
    """Shortcuts on one case: how many were tried of each kind, which were accepted, how many were left out for time."""

    def __init__(self, reference: Reference, case: Case, seconds: float) -> None:
        self.name = str(case["name"])
        self.tries, self.late = (dict.fromkeys(KINDS, 0) for _ in range(2))
        self.passed = dict.fromkeys(KINDS, "")
        right = _right(reference, case)
        self.foreign = right.foreign
        end = time.monotonic() + seconds
        open_: list[WrongAnswer] = []
        for shortcut in shortcuts_on(right):
            if time.monotonic() > end:
                self.late[shortcut.kind] += 1
            elif (accepted := _passes(reference, shortcut, right)) is not None:
                self.tries[shortcut.kind] += 1
                open_ += [shortcut] if accepted else []
        end = time.monotonic() + seconds
        for structured in _structured(reference, case) if open_ else ():
            open_ = [shortcut for shortcut in open_ if _passes(reference, shortcut, structured) is not False]
        for step in range(1, _CONTENTS):
            if open_ and (step <= _FEWEST_CONTENTS or time.monotonic() < end):
                right = _right(reference, {**case, "seed": case["seed"] + step})
                open_ = [shortcut for shortcut in open_ if _passes(reference, shortcut, right) is not False]
        never = {shortcut.place for shortcut in open_ if self.foreign and shortcut.kind == UNREAD}
        for shortcut in reversed(open_):  # for an input that need not be read, only that is reported
            if shortcut.place in never and shortcut.kind != UNREAD:
                continue
            self.passed[shortcut.kind] = shortcut.what


def _passes(reference: Reference, shortcut: WrongAnswer, right: Right) -> bool | None:
    """Return whether the judge would accept one of the shortcut's answers; None if it has none on these contents."""
    made = []
    with catch_foreign():  # the reference may raise on these contents
        made = list(answers(shortcut, right))
    return any(_accepts(reference, right, answer) for answer in made) if made else None


def _arguments(reference: Reference, case: Case) -> str:
    data = reference.in_place.given(reference.data(case, case["seed"]))
    fault = _mismatch(reference.problem["args"], data, case["params"])
    return f"case {case['name']}: {fault}; correct args in problem.yaml or generate_input" if fault else ""


def _seeds(reference: Reference, case: Case) -> str:
    data = reference.data(case, case["seed"])
    inputs = _bytes(reference, data)
    again, other = (_bytes(reference, reference.data(case, case["seed"] + step)) for step in (0, 1))
    if not _equal(inputs, again):
        return (
            f"case {case['name']}: generate_input returns other contents at each call for seed {case['seed']}, so a "
            "verdict cannot be repeated; draw everything from a torch.Generator seeded with `seed`"
        )
    # another format's tests may be the same each time: they are not timed
    foreign_test = hasattr(data, "binding") and case not in reference.problem["benchmarks"]
    if _equal(inputs, other) and not foreign_test:
        return (
            f"case {case['name']}: generate_input returns the same contents for seeds {case['seed']} and "
            f"{case['seed'] + 1}, so a kernel could keep its answer; draw from a torch.Generator seeded with `seed`"
        )
    return ""


def _inputs(reference: Reference, case: Case) -> str:
    data = reference.data(case, case["seed"])
    before = _bytes(reference, data)
    calls: dict[str, Callable[[Tensors], Any]] = {"oracle": reference.expect, "ref_kernel": reference.kernel}
    for function, call in calls.items():
        call(data)
        pairs = zip(reference.names, before, _bytes(reference, data), strict=False)
        changed = [name for name, old, new in pairs if not same_bits(old, new)]
        if changed:
            return (
                f"case {case['name']}: {function} changes its input {changed[0]}, so later calls are judged on "
                "other contents; make it change a copy"
            )
    return ""


def _reference(reference: Reference, case: Case) -> str:
    right = _right(reference, case)
    shapes = [(str(out.dtype), tuple(out.shape)) for out in right.outputs]
    declared = [(str(out.dtype), tuple(out.shape)) for out in right.data[-len(right.outputs) :]]
    if shapes != declared or len(shapes) != reference.outputs:
        return f"case {case['name']}: ref_kernel returns {shapes}, the preallocated outputs are {declared}"
    for want, out in zip(right.want, right.outputs, strict=False):
        if detail := first_error(want, out):
            own = "correct ref_kernel, or the oracle's expected value or magnitude"
            if right.foreign:  # the tolerance is the format's
                own = "correct it, or set its tolerance (problem.rtol=0 problem.atol=0 where answers are exact)"
            return (
                f"case {case['name']}: the reference fails its own bound: {detail['bad']} of {detail['of']} elements, "
                f"first at {detail['index']}: got {detail['got']}, the oracle expects {detail['expected']} within "
                f"{detail['bound']}; {own}"
            )
    objection = reference.objection(right.data, right.outputs)
    return f"case {case['name']}: the reference fails property_check: {objection}" if objection else ""


_SOUND: tuple[tuple[str, Callable[[Reference, Case], str], str], ...] = (
    ("arguments", _arguments, "generate_input returns what problem.yaml declares"),
    ("seeds", _seeds, "same seed, same contents; other seed, other contents"),
    ("inputs", _inputs, "reference and oracle leave them alone"),
    ("reference", _reference, "passes its own check"),
)


def _verdict(mutant: Mutant, accepted: dict[str, bool], problem: dict[str, Any]) -> Row:
    name = f"rejects {mutant.name}"
    if not accepted:
        return name, True, f"does not apply: {mutant.otherwise}"
    benchmarks, tests = (
        [case["name"] for case in problem[kind] if case["name"] in accepted] for kind in ("benchmarks", "tests")
    )
    passed = [case for case in benchmarks if accepted[case]]
    if not passed and tests and all(accepted[case] for case in tests):
        passed = tests
    if passed:
        return name, False, f"accepted on case {', '.join(passed)}: {mutant.meaning}; {mutant.remedy}"
    return name, True, f"on {len(accepted) - sum(accepted.values())} of {len(accepted)} cases"


def _right(reference: Reference, case: Case) -> Right:
    data = reference.data(case, case["seed"])
    other = reference.data(case, case["seed"] + 1)
    want, inout, check = reference.expect(data), reference.inout(data), reference.problem["check"]
    eps = max(ALLOWED[check.get("allow", "")], torch.finfo(getattr(torch, check["accumulate"])).eps)
    digits = min(round(-math.log2(eps)), 23)
    return Right(data, reference.answer(data), want, other, reference.answer, digits, inout, reference.names)


def _structured(reference: Reference, case: Case) -> Iterator[Right]:
    """Yield a case's contents of each structure that the judge draws; for benchmark cases only the timed kinds."""
    kinds = [kind for kind in reference.kinds() if kind.timed or case not in reference.problem["benchmarks"]]
    for number, kind in enumerate(kinds):
        data = reference.data(case, case["seed"] + 2 + number)
        if found := reference.structure_contents(case, data, number, kind):
            changed, _, want = found
            yield replace(
                _right(reference, case), data=changed, outputs=reference.answer(changed), want=want, structured=True
            )


def _contents(reference: Reference) -> Iterator[Right]:
    cases = [*reference.problem["tests"], *reference.problem["benchmarks"]]
    yield from (_right(reference, case) for case in cases)
    for case in cases:
        yield from _structured(reference, case)


def _accepts(reference: Reference, right: Right, answer: Tensors) -> bool:
    wrong = any(first_error(want, out) for want, out in zip(right.want, answer, strict=False))
    return not wrong and not reference.objection(right.data, answer)


def _bytes(reference: Reference, data: Tensors) -> list[torch.Tensor]:
    return [bits(tensor.clone()) for tensor in data[: len(data) - reference.outputs]]


def _equal(first: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(first) == len(other) and all(map(same_bits, first, other))


def _mismatch(args: Sequence[Mapping[str, str]], data: Any, params: Mapping[str, Scalar]) -> str:
    if not isinstance(data, tuple) or not all(isinstance(tensor, torch.Tensor) for tensor in data):
        return "generate_input does not return a tuple of tensors"
    roles = [arg["role"] for arg in args]
    if hasattr(data, "binding"):  # imported: number and types of the inputs may vary by case
        outputs = len(data.binding["outputs"])
        return "" if outputs == roles.count("out") else f"the reference has {outputs} outputs, not {roles.count('out')}"
    if len(data) != len(args):
        return f"generate_input returns {len(data)} tensors, args declares {len(args)}"
    if {*roles} == {"in"} or roles != sorted(roles, key=lambda role: role == "out"):
        needs = "inputs come first, then at least one preallocated output (unless one is changed in place: inout)"
        return f"the roles are {', '.join(roles)}; {needs}"
    faults = (_argument_differs(arg, tensor, params) for arg, tensor in zip(args, data, strict=True))
    return next((words for words in faults if words), "")


def _argument_differs(arg: Mapping[str, str], tensor: torch.Tensor, params: Mapping[str, Scalar]) -> str:
    name = arg["name"]
    dtype = str(tensor.dtype).removeprefix("torch.")
    if arg.get("dtype", dtype) != dtype:
        return f"{name} is {dtype}, args declares {arg['dtype']}"
    shape, strides = tuple(tensor.shape), tensor.stride()
    try:
        declared = extents(arg.get("shape", ""), params)
        steps = extents(written[1], params) if (written := _STRIDES.search(arg.get("layout", ""))) else None
    except (ValueError, SyntaxError) as error:
        return f"args of {name}: {error}"
    if declared is not None and declared != shape:
        return f"{name} has shape {shape}, args declares ({arg['shape']}) = {declared}"
    if steps is not None and not (
        len(steps) == len(shape)
        and all(step == want for size, step, want in zip(shape, strides, steps, strict=True) if size > 1)
    ):
        return f"{name} has strides {strides}, args declares {steps}"
    if steps is None and arg.get("layout", "").startswith("row-major") and not tensor.is_contiguous():
        return f"{name} has strides {strides}, args declares row-major"
    return ""
