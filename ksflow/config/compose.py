"""The door's hinge: command line -> Hydra -> checked configuration -> built parts. What keys there are: `keys`.

YAML wires and constructors hold the defaults, so every key below a `_target_` is checked against the signature it
feeds, and `part.key=value` works for any parameter, listed in the YAML or not.
"""

import itertools
import logging
import math
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ksflow import __version__, report
from ksflow.config import command_line, keys, sweep
from ksflow.errors import ConfigError, KsflowError, keep_traceback, of_system, pluralize
from ksflow.home import shipped_path
from ksflow.kernels.problem.loader import wanted_cores
from ksflow.protocols import MODEL_STAGES, Evaluator, as_evaluator
from ksflow.records import Problem
from ksflow.report import scores

logging.getLogger("hydra.utils").disabled = True  # what it logs it raises too, and that is said in one line
_OLD = hydra.__version__ < "1.4"
_VERSION: dict[str, Any] = {"version_base": "1.3"} if _OLD else {}
# Configs are code here, and said to be: from 1.4 on, Hydra wants to hear that.
_CHECKS = "UNSAFE_DISABLE_EXECUTION_CHECKS"
_TRUST: Any = {} if _OLD else {"execution_whitelist": getattr(hydra.utils, _CHECKS)}
_interrupted = threading.Event()
_going_on = threading.Event()
_SECRET_NAME = re.compile(r"(\b|_)(key|token|secret|password|credentials?|headers?|authorization)\b", re.IGNORECASE)
_CPUS = ("ksflow.kernels.hardware.target.detect", "ksflow.kernels.hardware.target.default_target")
"""Functions whose targets have `cores`."""
_FOLDER = "ksflow.kernels.problem.loader.load"


def launch(job: Callable[[DictConfig], float], arguments: list[str]) -> None:
    """Run `job` on the composed configuration, once or as a sweep, whose sweeper is told what each job returns."""
    _interrupted.clear()
    _going_on.clear()
    command_line.check_flags(arguments)
    command_line.config_dir(arguments)  # Hydra takes one that is not there for an empty one
    os.environ["HYDRA_FULL_ERROR"] = "1"  # hand us the exception instead of printing it
    sys.path.insert(0, os.getcwd())
    os.environ[sweep.ARGUMENTS] = "\n".join(arguments)
    sys.argv = ["ksflow", *map(command_line.free_key, command_line.flags_first(arguments))]
    failures: list[KsflowError] = []

    def task(cfg: DictConfig) -> float | None:
        return _run(job, cfg, failures)  # all else here would have to travel to a launcher's processes

    if _OLD and not any(word.startswith(("hydra.mode", "-c", "--conf")) for word in arguments):
        # it would compose all of it once more, to see that no `hydra.mode` is set
        Hydra.get_mode = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        hydra.main(config_path=str(shipped_path("conf")), config_name="config", **_VERSION, **_TRUST)(task)()
    except (HydraException, OmegaConfBaseException) as error:
        raise command_line.explain(error) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        keep_traceback(error, "the run")
        raise of_system(error) from error
    finally:
        HydraConfig.instance().cfg = None  # what this process composes next is no member of a sweep
    if failures:
        raise failures[0]


def _run(job: Callable[[DictConfig], float], cfg: DictConfig, failures: list[KsflowError]) -> float | None:
    """The job, once or as a member of a sweep; what it is worth."""
    member = sweep.member()
    if member and (summary := member.read_summary()):
        if not _going_on.is_set():
            _going_on.set()
            before = pluralize(member.number_finished(), "member")
            report.say(report.console(stderr=True), f"the sweep goes on: {before} finished before, not run again")
        return float(summary["score_us"])
    if _interrupted.is_set():
        return math.inf
    try:
        _complete(cfg, HydraConfig.get())
        score = job(cfg)
    except (KsflowError, HydraException, OmegaConfBaseException) as caught:
        return _failed(caught if isinstance(caught, KsflowError) else command_line.explain(caught), failures)
    if member and not _interrupted.is_set():
        member.finish()
    return score


