"""Probes: can a problem be judged? Its parts must fit together, and its check must reject common wrong answers.

The first four rows check that the problem is sound; if one fails, the others are skipped. Every other row plays a wrong
kernel: it must be rejected on every benchmark case and on at least one test case (tiny tests may be too small to tell).
Shortcuts, which leave out a part of the work, are played on the benchmark cases, where they would pay; one that is
accepted once is played on more contents, because the judge draws many for each case.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ksflow.errors import catch_foreign
from ksflow.evaluation.judge.buffers import Tensors
from ksflow.evaluation.judge.cases import Reference
from ksflow.evaluation.judge.elements import is_constant, same_bits
from ksflow.evaluation.judge.mistakes import score
from ksflow.evaluation.judge.mutants import MUTANTS, WORDS, Mutant, Right, WrongAnswer, unread_substitutes
from ksflow.evaluation.judge.shortcuts import KINDS, UNREAD, answers, shortcuts_on
from ksflow.evaluation.judge.soundness import SOUND
from ksflow.evaluation.judge.tolerance import first_error, worst_error

Case = dict[str, Any]
Row = tuple[str, bool, str]

_SHORTCUTS_S = 15.0  # for the first look on all cases together; as long again for a closer look
_SCORE_S = 120.0  # for the mutation score
_CONTENTS, _FEWEST_CONTENTS = 8, 2  # contents of a case that must all accept a shortcut; fewer where each takes long


def probe(reference: Reference, shortcuts: bool = True) -> list[Row]:
    """Return rows of (name, ok, detail) over every case at its public seed. shortcuts: play shortcuts too."""
    cases = [*reference.problem["tests"], *reference.problem["benchmarks"]]
    rows: list[Row] = []
    for name, ask, passed in SOUND:
        faults = [fault for fault in (ask(reference, case) for case in cases) if fault]
        rows.append((name, not faults, faults[0] if faults else passed))
        if faults:
            return rows
    inputs: _Inputs | None = None
    accepted: dict[str, dict[str, bool]] = {mutant.name: {} for mutant in MUTANTS}
    share = 0.0
    for case in cases:
        right = Right.of(reference, case)
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
            remedy = WORDS["remedies"]["foreign" if played[0].foreign else "own"]
            words = f"accepted on case {', '.join(passed)}: {what}; {remedy}"
        rows.append((name, not passed or (kind == UNREAD and played[0].foreign), words))
    return rows


class _Played:
    """Shortcuts on one case: how many were tried of each kind, which were accepted, how many were left out for time."""

    def __init__(self, reference: Reference, case: Case, seconds: float) -> None:
        self.name = str(case["name"])
        self.tries, self.late = (dict.fromkeys(KINDS, 0) for _ in range(2))
        self.passed = dict.fromkeys(KINDS, "")
        right = Right.of(reference, case)
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
                right = Right.of(reference, {**case, "seed": case["seed"] + step})
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


def _structured(reference: Reference, case: Case) -> Iterator[Right]:
    """Yield a case's contents of each structure that the judge draws; for benchmark cases only the timed kinds."""
    kinds = [kind for kind in reference.kinds() if kind.timed or case not in reference.problem["benchmarks"]]
    for number, kind in enumerate(kinds):
        data = reference.data(case, case["seed"] + 2 + number)
        if found := reference.structure_contents(case, data, number, kind):
            changed, _, want = found
            yield replace(
                Right.of(reference, case), data=changed, outputs=reference.answer(changed), want=want, structured=True
            )


def _contents(reference: Reference) -> Iterator[Right]:
    cases = [*reference.problem["tests"], *reference.problem["benchmarks"]]
    yield from (Right.of(reference, case) for case in cases)
    for case in cases:
        yield from _structured(reference, case)


def _accepts(reference: Reference, right: Right, answer: Tensors) -> bool:
    wrong = any(first_error(want, out) for want, out in zip(right.want, answer, strict=False))
    return not wrong and not reference.objection(right.data, answer)
