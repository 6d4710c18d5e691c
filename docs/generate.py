"""Generate pages of the documentation from the sources; MkDocs calls the hooks at the end of this file.

The pages of commands come from `--help`, the pages of the configuration from `conf/` and the constructors named there,
the glossary from CONTRIBUTING.md, and other pages from files elsewhere in the repository.
"""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ksflow.cli.usage import COMMANDS
from ksflow.config.keys import parameters_of
from ksflow.config.pages import purposes

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    "README.md": "index.md",
    "problems/README.md": "reference/problems.md",
    "benchmarks/GPU.md": "figures/gpu.md",
    "benchmarks/FORMATS.md": "figures/formats.md",
    "benchmarks/OVERHEAD.md": "figures/overhead.md",
    "benchmarks/PEERS.md": "figures/peers.md",
    "results/ablations/README.md": "figures/ablations.md",
    "CHANGELOG.md": "changes.md",
    "examples/README.md": "examples/index.md",
    **{
        f"examples/{name}/README.md": f"examples/{name}.md"
        for name in ("own_problem", "own_model", "quantised_matvec", "own_stage", "sweep")
    },
}
"""Files of the repository -> the pages that show them."""
PAGES = {**ELSEWHERE, "CONTRIBUTING.md": "contributing.md"}
"""Files of the repository -> the targets of links to them."""
_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)")


def pages() -> dict[str, str]:
    """Return the text of every generated page by its path below docs/."""
    return {**dict(_elsewhere()), **dict(_contributing()), **dict(_commands()), **dict(_configuration())}


def _elsewhere() -> Iterator[tuple[str, str]]:
    for source, page in ELSEWHERE.items():
        yield page, relinked((ROOT / source).read_text(), source, page) + _listing(ROOT / source)


def _listing(page: Path) -> str:
    """Return the files of an example as Markdown, or nothing for other pages."""
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
    """Return the output of `ksflow COMMAND --help` as Markdown."""
    command = [sys.executable, "-m", "ksflow", *words, "--help"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return f"The output of `{' '.join(['ksflow', *words, '--help'])}`:\n\n```text\n{said.rstrip()}\n```\n"


def _configuration() -> Iterator[tuple[str, str]]:
    groups = sorted(path for path in (ROOT / "conf").iterdir() if path.is_dir())
    yield "reference/configuration/index.md", _main_page(groups)
    for group in groups:
        yield f"reference/configuration/{group.name}.md", _group_page(group)


def _main_page(groups: list[Path]) -> str:
    """Return the page of `conf/config.yaml`, with links to the pages of the groups."""
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
        "# Configuration\n\nAn argument on the command line is `group=option` or `part.key=value`. Every key is a "
        "parameter of the constructor of its part. An unknown argument is an error that lists the valid arguments.\n\n"
        f"| group | options |\n|---|---|\n{rows}\n\n{made}\n"
        f"## The main configuration\n\nThe file `conf/config.yaml`:\n\n```yaml\n{text.rstrip()}\n```\n"
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
    """Return the callable of a part, its docstring, and a table row for each of its parameters."""
    target = str(made["_target_"])
    parameters, _ = parameters_of(target, prefix)
    text, purpose = purposes(target, prefix)
    said = {name: _escaped(words).replace("|", "\\|") for name, words in purpose.items()}
    raw: Any = OmegaConf.to_container(made, resolve=False)
    rows = [
        f"| `{prefix}.{name}` | {_default(parameter, raw)} | {said.get(name, '')} |"
        for name, parameter in parameters.items()
    ]
    table = "| key | value | |\n|---|---|---|\n" + "\n".join(rows) + "\n" if rows else "This option has no keys.\n"
    return f"`{target}`: {_escaped(text)}\n\n{table}\n"


def _escaped(text: str) -> str:
    return re.sub(r"<(?=\w)", "&lt;", text)


def _default(parameter: inspect.Parameter, raw: dict[str, Any]) -> str:
    """Return the value in the option's file, or else the constructor's default, as Markdown."""
    if parameter.name in raw:
        value = raw[parameter.name]
    elif parameter.default is not inspect.Parameter.empty:
        value = parameter.default
    else:
        return "required"
    if isinstance(value, dict):
        return "below"
    if callable(value):
        return f"`{value.__name__}`"
    plain = str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
    return f"`{plain}`" if plain else "empty"


def relinked(text: str, source: str, page: str) -> str:
    """Return a file's text with links to other files of the repository replaced by links to their pages.

    A file without a page is named without a link, because the site does not know the address of the repository.
    """

    def link(found: re.Match[str]) -> str:
        label, to, anchor = found[1], found[2], found[3] or ""
        place = normpath(join(dirname(source), to))
        goal = place.removeprefix("docs/") if place.startswith("docs/") else PAGES.get(place)
        if place == "CONTRIBUTING.md" and anchor == "#words":
            goal, anchor = "glossary.md", ""
        return f"[{label}]({relpath(goal, dirname(page) or '.')}{anchor})" if goal else label

    return _LINK.sub(link, text)


def on_config(config: Any) -> Any:
    """Add the generated pages to the navigation."""
    reference = next(entry["Reference"] for entry in config.nav if "Reference" in entry)
    groups = sorted(path.name for path in (ROOT / "conf").iterdir() if path.is_dir())
    base = "reference/configuration"
    reference.insert(0, {"Configuration": [f"{base}/index.md", *(f"{base}/{name}.md" for name in groups)]})
    base = "reference/commands"
    reference.insert(0, {"Commands": [f"{base}/index.md", *({name: f"{base}/{name}.md"} for name in COMMANDS)]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    for place, text in pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links of hand-written pages to files outside docs/ by links to the pages of these files."""
    place = page.file.src_uri
    return markdown if place in ELSEWHERE.values() else relinked(markdown, f"docs/{place}", place)
