"""The stub model: a server on loopback that speaks OpenAI's chat completions and answers every tool in its own format.

The n-th candidate is the parent's program with `VALUE = n`. Answers depend on the question and on n alone.
"""

import itertools
import json
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from ksflow.lm import answers

_VALUE = re.compile(r"^VALUE = \d+$", re.MULTILINE)
_CURRENT = re.compile(r"^# Current [Pp]rogram$", re.MULTILINE)
_MARK = re.compile(r"\n(?:# dummy |DUMMY_)\w+[^\n]*")
"""The change that ksflow's dummy makes; ours takes its place."""


class StubModel:
    """A server for one run of one tool; `called` hears of every question as it comes in. A context manager."""

    def __init__(self, seconds: float, called: Callable[[], None]) -> None:
        self.calls = 0
        self.refused = ""
        """Why a question could not be answered; empty when all were."""
        self._seconds, self._called = seconds, called
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def complete(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request, after the wait."""
        self._called()
        assert not question.get("stream"), "it wants a stream"
        with self._lock:
            self.calls += 1
        system, prompt = (_text(question["messages"][index]) for index in (0, -1))
        text = self._answer(system, prompt)
        time.sleep(self._seconds)
        asked, given = (len(system) + len(prompt)) // 4, len(text) // 4
        return {
            "id": "stub",
            "object": "chat.completion",
            "created": 0,
            "model": question["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": asked, "completion_tokens": given, "total_tokens": asked + given},
        }

    def _answer(self, system: str, prompt: str) -> str:
        if prompt.startswith("Are you there?"):  # ksflow's sign of life
            return "yes"
        if "Answer with the sections " in prompt:
            text = _MARK.sub("", answers.answer(prompt))
            return _VALUE.sub(lambda _: self._next(), text)
        old = _VALUE.search(prompt, [*_CURRENT.finditer(prompt)][-1].end())
        assert old is not None, "the current program has no VALUE"
        diff = f"<<<<<<< SEARCH\n{old[0]}\n=======\n{self._next()}\n>>>>>>> REPLACE\n"
        if "<DIFF>" in system:
            why = "<NAME>\nother_value\n</NAME>\n\n<DESCRIPTION>\nAnother value.\n</DESCRIPTION>\n\n"
            return f"{why}<DIFF>\n{diff}\n</DIFF>\n"
        return f"Another value.\n\n{diff}"

    def _next(self) -> str:
        with self._lock:
            return f"VALUE = {next(self._numbers)}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body leave in one packet

            def do_POST(self) -> None:
                """Answer; what is no valid question gets status 400, and is kept for the report."""
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = 200, {}
                try:
                    answer = model.complete(question)
                except (KeyError, IndexError, AssertionError) as error:
                    model.refused = f"the stub model does not know this prompt: {error!r}"
                    status = 400
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        return Handler


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
