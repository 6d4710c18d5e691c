"""What each command does: compose, build, hand over, show."""

import gc
import importlib
import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from ksflow import BEGAN, home, log, report
from ksflow.cli import usage
from ksflow.cli.task import named_trial, recorded_run, resolve_names, some_trials, winner_folder
from ksflow.config import compose, keys, pages
from ksflow.config.members import of_multirun
from ksflow.config.parts import Parts, parts
from ksflow.errors import ConfigError, NothingTried, boolean, one_of
from ksflow.integrate.handover import hand_over, table
from ksflow.integrate.handover.hub import Standing, write_hub
from ksflow.integrate.handover.package import write_best
from ksflow.kernels.problem import licences
from ksflow.loop.run import Run
from ksflow.loop.schedule import RunOutcome
from ksflow.loop.search import search as search_by_itself
from ksflow.loop.startup import expect_tunables
from ksflow.protocols import TrackedRun
from ksflow.records import Json
from ksflow.redaction import redact
from ksflow.report.headline import Headline, baseline_name, headline, of_outcome

_BY_RULE = "ksflow.stages.writer.tune.Tune"  # the writer that only assigns tunables


def run(words: list[str], overrides: list[str]) -> int:
    """Search, and end with a table. NothingTried where none of its runs came to an experiment."""
    if words:
        raise ConfigError(f"run takes no {words[0]!r}; {usage.meant(words[0])}its arguments are key=value")
    if several := of_multirun(overrides):
        gc.enable()
        return COMMANDS["suite"]([], several)
    searched(overrides, BEGAN)
    return 0


def demo(words: list[str], overrides: list[str]) -> int:
    """`demo`: search on the problem that `make demo` searches on."""
    return run(words, ["problem=fp8_gemm", *overrides])


def searched(overrides: list[str], began: float) -> RunOutcome | None:
    """Search as the words say, once or as a sweep. Returns the last outcome; None where the words only show something.

    Raises NothingTried where no run came to an experiment.
    """
    idle, last = list[str](), list[RunOutcome]()
    compose.launch(partial(_job, idle, last, began), overrides)
    if idle and all(idle):
        raise NothingTried(idle[0])
    return last[0] if last else None


def _job(idle: list[str], last: list[RunOutcome], began: float, cfg: DictConfig) -> float:
    """One run of the loop; the best score in µs. `idle` is told why it tried nothing, or "" where it did."""
    if not gc.isenabled():  # all is imported
        gc.freeze()
        gc.enable()
    last[:] = [outcome := search(cfg, began)]
    idle.append(outcome.idle)
    return outcome.score_us


def search(cfg: DictConfig, began: float) -> RunOutcome:
    """One run of the loop as it is configured, with its table and its winner's files.

    began: the `time.monotonic()` of the command. A member of a sweep begins now.
    """
    began = time.monotonic() if compose.in_sweep() else began
    log.setup(compose.job_folder())
    console = report.console(stderr=True)
    with parts(cfg) as made:
        if not compose.problem_words():
            report.say(console, f"{made.problem.name}: {made.problem.title}. {report.words.ANOTHER_PROBLEM}")
        report.say(console, *made.remarks, style="yellow")
        asked = made.models or made.recorded or 0 in made.schedule.caps.values()  # a model, a record, or for no search
        if cfg.writer.get("_target_") == _BY_RULE and not asked:
            expect_tunables(made.problem, made.lineage, made.seeds)
        show, tracking = report.Display(console), _tracking(made, cfg, console)
        run = made.run(show, tracking) if tracking else made.run(show)
        with run.handle_signals():
            with show:
                outcome = search_by_itself(run, made.seeds, made.settings, began)
            outcome = _finish(console, outcome, made)
            summary = report.summary(outcome, made.problem, made.lineage)
            home.write(compose.job_folder() / "summary.json", json.dumps(summary, indent=1) + "\n")
        if tracking:
            _finish_tracking(tracking, compose.job_folder(), outcome, run, summary)
        if run.interrupted:
            compose.end_sweep()
    return outcome


def _tracking(made: Parts, cfg: DictConfig, console: Console) -> report.Tracking | None:
    if made.tracker is None:
        return None
    known = {name: redact(value) for name, value in compose.parameters(cfg).items()}
    group, lineage = compose.sweep_name(), made.lineage
    return report.Tracking(
        made.tracker,
        lambda: TrackedRun(lineage.problem, lineage.run, lineage.identity, group, known),
        partial(report.say, console, style="yellow"),
    )


