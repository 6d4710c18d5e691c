"""The commands about a person's own code, from it to problems and back.

`model`: what takes a model's time, kernels for that put in place, and what they do for the whole. `isolate`: a function
of a repository as a problem folder, from the calls of it. `apply`: its kernel as a patch.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from ksflow import home, report
from ksflow.cli import usage
from ksflow.cli.init import show_written, write_start
from ksflow.cli.task import recorded_run, resolve_names
from ksflow.config import compose, keys
from ksflow.errors import ConfigError, LineageError, boolean, explain_write_errors, one_of, suggest
from ksflow.integrate.model.package import Candidate, region_of, winner, write_package
from ksflow.kernels.problem import licences
from ksflow.lineage import Lineage
from ksflow.loop import judging
from ksflow.records import Json, Problem
from ksflow.report import proof as words_of_proof
from ksflow.report.headline import headline

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "none")


def model(words: list[str], overrides: list[str]) -> int:
    """`model profile FILE`, `model apply [NAME ...]`, `model prove PACKAGE`: 0; 1 where no kernel ran in some way of
    calling the model, or its outputs differ."""
    usage.expect_word("model", words, ("profile", "apply", "prove"))
    match words:
        case ["profile", file]:
            return _profile(Path(file).expanduser(), overrides)
        case ["apply", *names]:
            return _apply(names, overrides)
        case ["prove", package]:
            return _prove(Path(package).expanduser(), overrides)
        case _:
            raise ConfigError("the command is: model profile FILE, model apply [NAME ...], or model prove PACKAGE")


def _profile(file: Path, overrides: list[str]) -> int:
    """Say which regions take the time; write those that are named as problem folders."""
    own, rest = keys.own_options(overrides, "regions", "out", "mode")
    if rest:
        raise ConfigError(f"{rest[0]}; valid: regions=1,Norm out=FOLDER mode=MODE")
    one_of("mode", own.get("mode", "none"), _MODES)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # what torch.profiler says of itself
    from ksflow.integrate.model import problem, profile, user_file  # torch takes seconds

    console = report.console()
    columns = (BarColumn(16), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=report.console(stderr=True), transient=True) as bar:
        task = bar.add_task("the model", total=None)
        user = user_file.load(file)
        mode = own.get("mode") or ("max-autotune-no-cudagraphs" if user.gpu else "default")
        result = profile.profile(user, mode, lambda name: bar.update(task, description=name))
        table = result.table(file.name, mode)
        words = own.get("regions", "1" if "out" in own else "").strip("[]").split(",")
        written = []
        for region in [result.find_region(word.strip()) for word in words if word]:
            bar.update(task, description=f"{region.title} as a problem")
            written.append(problem.write(user, region, Path(own.get("out", ".")).expanduser(), table))
    show_table(table)
    for folder in written:
        typed = folder if folder.is_absolute() else f"./{folder}"
        report.say(console, f"written to {folder}: python -m ksflow problem={typed}")
    return 0


def show_table(table: Json) -> None:
    """Print a table with its title and remarks; what stands below a row's second word is dimmed."""
    console = report.console()
    report.say(console, table["title"], *table["remarks"])
    heads, *rows = table["rows"]
    shown = Table(*heads, box=SIMPLE_HEAD)
    for number, modules, *figures in rows:
        name, *details = modules.split("\n")
        shown.add_row(number, Text(name).append("".join(f"\n  {line}" for line in details), "dim"), *figures)
    console.print(shown)


def _apply(names: Sequence[str], overrides: list[str]) -> int:
    """Write the package of the winners of these runs, or of the newest one."""
    own, rest = keys.own_options(overrides, "out", "exact")
    exact = boolean("exact", own.get("exact", "false"))
    typed = any(word.startswith(("problem=", "problem.")) for word in rest)
    if typed and names:
        raise ConfigError("name runs, or say problem=NAME run=NAME, not both")
    runs = (
        [rest]
        if typed
        else [resolve_names("model apply", [name] if name else [], rest, 0)[1] for name in names or [""]]
    )
    evaluate = compose.evaluator(compose.compose(runs[0]))
    try:
        candidates = []
        for words in runs:
            cfg = compose.compose(words)
            with recorded_run(cfg) as (problem, lineage):
                region_of(problem)
                candidates.append(candidate(cfg, problem, lineage))
        if len({each.name for each in candidates}) < len(candidates):
            raise ConfigError("two of these runs are of one problem: name the better one")
        stem = Path(region_of(candidates[0].problem)["model"]).stem
        folder = Path(own.get("out", f"{stem}_kernels")).expanduser()
        lines = write_package(folder, candidates, evaluate, exact)
    finally:
        judging.close(evaluate)
    console = report.console()
    report.say(console, *lines)
    console.print(f"written to {folder}: `import {folder.name}; {folder.name}.install(model)`", soft_wrap=True)
    return 0


