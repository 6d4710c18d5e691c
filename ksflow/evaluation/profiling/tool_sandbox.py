"""Runs a vendor's tool, and the kernel that it watches, in a sandbox of their own.

The sandbox can read the kernel, the reference, the tool's folder and ksflow's package, has the GPU's files, an
environment without keys, and limits on time, memory, disk and processes. It leaves nothing behind. Its output is
untrusted: the tool's messages, and the text of the files to collect, both limited in length.
"""

import json
import math
import os
import queue
import signal
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ksflow.errors import UNREADABLE, ConfigError
from ksflow.evaluation.compilers.client import CompileServer, box_request, boxed_environment, python_fault, stopped
from ksflow.evaluation.processes.device_lock import device_files, runtime_folders
from ksflow.home import PACKAGE
from ksflow.kernels.hardware.cost_model import work
from ksflow.records import Case, Json, Problem, Scalar

WORKLOAD = ".workload.json"  # the program's input file in the sandbox
_REFERENCE, _ARTEFACT = ".reference.py", ".artefact"
_LAST = 300  # characters quoted of a tool's last message
_SCRIPT, _ORDER, _RESULT = ".tool_wrapper.py", ".tool.json", "made.json"
_DRIVER_MB = 12 << 10  # host memory of a GPU's driver, torch and a tool
_DISK_MB, _FILE_MB, _PROCESSES, _OPEN_FILES = 2048, 192, 512, 1024
_THREADS = 8  # threads that may compute all the time before the CPU limit ends a sandbox earlier than the wall limit
_BESIDE_BIN = ("nsight-compute*", "compute-sanitizer*", "extras", "lib64", "targets")
"""Parts of NVIDIA's tools, beside their `bin`."""
_INSTALLED = ("/opt/nvidia",)
_IDLE: "queue.SimpleQueue[CompileServer]" = queue.SimpleQueue()
"""Idle processes that start sandboxes: tools that run at the same time need one each."""
TEXTS = tomllib.loads(Path(__file__).with_name("tools.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Workload:
    """One kernel on one case."""

    mode: str  # `launch`: device code in a container; `native`: a shared object; `torch`: a Python file
    file: str  # path of the container or shared object; or the name of the Python file among `files`
    reference: str  # path of the problem's reference.py
    case: str
    params: Mapping[str, Scalar]
    seed: int
    dims: tuple[int, ...]
    outputs: int  # number of outputs, the last of the tensors
    memory_mb: int  # host memory of the kernel
    device: str = "cuda"  # torch's name, on AMD too
    calls: int = 3  # counters are read in the last one
    files: Mapping[str, str] = field(default_factory=dict)  # of a Python kernel: name -> text

    def texts(self) -> dict[str, str]:
        """Return the sandbox's text files: name -> text."""
        order = asdict(self) | {"file": self.file if self.mode == "torch" else _ARTEFACT, "reference": _REFERENCE}
        del order["files"]
        return {**self.files, WORKLOAD: json.dumps(order), _REFERENCE: Path(self.reference).read_text(encoding="utf-8")}

    def copies(self) -> dict[str, str]:
        """Return the sandbox's copied files: name -> path."""
        return {} if self.mode == "torch" else {_ARTEFACT: self.file}


def workloads(
    problem: Problem, mode: str, file: str, files: Mapping[str, str] | None = None, at: str = ""
) -> tuple[Workload, ...]:
    """Return a kernel on the case `at`, or else on the smallest benchmark and the smallest test, for tools that are too
    slow for the benchmark."""
    named = [case for case in (*problem.tests, *problem.benchmarks) if case.name == at][:1]
    return tuple(
        Workload(
            mode=mode,
            file=file,
            reference=str(Path(problem.root, "reference.py")),
            case=case.name,
            params=dict(case.params),
            seed=case.seed,
            dims=tuple(int(case.params[name]) for name in problem.dims),
            outputs=sum(arg.role == "out" for arg in problem.args),
            memory_mb=problem.limits.memory_mb,
            files=files or {},
        )
        for case in named or (smallest(problem, cases) for cases in (problem.benchmarks, problem.tests) if cases)
    )


def smallest(problem: Problem, cases: Sequence[Case]) -> Case:
    """Return the case with the least work: tools slow a kernel down a thousandfold."""

    def size(case: Case) -> float:
        need = work(problem, case)
        numbers = [value for value in case.params.values() if isinstance(value, int) and value > 0]
        return need.flops or need.bytes or math.prod(numbers)

    return min(cases, key=size)


@dataclass(frozen=True)
class ToolResult:
    """Result of a tool's run."""

    status: int
    output: str  # both streams, interleaved
    timed_out: bool = False
    files: Mapping[str, str] = field(default_factory=dict)  # collected files: name -> text
    fault: str = ""  # why the tool could not run, or was ended; empty if it ended by itself or by the time limit

    @property
    def last_words(self) -> str:
        """The fault, or else the last line of the output with text."""
        lines = [line.strip("= \t") for line in self.output.splitlines()]
        last = next((line for line in reversed(lines) if line), f"it ended with status {self.status}")
        return (self.fault or last)[:_LAST]


def program() -> list[str]:
    """Return the command of the program that the tools watch, inside the sandbox."""
    return [sys.executable, "-P", "-m", "ksflow.evaluation.profiling.program", WORKLOAD]


def refusal(tool: str, output: str) -> str:
    """Return why a tool brought nothing, with the remedy, by its output; "" if the output does not tell."""
    return next((words for text, words in TEXTS["refusals"][tool].items() if text in output), "")


def run(
    command: Sequence[str],
    workload: Workload,
    timeout_s: float,
    extra: Mapping[str, str] | None = None,
    collect: Sequence[str] = (),
) -> ToolResult:
    """Run a command in a sandbox with the workload's files; after the time-out the whole sandbox is killed.

    extra: more of the environment. collect: patterns of files in the sandbox's folder whose text is returned. Never
    raises for a tool or a kernel; if no sandbox starts, the result has the `fault`.
    """
    memory_mb = workload.memory_mb + _DRIVER_MB
    options = _options(command[0], workload, timeout_s, extra or {})
    files = {
        **workload.texts(),
        _SCRIPT: Path(__file__).with_name("tool_wrapper.py").read_text(encoding="utf-8"),
        _ORDER: json.dumps({"command": list(command), "collect": list(collect)}),
    }
    with TemporaryDirectory(prefix="ksflow-tool-") as folder, _idle_server() as server:
        result = Path(folder, _RESULT)
        script = [sys.executable, "-I", "-S", _SCRIPT]
        request = box_request(script, files, result, timeout_s, memory_mb, **options)
        try:
            answer = server.ask(request, timeout_s)
            why = stopped(answer, "tool", timeout_s, memory_mb)
        except ConfigError as error:
            return ToolResult(-1, "", fault=str(error))
        return _ran(answer, why, result)


def _options(tool: str, workload: Workload, timeout_s: float, extra: Mapping[str, str]) -> Json:
    options: Json = {
        "profiler": True,
        "kind": "json",
        "environment": boxed_environment(extra),
        "copies": workload.copies(),
        "cpu_s": int(timeout_s * _THREADS) + 5,
        "file_mb": _FILE_MB,
        "disk_mb": _DISK_MB,
        "processes": _PROCESSES,
        "open_files": _OPEN_FILES,
        "extra": _readable(tool),
    }
    if workload.device != "cpu":
        options["device"] = {"platform": workload.device}
        options["devices"] = list(device_files())
        options["extra"] += runtime_folders()
    return options


def _readable(tool: str) -> list[str]:
    readable = [PACKAGE, Path(PACKAGE, "stages").resolve(), *map(Path, _INSTALLED)]
    for file in dict.fromkeys((Path(tool), Path(tool).resolve())):
        folder = file.parent
        if Path(os.path.expanduser("~")).is_relative_to(folder):  # for a program in a home, not the whole home
            readable.append(file)
            continue
        readable.append(folder)
        if folder.name == "bin":
            readable += [path for pattern in _BESIDE_BIN for path in folder.parent.glob(pattern)]
    return list(dict.fromkeys(str(path) for path in readable if path.is_absolute() and path.exists()))


@contextmanager
def _idle_server() -> Iterator[CompileServer]:
    try:
        server = _IDLE.get_nowait()
    except queue.Empty:
        server = CompileServer()
    yield server
    _IDLE.put(server)


def _ran(answer: Mapping[str, Any], why: str, result: Path) -> ToolResult:
    """Return the result of a tool in a sandbox. why: the sandbox ended the tool."""
    output = answer["log"]
    if answer["timed_out"]:
        return ToolResult(-signal.SIGKILL, output, timed_out=True)
    if why:
        return ToolResult(-1, output, fault=f"it {why}")
    if status := int(answer["words"]["exit"]):
        return ToolResult(status, output, fault=python_fault(output))
    try:
        content = json.loads(result.read_text("utf-8", "replace"))
        files = {str(name): text for name, text in content["files"].items() if isinstance(text, str)}
        return ToolResult(int(content["status"]), output, files=files)
    except UNREADABLE:
        return ToolResult(-1, output, fault="the output of its sandbox cannot be read: the kernel may have written it")
