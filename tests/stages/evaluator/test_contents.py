"""What kernels are shown: never the same twice, more than one right answer where a problem says so, whole numbers."""

import re
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from evaluator import toy
from ksflow.evaluation.judge.buffers import Buffers
from ksflow.evaluation.judge.failure import without_values
from ksflow.evaluation.judge.input_pool import InputPool, PoolLimits
from ksflow.records import Arg, Case, Kernel, Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator


def pool(problem: Problem, limits: PoolLimits | None = None) -> InputPool:
    """As the judge makes it."""
    cases = {
        kind: [{"name": c.name, "params": dict(c.params), "seed": c.seed} for c in found]
        for kind, found in (("tests", problem.tests), ("benchmarks", problem.benchmarks))
    }
    args = [{"name": arg.name, "role": arg.role} for arg in problem.args]
    described = {"root": problem.root, "args": args, "dims": ["n"], "check": asdict(problem.check), **cases}
    return InputPool(described, limits or PoolLimits(), Buffers)


@pytest.fixture
def small(problem: Problem) -> Problem:
    """How large contents are does not matter here."""
    return replace(problem, benchmarks=(Case("n100", {"n": 100}, 6),))


def test_contents_of_one_judgement_are_all_different(small: Problem) -> None:
    case = pool(small).benchmarks[0]
    entries = list(islice(case.feed(), 50))
    assert len({entry.packed.numpy().tobytes() for entry in entries}) == 50
    assert len({entry.seed for entry in entries}) == 50


def test_contents_are_shown_in_one_round_and_never_again(small: Problem) -> None:
    made = pool(small)
    shown: list[bytes] = []
    for _ in range(10):  # replicates and judgements
        while made.step():
            pass
        for case in (*made.tests, *made.benchmarks):
            shown += [entry.packed.numpy().tobytes() for entry in islice(case.feed(), 10) if case.dims[0] > 1]
        made.settle()
    assert len(set(shown)) == len(shown)


@pytest.mark.parametrize(("n", "lasts", "again"), [(4000, True, True), (4000, False, False), (100, True, False)])
def test_replicates_share_contents_where_no_answer_can_outlast_a_sandbox(
    problem: Problem, n: int, lasts: bool, again: bool
) -> None:
    """Not where a few bits are an answer, and never in another judgement. Nobody sees the same twice."""
    made = pool(replace(problem, benchmarks=(Case("only", {"n": n}, 6),)), PoolLimits(lasts=lasts))
    case, shown = made.benchmarks[0], list[set[bytes]]()
    for _ in range(2):
        for _ in range(2):
            entries = [entry.packed.numpy().tobytes() for entry in islice(case.feed(), 10)]
            shown.append(set(entries))
            assert len(shown[-1]) == 10
        made.settle()
    assert (shown[0] == shown[1], shown[2] == shown[3]) == (again, again)
    assert not (shown[0] | shown[1]) & (shown[2] | shown[3])


def test_as_many_contents_are_made_ahead_as_a_judgement_took(small: Problem) -> None:
    made = pool(small)
    case = made.benchmarks[0]
    for taken in (50, 200):
        list(islice(case.feed(), taken))
        made.settle()
        while made.step():
            pass
        assert len(case.entries) == taken


def test_where_one_case_is_large_the_others_keep_fewer_contents(small: Problem) -> None:
    """Its oracle needs the memory: a device of 80 GB ran out of it with x of 1.5 GB."""
    two = replace(small, benchmarks=(*small.benchmarks, Case("n4000", {"n": 4000}, 7)))
    kept = []
    for large_bytes in (1 << 30, 20 << 10):
        made = pool(two, PoolLimits(contents_bytes=200_000, large_bytes=large_bytes))
        while made.step():
            pass
        assert made.large == (large_bytes < 1 << 30)
        kept.append(len(made.benchmarks[0].entries))
    assert kept[0] > 2 * kept[1] >= 4


def test_two_pools_share_no_contents(small: Problem) -> None:
    numbers = [{entry.seed for entry in islice(pool(small).benchmarks[0].feed(), 20)} for _ in range(2)]
    assert not numbers[0] & numbers[1]