def candidate(cfg: Any, problem: Problem, lineage: Lineage) -> Candidate:
    """A run's winner, as it is on record."""
    trial, ratios = winner(lineage.last_population, problem)
    path, commit = lineage.store.path.resolve(), lineage.commit_of(trial.id)
    return Candidate(problem, compose.build(cfg.target), trial, path, lineage.run, commit, ratios)


def _prove(folder: Path, overrides: list[str]) -> int:
    """Time the model with the package's kernels and without, and keep what is found in the lineage of each kernel."""
    from ksflow.integrate.model.prove import prove  # torch takes seconds

    own, rest = keys.own_options(overrides, "replicates", "mode")
    count = own.get("replicates", "5")
    if rest or not count.isdecimal() or not int(count):
        raise ConfigError(f"{rest[0] if rest else f'replicates={count}'}; valid: replicates=NUMBER mode=MODE")
    console, mode = report.console(), own.get("mode", "default")
    with report.console(stderr=True).status("") as status:
        proof, records = prove(folder, int(count), mode, lambda name: status.update(f"{name} of {count}"))
    words_of_proof.show(console, proof)
    for record in records:
        try:
            with closing(Lineage(record["lineage"], record["problem"], record["run"], create=False)) as lineage:
                lineage.record_proof(proof)
        except (ConfigError, LineageError) as error:
            report.say(console, f"not on record: {error}")
    return 0 if len(proof.ways) == 2 and all(way.outputs_agree for way in proof.ways) else 1


def isolate(words: list[str], overrides: list[str]) -> int:
    """`isolate MODULE:FUNCTION --run "COMMAND"`: 0, or ConfigError where no problem can be made of it."""
    known = {"run": "", "out": "."}
    rest = [*overrides]
    while rest:
        word, equals, value = rest.pop(0).lstrip("-").partition("=")
        if word not in known or not (equals or rest):
            raise ConfigError(f'{word}; valid: isolate MODULE:FUNCTION --run "COMMAND" out=FOLDER')
        known[word] = value if equals else rest.pop(0)
        if not known[word]:
            raise ConfigError(f'{word}= has no value: isolate MODULE:FUNCTION --run "COMMAND" out=FOLDER')
    if len(words) != 1 or not re.fullmatch(r"[\w.]+:[\w.]+", words[0]) or not known["run"]:
        raise ConfigError('the command is: isolate MODULE:FUNCTION --run "COMMAND", such as --run "pytest -q"')
    from ksflow.integrate.model import capture  # torch takes seconds
    from ksflow.integrate.model.isolate import isolate as written_as

    console = report.console()
    with tempfile.TemporaryDirectory(prefix="ksflow-") as folder:
        with report.console(stderr=True).status(known["run"]):
            seen = capture.observe(words[0], known["run"], Path(folder))
        table, written = written_as(seen, Path(folder), Path(known["out"]).expanduser())
    show_table(table)
    typed = str(written) if written.is_absolute() else f"./{written}"
    ready, role, command = write_start(written, typed)
    files = {written / "reference.py": "the function, as the judge calls it", ready: role}
    show_written(console, files, f"problem check problem={typed}", command)
    return 0


def apply(words: list[str], overrides: list[str]) -> int:
    """`apply NAME --patch`: write a run's winner as a patch of the repository that its function is from; 0."""
    own, rest = keys.own_options(overrides, "out", "patch")
    if words:
        raise ConfigError(f"apply takes one run's name, and no {words[0]!r} beside {' '.join(rest)}")
    if flag := next((word for word in rest if word.startswith("-")), ""):
        raise ConfigError(f"apply takes no {flag}; {suggest(flag, ('--patch',))}")
    if not boolean("patch", own.get("patch", "false")):
        raise ConfigError("apply writes a patch: add --patch; `model apply` is for a model's regions")
    from ksflow.integrate.model.patch import function_of, patch  # torch takes seconds

    cfg = compose.compose(rest)
    evaluate = compose.evaluator(cfg)
    try:
        with recorded_run(cfg) as (problem, lineage):
            function_of(problem)
            made_by = candidate(cfg, problem, lineage)
            licence = licences.of_kernel(problem, lineage.last_population.by_id, made_by.trial.id)
            claimed = headline(lineage.last_population, report.known_baselines(lineage.last_population, problem.seeds))
            made = patch(made_by, evaluate, licence, f"{claimed} on {made_by.target.chip}")
    finally:
        judging.close(evaluate)
    file = Path(own.get("out", f"{problem.name}.patch")).expanduser().resolve()
    with explain_write_errors(file, "choose another place with out=FILE"):
        home.write(file, made.text)
    report.say(report.console(), *made.said, f"written to {file}: git -C {made.root} apply {file}")
    return 0
