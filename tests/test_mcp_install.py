"""`ksflow mcp install CLIENT`, as typed, on the files that people have."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from test_cli import ksflow

from ksflow.cli.install import changed

FILES = {
    "claude": (".mcp.json", "mcpServers"),
    "codex": (".codex/config.toml", "mcp_servers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "gemini": (".gemini/settings.json", "mcpServers"),
    "vscode": (".vscode/mcp.json", "servers"),
}
JSON = """{
    // a "brace" { in a comment
    "theme": "http://dark",
    "KEY": {
        "other": {"command": "npx", "args": ["-y", "{}"]}, // the other one
        /* switched off,
        "old": {} */
        "last": {"url": "https://example.org/mcp", "env": {"A": "//"}} // no comma
    }
}
"""
TOML = """# mine
model = "gpt" # not the small one

[mcp_servers.other] # the other one
command = "npx"
args = [
    "-y", # yes
]

# about the profile
[profiles.fast]
model = '''
[mcp_servers.third]
command = "in a text"
'''
"""


def install(folder: Path, *words: str) -> str:
    """What the command says, with the home folder and the project at `folder`."""
    done = ksflow(folder, "mcp", "install", *words, HOME=str(folder), CODEX_HOME="")
    assert done.returncode == 0, done.stderr
    return done.stdout


def parsed(text: str, toml: bool) -> dict[str, Any]:
    if toml:
        return tomllib.loads(text)
    found: dict[str, Any] = json.loads(re.sub(r"(?<![:\"])//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL))
    return found


def read(file: Path) -> dict[str, Any]:
    return parsed(file.read_text(), file.suffix == ".toml")


def had(folder: Path, client: str, text: str = "") -> Path:
    """The client's file in `folder`, as somebody wrote it."""
    name, key = FILES[client]
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes((text or (TOML if client == "codex" else JSON.replace("KEY", key))).encode())
    return folder / name


@pytest.mark.slow
@pytest.mark.parametrize("client", FILES)
def test_the_server_is_added_to_what_is_there_once_and_removed_again(tmp_path: Path, client: str) -> None:
    file, key = had(tmp_path, client), FILES[client][1]
    before, data = file.read_text(), read(file)
    kind = {"type": "stdio"} if client == "vscode" else {}
    entry = {**kind, "command": sys.executable, "args": ["-m", "ksflow", "mcp", "problem=softmax", "run=one"]}

    said = install(tmp_path, client, "problem=softmax", "run=one")
    text = file.read_text()
    assert read(file) == {**data, key: {**data[key], "ksflow": entry}}
    assert f"+++ {file}\n@@ " in said
    assert said.endswith(f"written: {file}\n")
    added = [line[1:] for line in said.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert set(added) == set(text.splitlines()) - set(before.splitlines()) | ({""} if client == "codex" else set())
    assert not [line for line in said.splitlines() if line.startswith("-") and not line.startswith("---")]

    assert install(tmp_path, client, "problem=softmax", "run=one") == f"nothing to do: {file} has this server\n"
    assert file.read_text() == text

    own = f"{text}# by hand\n[mcp_servers.ksflow.env]\nA = '1'\n"
    file.write_text(own if client == "codex" else text.replace('"ksflow": {', '"ksflow": {"env": {"A": "1"},'))
    install(tmp_path, client, "problem=softmax", "run='two]'")
    args = [*entry["args"][:-1], "run='two]'"]
    assert read(file) == {**data, key: {**data[key], "ksflow": {**entry, "args": args, "env": {"A": "1"}}}}

    file.write_text(text)
    assert (
        '-    "ksflow": {' in install(tmp_path, client, "--remove").replace("-        ", "-    ") or client == "codex"
    )
    assert file.read_text() == before
    assert install(tmp_path, client, "remove=true") == f"nothing to do: {file} does not have this server\n"
    assert file.read_text() == before


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        " \n",
        '{"servers": {}, "a": 1}',
        '{\r\n\t"servers": {\r\n\t\t"a": {}\r\n\t}\r\n}',
        '{"servers": {"a": {}, "ksflow": {"command": "x", "args": []}}} // end\n',
        '{"servers": {"ksflow": 1, /* , */ "a": {}}}',
        '{"inputs": [] /* } */, "servers": {"a": {} // b\n, "ksflow": {} // c\n}}',
        'a = 1 # "no end of line"',
        "[servers]\n  # none\n",
        '[mcp_servers."ksflow"]\nargs = [ # "]"\n "a]", \'b]\',\n]\ncommand = \'x\' # own\n\n\n[mcp_servers.a]\n',
    ],
)
def test_every_layout_is_edited(text: str) -> None:
    toml = "=" in text or text.startswith("[")
    key, comments = "mcp_servers" if toml else "servers", re.findall(r"// \w+|/\* [,}] \*/|# \w+", text)
    data = parsed(text, toml) if text.strip() else {}
    others = {name: value for name, value in data.get(key, {}).items() if name != "ksflow"}
    entry = {"command": sys.executable, "args": ["-m", "ksflow", "mcp"]}
    added = changed(text, toml, key, entry)
    assert parsed(added, toml) == {**data, key: {**others, "ksflow": entry}}
    assert changed(added, toml, key, entry) == added
    removed = changed(added, toml, key, None)
    assert {key: {}, **parsed(removed, toml)} == {**data, key: others}
    assert all(comment in added and (comment in removed or comment == "# own") for comment in comments)


