"""A real server on the loopback interface that behaves as GPU MODE's service does, its failures included.

It keeps submissions, streams or queues them, and judges by words in the file: `syntax error`, `crash`, `wrong`, `slow`,
`hack`, `secret`; anything else is right. `Service.faults` are what happens to the next requests.
"""

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
CLI_ID = "11111111-2222-3333-4444-abcdefabcdef"
MEANS_NS = (2_000.0, 8_000.0)

TASK_PY = """from typing import TypeVar
import torch

input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor])
output_t = TypeVar("output_t", bound=torch.Tensor)
"""
REFERENCE_PY = """import torch
from task import input_t, output_t


def generate_input(rows: int, cols: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda").manual_seed(seed)
    one = torch.randn(rows, cols, generator=gen, device="cuda")
    return one, torch.empty_like(one)


def ref_kernel(data: input_t) -> output_t:
    one, out = data
    out[...] = one * 2 + 1
    return out


def check_implementation(data, output):
    expected = ref_kernel(data)
    same = torch.allclose(output, expected, rtol=1e-5, atol=1e-5)
    return same, "" if same else "mismatch found"
"""
TESTS = [{"rows": 4, "cols": 8, "seed": 1}, {"rows": 8, "cols": 16, "seed": 2}]
BENCHMARKS = [{"rows": 64, "cols": 32, "seed": 3}, {"rows": 128, "cols": 32, "seed": 4}]


def board(**changes: Any) -> Json:
    """A leaderboard as `GET /leaderboards` tells it."""
    task = {
        "lang": "py",
        "files": {"submission.py": "@SUBMISSION@", "task.py": TASK_PY, "reference.py": REFERENCE_PY, "eval.py": "..."},
        "config": {"main": "eval.py"},
        "tests": TESTS,
        "benchmarks": BENCHMARKS,
        "ranking_by": "geom",
        "test_timeout": 60,
        "benchmark_timeout": 60,
        "ranked_timeout": 60,
        "libraries": [],
        "multi_gpu": False,
        "seed": 424242,
    }
    row = {"id": 7, "name": "twice", "deadline": "2030-01-01T00:00:00+00:00", "description": "Twice and one more."}
    return {**row, "gpu_types": ["H100", "A100"], "secret_seed": 424242, "task": {**task, **changes}}


@dataclass
class Fault:
    """What one request meets instead of an answer."""

    status: int = 0
    detail: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    drop: str = ""
    """`before`: nothing is done. `after`: it is done, and the connection closes. `middle`: so it does in a stream."""
    event: Json | None = None
    """An error inside a stream."""


