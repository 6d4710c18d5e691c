"""The pages that are made from the sources when the documentation is built; MkDocs calls the hooks at the end.

Commands come from their own `--help`, the configuration from `conf/` and the constructors behind it, the glossary from
CONTRIBUTING.md, and pages that live elsewhere in the repository from there. So nothing is written down twice.
"""

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from ksflow.cli.usage import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    "problems/README.md": "reference/problems.md",
    "benchmarks/GPU.md": "figures/gpu.md",
    "benchmarks/FORMATS.md": "figures/formats.md",
    "results/ablations/README.md": "figures/ablations.md",
    "CHANGELOG.md": "changes.md",
    "examples/README.md": "examples/index.md",
    **{
        f"examples/{name}/README.md": f"examples/{name}.md"
        for name in ("own_problem", "own_model", "own_stage", "sweep")
    },
}
"""Files of the repository -> the pages that they become."""
PAGES = {**ELSEWHERE, "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}
"""Where a link to a file of the repository leads."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)")


def pages() -> dict[str, str]:
    """Every page that is made here, by its place below docs/."""
    return {**dict(_elsewhere()), **dict(_contributing()), **dict(_commands()), **dict(_configuration())}


def _elsewhere() -> Iterator[tuple[str, str]]:
    for source, page in ELSEWHERE.items():
        yield page, relinked((ROOT / source).read_text(), source, page) + _listing(ROOT / source)


def _listing(page: Path) -> str:
    """The files of an example, below its page."""
    if page.parents[1].name != "examples":
        return ""
    files = sorted(file for file in page.parent.rglob("*") if file.suffix in (".py", ".yaml", ".cpp", ".md"))
    shown = [file for file in files if file != page and "runs" not in file.parts]
    return "".join(
        f"\n## {file.relative_to(page.parent)}\n\n````{file.suffix[1:]}\n{file.read_text().rstrip()}\n````\n"
        for file in shown
    )


def _contributing() -> Iterator[tuple[str, str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    words = re.search(r"^## Words\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    assert words, "CONTRIBUTING.md has a section of words"
    yield "glossary.md", f"# Glossary\n\nThe words that code, commands and pages use, each for one thing.\n{words[1]}"
    rest = text.replace(words[0], "")
    yield "contributing.md", relinked(rest, "CONTRIBUTING.md", "contributing.md")


def _commands() -> Iterator[tuple[str, str]]:
    yield "reference/commands/index.md", f"# Commands\n\n{_help()}"
    for name in COMMANDS:
        yield f"reference/commands/{name}.md", f"# ksflow {name}\n\n{_help(name)}"


def _help(*words: str) -> str:
    """What `ksflow COMMAND --help` prints."""
    command = [sys.executable, "-m", "ksflow", *words, "--help"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return f"As `{' '.join(['ksflow', *words, '--help'])}` prints it:\n\n```text\n{said.rstrip()}\n```\n"


def _configuration() -> Iterator[tuple[str, str]]:
    groups = sorted(path for path in (ROOT / "conf").iterdir() if path.is_dir())
    yield "reference/configuration/index.md", _main_page(groups)
    for group in groups:
        yield f"reference/configuration/{group.name}.md", _group_page(group)


def _main_page(groups: list[Path]) -> str:
    """What `conf/config.yaml` has, and where the rest is."""
    text = (ROOT / "conf" / "config.yaml").read_text()
    rows = "\n".join(
        f"| [`{group.name}`]({group.name}.md) | {' '.join(f'`{name}`' for name in _options(group))} |"
        for group in groups
    )
    made = "\n".join(
        f"## `{name}`\n\n{_parts(OmegaConf.load(ROOT / 'conf' / file)[name], name)}"
        for file, name in (("config.yaml", "loop"), ("config.yaml", "lineage"), ("optimize.yaml", "optimize"))
    )
    return (
        "# Configuration\n\nA word of a command line is `group=option` or `part.key=value`. Every key is a parameter "
        "of what its part is made of; a word that does not exist is answered with those that do.\n\n"
        f"| group | options |\n|---|---|\n{rows}\n\n{made}\n"
        f"## The main configuration\n\n`conf/config.yaml`, as it is:\n\n```yaml\n{text.rstrip()}\n```\n"
    )


def _options(group: Path) -> list[str]:
    return sorted(file.stem for file in group.glob("[!_]*.yaml"))


def _group_page(group: Path) -> str:
    sections = []
    for name in _options(group):
        text = (group / f"{name}.yaml").read_text()
        about = " ".join(re.match(r"(?:#.*\n)*", text)[0].replace("# @package _global_\n", "").replace("#", "").split())
        loaded = OmegaConf.create(text)
        table = _parts(loaded, group.name) if isinstance(loaded, DictConfig) and "_target_" in loaded else ""
        sections.append(f"## `{group.name}={name}`\n\n{about}\n\n{table}\n```yaml\n{_without_comment(text)}\n```\n")
    return f"# `{group.name}`\n\n" + "\n".join(sections)


def _without_comment(text: str) -> str:
    return re.sub(r"^(#(?! @package).*\n)+", "", text, flags=re.MULTILINE).rstrip()


def _parts(made: DictConfig, prefix: str) -> str:
    """What is called, what it says of itself, and a row for each of its parameters."""
    target = str(made["_target_"])
    called = get_object(target)
    parameters = inspect.signature(called).parameters
    text, said = _said_of_parameters(_docstring(called), list(parameters))
    if inspect.isclass(called):
        said |= dict(_said_of_fields(called))
    raw: Any = OmegaConf.to_container(made, resolve=False)
    rows = [
        f"| `{prefix}.{name}` | {_default(parameter, raw)} | {said.get(name, '')} |"
        for name, parameter in parameters.items()
    ]
    table = "| key | value | |\n|---|---|---|\n" + "\n".join(rows) + "\n" if rows else "It has no keys.\n"
    return f"`{target}`: {text}\n\n{table}\n"


def _said_of_parameters(text: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """A docstring without its sentences of the kind `name: what it does.`, and these by their names."""
    if not names:
        return text, {}
    start = rf"(?:^|(?<=[.;]\s))`?({'|'.join(names)})`?:\s"
    first, *rest = re.split(start, text, flags=re.MULTILINE)
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return first.strip(), {name: " ".join(words.split()).replace("|", "\\|") for name, words in pairs}


def _docstring(called: Any) -> str:
    """Of the class, and of its constructor where that says more."""
    texts = [inspect.getdoc(called) or ""]
    if inspect.isclass(called) and "__init__" in vars(called):
        texts.append(inspect.getdoc(vars(called)["__init__"]) or "")
    whole = "\n\n".join(text for text in texts if text and not text.startswith("Initialize self"))
    return re.sub(r"<(?=\w)", "&lt;", whole)


def _default(parameter: inspect.Parameter, raw: dict[str, Any]) -> str:
    """What the option's file sets, else what the constructor does."""
    if parameter.name in raw:
        value = raw[parameter.name]
    elif parameter.default is not inspect.Parameter.empty:
        value = parameter.default
    else:
        return "needed"
    if isinstance(value, dict):
        return "below"
    if callable(value):
        return f"`{value.__name__}`"
    plain = str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
    return f"`{plain}`" if plain else "empty"


def _said_of_fields(called: type) -> Iterator[tuple[str, str]]:
    """The sentence under each field of a record, as the sources have it."""
    for part in reversed([each for each in called.__mro__ if each.__module__.startswith("ksflow.")]):
        body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
                text = after.value.value if isinstance(after.value, ast.Constant) else ""
                yield field.target.id, " ".join(str(text).split()).replace("|", "\\|")


def relinked(text: str, source: str, page: str) -> str:
    """A file's text with its links to other files of the repository leading to their pages.

    What has no page is named, without a link: the site does not know where the repository is.
    """

    def link(found: re.Match[str]) -> str:
        label, to, anchor = found[1], found[2], found[3] or ""
        place = normpath(f"{dirname(source)}/{to}")
        goal = place.removeprefix("docs/") if place.startswith("docs/") else PAGES.get(place)
        if place == "CONTRIBUTING.md" and anchor == "#words":
            goal, anchor = "glossary.md", ""
        return f"[{label}]({relpath(goal, dirname(page) or '.')}{anchor})" if goal else label

    return _LINK.sub(link, text)


def on_config(config: Any) -> Any:
    """Give the pages that are made a place in the navigation."""
    reference = next(entry["Reference"] for entry in config.nav if "Reference" in entry)
    groups = sorted(path.name for path in (ROOT / "conf").iterdir() if path.is_dir())
    base = "reference/configuration"
    reference.insert(0, {"Configuration": [f"{base}/index.md", *(f"{base}/{name}.md" for name in groups)]})
    base = "reference/commands"
    reference.insert(0, {"Commands": [f"{base}/index.md", *({name: f"{base}/{name}.md"} for name in COMMANDS)]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    from mkdocs.structure.files import File

    for place, text in pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of hand-written pages to files outside docs/ lead to the pages that these become."""
    place = page.file.src_uri
    return markdown if place in ELSEWHERE.values() else relinked(markdown, f"docs/{place}", place)