def _finish_tracking(tracking: report.Tracking, folder: Path, outcome: RunOutcome, run: Run, summary: Json) -> None:
    """Hand over the run's figures, its page as Markdown, and the winner's files."""
    from ksflow.report.page import RunFacts, as_markdown

    page = folder / "report.md"
    home.write(page, as_markdown(RunFacts(run.lineage, run.problem).read(details=False)))
    winners = sorted(file for file in winner_folder(run.lineage).glob("*") if file.is_file())
    files = [folder / "summary.json", page, *winners]
    figures = {name: str(value) for name, value in summary.items() if isinstance(value, str | int | float)}
    tracking.finish(outcome.population, figures, files, folder / "trials.csv")


def _finish(console: Console, outcome: RunOutcome, made: Parts) -> RunOutcome:
    """Show how a run ended, hand its winner over, and say how long all took. Returns the outcome with that time."""
    began, problem, lineage = time.monotonic(), made.problem, made.lineage
    report.show_outcome(console, outcome, problem, lineage)
    lineage.store.point_head(lineage.branch_of(outcome.best.id))
    said = hand_over_winner(of_outcome(outcome), made)
    took = {**outcome.took, "hand-over": time.monotonic() - began}
    outcome = replace(outcome, took=took)
    typed = shlex.join(compose.problem_words()) or f"problem={problem.name}"
    report.show_ending(console, outcome, lineage, said, typed)
    return outcome


def hand_over_winner(claimed: Headline, made: Parts, rows: Sequence[Json] = ()) -> tuple[str, ...]:
    """Write a run's winner below `best`, unless it is a baseline. Returns where its files are, and what there is to say
    of them.

    rows: new ones of its table.
    """
    problem, target, lineage, best = made.problem, made.target, made.lineage, claimed.best
    if claimed.over is best:
        return (f"none, as {baseline_name(best)} is a baseline, and no kernel is ahead of it",)
    folder, evaluate = winner_folder(lineage), made.stages.evaluate
    folder.mkdir(parents=True, exist_ok=True)
    tuned = table.update(folder, problem, target, best, rows)
    module = write_best(folder, problem, target, best, lineage.commit_of(best.id), claimed.figures, tuned)
    files, said = [module.name, *([table.FILE] if tuned else [])], list[str]()
    handed_over = hand_over(folder / "handover", problem, target, best, evaluate, claimed.figures, tuned)
    files += [str(file.relative_to(folder)) for file in handed_over.files]
    said += handed_over.said
    if handed_over.files and problem.origin.get("format", "kernel") == "kernel":
        judged = time.strftime("%Y-%m-%d", time.gmtime(lineage.judged_at([best.id])[best.id]))
        licence = licences.of_kernel(problem, claimed.known.by_id, best.id)
        standing = Standing(claimed.claim, claimed.held_out, judged, licence, licences.on_the_hub(licence))
        any_size = [module] if best.kernel and best.kernel.language == "cpp" and module.name == "best.py" else []
        modules = [*any_size, *handed_over.files]
        said.append(write_hub(folder / "handover" / "hub", problem, target, best, modules, standing, evaluate))
    return (f"{folder}: {', '.join(files)}", *said)


def problem(words: list[str], overrides: list[str]) -> int:
    """`problem show`, `problem check` and `problem list`."""
    from ksflow.evaluation.judge import machine_rates
    from ksflow.report import briefing

    verb = words[0] if words else "show"
    usage.expect_word("problem", words, ("show", "check", "list"))
    if len(words) > 1:
        raise ConfigError(f"problem {verb} takes key=value, such as problem=NAME, and not {words[1]!r}")
    if verb == "list":
        if overrides:
            raise ConfigError(f"problem list takes nothing, and not {overrides[0]!r}")
        sys.stdout.write(f"{pages.problems()}\n")
        return 0
    cfg = compose.compose(overrides)
    console = report.console()
    task = compose.problem(cfg)
    if verb == "show":
        briefing.show_problem(console, task, machine_rates.with_measured_rates(compose.build(cfg.target)))
        return 0
    rows = compose.evaluator(cfg).admit(replace(task, tests=(*task.tests, *task.heldout)))
    if rows is None:
        raise ConfigError("this evaluator cannot check a problem; use evaluator=local")
    return briefing.show_checks(console, task, rows)