@pytest.mark.slow
def test_the_client_starts_the_server_with_what_is_written(tmp_path: Path) -> None:
    install(tmp_path, "claude", "recipe=dry_run")
    entry = read(tmp_path / ".mcp.json")["mcpServers"]["ksflow"]
    given = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": given}
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        cwd=tmp_path,
        input=f"{json.dumps(hello)}\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "ksflow"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "text", "told"),
    [
        *((client, '{"mcpServers": {', "is left as it is: ") for client in FILES),
        ("claude", "[]", "mcpServers is not a table of servers"),
        ("vscode", '{"servers": []}', "servers is not a table of servers"),
        ("gemini", '{"mcpServers": {"a": {},},}', "is left as it is: "),
        ("codex", 'mcp_servers = {a = {command = "b"}}\n', "in a form that ksflow does not edit"),
        ("codex", "[mcp_servers]\nksflow = {command = 'b', args = []}\n", "in a form that ksflow does not edit"),
        ("codex", "a = '''\n[mcp_servers.ksflow]\n'''\n", "in a form that ksflow does not edit"),
        ("codex", "[mcp_servers.ksflow]\nurl = 'http://127.0.0.1'\n", "in a form that ksflow does not edit"),
    ],
)
def test_a_file_that_cannot_be_edited_is_left_as_it_is(tmp_path: Path, client: str, text: str, told: str) -> None:
    file = had(tmp_path, client, text)
    done = ksflow(tmp_path, "mcp", "install", client, HOME=str(tmp_path), CODEX_HOME="")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"ksflow: {file} is left as it is: " in done.stderr
    assert told in done.stderr
    assert file.read_text() == text


def test_a_link_stays_a_link_and_a_private_file_stays_private(tmp_path: Path) -> None:
    (tmp_path / "dots").mkdir()
    real = tmp_path / "dots" / "codex.toml"
    real.write_text('[mcp_servers.a.env]\nKEY = "secret"\n')
    real.chmod(0o600)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").symlink_to(real)
    done = ksflow(tmp_path, "mcp", "install", "codex", CODEX_HOME=str(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "home" / "config.toml").is_symlink()
    assert set(read(real)["mcp_servers"]) == {"a", "ksflow"}
    assert real.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["install"], "the command is: mcp install claude|codex|"),
        (["install", "coddex"], "no client 'coddex'; did you mean codex?"),
        (["instal", "claude"], "no command 'mcp instal'; did you mean mcp install?"),
        (["install", "claude", "problm=softmax"], "problm"),
    ],
)
def test_a_mistyped_word_is_told_and_nothing_is_written(tmp_path: Path, typed: list[str], told: str) -> None:
    done = ksflow(tmp_path, "mcp", *typed, HOME=str(tmp_path))
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
