"""Which environment variables the providers of models read, and which of them are set. No value is shown."""

import os
import re

from ksflow.home import shipped_path

_READ = re.compile(r"\$\{oc\.env:(\w+),([^}]*)\}")
_WIDTH = 80
_NEEDED = re.compile(r"^(?:key: | +)([A-Z][A-Z_]+)\b", re.MULTILINE)


def variables() -> dict[str, dict[str, str]]:
    """Return for each provider the variables that it reads, each with what a call takes where it is not set."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted(shipped_path("conf", "model").glob("*.yaml")):
        text = file.read_text(encoding="utf-8")
        read = {name: default.strip("'") for name, default in _READ.findall(text)}
        found[file.stem] = read | dict.fromkeys(_NEEDED.findall(text), "")
    return {provider: read for provider, read in found.items() if read}


def table() -> str:
    """Return a line for each variable: who reads it, and whether it is set."""
    lines = ["Providers, the environment variables that they read, and which are set here:"]
    for provider, read in variables().items():
        for number, (name, default) in enumerate(read.items()):
            unset = {"": "not set, and needed", "null": "not set"}.get(default, f"not set: {default}")
            word = "" if number else f"llm={provider}"
            line = f"  {word:22} {name:18} {'set' if os.environ.get(name) else unset}"
            lines.append(line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}...")
    return "\n".join(lines)