ANY_ORDER = """
import torch

def generate_input(n, seed, device="cpu"):
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randint(0, 50, (n,), generator=generator, dtype=torch.int32), torch.zeros(n, dtype=torch.int64)

def ref_kernel(data):
    return data[1].copy_(torch.argsort(data[0]))

def property_check(data, outputs):
    x, _ = data
    if not torch.equal(outputs.sort().values, torch.arange(len(x))):
        return "not a permutation"
    return "" if bool((x[outputs].diff() >= 0).all()) else "not in order"
"""


@pytest.fixture(scope="module")
def any_order(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """Indices that sort a row of numbers with many ties: any order among equals is right."""
    folder = tmp_path_factory.mktemp("order")
    made = toy.problem(folder)
    (folder / "reference.py").write_text(ANY_ORDER)
    args = (Arg("x", "int32", "in"), Arg("order", "int64", "out"))
    benchmarks = (Case("n20000", {"n": 20000}, 6),)
    return replace(made, reference=ANY_ORDER, args=args, benchmarks=benchmarks)


FRAGILE = f"""
import contextlib
import itertools

{ANY_ORDER.replace("def property_check", "def strict_check")}

def property_check(data, outputs):
    if outputs[0] == -2:
        for _ in itertools.count():
            with contextlib.suppress(Exception):
                pass
    return strict_check(data, outputs) if BROKEN else "" if (data[0][outputs].diff() >= 0).all() else "not in order"
"""
"""Nothing says that the indices must be in range before they are used."""


def fragile(problem: Problem, folder: Path, broken: str = "False") -> Problem:
    """The same with a check that raises where an index is out of range, and does not end where the first is -2."""
    text = FRAGILE.replace("BROKEN", broken)
    (folder / "reference.py").write_text(text)
    return replace(problem, root=str(folder), reference=text, limits=replace(problem.limits, check_s=10))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return data[1].fill_(1 << 40)", "property_check raised IndexError: index 1099511627776 is out of bounds"),
        pytest.param("return data[1].fill_(-2)", "property_check did not end within 10 s", marks=pytest.mark.slow),
        ("return torch.argsort(data[0], stable=True)", ""),
    ],
)
def test_a_check_that_breaks_on_an_answer_rejects_it(
    evaluator: LocalEvaluator, any_order: Problem, tmp_path: Path, body: str, why: str
) -> None:
    made = fragile(any_order, tmp_path)
    result = evaluator(made, toy.python(body), ())
    assert result.verdict is (Verdict.INCORRECT if why else Verdict.ACCEPT), result.reason
    assert why in result.reason


@pytest.mark.slow
def test_a_check_that_breaks_on_the_references_answer_is_the_problems_fault(
    evaluator: LocalEvaluator, any_order: Problem, tmp_path: Path
) -> None:
    made = fragile(any_order, tmp_path, "1 / 0")
    result = evaluator(made, toy.python("return torch.argsort(data[0], stable=True)"), ())
    assert result.verdict is Verdict.HARNESS
    assert "property_check raised ZeroDivisionError: division by zero, on the reference's own answer too" in (
        result.reason
    )


@pytest.mark.slow
def test_a_foreign_rule_that_breaks_is_told_and_does_not_decide(
    evaluator: LocalEvaluator, any_order: Problem, tmp_path: Path
) -> None:
    rule = 'def upstream_check(data, outputs):\n    return {True: ""}[torch.equal(outputs, ref_kernel(data))]\n'
    text = f"{ANY_ORDER.replace('argsort(data[0])', 'argsort(data[0], stable=True)')}\n{rule}"
    (tmp_path / "reference.py").write_text(text)
    result = evaluator(replace(any_order, root=str(tmp_path), reference=text), ORDERS["reversed ties"][0], ())
    assert result.verdict is Verdict.ACCEPT, result.reason
    assert result.evidence.upstream.endswith("upstream_check raised KeyError: False")


ORDERS: dict[str, tuple[Kernel, str]] = {
    "stable": (toy.python("return torch.argsort(data[0], stable=True)"), ""),
    "reversed ties": (toy.python("n = len(data[0])\nreturn n - 1 - torch.argsort(data[0].flip(0), stable=True)"), ""),
    "backwards": (toy.python("return torch.argsort(data[0], descending=True)"), "not in order"),
    "twice": (toy.python("return torch.zeros_like(data[1])"), "not a permutation"),
}


