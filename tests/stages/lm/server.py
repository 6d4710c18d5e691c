"""A real server on the loopback interface that stands in for model providers.

It speaks OpenAI's chat completions, Anthropic's messages and Gemini's generateContent, streamed and not, each with
errors in its own shape, and fails in every way that a provider or the way to it can fail.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from typing import Any, ClassVar

from ksflow.lm import Model
from ksflow.lm.answers import answer

Json = dict[str, Any]
TOKENS_IN, TOKENS_OUT = 1000, 500
"""What every answer is said to have taken."""


def counts(prompt: str) -> Json | None:
    """What an answer to a long prompt has taken; None: the usual."""
    tokens_in = len(prompt) // 4
    usage = {"prompt_tokens": tokens_in, "completion_tokens": TOKENS_OUT, "total_tokens": tokens_in + TOKENS_OUT}
    return usage if tokens_in > 2 * TOKENS_IN else None


@dataclass
class Reply:
    """What the server says to one request."""

    text: str = ""
    """The answer, or what is wrong."""
    status: int = 200
    finish: str = "stop"
    """stop, length, filter: said in the protocol's own word."""
    refusal: str = ""
    """What the model says instead of an answer; OpenAI has a field for it."""
    code: str = ""
    """Of an error, where the protocol has one."""
    counted: bool = True
    """Says how many tokens it took."""
    zeros: bool = False
    """Says that it took none."""
    usage: Json | None = None
    """OpenAI's counts of tokens, instead of the usual ones."""
    model: str = ""
    """The name of the model that answers."""
    cached: int = 0
    """So many of the prompt's came out of a cache."""
    headers: dict[str, str] = field(default_factory=dict)
    body: Json | None = None
    """All that it says, whatever the protocol."""
    fault: str = ""
    """stall: nothing until `Provider.release`. drip: a byte now and then. cut: the connection closes before a word.
    truncate: it closes in the middle. garble: not JSON. unfinished: a stream that ends without its end.
    half: half a stream, then a stall."""


