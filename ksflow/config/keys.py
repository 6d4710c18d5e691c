"""The keys of a configuration: which there are, and whether what was given fits the signatures that it feeds."""

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_origin

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from ksflow.errors import ConfigError, error_location, suggest
from ksflow.home import quote_value, shipped_path

_HYDRA_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_", "_args_"}
FREE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_TEXTS: dict[str, set[Any]] = {
    "run": {str},
    "language": {str, type(None)},
    "inherit": {str, type(None)},
    "seed_kernels": {str, type(None)},
}
"""Keys at the top of the configuration that take text."""
_PIECE = re.compile(r"[^\[\],]+")  # a value of several, or of a list
_LISTS = (list, tuple, Sequence)
_MAPS = (dict, Mapping)


def check(cfg: DictConfig, words: Sequence[str] = ()) -> None:
    """Every key of every part must be a parameter of what it makes, and numbers be numbers. ConfigError.

    words: the command line's words; none may be for a part that this configuration does not have.
    """
    _check_removed(words)
    _check_roots(cfg)
    typed = {name.lstrip("+"): value for name, _, value in (word.partition("=") for word in words)}
    if isinstance(cfg.get("recorded"), str):
        name = cfg.recorded
        raise ConfigError(f"recorded={name}: a run's name goes into recorded.run={name}, with llm=replay")
    names = [str(name) for name in cfg if isinstance(cfg[name], DictConfig) and "_target_" in cfg[name]]
    for word in (word.strip("+").partition("=")[0] for word in words if word.startswith("+")):
        if word not in roots() and not isinstance(cfg.get(word.partition(".")[0]), DictConfig | None):
            raise ConfigError(f"+{word}= would be read by nothing: no key {word!r}; {suggest(word, roots())}")
    for word in (word[2:].partition("=")[0] for word in words if word.startswith("++")):
        root = word.partition(".")[0]
        if root not in (*names, "model"):
            raise ConfigError(f"{word}= would be read by nothing: no part {root!r} here; {suggest(root, names)}")
    for path, node in parts(cfg, ""):
        target = str(node["_target_"])
        valid, free = parameters_of(target, path)
        needed = [name for name, p in valid.items() if p.default is p.empty and p.kind not in FREE]
        if lacking := [] if node.get("_partial_") else [name for name in needed if name not in node]:
            raise ConfigError(f"{path} lacks {', '.join(lacking)}, which {target} needs; valid: {', '.join(valid)}")
        for key in node:
            name = str(key)
            if name in valid:
                _check_kind(f"{path}.{name}", node, name, valid[name].annotation, typed)
            elif name not in _HYDRA_KEYS and not free:
                raise ConfigError(f"no key {path}.{name}; {suggest(name, valid, f'{path}.')}")


def as_typed(word: str) -> str:
    """Return a word of a command line with its value between quotes where the key takes text and Hydra's grammar reads
    something else: `run=2026_11_28` would be the number 20261128, `problem.path=1e3` the number 1000.0.
    """
    name, equals, value = word.partition("=")
    pieces = [] if re.search(r"['\"(${]", value) else [piece.strip() for piece in _PIECE.findall(value)]
    whole = "." not in name  # of a part's keys `check` makes text of a plain number
    misread = {piece for piece in pieces if equals and (_misread(piece) or (whole and piece.isdecimal()))}
    kinds = _text_kinds(name.lstrip("+")) if misread else set()
    misread -= {piece for piece in misread if type(None) in kinds and piece.lower() == "null"}
    if not misread or not kinds:
        return word
    return (
        f"{name}={_PIECE.sub(lambda piece: quote_value(piece[0]) if piece[0].strip() in misread else piece[0], value)}"
    )