def lineage(words: list[str], overrides: list[str]) -> int:
    """`lineage`, `lineage show ID`, `lineage diff A B`. Verdicts are told as recorded, whatever machine this is."""
    usage.expect_word("lineage", words, ("show", "diff"))
    options, rest = keys.own_options(overrides, "details", "format")
    details = boolean("details", options.get("details", "false"))
    form = one_of("format", options.get("format", "text"), ("text", "json"))
    with recorded_run(compose.compose(rest)) as (task, tree):
        trials = some_trials(tree)
        if form == "json":
            from ksflow.report.page import RunFacts

            facts = RunFacts(tree, task).read(details=details)
            if words[:1] == ["show"] and len(words) == 2:
                name = named_trial(words[1], trials).id
                facts = next(row for row in facts["trials"] if row["id"] == name) | facts["details"].get(name, {})
            elif words:
                raise ConfigError("format=json is for lineage and lineage show ID")
            sys.stdout.write(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
            return 0
        console = report.console()
        match words:
            case []:
                claimed = headline(tree.last_population, report.known_baselines(tree.last_population, task.seeds))
                report.show_tree(console, trials.values(), tree.last_population, claimed, tree.approvals())
                evaluations = (trial.evaluation for trial in reversed(tree.last_population.trials))
                judged = next(filter(None, evaluations), None)
                remarks = [str(claimed), claimed.roofline, claimed.start, claimed.held_out] if claimed else []
                remarks += [claimed.why_unconfirmed] if claimed else []
                remarks += [f"judged by {judged.judge or 'an unknown judge'} on {judged.target}"] if judged else []
                report.say(console, *filter(None, remarks))
                if claimed:
                    branch = tree.branch_of(claimed.best.id)
                    report.say(console, f"git -C {tree.store.path} log --graph --oneline {branch}")
                report.show_spending(console, tree.last_population, tree.total_cost())
                report.show_calibration(console, tree.last_population)
            case ["show", name]:
                trial = named_trial(name, trials)
                branch = f"{tree.branch_of(trial.id)}  commit {tree.commit_of(trial.id)}"
                about = {"branch": branch, "approval": tree.approvals().get(trial.id)}
                with report.page_output(console):
                    report.show_trial(console, trial, tree.last_population, about, tree.explanation(trial.id), details)
            case ["diff", first, second]:
                changes = tree.diff(named_trial(first, trials).id, named_trial(second, trials).id)
                with report.page_output(console):
                    report.show_source(console, changes, "diff")
            case _:
                raise ConfigError(f"valid: lineage, lineage show ID, lineage diff A B; not lineage {' '.join(words)}")
    return 0


def _of(module: str, name: str, kernels: int | None = None) -> Callable[[list[str], list[str]], int]:
    """A command whose module is imported when it is called: what others need costs a run nothing.

    kernels: of a command that finds its run by a name among its words, how many words it has beside.
    """

    def command(words: list[str], overrides: list[str]) -> int:
        if kernels is not None and not any(word.startswith(("problem=", "problem.")) for word in overrides):
            words, overrides = resolve_names(name, words, overrides, kernels)
        return int(getattr(importlib.import_module(module), name)(words, overrides))

    return command


COMMANDS: dict[str, Callable[[list[str], list[str]], int]] = {
    "run": run,
    "demo": demo,
    "problem": problem,
    "evaluate": _of("ksflow.cli.verify", "evaluate"),
    "verify": _of("ksflow.cli.verify", "verify", kernels=1),
    "approve": _of("ksflow.cli.verify", "approve", kernels=1),
    "lineage": _of("ksflow.cli.verbs", "lineage", kernels=0),
    "runs": _of("ksflow.cli.runs", "runs"),
    "init": _of("ksflow.cli.init", "init"),
    "llm": _of("ksflow.cli.llm", "llm"),
    "explain": _of("ksflow.cli.explain", "explain", kernels=1),
    "prompt": _of("ksflow.cli.prompt", "prompt", kernels=2),
    "report": _of("ksflow.cli.report", "report", kernels=0),
    "watch": _of("ksflow.cli.report", "watch", kernels=0),
    "mcp": _of("ksflow.cli.mcp", "mcp"),
    "skill": _of("ksflow.cli.install", "skill"),
    "suite": _of("ksflow.cli.suite", "suite"),
    "optimize": _of("ksflow.training.optimize", "optimize"),
    "digest": _of("ksflow.cli.digest", "digest"),
    "probe": _of("ksflow.cli.probe", "probe"),
    "knowledge": _of("ksflow.cli.knowledge", "show_knowledge"),
    "dataset": _of("ksflow.training.dataset", "dataset"),
    "model": _of("ksflow.cli.model", "model"),
    "isolate": _of("ksflow.cli.model", "isolate"),
    "tune": _of("ksflow.cli.tune", "tune", kernels=0),
    "apply": _of("ksflow.cli.model", "apply", kernels=0),
    "doctor": _of("ksflow.cli.doctor", "doctor"),
}