class Provider:
    """`reply` makes a `Reply`, or (status, text), of a prompt; `requests`, `paths` and `keys` are what was asked.

    Whoever asks for a sign of life gets `greeting`, and is counted in `greeted` alone.
    """

    def __init__(self) -> None:
        self.reply: Callable[[str], Reply | tuple[int, str]] = lambda prompt: Reply(
            answer(prompt), usage=counts(prompt)
        )
        self.greeting, self.greeted = Reply("yes"), 0
        self.requests: list[Json] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.finish = "stop"
        """How answers end that do not say it themselves."""
        self.drip_s = 0.05
        self.release = threading.Event()
        self.busiest = 0
        """The most requests there were at the same time."""
        self._busy = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            wbufsize = -1
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                try:
                    outer._serve(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Stop it, and let go whoever is stalled."""
        self.release.set()
        self.server.shutdown()
        self.server.server_close()

    @property
    def root(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def url(self) -> str:
        """The address as OpenAI's clients take it."""
        return f"{self.root}/v1"

    def model(self, **changes: Any) -> Model:
        """A model that is reached here."""
        settings: Json = {"name": "local", "provider": "openai", "api_base": self.url, "retries": 0, **changes}
        return Model(**settings)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        request = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        dialect = _dialect(handler.path)
        if dialect.prompt(request).startswith("Are you there?"):
            self.greeted += 1
            self._answer(handler, dialect, self.greeting, request.get("stream") or "streamGenerate" in handler.path)
            return
        names = ("Authorization", "x-api-key", "x-goog-api-key", "api-key")
        with self._lock:
            self._busy += 1
            self.busiest = max(self.busiest, self._busy)
            self.requests.append(request)
            self.paths.append(handler.path)
            self.keys.append(next((handler.headers[name] for name in names if handler.headers[name]), None))
        try:
            said = self.reply(dialect.prompt(request))
            reply = said if isinstance(said, Reply) else Reply(said[1], said[0], self.finish)
            self._answer(handler, dialect, reply, request.get("stream") or "streamGenerate" in handler.path)
        finally:
            with self._lock:
                self._busy -= 1

    def _answer(self, handler: BaseHTTPRequestHandler, dialect: "type[Dialect]", reply: Reply, stream: bool) -> None:
        if reply.fault in ("stall", "cut"):
            if reply.fault == "stall":
                self.release.wait(600)
            handler.close_connection = True
            return
        if stream and reply.status == 200:
            self._send_stream(handler, dialect, reply)
            return
        body = reply.body or (dialect.body(reply) if reply.status == 200 else dialect.error(reply))
        self._send(handler, reply, b"<html>{" if reply.fault == "garble" else json.dumps(body).encode())

    def _send(self, handler: BaseHTTPRequestHandler, reply: Reply, body: bytes) -> None:
        _head(handler, reply, "application/json", {"Content-Length": str(len(body))})
        if reply.fault == "drip":
            for byte in body:
                handler.wfile.write(bytes([byte]))
                handler.wfile.flush()
                if self.release.wait(self.drip_s):
                    break
        handler.wfile.write(body[: len(body) // 2] if reply.fault == "truncate" else body)
        handler.close_connection = bool(reply.fault)

    def _send_stream(self, handler: BaseHTTPRequestHandler, dialect: "type[Dialect]", reply: Reply) -> None:
        _head(handler, reply, "text/event-stream", {"Transfer-Encoding": "chunked"})
        events = list(dialect.events(reply))
        if reply.fault in ("truncate", "unfinished", "half", "garble"):
            events = events[: len(events) // 2]
        for event in [*events, "data: {nonsense\n\n"] if reply.fault == "garble" else events:
            data = event.encode()
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            handler.wfile.flush()
            if reply.fault == "drip" and self.release.wait(self.drip_s):
                return
        if reply.fault == "half":
            self.release.wait(600)
        if reply.fault in ("truncate", "half"):
            handler.close_connection = True
            return
        handler.wfile.write(b"0\r\n\r\n")


def _head(handler: BaseHTTPRequestHandler, reply: Reply, kind: str, headers: dict[str, str]) -> None:
    handler.send_response(reply.status)
    handler.send_header("Content-Type", kind)
    if reply.fault:
        headers = {**headers, "Connection": "close"}
    for name, value in {**headers, **reply.headers}.items():
        handler.send_header(name, value)
    handler.end_headers()


class Dialect:
    """One protocol: how it asks, answers and fails. This one is OpenAI's chat completions."""

    FINISH: ClassVar[Json] = {"stop": "stop", "length": "length", "filter": "content_filter"}
    USAGE: ClassVar[Json] = {
        "prompt_tokens": TOKENS_IN,
        "completion_tokens": TOKENS_OUT,
        "total_tokens": TOKENS_IN + TOKENS_OUT,
    }

    @classmethod
    def prompt(cls, request: Json) -> str:
        """What the user said last, in one message or in several."""
        last = takewhile(lambda message: message["role"] == "user", reversed(request["messages"]))
        contents = [message["content"] for message in last][::-1]
        parts = (part for content in contents for part in ([content] if isinstance(content, str) else content))
        return "".join(part if isinstance(part, str) else part.get("text", "") for part in parts)

    @classmethod
    def body(cls, reply: Reply) -> Json:
        message = {"role": "assistant", "content": None if reply.refusal else reply.text}
        if reply.refusal:
            message["refusal"] = reply.refusal
        choice = {"index": 0, "message": message, "finish_reason": cls.FINISH[reply.finish]}
        made = {"id": "1", "object": "chat.completion", "created": 1, "model": reply.model, "choices": [choice]}
        return made | cls._usage(reply)

    @classmethod
    def _usage(cls, reply: Reply) -> Json:
        usage = dict.fromkeys(cls.USAGE, 0) if reply.zeros else reply.usage or cls.USAGE
        usage = usage | {"prompt_tokens_details": {"cached_tokens": reply.cached}} if reply.cached else usage
        return {"usage": usage} if reply.counted else {}

    @classmethod
    def error(cls, reply: Reply) -> Json:
        return {"error": {"message": reply.text, "type": "error", "code": reply.code or None}}

    @classmethod
    def events(cls, reply: Reply) -> Iterator[str]:
        frame = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "local"}
        for piece in _pieces(reply.text):
            yield _event({**frame, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
        yield _event({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": cls.FINISH[reply.finish]}]})
        yield _event({**frame, "choices": [], **cls._usage(reply)})
        yield "data: [DONE]\n\n"


class Anthropic(Dialect):
    FINISH: ClassVar[Json] = {"stop": "end_turn", "length": "max_tokens", "filter": "refusal"}
    KINDS: ClassVar[Json] = {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        429: "rate_limit_error",
    }

    @classmethod
    def body(cls, reply: Reply) -> Json:
        return cls._message(reply, [{"type": "text", "text": reply.text}]) | {"stop_reason": cls.FINISH[reply.finish]}

    @classmethod
    def _message(cls, reply: Reply, content: list[Json]) -> Json:
        usage = {"input_tokens": TOKENS_IN - reply.cached, "output_tokens": TOKENS_OUT}
        usage["cache_read_input_tokens"] = reply.cached
        return {"id": "1", "type": "message", "role": "assistant", "model": "", "content": content, "usage": usage}

    @classmethod
    def error(cls, reply: Reply) -> Json:
        kind = reply.code or cls.KINDS.get(reply.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": reply.text}}

    @classmethod
    def events(cls, reply: Reply) -> Iterator[str]:
        yield _event({"type": "message_start", "message": cls._message(reply, []) | {"stop_reason": None}})
        yield _event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        for piece in _pieces(reply.text):
            delta = {"type": "text_delta", "text": piece}
            yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
        yield _event({"type": "content_block_stop", "index": 0})
        end = {"type": "message_delta", "delta": {"stop_reason": cls.FINISH[reply.finish]}}
        yield _event(end | {"usage": {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT}})
        yield _event({"type": "message_stop"})


class Gemini(Dialect):
    FINISH: ClassVar[Json] = {"stop": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY"}
    STATUS: ClassVar[Json] = {
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        429: "RESOURCE_EXHAUSTED",
    }

    @classmethod
    def prompt(cls, request: Json) -> str:
        return "".join(part.get("text", "") for part in request["contents"][-1]["parts"])

    @classmethod
    def body(cls, reply: Reply) -> Json:
        if reply.refusal:
            return {"promptFeedback": {"blockReason": reply.refusal}, "usageMetadata": {"promptTokenCount": TOKENS_IN}}
        return cls._chunk(reply.text) | cls._end(reply, reply.text)

    @classmethod
    def _chunk(cls, text: str) -> Json:
        return {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}]}

    @classmethod
    def _end(cls, reply: Reply, text: str) -> Json:
        chunk = cls._chunk(text)
        chunk["candidates"][0]["finishReason"] = cls.FINISH[reply.finish]
        tokens_in = reply.usage["prompt_tokens"] if reply.usage else TOKENS_IN
        usage = {"promptTokenCount": tokens_in, "candidatesTokenCount": TOKENS_OUT - 100, "thoughtsTokenCount": 100}
        return chunk | {"usageMetadata": usage | {"totalTokenCount": tokens_in + TOKENS_OUT}}

    @classmethod
    def error(cls, reply: Reply) -> Json:
        status = reply.code or cls.STATUS.get(reply.status, "INTERNAL")
        return {"error": {"code": reply.status, "message": reply.text, "status": status}}

    @classmethod
    def events(cls, reply: Reply) -> Iterator[str]:
        *pieces, last = _pieces(reply.text)
        for piece in pieces:
            yield _event(cls._chunk(piece))
        yield _event(cls._end(reply, last))


class Converse(Dialect):
    """Bedrock's; not streamed."""

    FINISH: ClassVar[Json] = {"stop": "end_turn", "length": "max_tokens", "filter": "content_filtered"}

    @classmethod
    def body(cls, reply: Reply) -> Json:
        message = {"role": "assistant", "content": [{"text": reply.text}]}
        usage = {"inputTokens": TOKENS_IN, "outputTokens": TOKENS_OUT, "totalTokens": TOKENS_IN + TOKENS_OUT}
        return {
            "output": {"message": message},
            "stopReason": cls.FINISH[reply.finish],
            "usage": usage,
            "metrics": {"latencyMs": 1},
        }

    @classmethod
    def error(cls, reply: Reply) -> Json:
        return {"message": reply.text}


def _dialect(path: str) -> type[Dialect]:
    if "enerateContent" in path:
        return Gemini
    if path.endswith("/converse"):
        return Converse
    return Anthropic if path.partition("?")[0].endswith("/messages") else Dialect


def _pieces(text: str) -> list[str]:
    """In four."""
    size = len(text) // 4 + 1
    return [text[start : start + size] for start in range(0, max(len(text), 1), size)]


def _event(data: Json) -> str:
    kind = f"event: {data['type']}\n" if "type" in data else ""
    return f"{kind}data: {json.dumps(data)}\n\n"
