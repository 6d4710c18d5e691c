"""What agents are given: `skill install AGENT` the skill, `mcp install CLIENT` the MCP server in its configuration.

A configuration is edited as text, so that comments, layout and all other settings stay as they are.
"""

import difflib
import json
import os
import re
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

from ksflow import home, report
from ksflow.config import compose, keys
from ksflow.errors import ConfigError, boolean, explain_write_errors, need_package, suggest
from ksflow.records import Json
from ksflow.redaction import redact

_CLIENTS = {
    "claude": (".mcp.json", "mcpServers"),
    "codex": ("config.toml", "mcp_servers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "gemini": (".gemini/settings.json", "mcpServers"),
    "vscode": (".vscode/mcp.json", "servers"),
}
"""Each client's file and the key of its servers, as the documentation of each says in November 2026."""
_TEXTS = Path(__file__).with_name("assistant")
_SKILLS = {"claude": ".claude/skills", "codex": ".agents/skills", "gemini": ".gemini/skills"}
"""Where each agent looks for skills, below a project or the home folder, as its documentation says in November 2026."""
_NAME = "ksflow"
_STRING = r'"(?:\\.|[^"\\])*"'
_TABLE = re.compile(
    rf'(?:^\n)?^[ \t]*\[ *"?mcp_servers"? *\. *"?{_NAME}"? *(?P<sub>\.[^\]\n]*)?\][^\n]*(?:\n|\Z)'
    r"(?:(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*[^\s#\[][^\n]*(?:\n|\Z))*",
    re.MULTILINE,
)
"""A table of the server in TOML: an empty line before it, its header, and all lines up to the last one with a value."""
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_VALUE = rf"(?:{_STRING}|'[^'\n]*'|\[(?:{_STRING}|'[^'\n]*'|#[^\n]*|[^\]\"'#])*\])"


def install(words: list[str], overrides: list[str]) -> int:
    """`mcp install CLIENT [key=value ...] [remove=true]`: write the file and show the change; 0, or ConfigError."""
    if len(words) != 1:
        raise ConfigError(f"the command is: mcp install {'|'.join(_CLIENTS)} [problem=NAME] [--remove]")
    if words[0] not in _CLIENTS:
        raise ConfigError(f"no client {words[0]!r}; {suggest(words[0], _CLIENTS)}")
    name, key = _CLIENTS[words[0]]
    folder = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") if words[0] == "codex" else Path.cwd()
    file = (folder / name).resolve()  # a link stays a link
    options, rest = keys.own_options(overrides, "remove")
    entry: Json | None = None
    if not boolean("remove", options.get("remove", "false")):
        need_package("ksflow mcp", "mcp", "mcp", "mcp")
        compose.compose(rest)  # a mistyped word is an error now, not when the client starts the server
        entry = {"command": sys.executable, "args": ["-m", "ksflow", "mcp", *rest]}
        entry = {"type": "stdio", **entry} if words[0] == "vscode" else entry
    try:
        old = file.read_bytes().decode() if file.exists() else ""
        new = changed(old, file.suffix == ".toml", key, entry)
    except ValueError as error:
        raise ConfigError(f"{file} is left as it is: {error}; edit it by hand") from error
    console = report.console()
    if new == old:
        report.say(console, f"nothing to do: {file} {'has' if entry else 'does not have'} this server")
        return 0
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), str(file), str(file), lineterm="")
    report.show_source(console, redact("\n".join(lines)), "diff")
    with explain_write_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        mask = os.umask(~file.stat().st_mode & 0o777) if file.exists() else None  # it may hold keys
        home.write(file, new)
        if mask is not None:
            os.umask(mask)
    report.say(console, f"written: {file}")
    return 0


def skill(words: list[str], overrides: list[str]) -> int:
    """`skill install claude|codex|gemini [where=project|user]`: write the skill; 0, or ConfigError."""
    if len(words) != 2 or words[0] != "install":
        raise ConfigError(f"the command is: skill install {'|'.join(_SKILLS)} [where=project|user]")
    options, rest = keys.own_options(overrides, "where")
    where = options.get("where", "project")
    if rest or where not in ("project", "user"):
        raise ConfigError(f"{(rest or [f'where={where}'])[0]} is not known here; valid: where=project, where=user")
    if words[1] not in _SKILLS:
        raise ConfigError(f"no agent {words[1]!r}; {suggest(words[1], _SKILLS)}")
    root = Path.home() if where == "user" else Path.cwd()
    files = {root / _SKILLS[words[1]] / "ksflow" / "SKILL.md": "SKILL.md"}
    if words[1] == "codex" and where == "project" and not (root / "AGENTS.md").exists():
        files[root / "AGENTS.md"] = "AGENTS.md"
    console = report.console()
    for file, text in files.items():
        with explain_write_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            home.write(file, (_TEXTS / text).read_text(encoding="utf-8"))
        report.say(console, f"written: {file}")
    report.say(console, f"the server: ksflow mcp install {words[1]} problem=fp8_gemm")
    return 0


