"""The pages of the configuration that `--help` prints: every option and part, its keys, and what each key is for.

What a key is for stands in the docstring of the constructor that takes it, or below the field of a record.
"""

import ast
import contextlib
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from yaml import YAMLError

from ksflow.config.keys import FREE, groups, options, parameters_of, part_of, roots
from ksflow.errors import ConfigError, one_line, suggest
from ksflow.home import default_options, problem_folders, shipped_path

_LETTERS = 60
"""Of a default or a type at most."""
_REFERENCE = re.compile(r"\$\{(\w+)\}")


def pages(words: Sequence[str]) -> str:
    """Return the pages of the groups, options, parts and keys that words of a command line name: `loop`, `selector`,
    `selector=random`, `loop.minutes=3`. Empty where no word names any. Raises ConfigError for an unknown option or key.
    """
    named = [word.lstrip("+").partition("=") for word in words if not word.startswith(("-", "~"))]
    known = [(name, value) for name, _, value in named if name.partition(".")[0] in {*roots(), "optimize"}]
    return "\n".join(dict.fromkeys(_page(name, value) for name, value in known))


def problems() -> str:
    """Return the name and the title of each problem that ships or is in the current folder."""
    return "\n".join(line for name in _problems() for line in (f"problem={name}", *_about("problem", name)))


def _problems() -> list[str]:
    return [*options("problem"), *problem_folders(Path())]


def _page(name: str, value: str) -> str:
    root, dot, _ = name.partition(".")
    text = _group_page(root, "" if dot else value) if root in groups() else _part_page(root)
    if not dot:
        return text
    for place in (name.rsplit(".", parts)[0] for parts in range(name.count("."))):
        if found := re.findall(rf"^    {re.escape(place)}(?:\.KEY)?=.*\n(?:        .*\n?)*", f"{text}\n", re.MULTILINE):
            return "".join(dict.fromkeys(found)).rstrip("\n")
    valid = re.findall(rf"^    {root}\.([\w.]+)=", text, re.MULTILINE)
    raise ConfigError(f"no key {name}; {suggest(name.partition('.')[2], set(valid), f'{root}.')}")


def _group_page(group: str, option: str = "") -> str:
    """One option of a group, or each of them and each problem of the current folder. ConfigError."""
    mine = _problems() if group == "problem" else options(group)
    folder = group == "problem" and Path(option, "problem.yaml").is_file()
    if option and not folder and option not in mine:
        raise ConfigError(f"no option {group}={option}; {suggest(option, mine)}")
    lines, shown, default = list[str](), dict[str, str](), default_options().get(group)
    for name in [option] if option else mine:
        lines += [f"{group}={name}{'  (default)' * (name == default)}", *_option(group, name, shown)]
    return "\n".join(lines)


def _option(group: str, name: str, shown: dict[str, str]) -> Iterator[str]:
    """Yield the lines below an option's name. shown: what an option makes -> the option whose keys stand above."""
    yield from _about(group, name)
    file = shipped_path("conf", group, f"{name}.yaml")
    own = {} if file.is_file() else {"path": name}  # a folder, whose other keys are those of any
    file = shipped_path("conf", "problem", "softmax.yaml") if own else file
    raw: Any = cast(Any, OmegaConf.to_container(OmegaConf.load(file), resolve=False)) | own
    if chosen := " ".join(_chosen(raw)):
        yield from _indented(f"Chooses: {chosen}")
    if group == "llm":
        yield from _indented(f"Keys of the model: `ksflow model={name} --help`.")
    node = raw if "_target_" in raw else raw.get(group, {})
    with contextlib.suppress(ConfigError):  # what it needs is not installed
        if above := shown.get(target := node.get("_target_", "")):
            yield from _rows(node, group, only_set=True)
            yield from _indented(f"What they are for, and the other keys: see {group}={above}.")
        elif target:
            yield from _rows(node, group)
            shown[target] = name


def _about(group: str, name: str) -> list[str]:
    """What an option is: a problem's title, or the comment at the head of its file."""
    file = shipped_path("conf", group, f"{name}.yaml")
    if not file.is_file():
        return _indented(f"{_title(Path(name))} (in this folder)")
    comment = takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    title = _title(shipped_path("problems", name)) if group == "problem" else ""
    return _indented(title or " ".join(line[2:] for line in comment if "@package" not in line))


def _chosen(raw: Any) -> Iterator[str]:
    """Yield the options that a preset chooses, as a command line has them."""
    for entry in raw.get("defaults", []):
        if isinstance(entry, dict):
            yield from (f"{key[10:]}={value}" for key, value in entry.items() if key.startswith("override /"))
        elif entry == "_every_stage":
            yield from _chosen(OmegaConf.to_container(OmegaConf.load(shipped_path("conf", "llm", f"{entry}.yaml"))))


def _part_page(root: str) -> str:
    """A part that is no group, or a key at the top of the main configuration."""
    text = shipped_path("conf", "optimize.yaml" if root == "optimize" else "config.yaml").read_text(encoding="utf-8")
    node: Any = cast(Any, OmegaConf.to_container(OmegaConf.create(text), resolve=False))[root]
    if isinstance(node, dict):
        about, _ = purposes(str(node["_target_"]), root)
        return "\n".join([root, *_indented(about.partition("\n\n")[0]), *_rows(node, root)])
    return "\n".join([f"{root}={_typed(node)}", *_indented(_comment(root))])


