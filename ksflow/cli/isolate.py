"""`isolate`: a function of a repository as a problem folder, from the calls of it; `apply`: its kernel as a patch."""

import re
import tempfile
from pathlib import Path

from ksflow import report
from ksflow.cli.init import show_written, write_start
from ksflow.cli.model import candidate, show_table
from ksflow.cli.task import recorded_run
from ksflow.config import compose, keys
from ksflow.errors import ConfigError, boolean, explain_write_errors
from ksflow.home import write
from ksflow.kernels.problem import licences
from ksflow.loop import judging
from ksflow.report.headline import headline


def isolate(words: list[str], overrides: list[str]) -> int:
    """`isolate MODULE:FUNCTION --run "COMMAND"`: 0, or ConfigError where no problem can be made of it."""
    known = {"run": "", "out": "."}
    rest = [*overrides]
    while rest:
        word, equals, value = rest.pop(0).lstrip("-").partition("=")
        if word not in known or not (equals or rest):
            raise ConfigError(f'{word}; valid: isolate MODULE:FUNCTION --run "COMMAND" out=FOLDER')
        known[word] = value if equals else rest.pop(0)
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
    if words or not boolean("patch", own.get("patch", "false")):
        raise ConfigError("the command is: apply NAME --patch [out=FILE]; `model apply` is for a model's regions")
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
        write(file, made.text)
    report.say(report.console(), *made.said, f"written to {file}: git -C {made.root} apply {file}")
    return 0
