"""The door's hinge: command line -> Hydra -> checked configuration -> built parts. Nothing else imports Hydra.

YAML wires and constructors hold the defaults, so every key below a `_target_` is checked against the signature it
feeds, and `part.key=value` works for any parameter, listed in the YAML or not.
"""

import inspect
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ksflow import __version__, report
from ksflow.errors import ConfigError, KsflowError
from ksflow.home import shipped
from ksflow.problem import suggest

_OLD = hydra.__version__ < "1.4"
_VERSION: dict[str, Any] = {"version_base": "1.3"} if _OLD else {}
# Configs are code here, and said to be: from 1.4 on, Hydra wants to hear that.
_CHECKS = "UNSAFE_DISABLE_EXECUTION_CHECKS"
_TRUST: Any = {} if _OLD else {"execution_whitelist": getattr(hydra.utils, _CHECKS)}
_HYDRA_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_", "_args_"}
_ARGUMENTS = "KSFLOW_ARGUMENTS"
_PART_KEY = re.compile(r"[A-Za-z_][\w.]*\.\w+=", re.ASCII)


def launch(job: Callable[[DictConfig], float | None], arguments: list[str]) -> float | None:
    """Run `job` on the composed configuration, once or as a sweep; its value when run once."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # hand us the exception instead of printing it
    sys.path.insert(0, os.getcwd())
    os.environ[_ARGUMENTS] = "\n".join(arguments)  # jobs of a sweep may run in other processes
    sys.argv = ["ksflow", *map(_free_key, arguments)]
    results: list[float | None] = []
    failures: list[KsflowError] = []

    def task(cfg: DictConfig) -> float | None:
        try:
            _share_model(cfg, HydraConfig.get())
            check(cfg)
            results.append(job(cfg))
        except KsflowError as error:
            if HydraConfig.get().mode is RunMode.MULTIRUN:
                raise  # the other jobs go on, and Hydra raises it at their end
            failures.append(error)
            return None
        return results[-1]

    try:
        hydra.main(config_path=str(shipped("conf")), config_name="config", **_VERSION, **_TRUST)(task)()
    except (HydraException, OmegaConfBaseException) as error:
        raise _explain(error) from error
    except OSError as error:
        raise ConfigError(f"cannot write here: {error}; go to a folder you can write to") from error
    if failures:
        raise failures[0]
    return results[-1] if len(results) == 1 else None


def compose(arguments: list[str]) -> DictConfig:
    """The checked configuration for a verb that is no run."""
    sys.path.insert(0, os.getcwd())
    directory, overrides = _config_dir(arguments)
    search = [f"hydra.searchpath=[file://{directory}]"] if directory else []
    try:
        with hydra.initialize_config_dir(str(shipped("conf")), **_VERSION):
            cfg = hydra.compose("config", [*map(_free_key, overrides), *search], return_hydra_config=True)
        settings = cfg.hydra
        OmegaConf.set_struct(cfg, False)
        del cfg["hydra"]
        _share_model(cfg, settings)
        check(cfg)
    except (HydraException, OmegaConfBaseException) as error:
        raise _explain(error) from error
    return cfg


def build(node: DictConfig) -> Any:
    """What a `_target_` makes, its whole subtree included."""
    try:
        return instantiate(node, _convert_="all", **{f"_{key}_": value for key, value in _TRUST.items()})
    except HydraException as error:
        cause = error.__cause__
        if isinstance(cause, KsflowError):
            raise cause from error
        raise _explain(error) from error


def run_name(cfg: DictConfig) -> str:
    """The run's name: as given, or in a sweep what sets this variant apart."""
    if not HydraConfig.initialized() or HydraConfig.get().mode is not RunMode.MULTIRUN:
        return str(cfg.run)
    overrides = [item.lstrip("+") for item in HydraConfig.get().overrides.task]
    same = os.environ[_ARGUMENTS].split("\n")
    swept = [item for item in overrides if item not in same and not item.startswith("problem=")]
    if any(item.startswith("run=") for item in overrides):
        return str(cfg.run)
    return re.sub(r"[^\w.=,+-]+", "_", ",".join(swept))[:120].strip(".,") or str(cfg.run)


def asks_models(cfg: DictConfig) -> bool:
    """Whether any stage takes a model in."""
    stages = (cfg[name] for name in ("selector", "designer", "writer", "digester"))
    return any("lm" in node for stage in stages for _, node in _parts(OmegaConf.create({"stage": stage}), ""))


