"""The commands about one kernel: judge a file, judge a commit again, give it a person's word."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ksflow import report
from ksflow.cli.task import open_lineage, recorded_problem, winner
from ksflow.config import compose, keys
from ksflow.errors import ConfigError, boolean, explain_write_errors, one_of
from ksflow.home import plain_or_quoted, shipped_path
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.lineage import Lineage
from ksflow.lineage.cache import Cache, evaluation_cache
from ksflow.lineage.history import Place, locate
from ksflow.loop import judging
from ksflow.protocols import Evaluator
from ksflow.records import Cached, Evaluation, Json, Kernel, Key, Problem, Ratio, Scale, Speedup, Trial, Verdict, schema
from ksflow.report import comparison, evidence
from ksflow.report.words import ANOTHER_PROBLEM, table

_JUDGED = "on record, as it was judged then (the table below has the speed-ups that the run states)"
_ATTEMPTS = 3
"""A busy machine makes kernels slower and never faster, so a time on record has so many chances to be reached."""


def evaluate(words: list[str], overrides: list[str]) -> int:
    """`evaluate KERNEL`: 0 accepted or untimed, 1 rejected, 3 when the judge could not tell."""
    (word,) = _words(words, "evaluate KERNEL (a file, or the name of one of the problem's seeds)")
    options, rest = keys.own_options(overrides, "out", "details")
    details = boolean("details", options.get("details", "false"))
    problem_words, why = _problem_words(Path(word).expanduser(), rest)
    cfg = compose.compose([*problem_words, *rest])
    problem = compose.problem(cfg)
    kernel = _kernel(word, problem)
    if why:
        report.say(report.console(stderr=True), f"{problem.name}: {why}")
    judge = compose.evaluator(cfg)
    out = _writable(options["out"]) if "out" in options else None
    console = report.console()
    evaluation = _cached_or_judged(console, evaluation_cache(cfg.cache), problem, judge, kernel)
    console.print(f"{word} for {problem.name}, kernel {kernel.digest}", markup=False)
    evidence.show(console, evaluation, details=details)
    if out:
        out.write_bytes(schema.dump("evaluation", evaluation))
    if evaluation.verdict is Verdict.HARNESS:
        return 3
    return 0 if evaluation.accepted or evaluation.verdict is Verdict.UNTIMED else 1


def verify(words: list[str], overrides: list[str]) -> int:
    """`verify [COMMIT]`, without one the winner: 0 when the record holds, 1 when not, 3 when that cannot be told."""
    (word,) = _words(words or ["best"], "verify COMMIT (a commit's id, a branch, or a trial of the run)")
    options, rest = keys.own_options(overrides, "format")
    form = one_of("format", options.get("format", "table"), ("table", "json"))
    with _committed(word, rest) as (cfg, problem, lineage, found):
        trial = lineage.trial_at(found.trial, found.commit)
        if trial.evaluation is None or trial.kernel is None:
            raise ConfigError(f"commit {found.commit[:12]} of {found.branch} holds no verdict; name a later one")
        known = {other.id: other for other in lineage.all_trials()}
    rivals = tuple(known[row.id] for row in trial.evaluation.evidence.against if row.id in known)
    scale = Scale.from_trials({**known, trial.id: trial}.values())
    said = {rival.id: ratio for rival in rivals if (ratio := scale.ratio(trial.id, rival.id))}
    what, record = f"{found.branch} ({found.commit[:12]})", trial.evaluation
    judge = compose.evaluator(cfg)
    tried: list[comparison.Agreement] = []
    while not tried or (len(tried) < _ATTEMPTS and not tried[-1].holds):
        now = _judged(what, problem, judge, trial.kernel, rivals)
        tried.append(comparison.compare(problem, record, now, said))
        if now.cacheable and now.verdict is not record.verdict:
            break
    console = report.console(stderr=form == "json")
    for title, evaluation in ((_JUDGED, record), ("now", now)):
        console.print(f"\n{what} {title}", style="bold")
        evidence.show(console, evaluation, details=False)
    agreement = next((each for each in tried if each.holds), None)
    agreement = agreement or next((each for each in tried if each.holds is None), tried[-1])
    if form == "json":  # what a person reads went to stderr
        answer: Json = {"what": what, "holds": agreement.holds, "why": agreement.why, "judgements": len(tried)}
        rows = [dict(zip(("figure", "on_record", "now", "remark"), row, strict=False)) for row in agreement.rows]
        beside = {name: {"on_record": _ends(old), "now": _ends(now.versus(name))} for name, old in said.items()}
        answer |= {"score_us": {"on_record": record.score_us, "now": now.score_us}, "speedups": beside}
        sys.stdout.write(json.dumps({**answer, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    return _conclude(console, agreement, tried)


def _ends(ratio: Speedup | Ratio | None) -> list[float] | None:
    """Return the speed-up and the ends of its 95 % interval."""
    if ratio is None:
        return None
    return [ratio.speedup if isinstance(ratio, Ratio) else ratio.ratio, ratio.low, ratio.high]


def _conclude(console: Console, agreement: comparison.Agreement, tried: list[comparison.Agreement]) -> int:
    """Print what became of the record; the exit code. What could not be told once is not refuted."""
    console.print(table(("", "on record", "now", ""), agreement.rows))
    word = {None: f"not verified ({agreement.why})", True: "holds", False: "DOES NOT HOLD"}[agreement.holds]
    note = f": {agreement.why}" if agreement.holds is not None and agreement.why else ""
    times = f", in {len(tried)} judgements" if len(tried) > 1 and agreement.holds is False else ""
    report.say(console, f"{word}{times}{note}")
    return {None: 3, True: 0, False: 1}[agreement.holds]


def approve(words: list[str], overrides: list[str]) -> int:
    """`approve COMMIT`: a tag on the newest commit of the kernel's branch."""
    (word,) = _words(words, 'approve COMMIT (a commit\'s id, a branch, or a trial of the run) [note="..."]')
    options, rest = keys.own_options(overrides, "note", "sign", "force")
    sign, force = (boolean(name, options.get(name, "false")) for name in ("sign", "force"))
    with _committed(word, rest) as (cfg, problem, lineage, found):
        expect(lineage, judging.current_key(problem, compose.evaluator(cfg)))
        trial = next((trial for trial in lineage.all_trials() if trial.id == found.trial), None)
        if trial is None:
            raise ConfigError(f"{found.branch} holds no trial that can be read; `lineage` lists the run's trials")
        named = lineage.trial_at(found.trial, found.commit)
        if named.kernel != trial.kernel:
            raise ConfigError(f"{found.branch} holds another kernel since commit {found.commit[:12]}; name the branch")
        approval = lineage.approve(trial, options.get("note", ""), sign, force)
    report.say(report.console(), f"{found.branch}  commit {approval.commit}\n{approval}")
    return 0


