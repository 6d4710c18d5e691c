"""The commands that show runs as a page: `report` writes it, `watch` serves it while a run goes on."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ksflow import home
from ksflow.cli.task import open_lineage, some_trials
from ksflow.config import compose, keys
from ksflow.errors import ConfigError, explain_write_errors, one_of, reaching
from ksflow.lineage import Lineage
from ksflow.records import Json, Problem
from ksflow.report import console, say
from ksflow.report.page import RunFacts, as_html, as_markdown, as_png, as_pull_request, split_details

_FORMATS = ("html", "md", "png", "pr")
Opener = Callable[[], AbstractContextManager[tuple[list[Lineage], Problem]]]


def report(words: list[str], overrides: list[str]) -> int:
    """`report [run=NAME,NAME]`: write the page of one run, or of several side by side; 0, or ConfigError."""
    own, runs = _arguments("report", words, overrides, "out", "format")
    kind = one_of("format", own.get("format", "html"), _FORMATS)
    with runs() as (lineages, problem):
        name = "+".join(lineage.run for lineage in lineages)
        ending = "pr.md" if kind == "pr" else kind
        default = lineages[0].store.path.parent / "reports" / lineages[0].problem / f"{name}.{ending}"
        if kind == "pr":
            data = "\n".join(as_pull_request(lineage, problem) for lineage in lineages)
        else:
            facts = [RunFacts(lineage, problem).read(details=kind == "html") for lineage in lineages]
            data = "\n".join(map(as_markdown, facts)) if kind == "md" else as_html(facts)
    path = Path(own["out"]).expanduser() if "out" in own else default
    with explain_write_errors(path, "choose another place with out=FILE"):
        path.parent.mkdir(parents=True, exist_ok=True)
        home.write(path, as_png(data) if kind == "png" else data)
    say(console(), f"written to {path}")
    return 0


def watch(words: list[str], overrides: list[str]) -> int:
    """`watch [run=NAME]`: the same page on loopback, which follows the lineage until Ctrl-C. It only reads."""
    own, runs = _arguments("watch", words, overrides, "port")
    port = own.get("port", "0")
    if not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"port={port}; valid: 0 (any that is free) to 65535")
    with suppress(KeyboardInterrupt), runs() as pair, _server(int(port), _Follower(*pair)) as server:
        console().print(f"http://127.0.0.1:{server.server_port}/  (Ctrl-C ends it)", markup=False)
        server.serve_forever()
    return 0


def _arguments(verb: str, words: list[str], overrides: list[str], *names: str) -> tuple[dict[str, str], Opener]:
    """The command's own words, those of `names`, and what opens its runs."""
    if words:
        raise ConfigError(f"{verb} takes key=value arguments, not {words[0]!r}")
    own, rest = keys.own_options(overrides, "run", *names)
    return own, partial(_opened, own.get("run", "").split(","), rest)


@contextmanager
def _opened(names: Sequence[str], overrides: list[str]) -> Iterator[tuple[list[Lineage], Problem]]:
    cfg = compose.compose(overrides)
    problem: Problem = compose.build(cfg.problem)
    with ExitStack() as stack:
        lineages = [stack.enter_context(open_lineage(cfg, problem.name, name)) for name in names]
        for lineage in lineages:
            some_trials(lineage)
        yield lineages, problem


class _Follower:
    """The newest facts of runs, read again when their refs have moved."""

    def __init__(self, lineages: Sequence[Lineage], problem: Problem) -> None:
        self._lineages = lineages
        self._runs = [RunFacts(lineage, problem) for lineage in lineages]
        self._lock = threading.Lock()
        self._refs: object = None
        self._facts: list[Json] = []
        self._stamp = 0

    def newest(self) -> tuple[int, list[Json]]:
        """A number that grows with every change, and the facts."""
        with self._lock:
            refs = [lineage.store.refs(*lineage.prefixes) for lineage in self._lineages]
            if refs != self._refs:
                self._facts = [run.read() for run in self._runs]
                self._refs, self._stamp = refs, self._stamp + 1
            return self._stamp, self._facts


@contextmanager
def _server(port: int, follower: _Follower) -> Iterator[ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Host", "").partition(":")[0] not in ("127.0.0.1", "localhost"):
                self.send_error(HTTPStatus.FORBIDDEN)  # a page of elsewhere that has its name point here
            elif self.path == "/":
                self._answer("text/html; charset=utf-8", as_html(follower.newest()[1], live=True))
            elif self.path.partition("?")[0] == "/facts.json":
                stamp, facts = follower.newest()
                content: Json = {"stamp": stamp}
                if not self.path.endswith(f"?known={stamp}"):
                    runs, details = split_details(facts)
                    content |= {"runs": runs, "details": details}
                self._answer("application/json", json.dumps(content, allow_nan=False))
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _answer(self, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: the terminal belongs to the address."""

    with reaching(f"port {port} cannot be had", "port=0 takes one that is free"):
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    with server:
        yield server