def _failed(error: KsflowError, failures: list[KsflowError]) -> float | None:
    """What a job that failed is worth. In a sweep the words that set it apart name it, and the other variants go on."""
    sweeps = in_sweep()
    failures.append(KsflowError(f"{','.join(swept)}: {error}") if sweeps and (swept := _swept()) else error)
    if not sweeps:
        return None
    if HydraConfig.get().runtime.choices["hydra/launcher"] != "basic":
        raise failures[-1]  # it may be another process: the other jobs go on, and Hydra raises it at their end
    message = " ".join(str(failures[-1]).split())
    report.say(report.console(stderr=True), f"failed: {message}", style="red")
    return math.inf


def in_sweep() -> bool:
    """Whether this job is a member of a sweep."""
    return HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN


def end_sweep() -> None:
    """A person interrupted this variant: those that follow are not begun."""
    if in_sweep() and not _interrupted.is_set():
        _interrupted.set()
        report.console(stderr=True).print("interrupted: the sweep's variants that follow are not begun")


def compose(arguments: list[str], config: str = "config") -> DictConfig:
    """The checked configuration for a verb that is no run; `config` is its primary one."""
    sys.path.insert(0, os.getcwd())
    os.environ[sweep.ARGUMENTS] = "\n".join(arguments)
    directory, overrides = command_line.config_dir(arguments)
    command_line.no_flags(overrides)
    search = [f"hydra.searchpath=[file://{directory}]"] if directory else []
    try:
        with hydra.initialize_config_dir(str(shipped_path("conf")), **_VERSION):
            cfg = hydra.compose(config, [*map(command_line.free_key, overrides), *search], return_hydra_config=True)
        settings = cfg.hydra
        OmegaConf.set_struct(cfg, False)
        del cfg["hydra"]
        _complete(cfg, settings)
    except (HydraException, OmegaConfBaseException) as error:
        raise command_line.explain(error) from error
    return cfg


def without_keys(cfg: DictConfig) -> DictConfig:
    """The configuration of a command that asks no model: none of them needs its key."""
    for _, node in keys.parts(cfg, ""):
        if str(node["_target_"]) == "ksflow.lm.Model":
            node.update({"key": "", "api_key": None, "requires": None})
    return cfg


def build(node: DictConfig) -> Any:
    """What a `_target_` makes, its whole subtree included."""
    try:
        return instantiate(node, _convert_="all", **{f"_{key}_": value for key, value in _TRUST.items()})
    except HydraException as error:
        cause = error.__cause__
        if isinstance(cause, KsflowError):
            raise cause from error
        keep_traceback(error, str(node.get("_target_", "a part")))
        raise command_line.explain(error) from error


def problem(cfg: DictConfig) -> Problem:
    """What is to be made fast, by kernels of one language where `language` says so. ConfigError."""
    task: Problem = build(cfg.problem)
    try:
        return task.keeping_to(cfg.language) if cfg.language else task
    except ValueError as error:
        raise ConfigError(f"language={cfg.language}: {error}") from error


def evaluator(cfg: DictConfig) -> Evaluator:
    """The configured judge; a plain function will do."""
    return as_evaluator(build(cfg.evaluator))


def problem_words() -> list[str]:
    """Return the words of this job that name its problem, as they were typed; empty where it is the default one."""
    given = os.environ.get(sweep.ARGUMENTS, "").split("\n")
    typed = {command_line.free_key(word).lstrip("+"): word for word in given}
    return [typed.get(item, item) for item in _words() if item.partition("=")[0].partition(".")[0] == "problem"]


def _words() -> list[str]:
    """The words that this job was composed of."""
    return [item.lstrip("+") for item in HydraConfig.get().overrides.task]


def run_name(cfg: DictConfig) -> str:
    """The run's name: as given. In a sweep what sets this variant apart, behind the given one: each has its own run."""
    if not in_sweep():
        return str(cfg.run)
    typed = [str(cfg.run)] if any(item.startswith("run=") for item in _words()) else []
    apart = [item for item in _swept() if not item.startswith(("problem=", "run="))]
    return command_line.plain_name(",".join([*typed, *apart])) or str(cfg.run)


