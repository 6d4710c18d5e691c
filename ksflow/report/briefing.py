"""Descriptions of a problem: how it was understood, and whether it can be judged."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ksflow.errors import pluralize
from ksflow.kernels.hardware import roofline
from ksflow.kernels.languages import LANGUAGES
from ksflow.kernels.source.contract import contract, newer_lines
from ksflow.records import Problem, Target
from ksflow.report.words import say

_CHECKS = {
    "gpumode": "the task's own check_implementation",
    "popcorn": "the service's",
    "kernelbench": "upstream's allclose, of a deck a share of the answer's size; narrower where the answers to other "
    "inputs would come too close to that",
    "flashinfer": "upstream's rule: see what was inferred",
    "tritonbench": "within problem.atol + problem.rtol of its size, element by element",
    "kernel": "see what was inferred",
    "command": "problem.test must exit with 0",
}  # format -> the rule for right answers, in place of the derived bound


def show_problem(console: Console, problem: Problem, target: Target) -> None:
    """Print how a problem was understood, and the least times of its benchmarks on a target."""
    put = Text.assemble
    console.print(
        put((problem.name, "bold"), f": {problem.title}{problem.variant and f' (variant {problem.variant})'}")
    )
    console.print(problem.description, markup=False)
    if problem.args:
        table = Table("argument", "dtype", "role", "shape", "layout", title="data", title_justify="left")
        for arg in problem.args:
            table.add_row(arg.name, arg.dtype, arg.role, arg.shape or arg.doc, arg.layout)
        console.print(table)
    for key, value in problem.origin.items():
        if _tabular(value):
            console.print(_table(key, value))
    limits = problem.limits
    rows = {
        "folder": problem.root,
        "languages": ", ".join(problem.languages),
        "defines": " ".join(f"-D{k}={v}" for k, v in problem.defines.items()),
        "tests": ", ".join(case.name for case in problem.tests),
        "benchmarks": ", ".join(problem.case_words),
        "held out": problem.heldout and f"{pluralize(len(problem.heldout), 'shape')}, of which models are not told",
        "score": f"{problem.score_name} of the benchmarks' µs, lower is better",
        **_check(problem, target),
        "limits": f"compile {limits.compile_s:g} s, check {limits.check_s:g} s, time {limits.time_s:g} s, "
        f"{limits.memory_mb} MB",
        "seeds": ", ".join(f"{s.name}{' (baseline)' if s.baseline else ''}" for s in problem.seeds),
        **_origin(problem),
        "digest": problem.digest,
    }
    if problem.work or not problem.origin:  # other formats do not declare work
        rows |= {f"work {case.name}": roofline.describe(problem, case, target) for case in problem.benchmarks}
    say(console, *(f"{key}: {value}" for key, value in rows.items() if value))
    for language in problem.languages:
        console.print(put("\n", (f"A kernel in {language} (NAME{LANGUAGES[language].ending})", "bold")))
        parts = [contract(problem, language), newer_lines(language, target.march)]
        say(console, "\n".join(filter(None, parts)))


def _check(problem: Problem, target: Target) -> dict[str, str]:
    if problem.origin:
        return {"check": _CHECKS.get(str(problem.origin.get("format")), "")}
    check = problem.check
    unit = check.unit(target.march)
    term = f" + {unit:g} * sqrt(sum of squares)" if unit else ""
    return {"bound": f"{check.c1:g} * eps({check.accumulate}) * sqrt(terms) * magnitude + u_out * |expected|{term}"}


def _tabular(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _table(title: str, rows: list[Mapping[str, Any]]) -> Table:
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(key, ""))) for key in rows[0]))
    return table


def _cell(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    if any(isinstance(item, Mapping) for item in value.values()):
        return "\n".join(f"{key}: {' '.join(map(str, item.values()))}" for key, item in value.items())
    return " ".join(f"{key}={item}" for key, item in value.items())


def _origin(problem: Problem) -> dict[str, str]:
    """Return an imported problem's origin, and what was inferred and dropped."""
    facts = {key: value for key, value in problem.origin.items() if value not in (None, "", []) and not _tabular(value)}
    remarks = {
        f"{key} {number}": line
        for key in ("inferred", "dropped")
        for number, line in enumerate(facts.pop(key, ()), start=1)
    }
    known = {"known right": problem.good, "known wrong": problem.bad}
    return {
        **{key: str(value) for key, value in facts.items()},
        **remarks,
        **{name: ", ".join(seed.name for seed in seeds) for name, seeds in known.items() if seeds},
    }


def show_checks(console: Console, problem: Problem, rows: Iterable[tuple[str, bool, str]]) -> int:
    """Print the admission of a problem, a line each; return 0 if all checks hold, else 1."""
    failed = 0
    for name, ok, detail in rows:
        failed += not ok
        console.print(
            Text.assemble(("ok   " if ok else "FAIL ", "green" if ok else "red"), f"{name}: {detail}"), soft_wrap=True
        )
    came = f"{pluralize(failed, 'check')} failed" if failed else "every check holds"
    console.print(f"{problem.name}: {came}")
    return 1 if failed else 0
