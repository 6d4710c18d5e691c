"""GPU MODE's service over HTTP: submissions that stream their result, submissions that are polled, what went wrong.

Covered: server-sent events, refusals in their many texts, rate limits, lost connections. What is refused comes back as
one of three exceptions; none of them holds the cli id.
"""

import json
import os
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import yaml

from ksflow.errors import ConfigError
from ksflow.home import text_of
from ksflow.records import Json

_HEADER = "X-Popcorn-Cli-Id"
_VARIABLE = "POPCORN_CLI_ID"
_TIMEOUT = httpx.Timeout(60.0, connect=15.0)  # between two parts of an answer; a stream sends one every 15 s
_LIMITS = httpx.Limits(max_keepalive_connections=0)  # requests are rare
_LARGEST = 32 << 20
_WAIT = re.compile(r"try again in (\d+)", re.IGNORECASE)
_LATER = re.compile(r"rate limit|try again later|precheck|temporarily", re.IGNORECASE)
_KERNELS_FAULT = re.compile(
    r"another stream|too large|decode submission|empty file|non-rude|\.py\b.*file", re.IGNORECASE
)
_SETUP_FAULT = re.compile(r"validating leaderboard|not (?:found|supported)|does not exist", re.IGNORECASE)
_GUARD = re.compile(r"kernel ?guard", re.IGNORECASE)
_SHOWN = 500


class Busy(Exception):
    """Later perhaps. `after_s`: when the service says so."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Lost(Exception):
    """The connection ended before the answer did: nobody knows whether the submission is there."""


class Refused(Exception):
    """The kernel itself is not taken. `cheat`: the service's guard says why."""

    def __init__(self, why: str, cheat: bool = False) -> None:
        super().__init__(why)
        self.cheat = cheat


class Service:
    """One service, as one user. `cli_id` is sent and never shown."""

    def __init__(self, url: str, cli_id: str) -> None:
        self.url = url.rstrip("/")
        self._cli_id = cli_id
        self._http = httpx.Client(base_url=self.url, headers={_HEADER: cli_id}, timeout=_TIMEOUT, limits=_LIMITS)

    def stream_submission(self, path: str, name: str, text: str) -> Generator[Json, None, None]:
        """The events of a submission, `event` among their keys. Raises Busy, Lost, Refused, ConfigError."""
        with (
            self._guarded(),
            self._http.stream("POST", f"/{path}", files=_file(name, text)) as answer,
        ):
            if answer.status_code != 200:
                answer.read()
                self._fail(answer)
            yield from self._events(answer.iter_lines())
        raise Lost("the service ended its answer without a result")

    def post(self, path: str, name: str, text: str) -> int:
        """Submit for the background; the submission's id. Raises Busy, Lost, Refused, ConfigError."""
        with self._guarded():
            answer = self._json(self._http.post(f"/submission/{path}", files=_file(name, text)))
        details = answer.get("details") if isinstance(answer, dict) else None
        number = details.get("id") if isinstance(details, dict) else None
        if type(number) is not int:
            raise Lost("the service took the submission and did not say its id")
        return number

    def submission(self, number: int) -> Json | None:
        """What is known of an own submission; None where there is none. Raises Busy, Lost, ConfigError."""
        with self._guarded():
            answer = self._http.get(f"/user/submissions/{number}")
            if answer.status_code == 404:
                return None
            submission = self._json(answer)
        if not isinstance(submission, dict):
            raise Lost("the service's answer is no submission")
        return submission

    def find(self, leaderboard: str, name: str) -> int | None:
        """The id of an own submission of a file's name. Raises Busy, Lost, ConfigError."""
        with self._guarded():
            rows = self._json(self._http.get("/user/submissions", params={"leaderboard": leaderboard, "limit": 100}))
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and row.get("file_name") == name and type(row.get("id")) is int:
                return int(row["id"])
        return None

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            raise Busy(f"{self.url} cannot be reached: {self._clean(str(error))}") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Lost(f"{type(error).__name__}: {self._clean(str(error))}") from None

    def _json(self, answer: httpx.Response) -> Any:
        if answer.status_code >= 300:
            self._fail(answer)
        try:
            return answer.json()
        except ValueError:
            raise Lost(f"the service's answer is not JSON: {self._clean(answer.text)}") from None

    def _events(self, lines: Iterable[str]) -> Iterator[Json]:
        event, data, size = "", list[str](), 0
        for line in lines:
            size += len(line)
            if size > _LARGEST:
                raise Lost(f"the service's answer is longer than {_LARGEST >> 20} MiB")
            if line.startswith("event:"):
                event = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif not line and data:
                yield self._event(event, "\n".join(data))
                event, data = "", []

    def _event(self, event: str, text: str) -> Json:
        try:
            content = json.loads(text)
        except ValueError:
            raise Lost(f"an event is not JSON: {self._clean(text)}") from None
        if not isinstance(content, dict):
            raise Lost("an event is no mapping")
        if event == "error":
            status = content.get("status_code")
            words = f"{content.get('detail', '')} {content.get('raw_error') or ''}".strip()
            self._refuse(status if type(status) is int else 500, words, None)
        return {**content, "event": event}

    def _fail(self, answer: httpx.Response) -> None:
        try:
            content = answer.json()
            words = content.get("detail") or content.get("message") or answer.text
        except (ValueError, AttributeError):
            words = answer.text
        after = answer.headers.get("Retry-After", "")
        self._refuse(answer.status_code, str(words), float(after) if after.isdigit() else None)

    def _refuse(self, status: int, words: str, after_s: float | None) -> None:
        """Raise what an error means. Its status alone does not say: many texts come as 400, some as 500."""
        text = self._clean(words) or f"status {status}"
        if match := _WAIT.search(words):
            after_s = max(after_s or 0.0, float(match[1]))
        if status in (401, 403) or "missing x-popcorn" in words.lower():
            raise ConfigError(f"{self.url}: {text}; register with `popcorn register`, or correct {_VARIABLE}")
        if _KERNELS_FAULT.search(words):
            raise Refused(text)
        if after_s is not None or status in (429, 502, 503, 504) or _LATER.search(words):
            raise Busy(text, after_s)
        if _GUARD.search(words):
            raise Refused(text, cheat=True)
        if 400 <= status < 500 or _SETUP_FAULT.search(words):
            raise ConfigError(f"{self.url} refuses: {text}; see evaluator.leaderboard, evaluator.gpu")
        raise Busy(text)

    def _clean(self, words: str) -> str:
        """One line, bounded, without the cli id."""
        return " ".join(words.replace(self._cli_id, "***").split())[:_SHOWN]


def cli_id() -> str:
    """Who asks: from the environment, else from where `popcorn register` keeps it. ConfigError."""
    identity = os.environ.get(_VARIABLE, "").strip()
    if not identity:
        with suppress(yaml.YAMLError, AttributeError):  # it may be no mapping
            settings = yaml.safe_load(text_of(Path.home() / ".popcorn.yaml"))
            identity = str(settings.get("cli_id") or "").strip()
    if not identity:
        raise ConfigError(f"nobody to submit as: run `popcorn register discord` (or github), or set {_VARIABLE}")
    if not re.fullmatch(r"[\x21-\x7e]{1,200}", identity):
        raise ConfigError(f"the cli id is not one word of ASCII; correct {_VARIABLE} or ~/.popcorn.yaml")
    return identity


def _file(name: str, text: str) -> dict[str, tuple[str, bytes, str]]:
    return {"file": (name, text.encode("utf-8", "replace"), "text/plain")}