def _misread(text: str) -> bool:
    """Whether Hydra's grammar makes of a text something that is written otherwise."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return str(kind(text)) != text
    return text.lower() in ("true", "false", "null")


@cache
def _text_kinds(key: str) -> set[Any]:
    """Return the types that a key takes if these are text alone, None and lists of text included; else nothing."""
    root, *path = key.split(".")
    if not path:
        return _TEXTS.get(key, set())
    files = shipped_path("conf", root).glob("[!_]*.yaml") if root in groups() else [shipped_path("conf", "config.yaml")]
    nodes: list[Any] = [OmegaConf.to_container(OmegaConf.load(file), resolve=False) for file in files]
    for part in (path if root in groups() else [root, *path])[:-1]:
        nodes = [node[part] for node in nodes if isinstance(node, dict) and part in node]
    targets = {str(node["_target_"]) for node in nodes if isinstance(node, dict) and "_target_" in node}
    if "lm" in path[:-1]:
        targets |= {"ksflow.lm.Model", "ksflow.lm.agents.agent_model"}
    kinds: set[Any] = set()
    for target in targets:
        with contextlib.suppress(ConfigError):  # what it needs is not installed
            if path[-1] in (parameters := parameters_of(target, key)[0]):
                kinds |= _leaves(parameters[path[-1]].annotation)
    return kinds if str in kinds and kinds <= {str, Path, type(None)} else set()


def _leaves(annotation: Any) -> set[Any]:
    """Return the types of a union, and of the items of a list."""
    inner = get_args(annotation)
    if get_origin(annotation) in (*_MAPS, Callable) or not inner:
        return {annotation}
    return set[Any]().union(*(_leaves(each) for each in inner if each is not ...))


def _check_removed(words: Sequence[str]) -> None:
    for word in (word for word in words if word.startswith("~")):
        name = word[1:].partition("=")[0]
        if name in roots():
            valid = f" of {', '.join(options(name))}" if name in groups() else ""
            raise ConfigError(f"{word} takes away what every run reads; leave it out, or say {name}=ANOTHER{valid}")


def _check_roots(cfg: DictConfig) -> None:
    """The parts that are no group, `loop` and others, have keys and cannot be given a value of their own."""
    raw = cast(DictConfig, OmegaConf.load(shipped_path("conf", "config.yaml")))
    for name in (str(key) for key in raw if isinstance(raw[key], DictConfig) and key != "hydra"):
        if not isinstance(cfg[name], DictConfig):
            valid = ", ".join(parameters_of(str(raw[name]["_target_"]), name)[0])
            raise ConfigError(f"{name}={cfg[name]} does not say which of its keys is meant: {name}.KEY=; keys: {valid}")


def _check_kind(path: str, node: DictConfig, name: str, annotation: Any, typed: Mapping[str, str]) -> None:
    """Where a parameter takes only numbers, truth values or a list, other kinds are said, not met as a crash.

    Where it takes only text, a number that was typed is text: the folder `3`. `typed`: key -> value, as typed.
    """
    if OmegaConf.is_missing(node, name):
        return
    whole = get_origin(annotation) in (*_LISTS, *_MAPS, Callable)
    kinds, value = {annotation} if whole else set(get_args(annotation) or (annotation,)), node[name]
    for kind in kinds if not isinstance(value, DictConfig | None) else ():
        if get_origin(kind) in _MAPS and len(kinds - {type(None)}) == 1:
            raise ConfigError(f"{path}={value} must be keys with values, such as {path}{_keys(kind)}=VALUE")
    if any(get_origin(kind) in _LISTS for kind in kinds) and isinstance(value, int | float):
        raise ConfigError(f"{path}={value} must be a list, such as {path}=[A,B]")
    lost = path in typed and (isinstance(value, bool) or (value is None and type(None) not in kinds))
    if kinds <= {str, Path, type(None)} and str in kinds and (type(value) in (int, float) or lost):
        node[name] = typed.get(path, str(value))
    numbers = kinds <= {int, float, bool, type(None)} and kinds != {type(None)}
    if numbers and not isinstance(value, int | float) and not (value is None and type(None) in kinds):
        wanted = "true or false" if kinds <= {bool, type(None)} else "a number"
        raise ConfigError(f"{path}={value} must be {wanted}{', or null' if type(None) in kinds else ''}")


def _keys(kind: Any) -> str:
    """How deep a mapping's values lie, as a command line has it."""
    return f".KEY{_keys(get_args(kind)[1])}" if get_origin(kind) in _MAPS else ""


def parts(cfg: DictConfig, path: str) -> Iterator[tuple[str, DictConfig]]:
    """Everything below a path that makes something, with its place."""
    for key in cfg:
        if OmegaConf.is_missing(cfg, key) or OmegaConf.is_interpolation(cfg, str(key)):
            continue
        node = cfg[key]
        if isinstance(node, DictConfig):
            here = f"{path}.{key!s}" if path else str(key)
            if "_target_" in node:
                yield here, node
            yield from parts(node, here)


def part_of(target: str, path: str) -> Callable[..., Any]:
    """Return what a `_target_` names. Raises ConfigError unless it can be imported and called."""
    try:
        part = get_object(target)
    except (ImportError, ValueError, AttributeError) as error:
        at = error_location(error)  # Hydra asks whether a module is installed, also where it is and fails
        reason = f"{' '.join(str(error).splitlines()[:2])}{at}" if at else str(error)
        raise ConfigError(f"{path}._target_={target} cannot be imported: {reason}") from error
    if not callable(part):
        raise ConfigError(f"{path}._target_={target} cannot be called; name a class or a function: {target}.NAME")
    return cast(Callable[..., Any], part)


def parameters_of(target: str, path: str) -> tuple[Mapping[str, inspect.Parameter], bool]:
    """Return the parameters of what a `_target_` names, and whether it takes any others. Raises ConfigError."""
    parameters = inspect.signature(part_of(target, path)).parameters
    free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    return parameters, free


@cache
def roots() -> frozenset[str]:
    """Groups, and the keys at the top of the main configuration."""
    raw = cast(DictConfig, OmegaConf.load(shipped_path("conf", "config.yaml")))
    return (groups() | {str(key) for key in raw}) - {"defaults", "hydra"}


def keys_of_parts() -> dict[str, str]:
    """Return the last word of each key of the parts that are no group, such as `loop` -> the key."""
    raw = cast(DictConfig, OmegaConf.load(shipped_path("conf", "config.yaml")))
    nodes = {str(name): raw[name] for name in raw if isinstance(raw[name], DictConfig) and name != "hydra"}
    known = {name: parameters_of(str(node["_target_"]), name)[0] for name, node in nodes.items()}
    return {key: f"{name}.{key}" for name, parameters in known.items() for key in parameters}


@cache
def groups() -> frozenset[str]:
    """What a user picks an option of."""
    return frozenset(path.name for path in shipped_path("conf").iterdir() if path.is_dir())


def options(group: str) -> list[str]:
    """Those that ship."""
    return sorted(file.stem for file in shipped_path("conf", group).glob("[!_]*.yaml"))


def own_options(overrides: list[str], *names: str) -> tuple[dict[str, str], list[str]]:
    """A command's own key=value arguments, and those that are the configuration's. ConfigError for an empty place."""
    pairs = [argument.partition("=") for argument in overrides]
    mine = {name: value.strip("\"'") for name, equals, value in pairs if equals and name in names}
    if empty := next((name for name in ("out", "from") if mine.get(name) == ""), ""):
        raise ConfigError(f"{empty}= has no value: name a file or a folder, or leave {empty}= out")
    rest = [argument for argument, pair in zip(overrides, pairs, strict=True) if pair[0] not in mine]
    return mine, rest