def expect(lineage: Lineage, key: Key) -> None:
    """Have a lineage tell what is stale. A run of another evaluator (a dry run) is measured by its own newest."""
    newest = next((t.evaluation for t in reversed(lineage.all_trials()) if t.evaluation), None)
    if newest and newest.judge.partition("-")[0] not in ("", key.judge.partition("-")[0]):
        key = replace(key, judge=newest.judge, target=newest.target)
    lineage.expect(key)


def _words(words: list[str], usage: str) -> list[str]:
    if len(words) != 1:
        name, number = usage.partition(" ")[0], len(words) or "none"
        raise ConfigError(f"{name} takes one name, not {number}: python -m ksflow {usage}, then key=value")
    return words


def _problem_words(file: Path, overrides: list[str]) -> tuple[list[str], str]:
    """Return words that name the problem of a kernel's file where none is given, and where they come from.

    It is the problem of a folder above the file, of a shipped seed, or of the run whose winner the file is.
    """
    if any(word.startswith(("problem=", "problem.")) for word in overrides):
        return [], ""
    for folder in file.absolute().parents if file.exists() else ():
        if (folder / "problem.yaml").is_file():
            return [f"problem.path={plain_or_quoted(str(folder))}"], f"the problem of {folder}"
        if folder.parent.resolve() == shipped_path("seeds").resolve() and folder.name in keys.options("problem"):
            return [f"problem={folder.name}"], "the problem of this seed"
        store = folder.parent.parent.parent / "lineage.git"
        if folder.parent.parent.name == "best" and store.is_dir():
            cfg = compose.compose([f"lineage.path={plain_or_quoted(str(store))}"])
            with open_lineage(cfg, folder.parent.name, folder.name) as lineage:
                return recorded_problem(lineage.problem, lineage.made_with), f"the problem of the run in {folder}"
    return [], ANOTHER_PROBLEM


