"""A small world for the llm stages, and a real server that stands in for a provider."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ksflow.protocols import transcript_to
from ksflow.records import (
    Arg,
    Call,
    Case,
    Choice,
    Evaluation,
    Experiment,
    Kernel,
    Origin,
    Population,
    Problem,
    Timing,
    Trial,
    Verdict,
)
from ksflow.stages.lm import Model
from ksflow.stages.lm.answers import answer

CODE = """// A kernel.
constexpr int MR = 8;  // tune: 4 6 8 12 | tile: rows
extern "C" void custom_kernel(const float *a, float *c, int64_t m, const int64_t *strides) {}
"""


class Provider:
    """An OpenAI-compatible server on the loopback interface. `reply` makes (status, text) of a prompt."""

    def __init__(self) -> None:
        self.reply: Callable[[str], tuple[int, str]] = lambda prompt: (200, answer(prompt))
        self.requests: list[dict] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.finish = "stop"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            wbufsize = -1
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(request)
                outer.paths.append(self.path)
                outer.keys.append(self.headers.get("Authorization"))
                messages = request.get("messages", [{}])
                status, text = outer.reply(messages[-1].get("content", ""))
                body = json.dumps(outer.body(status, text)).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def body(self, status: int, text: str) -> dict:
        if status != 200:
            return {"error": {"message": text, "type": "error", "code": None}}
        message = {"role": "assistant", "content": text}
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-5",
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500},
        }

    def model(self, **changes: object) -> Model:
        settings: dict = {"model": "openai/local", "api_base": self.url, "retries": 0, **changes}
        return Model(**settings)


@pytest.fixture
def provider(tmp_path, monkeypatch) -> Iterator[Provider]:
    monkeypatch.setenv("DSPY_CACHEDIR", str(tmp_path / "dspy"))
    made = Provider()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSPY_CACHEDIR", str(tmp_path_factory.mktemp("dspy")))
        yield


@pytest.fixture
def calls() -> Iterator[list[Call]]:
    kept: list[Call] = []
    transcript_to(kept.append)
    yield kept
    transcript_to(lambda call: None)


@pytest.fixture
def problem() -> Problem:
    cases = (Case("small", {"m": 16}, 1), Case("large", {"m": 512}, 2))
    return Problem(
        name="toy",
        title="Toy",
        description="Copy a to c.",
        statement="c = a, exactly.",
        root="/nowhere",
        reference="def ref_kernel(data):\n    return data[0]\n",
        languages=("cpp",),
        args=(Arg("a", "float32", "in"), Arg("c", "float32", "out")),
        dims=("m",),
        tests=cases[:1],
        benchmarks=cases,
        seeds=(),
    )


def accepted(small: float, large: float) -> Evaluation:
    timings = (Timing("small", small), Timing("large", large))
    return Evaluation(Verdict.ACCEPT, score_us=(small * large) ** 0.5, timings=timings)


@pytest.fixture
def population() -> Population:
    seed = Trial(
        "00001",
        Origin.SEED,
        kernel=Kernel("cpp", {"kernel.cpp": CODE}),
        evaluation=accepted(4.0, 100.0),
        name="kernel.cpp",
    )
    tried = Experiment("Unroll the loop.", "It is unrolled.", (0.0, 20.0), 10.0)
    faster = Trial(
        "00002",
        Origin.EXPERIMENT,
        ("00001",),
        tried,
        Kernel("cpp", {"kernel.cpp": CODE + "// unrolled\n"}, "Unrolled by 4."),
        evaluation=accepted(5.0, 50.0),
    )
    wrong = Trial(
        "00003",
        Origin.EXPERIMENT,
        ("00002", "00001"),
        tried,
        Kernel("cpp", {"kernel.cpp": CODE + "// wrong\n"}),
        evaluation=Evaluation(Verdict.INCORRECT, "c[3] is off", evidence={"seed": 7}),
    )
    return Population((seed, faster, wrong))


@pytest.fixture
def choice(population) -> Choice:
    return population.choose("00002", "00001", "because")