def settings(cfg: DictConfig) -> str:
    """What a run was made with, as YAML: the command line, versions, the configuration. Secrets stay names."""
    given = os.environ.get(_ARGUMENTS, "").split("\n")
    versions = {"ksflow": __version__, "hydra": hydra.__version__, "python": platform.python_version()}
    return OmegaConf.to_yaml({"arguments": [word for word in given if word], "versions": versions, "settings": cfg})


def job_folder() -> Path:
    """Where Hydra wants this job's files."""
    return Path(HydraConfig.get().runtime.output_dir)


class SweepTable(Callback):
    """Ends a sweep with one table, whatever launcher ran the jobs."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Hydra calls this after the last job."""
        rows = report.read_summaries(Path(config.hydra.sweep.dir))
        if rows:
            report.show_sweep(report.console(), rows)


def check(cfg: DictConfig) -> None:
    """Every key of every part must be a parameter of what it makes; no key may hold a secret. ConfigError."""
    for path, node in _parts(cfg, ""):
        target = str(node["_target_"])
        valid, free = _parameters(target, path)
        for key in node:
            name = str(key)
            if name not in valid and name not in _HYDRA_KEYS and not free:
                raise ConfigError(f"no key {path}.{name} in {target}; {suggest(name, valid)}")


def _share_model(cfg: DictConfig, settings: Any) -> None:
    """Let `model.key=value` reach every stage that took the model in, unless the stage's own key is given too."""
    given = {item.lstrip("+").split("=", 1)[0] for item in settings.overrides.task}
    choices = settings.runtime.choices
    users = [group[6:] for group in choices if group.startswith("model@") and choices[group] == choices.model]
    for key in sorted(key for key in given if key.startswith("model.")):
        for path in (f"{user}.{key.removeprefix('model.')}" for user in users):
            if path not in given:
                OmegaConf.update(cfg, path, OmegaConf.select(cfg, key), force_add=True)


def _parts(cfg: DictConfig, path: str) -> Iterator[tuple[str, DictConfig]]:
    for key in cfg:
        if OmegaConf.is_missing(cfg, key) or OmegaConf.is_interpolation(cfg, str(key)):
            continue
        node = cfg[key]
        if isinstance(node, DictConfig):
            here = f"{path}.{key!s}" if path else str(key)
            if "_target_" in node:
                yield here, node
            yield from _parts(node, here)


def _parameters(target: str, path: str) -> tuple[set[str], bool]:
    try:
        made = get_object(target)
    except (ImportError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}._target_={target} cannot be imported: {error}") from error
    parameters = inspect.signature(made).parameters
    free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    return set(parameters), free


def _free_key(argument: str) -> str:
    """`part.key=value` may name a parameter that the YAML does not list; `check` knows the valid ones."""
    return f"++{argument}" if _PART_KEY.match(argument) and not argument.startswith("hydra.") else argument


def _config_dir(arguments: list[str]) -> tuple[str | None, list[str]]:
    rest, directory = [], None
    pending = iter(arguments)
    for argument in pending:
        if argument in ("--config-dir", "-cd"):
            directory = os.path.abspath(next(pending, ""))
        else:
            rest.append(argument)
    return directory, rest


def _explain(error: BaseException) -> ConfigError:
    """Hydra's and OmegaConf's many-line messages as one line that names what is valid."""
    text = str(error)
    if found := re.search(r"Could not override '([^']+)'", text):
        word = found[1].rpartition("/")[2]
        groups = [f.name for f in shipped("conf").iterdir() if f.is_dir()]
        return ConfigError(f"no key or group {word!r}; {suggest(word, [*groups, *_top_keys()])}")
    if found := re.search(r"Could not find '([^']+)/([^']+)'", text):
        group = found[1]
        options = {f.stem for f in shipped("conf", group).glob("*.yaml")}
        options |= set(re.findall(r"^\t(\S+)$", text, re.MULTILINE))
        return ConfigError(f"no option {group}={found[2]}; {suggest(found[2], options)}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return ConfigError("; ".join(lines[:3]) or type(error).__name__)


def _top_keys() -> list[str]:
    raw = cast(DictConfig, OmegaConf.load(shipped("conf", "config.yaml")))
    return [str(key) for key in raw if key not in ("defaults", "hydra")]