class PopcornServer:
    """`requests`: (method, path) of all; `ids`: the cli ids that came; `polls`: how often a job says that it runs."""

    def __init__(self) -> None:
        self.boards = [board()]
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.ids: list[str | None] = []
        self.submissions: dict[int, Json] = {}
        self.polls = 2
        self.means_ns = MEANS_NS
        self.busiest = self._busy = 0
        self.during: Callable[[], None] = lambda: None
        """Called while a submission is in flight."""
        self.afterwards: Callable[[], None] = lambda: None
        """Called when one was taken, before the answer."""
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._get(self)

            def do_POST(self) -> None:
                with outer._lock:
                    outer._busy += 1
                    outer.busiest = max(outer.busiest, outer._busy)
                try:
                    outer._post(self)
                finally:
                    with outer._lock:
                        outer._busy -= 1

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def posts(self) -> list[str]:
        """The paths of all submissions that were tried."""
        return [path for method, path in self.requests if method == "POST"]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    # -- requests --------------------------------------------------------------------------------

    def _get(self, to: BaseHTTPRequestHandler) -> None:
        self._note(to)
        if self._faulty(to):
            return
        path = to.path.partition("?")[0]
        if path == "/leaderboards":
            _send(to, 200, self.boards)
        elif path == "/user/submissions":
            rows = [{"id": number, "file_name": row["file_name"]} for number, row in self.submissions.items()]
            _send(to, 200, rows[::-1])
        elif found := re.fullmatch(r"/user/submissions/(\d+)", path):
            self._tell(to, int(found[1]))
        else:
            _send(to, 404, {"detail": "Not Found"})

    def _tell(self, to: BaseHTTPRequestHandler, number: int) -> None:
        row = self.submissions.get(number)
        if row is None:
            _send(to, 404, {"detail": "Submission not found"})
            return
        row["polls"] -= 1
        running = row["polls"] >= 0
        streamed = row["job"] is None
        status = None if streamed else "running" if running else row["job"]["status"]
        answer = {"id": number, "file_name": row["file_name"], "code": row["code"], "done": not running}
        error = None if running or streamed else row["job"].get("error")
        job = {"status": status, "error": error, "last_heartbeat": None}
        _send(to, 200, {**answer, "runs": [] if running else row["runs"], "job": job, "runner_queue": None})

    def _post(self, to: BaseHTTPRequestHandler) -> None:
        body = to.rfile.read(int(to.headers["Content-Length"]))
        self._note(to)
        self.during()
        name = re.search(rb'filename="([^"]*)"', body)
        code = body.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--", 1)[0].decode()
        assert name
        fault = self.faults[0] if self.faults else Fault()
        if fault.drop not in ("after", "middle") and self._faulty(to):
            return
        *_, leaderboard, gpu, mode = to.path.split("/")
        if refusal := self._refusal(to, leaderboard, gpu, code):
            _send(to, *refusal)
            return
        self.afterwards()
        number = len(self.submissions) + 1
        queued = to.path.startswith("/submission/")
        self.submissions[number] = {
            "file_name": name[1].decode(),
            "code": code,
            "polls": self.polls,
            "job": _job(code, mode) if queued else None,
            "runs": self._rows(code, mode),
        }
        if fault.drop == "after":
            self.faults.pop(0)
            to.close_connection = True
        elif queued:
            details = {"details": {"id": number, "job_status_id": number}, "status": "accepted", "runner_queue": {}}
            _send(to, 202, details)
        else:
            self._stream(to, code, mode, fault)

    def _stream(self, to: BaseHTTPRequestHandler, code: str, mode: str, fault: Fault) -> None:
        to.send_response(200)
        to.send_header("Content-Type", "text/event-stream; charset=utf-8")
        to.send_header("Connection", "close")
        to.end_headers()
        to.close_connection = True
        for elapsed in (0.0, 15.0):
            to.wfile.write(_event("status", {"status": "processing", "elapsed_time": elapsed}))
        if fault.drop == "middle":
            self.faults.pop(0)
            return
        if fault.event is not None:
            self.faults.pop(0)
            to.wfile.write(_event("error", {"status": "error", **fault.event}))
            return
        result = {"status": "success", "results": [self._full(code, mode)], "reports": [f"report of {mode}"]}
        to.wfile.write(_event("result", result))

    def _note(self, to: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self.requests.append((to.command, to.path.partition("?")[0]))
            self.ids.append(to.headers["X-Popcorn-Cli-Id"])

    def _faulty(self, to: BaseHTTPRequestHandler) -> bool:
        if not self.faults or self.faults[0].event is not None:
            return False
        fault = self.faults.pop(0)
        if fault.drop:
            to.close_connection = True
        else:
            _send(to, fault.status, {"detail": fault.detail}, fault.headers)
        return True

    def _refusal(self, to: BaseHTTPRequestHandler, leaderboard: str, gpu: str, code: str) -> tuple[int, Json] | None:
        if to.headers["X-Popcorn-Cli-Id"] != CLI_ID:
            return 401, {"detail": f"Invalid or unauthorized X-Popcorn-Cli-Id {to.headers['X-Popcorn-Cli-Id']}"}
        if leaderboard != "twice":
            text = f"Internal server error while validating leaderboard/GPU: Leaderboard {leaderboard} does not exist."
            return 500, {"detail": text}
        if gpu not in self.boards[0]["gpu_types"]:
            return 400, {"detail": f"GPU type '{gpu}' is not supported for leaderboard 'twice'. Supported GPUs: H100"}
        if "stream" in code.lower():
            return 500, {"detail": "Your code contains work on another stream. This is not allowed."}
        return None

    # -- what it says of a file ------------------------------------------------------------------

    def _full(self, code: str, mode: str) -> Json:
        runs = {
            one: self._one(code, one) for one in (("test", "benchmark", mode) if mode == "leaderboard" else (mode,))
        }
        system = {"gpu": "NVIDIA H100", "device_count": 1, "cpu": "a CPU", "runtime": "CUDA", "platform": "Linux"}
        return {"success": True, "error": "", "system": system, "runs": runs}

    def _one(self, code: str, mode: str) -> Json:
        run = {
            "success": True,
            "passed": True,
            "command": "python3 eval.py",
            "stdout": "",
            "stderr": "",
            "exit_code": 0,
        }
        run |= {"duration": 1.5, "result": self._result(mode)}
        compilation = None
        if "syntax error" in code:
            run |= {
                "success": False,
                "passed": False,
                "exit_code": 1,
                "result": {"test-count": "2", "test.0.spec": "a"},
            }
            run["stderr"] = 'File "submission.py", line 3\n    def (:\nSyntaxError: invalid syntax\n'
        elif "no build" in code:
            compilation = {"nvcc_found": True, "success": False, "stderr": "k.cu(3): error: expected a ;", "stdout": ""}
            run |= {"success": False, "passed": False, "exit_code": 1, "result": {}}
        elif "crash" in code:
            run |= {"success": False, "passed": False, "exit_code": 1, "result": {"test-count": "2"}}
            run["stderr"] = "Traceback (most recent call last):\n  ...\nRuntimeError: illegal memory access\n"
        elif "slow" in code:
            run |= {"success": False, "passed": False, "exit_code": 114, "result": {}}
        elif "wrong" in code:
            run |= {"passed": False, "exit_code": 112, "result": _wrong(mode)}
        return {"start": "x", "end": "y", "compilation": compilation, "run": run, "profile": None}

    def _result(self, mode: str) -> Json:
        """Lines of text, cases with their keys sorted."""
        if mode == "test":
            rows = {f"test.{n}.spec": _spec(case) for n, case in enumerate(TESTS)}
            return {"test-count": "2", **rows, **{f"test.{n}.status": "pass" for n in range(2)}, "check": "pass"}
        found: Json = {"benchmark-count": "2", "check": "pass"}
        for number, (case, mean) in enumerate(zip(BENCHMARKS, self.means_ns, strict=True)):
            row = {"spec": _spec(case), "runs": 100, "mean": mean, "std": 3.0, "err": 0.3, "best": mean * 0.9}
            found |= {f"benchmark.{number}.{key}": str(value) for key, value in {**row, "worst": mean * 1.5}.items()}
        return found

    def _rows(self, code: str, mode: str) -> list[Json]:
        """The same, as a submission that is polled tells it: no output, and of the ranked run only a score."""
        rows = []
        for one in ("test", "benchmark", "leaderboard") if mode == "leaderboard" else (mode,):
            run = self._one(code, one)["run"]
            score = "4.0e-06" if one == "leaderboard" and run["passed"] else None
            row = {"start_time": "x", "end_time": "y", "mode": one, "secret": False, "runner": "H100", "score": score}
            rows.append({**row, "passed": run["passed"], **({"result": run["result"]} if score is None else {})})
            if not run["passed"]:
                return rows
        if mode == "leaderboard":
            passed = "secret" not in code
            rows.append({"mode": mode, "secret": True, "runner": "H100", "score": None, "passed": passed})
        return rows


def _job(code: str, mode: str) -> Json:
    if "hack" in code:
        return {"status": "hacked", "error": "Submission rejected by KernelGuard pre-check (timer)."}
    if "secret" in code and mode == "leaderboard":
        return {"status": "failed", "error": "secret validation failed on H100; submission will not appear"}
    return {"status": "succeeded", "error": None}


def _wrong(mode: str) -> Json:
    kind = "test" if mode == "test" else "benchmark"
    case = (TESTS if mode == "test" else BENCHMARKS)[0]
    row = {f"{kind}.0.spec": _spec(case), f"{kind}.0.status": "fail", f"{kind}.0.error": "mismatch found! 3 elements"}
    return {f"{kind}-count": "1", **row, "check": "fail"}


def _spec(case: Json) -> str:
    return "; ".join(f"{key}: {case[key]}" for key in sorted(case))


def _event(name: str, data: Json) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _send(to: BaseHTTPRequestHandler, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    data = json.dumps(body).encode()
    to.send_response(status)
    to.send_header("Content-Type", "application/json")
    to.send_header("Content-Length", str(len(data)))
    for name, value in (headers or {}).items():
        to.send_header(name, value)
    to.end_headers()
    to.wfile.write(data)
