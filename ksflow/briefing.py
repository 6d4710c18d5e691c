"""What a person sees of a problem: what was understood of it, and whether it can be judged. Text only, no decisions."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ksflow import work
from ksflow.contract import ENDINGS, contract
from ksflow.records import Problem, Target


def show_problem(console: Console, problem: Problem, target: Target) -> None:
    """What was understood of a problem, and what its benchmarks need at least on a target."""
    put = Text.assemble
    console.print(put((problem.name, "bold"), f": {problem.title} (variant {problem.variant or 'none'})"))
    console.print(problem.description, markup=False)
    table = Table("argument", "dtype", "role", "shape", "layout", title="data", title_justify="left")
    for arg in problem.args:
        table.add_row(arg.name, arg.dtype, arg.role, arg.shape, arg.layout)
    console.print(table)
    check, limits = problem.check, problem.limits
    unit = check.unit(target.march)
    rows = {
        "folder": problem.root,
        "languages": ", ".join(problem.languages),
        "defines": " ".join(f"-D{k}={v}" for k, v in problem.defines.items()),
        "tests": ", ".join(case.name for case in problem.tests),
        "benchmarks": ", ".join(case.name for case in problem.benchmarks),
        "score": f"{problem.score} of the benchmarks' µs, lower is better",
        "bound": f"{check.c1:g} * eps({check.accumulate}) * sqrt(terms) * magnitude + u_out * |expected|"
        f"{f' + {unit:g} * sqrt(sum of squares)' if unit else ''}",
        "limits": f"compile {limits.compile_s:g} s, check {limits.check_s:g} s, time {limits.time_s:g} s, "
        f"{limits.memory_mb} MB",
        "seeds": ", ".join(f"{s.name}{' (baseline)' if s.baseline else ''}" for s in problem.seeds),
        "digest": problem.digest,
        **{f"work {case.name}": work.describe(problem, case, target) for case in problem.benchmarks},
    }
    for key, value in rows.items():
        console.print(f"{key}: {value}", markup=False, soft_wrap=True)
    for language in problem.languages:
        console.print(put("\n", (f"A kernel in {language} (NAME{ENDINGS[language]})", "bold")))
        console.print(contract(problem, language), markup=False, highlight=False, soft_wrap=True)


def show_checks(console: Console, problem: Problem, rows: Iterable[tuple[str, bool, str]]) -> int:
    """The admission of a problem, a line each; 0 when all hold, else 1."""
    failed = 0
    for name, ok, detail in rows:
        failed += not ok
        console.print(
            Text.assemble(("ok   " if ok else "FAIL ", "green" if ok else "red"), f"{name}: {detail}"),
            soft_wrap=True,
        )
    console.print(f"{problem.name}: {'every check holds' if not failed else f'{failed} checks failed'}")
    return 1 if failed else 0