def changed(old: str, toml: bool, key: str, entry: Json | None) -> str:
    """Return the text with `entry` as the server, or without the server. Raises ValueError where that cannot be done.

    Settings of the server that `entry` does not have stay.
    """
    before = _read(old, toml, key)
    wanted = dict(before.get(key, {}))
    own = wanted.pop(_NAME, {})
    if entry is not None:
        entry = wanted[_NAME] = {**own, **entry} if isinstance(own, dict) else entry
    if wanted == before.get(key, {}):
        return old
    new = _edit_toml(old, entry) if toml else _edit_json(old, key, entry)
    with suppress(ValueError):
        after = _read(new, toml, key)
        if after.get(key, {}) == wanted and {**before, key: 0} == {**after, key: 0}:
            return new
    raise ValueError(f"{key} is written in a form that ksflow does not edit")


def _read(text: str, toml: bool, key: str) -> Json:
    found = tomllib.loads(text) if toml else json.loads(_plain(text) if text.strip() else "{}")
    if not isinstance(found, dict) or not isinstance(found.get(key, {}), dict):
        raise ValueError(f"{key} is not a table of servers")
    return found


def _edit_toml(text: str, entry: Json | None) -> str:
    if entry is None:
        return _TABLE.sub("", text)
    lines = {name: f"{name} = {json.dumps(entry[name], ensure_ascii=False)}" for name in ("command", "args")}
    table = next((found for found in _TABLE.finditer(text) if not found["sub"]), None)
    if table is None:
        gap = "\n" * (2 - text.endswith("\n")) if text else ""
        return f"{text}{gap}[mcp_servers.{_NAME}]\n{lines['command']}\n{lines['args']}\n"
    body = re.sub(
        rf"^[ \t]*(command|args)[ \t]*=[ \t]*{_VALUE}", lambda found: lines[found[1]], table[0], flags=re.MULTILINE
    )
    return text[: table.start()] + body + text[table.end() :]


def _edit_json(text: str, key: str, entry: Json | None) -> str:
    text = text if text.strip() else "{\n}\n"
    plain = _plain(text)
    value: Json | None = {_NAME: entry}
    name, depth, at = key, 1, plain.index("{")
    members = _members(plain, at)
    if key in members:
        name, value, depth, at = _NAME, entry, 2, members[key][1]
        members = _members(plain, at)
    found = re.search(r'^([ \t]+)"', text, re.MULTILINE)
    indent = found[1] if found else "  "
    shown = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", f"\n{indent * depth}")
    if name not in members:
        rest = text[at + 1 :]
        gap = "" if re.match(r"\s*\n", rest) else f"\n{indent * (depth - (not members))}"
        comma = "," if members else ""
        return f"{text[: at + 1]}\n{indent * depth}{json.dumps(name)}: {shown}{comma}{gap}{rest}"
    start, begin, end = members[name]
    if entry is not None:
        return text[:begin] + shown + text[end:]
    before = text[:start]
    if plain[end:].lstrip().startswith(","):
        end = plain.index(",", end) + 1
    elif len(members) > 1:
        comma_at = plain.rindex(",", 0, start)
        before = before[:comma_at] + before[comma_at + 1 :]
    return before.rstrip() + text[end:]


def _members(plain: str, at: int) -> dict[str, tuple[int, int, int]]:
    """Return of each member of the object at `at` where it begins, where its value begins, and where it ends."""
    found, decode = {}, json.JSONDecoder().raw_decode
    end = at + 1
    while quote := re.compile(r'[\s,]*(?=")').match(plain, end):
        name, colon = decode(plain, quote.end())
        value = re.compile(r"\s*:\s*").match(plain, colon)
        assert value
        _, end = decode(plain, value.end())
        found[name] = (quote.end(), value.end(), end)
    return found


def _plain(text: str) -> str:
    """Return JSON with spaces in the place of its comments."""
    return _COMMENT.sub(lambda found: found[1] or re.sub(r"\S", " ", found[0]), text)
