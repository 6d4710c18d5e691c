"""The verb `skill`: puts what teaches an agent to be the scientist where its command line looks for it."""

from pathlib import Path

from ksflow import home, report
from ksflow.config import keys
from ksflow.errors import ConfigError, explain_write_errors, suggest

_TEXTS = Path(__file__).with_name("assistant")
_FOLDERS = {"claude": ".claude/skills", "codex": ".agents/skills", "gemini": ".gemini/skills"}
"""Below a project or the home folder, as the documentation of each says in November 2026."""


def skill(words: list[str], overrides: list[str]) -> int:
    """`skill install claude|codex|gemini [where=project|user]`: write the skill; 0, or ConfigError."""
    if len(words) != 2 or words[0] != "install":
        raise ConfigError(f"the command is: skill install {'|'.join(_FOLDERS)} [where=project|user]")
    options, rest = keys.own_options(overrides, "where")
    where = options.get("where", "project")
    if rest or where not in ("project", "user"):
        raise ConfigError(f"{(rest or [f'where={where}'])[0]} is not known here; valid: where=project, where=user")
    if words[1] not in _FOLDERS:
        raise ConfigError(f"no agent {words[1]!r}; {suggest(words[1], _FOLDERS)}")
    root = Path.home() if where == "user" else Path.cwd()
    files = {root / _FOLDERS[words[1]] / "ksflow" / "SKILL.md": "SKILL.md"}
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