def _comment(root: str) -> str:
    """What `conf/config.yaml` says of a key at its top."""
    text = shipped_path("conf", "config.yaml").read_text(encoding="utf-8")
    return " ".join(re.findall(rf"^{root}:.*?# *(.*)$", text, re.MULTILINE))


def _rows(node: Mapping[str, Any], prefix: str, only_set: bool = False) -> Iterator[str]:
    """Yield the keys of what a node makes, with default, type and purpose. ConfigError where it cannot be imported."""
    target, taken = str(node["_target_"]), dict(_taken_in(node, prefix))
    said = purposes(target, prefix)[1]
    for name, parameter in parameters_of(target, prefix)[0].items():
        value = node.get(name, parameter.default)
        if places := [place for place in taken if place.partition(".")[0] == name]:
            for place in [] if only_set else places:
                key, group = f"{prefix}.{place}", taken[place]
                yield f"    {key}.KEY=VALUE  ({group})"
                yield from _indented(f"A key of {group}=NAME; {group}@{key}=NAME chooses another.", 8)
        elif isinstance(value, Mapping) and "_target_" in value:
            yield from _rows(value, f"{prefix}.{name}", only_set)
        elif name in node or not (only_set or parameter.kind in FREE or _is_filled_in(node, parameter)):
            default = "VALUE" if value is parameter.empty else one_line(_typed(value), _LETTERS)
            kind = re.sub(r"\w+\.", "", inspect.formatannotation(parameter.annotation))
            yield f"    {prefix}.{name}={default}  ({one_line(kind, _LETTERS)})"
            about = said.get(name) or _wired(value)
            yield from _indented("" if only_set else about[:1].upper() + about[1:], 8)


def _is_filled_in(node: Mapping[str, Any], parameter: inspect.Parameter) -> bool:
    """Whether the run gives a parameter of a part that is made later."""
    return bool(node.get("_partial_")) and (parameter.default is parameter.empty or callable(parameter.default))


def _taken_in(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the places below a part where an option of a group is put, with that group: the part's own, or another."""
    for entry in node.get("defaults", []):
        for key in entry if isinstance(entry, dict) else [entry]:
            group, at, place = key.partition("@")
            if at:
                yield place, group[1:] if group.startswith("/") else prefix


def _wired(value: Any) -> str:
    """What a key is for that another key of the configuration gives."""
    whole = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if not whole:
        return ""
    return f"What {whole[1]}=NAME chooses." if whole[1] in groups() else _comment(whole[1])


def purposes(target: str, path: str) -> tuple[str, dict[str, str]]:
    """Return what the docstring of a part says of the whole, and what it says of each of its keys. ConfigError."""
    called: Any = part_of(target, path)
    text, said = _split(_docstring(called), list(parameters_of(target, path)[0]))
    if inspect.isclass(called):
        said |= dict(_of_fields(called))
    return text, said


def _split(text: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """Return a docstring without its sentences of the form `name: description.`, and the descriptions by name."""
    if not names:
        return text, {}
    one = rf"`?(?:{'|'.join(names)})`?"
    first, *rest = re.split(rf"(?:^|(?<=[.;:]\s))((?:{one},\s+)*{one}):\s", text, flags=re.MULTILINE)
    pairs = zip(rest[::2], rest[1::2], strict=True)
    said = {name.strip("` \n"): " ".join(words.split()) for keys, words in pairs for name in keys.split(",")}
    return first.strip(), said


def _docstring(called: Any) -> str:
    """Return the docstring of a class or function, and that of the constructor which the class defines or inherits."""
    texts = [inspect.getdoc(called) or ""]
    if inspect.isclass(called):
        texts.append(inspect.getdoc(called.__init__) or "")
    return "\n\n".join(text for text in texts if text and not text.startswith("Initialize self"))


def _of_fields(called: type) -> Iterator[tuple[str, str]]:
    """Yield each field of a record with the string literal below the field."""
    for part in reversed([each for each in called.__mro__ if each.__module__.startswith("ksflow.")]):
        body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
                text = after.value.value if isinstance(after.value, ast.Constant) else ""
                yield field.target.id, " ".join(str(text).split())


def _typed(value: Any) -> str:
    """A default as the command line has it."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_typed, value))}]"
    if callable(value):
        return str(value.__name__)
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value) or "''"


def _title(folder: Path) -> str:
    """The title of a problem that is a folder; empty where it is none."""
    file = folder / "problem.yaml"
    if not file.is_file():
        return ""
    try:
        return str(cast(DictConfig, OmegaConf.load(file)).get("title", ""))
    except (YAMLError, UnicodeDecodeError):
        return "its problem.yaml is not YAML: `problem show` says where"


def _indented(text: str, indent: int = 4) -> list[str]:
    space = " " * indent
    return textwrap.wrap(text, 80, initial_indent=space, subsequent_indent=space, break_on_hyphens=False)
