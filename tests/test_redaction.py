"""No secret is shown or kept, however it is spelled: on the terminal, in logs, in the transcript, in git."""

import base64
import html
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from lm.server import Provider, Reply
from test_cli import DRY, ksflow

from ksflow.lm.answers import answer
from ksflow.redaction import MARK, redact

SECRET = 'sk-a"b\\c/d+e=f-0123456789'
PASSWORD = "p+ss/w rd-of-eight"


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.close()


@pytest.mark.parametrize("read", ["{}", "{}\n", ' "{}"\n', "Bearer {}"])
def test_a_secret_is_struck_out_in_every_spelling(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", read.format(SECRET))
    basic = base64.b64encode(f"somebody:{SECRET}".encode()).decode()
    for spelled in (
        SECRET,
        repr(SECRET),
        json.dumps(SECRET),
        json.dumps({"error": json.dumps({"key": SECRET})}),
        quote(SECRET),
        quote(SECRET, safe="").lower(),
        html.escape(SECRET),
        f"Authorization: Basic {basic}",
    ):
        said = redact(f"the key {spelled} is wrong")
        assert MARK in said
        assert "0123456" not in said
        assert basic[12:-4] not in said


@pytest.mark.parametrize("variable", ["https_proxy", "LLM_URL"])
def test_the_password_of_a_url_is_a_secret_wherever_it_stands(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, f"http://me:{quote(PASSWORD, safe='')}@proxy:3128")
    for text in (
        f"http://me:{quote(PASSWORD, safe='')}@proxy:3128/v1",
        PASSWORD,
        f"me:{PASSWORD}@proxy",
        "http://a:b@c",
    ):
        assert MARK in redact(f"no route to {text}")
        assert "of-eight" not in redact(text)
    plain = "mail@host, ssh://git@host/x, http://host/a@b and c@d: https://host:80/"
    assert redact(plain) == plain


def test_a_proxy_without_a_scheme_has_a_password_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "me:long-password@proxy:3128")
    assert redact("cannot connect to me:long-password@proxy:3128") == f"cannot connect to me:{MARK}@proxy:3128"


def everything(folder: Path) -> bytes:
    """All files of a folder, and every object of the git repositories in it."""
    found = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    for head in folder.rglob("*.git/HEAD"):
        git = ["git", "--git-dir", str(head.parent), "cat-file", "--batch", "--batch-all-objects"]
        found.append(subprocess.run(git, capture_output=True, check=True).stdout)
    return b"\n".join(found)


def test_what_a_provider_repeats_of_a_key_is_nowhere(tmp_path: Path, provider: Provider) -> None:
    """The key was read with a line end; the server says it bare, escaped and as it is in Basic authorization."""
    key = 'sk-"quoted"-0123456789'
    basic = base64.b64encode(f"me:{key}".encode()).decode()

    def reply(prompt: str) -> Reply:
        writing = "[[ ## report ## ]]" in prompt.rpartition("Answer with the sections")[2]
        return Reply(f"{key} {json.dumps(key)} Basic {basic}", 400) if writing else Reply(answer(prompt))

    provider.reply = reply
    model = ["llm=openai_compatible", "writer=llm", "model.name=own", "model.cache=false"]
    arguments = [*DRY, *model, "loop.evaluations=1"]
    done = ksflow(
        tmp_path, *arguments, LLM_URL=provider.url, LLM_API_KEY=f"{key}\n", HTTPS_PROXY="http://me:hunter222@h"
    )
    assert provider.keys, done.stderr
    assert provider.keys[0] == f"Bearer {key}"
    assert MARK in done.stderr
    kept = everything(tmp_path) + (done.stdout + done.stderr).encode()
    assert MARK.encode() in kept
    for secret in ("0123456789", basic[8:-4], "hunter222"):
        assert secret.encode() not in kept


def test_credentials_on_the_command_line_are_refused_before_they_are_kept(tmp_path: Path) -> None:
    done = ksflow(tmp_path, *DRY, "llm=openai_compatible", "model.api_base=http://me:hunter222@host/v1")
    assert done.returncode == 2
    assert "model.api_base holds credentials" in done.stderr
    assert b"hunter222" not in everything(tmp_path) + (done.stdout + done.stderr).encode()