def _swept() -> list[str]:
    """The words of this variant of a sweep that are not on the command line as they are."""
    same = [command_line.free_key(word).lstrip("+") for word in os.environ[sweep.ARGUMENTS].split("\n")]
    return [item for item in _words() if item not in same]


def models(cfg: DictConfig) -> list[Any]:
    """The models that the stages take in, each once."""
    nodes = [node.lm for path, node in keys.parts(cfg, "") if path.partition(".")[0] in MODEL_STAGES and "lm" in node]
    distinct = {repr(OmegaConf.to_container(node)): node for node in nodes if "_target_" in node}
    return [build(node) for node in distinct.values()]


def settings(cfg: DictConfig, places: Sequence[str] = ()) -> str:
    """What a run was made with, as YAML: command line, versions, places, configuration. Secrets stay names.

    places: the problem's folder or files, see `startup.places`.
    """
    arguments = os.environ.get(sweep.ARGUMENTS, "").split("\n")
    versions = {"ksflow": __version__, "hydra": hydra.__version__, "python": platform.python_version()}
    words = [word for word in arguments if word]
    return OmegaConf.to_yaml({"arguments": words, "versions": versions, "place": [*places], "settings": cfg})


def parameters(cfg: DictConfig) -> dict[str, str]:
    """The configuration, flat: the options of its groups, and every value. What is a secret's by its name is left out.

    A value that another key or the environment gives is the reference to it.
    """
    chosen = HydraConfig.get().runtime.choices
    flat = {
        name.replace("@", "."): str(option)
        for name, option in chosen.items()
        if "hydra" not in name and option is not None
    }
    flat |= dict(_flat(OmegaConf.to_container(cfg, resolve=False), ""))
    return {name: text for name, text in flat.items() if text and not _SECRET_NAME.search(name)}


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if not (str(key).startswith("_") and str(key).endswith("_")):
                yield from _flat(item, f"{name}.{key}" if name else str(key))
    elif value is not None:
        yield name, str(value)


def sweep_name() -> str:
    """The sweep or suite that this run is one of; empty where there is none."""
    folder = job_folder().parent
    if in_sweep():
        return Path(HydraConfig.get().sweep.dir).name
    return folder.name if folder.parent.name == "suites" else ""


def job_folder() -> Path:
    """Where Hydra wants this job's files."""
    return Path(HydraConfig.get().runtime.output_dir)


class SweepTable(Callback):
    """Ends a sweep with one table, whatever launcher ran the jobs."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Hydra calls this after the last job."""
        sweep.forget_if_finished()
        scores.show_sweep(report.console(), Path(config.hydra.sweep.dir))


def _complete(cfg: DictConfig, settings: Any) -> None:
    """Let `model.key=value` and `agent.key=value` reach every stage that took the model or the agent in, unless the
    stage's own key is given too; check all keys; give the target the `cores` of the problem's file, unless
    `target.cores` is given. Raises ConfigError, also where an agent is set that no stage starts.
    """
    typed = {item.lstrip("+").split("=", 1)[0] for item in settings.overrides.task}
    choices = settings.runtime.choices
    for group in ("model", "agent"):
        mine = [one[6:] for one in choices if one.startswith(f"{group}@") and choices[one] == choices[group]]
        shared = sorted(key for key in typed if key.startswith(f"{group}."))
        if shared and not mine:
            remedy = "starts an agent; add writer=agent" if group == "agent" else "asks a model; add llm=NAME"
            raise ConfigError(f"{shared[0]}= would be read by nothing: no stage {remedy}")
        for key, user in itertools.product(shared, mine):
            path = f"{user}.{key.partition('.')[2]}"
            if path not in typed:
                OmegaConf.update(cfg, path, OmegaConf.select(cfg, key), force_add=True)
    keys.check(cfg, settings.overrides.task)
    target: Any = cfg.get("target") or {}
    problem: Any = cfg.get("problem") or {}
    unset = target.get("cores") is None and target.get("_target_") in _CPUS
    folder = problem.get("path") if unset and problem.get("_target_") == _FOLDER else None
    if folder and (cores := wanted_cores(str(folder))) > 1:
        target.cores = cores
