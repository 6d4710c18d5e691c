"""Runs a vendor's tool, and the kernel that it watches, in a sandbox of their own.

The sandbox can read the kernel, the reference, the tool's folder and ksflow's package, has the GPU's files, an
environment without keys, and limits on time, memory, disk and processes. It leaves nothing behind. Its output is
untrusted: the tool's messages, and the text of the files to collect, both limited in length.
"""

import json
import os
import queue
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ksflow.errors import UNREADABLE, ConfigError
from ksflow.evaluation.compilers.client import CompileServer, box_request, boxed_environment, stopped
from ksflow.evaluation.processes.device_lock import device_files, runtime_folders
from ksflow.evaluation.profiling.workload import WORKLOAD, Workload
from ksflow.home import PACKAGE
from ksflow.records import Json

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
_NOT_STARTED = re.compile(r"\[Errno \d+\] ")
_CLOSED = f"sandboxes cannot run {sys.executable}: use a Python that every user may read and run"


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


def refusal(output: str, reasons: Mapping[str, str]) -> str:
    """Return why a tool brought nothing, with the remedy, by its output; "" if the output does not tell."""
    return next((words for text, words in reasons.items() if text in output), "")


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
        return ToolResult(status, output, fault=_CLOSED if _NOT_STARTED.match(output) else "")
    try:
        content = json.loads(result.read_text("utf-8", "replace"))
        files = {str(name): text for name, text in content["files"].items() if isinstance(text, str)}
        return ToolResult(int(content["status"]), output, files=files)
    except UNREADABLE:
        return ToolResult(-1, output, fault="the output of its sandbox cannot be read: the kernel may have written it")
