"""One run on two hosts through git's own HTTP server on loopback, and what a user reads when it says no."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import warm
from conftest import plant, until

from ksflow.errors import ConfigError
from ksflow.lineage import Lineage
from ksflow.lineage.shared import sharing


def git(path: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(path), *arguments], check=True, capture_output=True, text=True).stdout


class Backend(BaseHTTPRequestHandler):
    """`git http-backend`, as a web server would run it."""

    root: Path

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers["Content-Length"])) if "Content-Length" in self.headers else b""
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        said = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, answer = said.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A bare repository that takes pushes, and its URL."""
    path = tmp_path / "served" / "team.git"
    path.parent.mkdir()
    git(tmp_path, "init", "--quiet", "--bare", str(path))
    git(path, "config", "http.receivepack", "true")
    handler = type("Handler", (Backend,), {"root": path.parent})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield path, f"http://127.0.0.1:{server.server_address[1]}/team.git"
    server.shutdown()
    server.server_close()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Lineage]]:
    """Opens the run on a host by its name and the remote's URL, with a session; all are closed in the end."""
    monkeypatch.setattr(sharing, "_RETRY_S", (0.1,))
    opened: list[Lineage] = []

    def begin(name: str, url: str) -> Lineage:
        opened.append(Lineage(tmp_path / name / "lineage.git", "toy", remote=url))
        opened[-1].open_session("")
        return opened[-1]

    yield begin
    for lineage in opened:
        lineage.close()


def heads(path: Path) -> str:
    return git(path, "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads/")


@pytest.mark.slow
def test_two_hosts_share_a_run_through_http(
    host: Callable[[str, str], Lineage], tmp_path: Path, served: tuple[Path, str]
) -> None:
    path, url = served
    one = host("one", url)
    plant(one, "int seed;", 20.0)
    until(lambda: "toy/main/00001" in heads(path))
    two = host("two", url)
    two.begin_round()
    assert two.population().by_id["00001"].score_us == 20.0
    assert plant(two, "int other;", 10.0).id == "10001"
    until(lambda: heads(path) == heads(two.store.path))
    until(lambda: one.begin_round() and "10001" in one.population().by_id)
    assert one.population() == two.population()
    git(path, "fsck", "--strict")


@pytest.mark.slow
def test_a_wrong_url_and_a_refused_push_are_told_in_one_line(
    host: Callable[[str, str], Lineage], served: tuple[Path, str], caplog: pytest.LogCaptureFixture
) -> None:
    path, url = served
    with pytest.raises(ConfigError, match=r"cannot be reached \(repository '.*typo/' not found\).*while it can be"):
        host("one", f"{url}.typo")
    git(path, "config", "http.receivepack", "false")
    with pytest.raises(ConfigError, match=r"answers, but takes no pushes \(.* error: 403\).* have it take them"):
        host("one", url)
    git(path, "config", "http.receivepack", "true")
    one = host("one", url)
    git(path, "config", "http.receivepack", "false")
    for text in ("int seed;", "int other;"):
        plant(one, text, 20.0)
        one.begin_round()
    until(lambda: caplog.records)
    (told,) = {record.getMessage() for record in caplog.records}
    assert "error: 403; the run goes on here, and is shared again when that works" in told
    assert "\n" not in told
    git(path, "config", "http.receivepack", "true")
    until(lambda: len(heads(path).splitlines()) == 2)


@pytest.mark.slow
def test_a_search_is_shared_through_http(tmp_path: Path, served: tuple[Path, str]) -> None:
    path, url = served
    words = ["recipe=dry_run", "problem=softmax", "loop.confirm=false", "loop.evaluations=1"]
    done = warm.run(tmp_path, [*words, f"lineage.remote={url}"], dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert heads(path) == heads(tmp_path / "runs" / "lineage.git")
    wrong = warm.run(tmp_path / "served", [*words, f"lineage.remote={url}.typo"], dict(os.environ))
    assert wrong.returncode == 2
    (line,) = wrong.stderr.splitlines()
    assert line.startswith(f"ksflow: lineage.remote={url}.typo cannot be reached")