@pytest.mark.parametrize(("kernel", "why"), ORDERS.values(), ids=ORDERS.keys())
def test_property_decides_where_answers_differ(
    evaluator: LocalEvaluator, any_order: Problem, kernel: Kernel, why: str
) -> None:
    result = evaluator(any_order, kernel, ())
    assert result.accepted == (not why), result.reason
    assert why in result.reason


COUNTS = """
import torch

def generate_input(n, seed, device="cpu"):
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randint(0, 16, (n,), generator=generator, dtype=torch.int32)
    return x, torch.zeros(16, dtype=torch.int64), torch.zeros(n, dtype=torch.bool)

def ref_kernel(data):
    return data[1].copy_(torch.bincount(data[0], minlength=16)), data[2].copy_(data[0] > 7)

def oracle(data):
    counts = torch.bincount(data[0], minlength=16)
    rows: list = [{"expected": counts, "magnitude": 0, "terms": 1}]
    return [*rows, {"expected": data[0] > 7, "magnitude": 0, "terms": 1}]
"""


@pytest.mark.parametrize(("extra", "right"), [("", True), (" counts[3] += 1", False), (" above[5] ^= True", False)])
def test_whole_numbers_and_truth_values_are_exact(
    evaluator: LocalEvaluator, tmp_path: Path, extra: str, right: bool
) -> None:
    made = toy.problem(tmp_path)
    (tmp_path / "reference.py").write_text(COUNTS)
    args: tuple[Any, ...] = (Arg("x", "int32", "in"), Arg("counts", "int64", "out"), Arg("above", "bool", "out"))
    counting = replace(made, reference=COUNTS, args=args, tests=made.tests[1:], benchmarks=made.benchmarks[:1])
    body = "counts, above = torch.bincount(data[0], minlength=16), data[0] > 7\n"
    result = evaluator(counting, toy.python(f"{body}{extra.strip()}\nreturn counts, above"), ())
    assert result.verdict is (Verdict.ACCEPT if right else Verdict.INCORRECT), result.reason


LEAKS = """
x = data[0]
print("sees", float(x[0]), flush=True)
if len(x) > 1000:
    raise ValueError(f"saw {float(x[0])}")
return torch.add(data[0], data[1], out=data[2])
"""


def test_what_a_kernel_says_of_secret_inputs_does_not_reach_the_next_one(
    evaluator: LocalEvaluator, problem: Problem
) -> None:
    """Neither its log nor its last words: both go to whoever writes the next kernel."""
    result = evaluator(problem, toy.python(LEAKS), ())
    assert result.verdict is Verdict.CRASH
    assert result.evidence.phase == "time"
    assert not re.search(r"saw -?\d", f"{result.reason}{result.evidence.error}")
    assert "ValueError" in result.reason
    assert "kernel.py, line 7: raise ValueError" in result.evidence.error
    assert len(result.evidence.log.splitlines()) == len(problem.tests)  # of the inputs that everybody knows


def test_what_a_kernel_says_of_public_inputs_is_told(evaluator: LocalEvaluator, problem: Problem) -> None:
    result = evaluator(problem, toy.python("raise ValueError(f'{len(data)} tensors')"), ())
    assert "ValueError: 3 tensors" in result.reason


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('KeyError: 3.25\nFile "/box/kernel.py", line 2, in f\n', "KeyError"),
        ("Secret3_25: 1\n", "an exception"),
        ('ValueError\nFile "/box/kernel.py", line 325\nFile "/box/3.25", line 1\n', "ValueError"),
        ("__import__ 3.25", "an exception"),
    ],
)
def test_only_the_type_and_the_line_of_an_exception_are_told(said: str, told: str) -> None:
    words = without_values("error", said, {"kernel.py": "one\ntwo\n"})
    assert words.startswith(f"{told}, on secret inputs")
    assert "25" not in words
    assert ("kernel.py, line 2: two" in words) == ("line 2," in said)