def _writable(name: str) -> Path:
    """Said before the judge has worked for it; nothing is left there."""
    path = Path(name).expanduser()
    new = not path.exists()
    with explain_write_errors(f"out={name}"):
        path.open("ab").close()
        if new:
            path.unlink()
    return path


def _kernel(word: str, problem: Problem) -> Kernel:
    seeds = {seed.name: seed.kernel for seed in (*problem.seeds, *problem.lane_seeds)}
    if not Path(word).expanduser().exists():
        if word in seeds:
            return seeds[word]
        raise ConfigError(
            f"no file {word}, and no such seed of {problem.name}; its seeds: {', '.join(seeds) or 'none'}"
        )
    return kernel_file(word, problem.languages)


def _cached_or_judged(
    console: Console, cache: Cache | None, problem: Problem, judge: Evaluator, kernel: Kernel
) -> Evaluation:
    key, baselines = judging.current_key(problem, judge), judging.baselines(problem, kernel)
    entry = cache.find(kernel, key) if cache else None
    if entry and (not entry.evaluation.accepted or all(entry.evaluation.versus(baseline.id) for baseline in baselines)):
        return entry.evaluation.with_evidence(cached=Cached(source=entry.source, date=entry.date))
    if cache and not entry and (old := cache.find_outdated(kernel, problem.name, key)):
        was = old.evaluation
        before = f"judged before by {was.judge} on {old.date[:10]} ({was.verdict.value})"
        report.say(console, f"{before}: stale, another {key.describe_changes(was)} now")
    evaluation = _judged(kernel.digest, problem, judge, kernel, baselines)
    if cache:
        cache.keep(kernel, problem.name, "evaluate", evaluation)
    return evaluation


def _judged(what: str, problem: Problem, judge: Evaluator, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
    rivals = f" beside {', '.join(trial.name or trial.id for trial in versus)}" if versus else ""
    console = report.console(stderr=True)
    if not console.is_terminal:
        report.say(console, f"judging {what}{rivals}")
        return judging.verdict(problem, judge, kernel, versus)
    with console.status(f"judging {what}{rivals}"):
        return judging.verdict(problem, judge, kernel, versus)


@contextmanager
def _committed(word: str, overrides: list[str]) -> Iterator[tuple[Any, Problem, Lineage, Place]]:
    """Configuration and problem as a kernel's branch says, its lineage, and where it is."""
    cfg = compose.compose(overrides)
    problem: Problem = compose.build(cfg.problem)
    with open_lineage(cfg, problem.name) as lineage:
        if word == "best":
            lineage.expect_as_recorded()
            word = lineage.branch_of(winner(lineage, "verify").id)
        found = locate(lineage.store, word, problem.name, str(cfg.run))
    if found.problem != problem.name:
        cfg, problem = _other_problem(found, overrides, problem)
    with open_lineage(cfg, found.problem, found.run) as lineage:
        yield cfg, problem, lineage, found


def _other_problem(found: Place, overrides: list[str], problem: Problem) -> tuple[Any, Problem]:
    if not any(override.startswith(("problem=", "problem.path=")) for override in overrides):
        with suppress(ConfigError):
            cfg = compose.compose([f"problem={found.problem}", *overrides])
            return cfg, compose.build(cfg.problem)
    raise ConfigError(
        f"{found.branch} is a kernel for {found.problem}, not for {problem.name}; "
        f"say problem={found.problem}, or problem.path=FOLDER"
    )
