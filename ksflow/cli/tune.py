"""`tune`: the values of a winner's tunables for more shapes, judged there; its table and its files are extended."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from ksflow import log, report
from ksflow.cli.task import open_lineage
from ksflow.cli.verbs import hand_over_winner
from ksflow.config import command_line, compose, keys
from ksflow.config.parts import Parts, parts
from ksflow.errors import ConfigError
from ksflow.integrate.handover import table
from ksflow.kernels.problem.loader import case_from
from ksflow.loop.search import search
from ksflow.records import Case, Json, Problem, Seed, digest
from ksflow.report.headline import headline, of_outcome
from ksflow.search.dispatch import effective

_BY_RULE = ("selector=fastest", "designer=tune", "writer=tune", "digester=none", "loop.evaluations=12")
"""No model is asked."""


def tune(words: list[str], overrides: list[str]) -> int:
    """`tune [NAME] cases='[{m: 128}]'`: 0, or ConfigError where the winner has no other configurations."""
    own, rest = keys.own_options(overrides, "cases")
    if words or "cases" not in own:
        raise ConfigError("the command is: tune [NAME] cases='[{m: 128, n: 256}]'")
    typed = {word.partition("=")[0] for word in rest}
    cfg = compose.compose([*(word for word in _BY_RULE if word.partition("=")[0] not in typed), *rest])
    console, rows = report.console(), list[Json]()
    with parts(cfg) as made:
        log.setup(made.lineage.store.path.parent / "logs" / "tune")
        made.lineage.expect_as_recorded()
        population = made.lineage.last_population
        claimed = headline(population, report.known_baselines(population, made.problem.seeds))
        if claimed is None or claimed.best.kernel is None or claimed.over is claimed.best:
            raise ConfigError("no kernel of the run is ahead of its baselines, so there is nothing to tune")
        if why := table.why_none(claimed.best.kernel):
            raise ConfigError(f"{claimed.best.id} {why}")
        for case in _cases(own["cases"], made.problem):
            problem = replace(
                made.problem,
                tests=(*made.problem.tests, case),
                benchmarks=(case,),
                heldout=(),
                seeds=(Seed(f"{claimed.best.id} as it is", claimed.best.kernel, baseline=True),),
                digest=digest(made.problem.digest, repr(case)),
            )
            run = command_line.plain_name(f"{made.lineage.run}-{case.name}")
            with open_lineage(cfg, problem.name, run, create=True) as lineage:
                rows.append(_tuned(replace(made, problem=problem, lineage=lineage)))
            values = " ".join(f"{name}={value}" for name, value in rows[-1]["values"].items())
            report.say(console, f"{case.name}: {values}: {rows[-1]['us']:.4g} µs, {rows[-1]['measured']}")
        report.say(console, *hand_over_winner(claimed, made, rows))
    return 0


def _cases(text: str, problem: Problem) -> list[Case]:
    """The cases that a person named; what they leave out is as in the first benchmark. ConfigError."""
    try:
        given: Any = yaml.safe_load(text)
    except yaml.YAMLError:
        given = None
    if not isinstance(given, list) or not given or not all(isinstance(each, Mapping) for each in given):
        raise ConfigError(f"cases={text} is not a list of cases such as [{{m: 128, n: 256}}]")
    usual = problem.benchmarks[0].params
    if unknown := sorted({str(key) for each in given for key in each} - usual.keys() - {"seed"}):
        raise ConfigError(f"cases: no parameter {unknown[0]}; a case of {problem.name} has {', '.join(usual)}")
    dims = {dim: usual[dim] for dim in problem.dims}
    rest = [{key: value for key, value in usual.items() if key not in {**dims, **each}} for each in given]
    return [case_from({**dims, **each}, others, [*dims]) for each, others in zip(given, rest, strict=True)]


def _tuned(made: Parts) -> Json:
    """A row of the table, from a run of its own. ConfigError where the winner itself is wrong there."""
    show = report.Display(report.console(stderr=True))
    run = made.run(show)
    with run.handle_signals(), show:
        outcome = search(run, made.problem.seeds, made.settings)
    (case,), best, claimed = made.problem.benchmarks, outcome.best, of_outcome(outcome)
    assert best.kernel is not None
    assert best.evaluation is not None
    beside = claimed.claim if claimed.over is not best else "no other configuration is ahead"
    judged = f"{beside} ({made.lineage.branch_of(best.id)}, {outcome.judged} judged)"
    device = best.evaluation.evidence.device or made.target.chip
    return table.row(case, device, effective(best.kernel.main, case.params), outcome.score_us, judged)
