"""Vendors' tools: what they are asked, what their output becomes, what each refusal is turned into; and the program
that they watch, run on this machine's CPU. The tools themselves are stand-ins that print what the real ones print.
Both run in real boxes, so a stand-in has its files beside itself, and looks by itself at what it is asked."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ksflow.evaluation.compilers import BuildResult
from ksflow.evaluation.processes.device_lock import DeviceBusy, lock_device, lock_file
from ksflow.evaluation.profiling import ncu, rocprof, sanitizer
from ksflow.evaluation.profiling.inspector import AcceptedKernel, Findings, Inspector
from ksflow.evaluation.profiling.summary import LINES
from ksflow.evaluation.profiling.tool_sandbox import WORKLOAD, ToolResult, Workload, program, run, smallest, workloads
from ksflow.evaluation.sandbox.levels import PRIVATE, probe
from ksflow.home import cache
from ksflow.records import Claim, Kernel, Problem, SanitizerFinding

Install = Callable[[str, str], None]

STALLS = {"long_scoreboard": 4.5, "barrier": 2.0, "gmma": 1.5, "wait": 0.5, "selected": 1.0, "new_reason": 0.5}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Name, shell script -> a program on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")

    def put(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return put


@pytest.fixture
def add(problem: Problem) -> Workload:
    """A Python kernel on the CPU, which leaves a line for each call."""
    return python_kernel(problem, "open('calls', 'a').write(f'{tuple(data[0].shape)}\\n')")


def python_kernel(problem: Problem, line: str) -> Workload:
    """One that does something beside, on the CPU."""
    text = f"import torch\ndef custom_kernel(data):\n    {line}\n    return torch.add(data[0], data[1], out=data[2])\n"
    return replace(workloads(problem, "torch", "kernel.py", {"kernel.py": text})[0], device="cpu")


def report(*launches: tuple[str, float, dict[str, float]]) -> str:
    """What ncu writes with `--csv --page raw`."""
    base = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream"]
    base += ["Block Size", "Grid Size"]
    name = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    figures = dict.fromkeys(ncu.METRICS, 10.0) | {name.format(reason): value for reason, value in STALLS.items()}
    names = [*base, *figures]
    units = [""] * len(base) + ["ns" if name.startswith("gpu__time") else "%" for name in figures]
    rows = [names, units]
    for index, (kernel, ns, other) in enumerate(launches):
        found = figures | {"gpu__time_duration.sum": ns} | other
        head = [str(index), "42", "python", "127.0.0.1", kernel, "1", "7", "(256, 1, 1)", "(8, 132, 1)"]
        rows.append([*head, *(f"{found[name]:,.2f}" for name in figures)])
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    return "\n".join(
        ["==PROF== Connected to process 42 (python3.12)", *lines, "==PROF== Disconnected from process 42", ""]
    )


DRAM = {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 71.0}


def test_a_report_becomes_a_page(tmp_path: Path) -> None:
    text = report(("gemm", 41_200.0, DRAM), ("transpose", 10_300.0, {}), ("gemm", 41_200.0, DRAM))
    page = ncu.outcome(text, ToolResult(0, ""), 60)["page"].splitlines()
    assert page[0] == (
        "gemm: 2 launches, 41.2 us each, 89% of the time; "
        "grid 8x132, block 256, 10 registers, 0.00977 KiB shared, 10 waves"
    )
    assert page[1] == "  bound by DRAM: 71 % of its peak"
    assert page[2].startswith(
        "  busy: compute (SM) 10 %, tensor cores 10 %, L1 and shared memory 10 %, L2 10 %, DRAM 71 %"
    )
    assert page[2].endswith("occupancy 10 % of 10 % that its resources allow")
    assert page[3].startswith("  stalls: long_scoreboard 45% (waits for global or local memory")
    assert [page[3].count(name) for name in ("barrier 20%", "gmma 15%", "wait 5%", "selected 1")] == [1, 1, 0, 0]
    assert page[4] == (
        "  global loads use 10 % of the bytes they move; global stores use 10 % of the bytes they move; "
        "bank conflicts are 100% of shared-memory cycles"
    )
    assert page[5].startswith("transpose: 10.3 us, 11% of the time; ")
    assert page[6].startswith("  bound by latency: no unit reaches 60 % of its peak, the busiest is")


def test_a_page_is_never_long() -> None:
    many = [(f"kernel_{index:03}", 1000.0 + index, {}) for index in range(200)]
    page = ncu.outcome(report(*many), ToolResult(0, ""), 60)["page"].splitlines()
    assert len(page) <= LINES
    assert page[0].startswith("kernel_199: ")
    assert page[-1].startswith("(193 more kernels, 96% of the time)")


def test_what_a_kernel_makes_a_tool_say_is_bounded() -> None:
    page = ncu.outcome(report(("k" * 100_000, 1000.0, {})), ToolResult(0, ""), 60)["page"]
    assert len(page) < 5000
    assert "returned no counters" in ncu.outcome(report(("k" * 200_000, 1000.0, {})), ToolResult(0, ""), 60)["refused"]
    endless = ToolResult(0, f"========= ERROR SUMMARY: {'9' * 10_000} errors")
    assert "no summary" in sanitizer.outcome("memcheck", endless, 60).refused


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("==ERROR== LibraryNotLoaded", "NVIDIA_DRIVER_CAPABILITIES=all"),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute.", "of the driver's CUDA version"),
        ("==ERROR== Profiling is not supported on device 0 as it uses the Windows Subsystem for Linux", "bare metal"),
        ("==WARNING== No kernels were profiled.", "no kernel was launched"),
        ("==ERROR== something new", "something new"),
        ("", "status 9"),
    ],
)
def test_a_refusal_is_one_sentence_with_its_remedy(said: str, remedy: str) -> None:
    found = ncu.outcome(f"==PROF== Connected to process 42\n{said}", ToolResult(9, said), 60)
    assert remedy in found["refused"]
    assert "\n" not in found["refused"]
    assert ncu.outcome("", ToolResult(-9, "", timed_out=True), 60) == {"refused": "ncu took longer than 60 s"}


@pytest.mark.slow
def test_ncu_watches_the_kernel_and_leaves_the_clocks_alone(install: Install, add: Workload, tmp_path: Path) -> None:
    (tmp_path / "bin/report.csv").write_text(report(("gemm", 41_200.0, DRAM)))
    install(
        "ncu",
        """if [ "$1" = --version ]; then echo 'Version 2025.3.1.0 (build 36398880)'; exit; fi
for words in '--clock-control none' '--profile-from-start off' '--csv --page raw' sm__throughput; do
    case "$*" in *"$words"*) ;; *) echo "not asked: $words"; exit 1;; esac
done
while [ "$1" != --log-file ]; do shift; done
report=$2; shift 2; "$@" || exit 1
[ "$(sort calls | uniq -c | tr -d ' ')" = '3(30000,)' ] && cp "$(dirname "$0")/report.csv" "$report" """,
    )
    found = ncu.profile(add, 60)
    assert found.tool == "Version 2025.3.1.0 (build 36398880)"
    assert found.case == "n30000"
    assert found.page.startswith("gemm: 41.2 us, 100% of the time")


def test_a_tool_that_is_missing_says_what_to_install(
    add: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if shutil.which("ncu", path="/usr/local/cuda/bin") or shutil.which("rocprofv3", path="/opt/rocm/bin"):
        pytest.skip("a vendor's tools are installed in their own folder")
    rows = [ncu.profile(add, 1), rocprof.profile(add, 1), *sanitizer.sanitize([add], 1)]
    assert ["install" in row.refused for row in rows] == [True] * 3


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_a_shared_object_gets_pointers_sizes_strides_and_a_stream(problem: Problem, tmp_path: Path) -> None:
    source, library = tmp_path / "k.cpp", tmp_path / "k.so"
    source.write_text(
        "#include <cstdint>\n#include <cstdio>\n"
        'extern "C" void custom_kernel(const float *a, const float *b, float *out, int64_t n, const int64_t *strides,'
        " void *stream) {\n"
        "for (int64_t i = 0; i < n; i++) out[i * strides[2]] = a[i] + b[i];\n"
        'printf("%ld %d\\n", (long)n, out[7] == a[7] + b[7]); fflush(stdout); }\n'
    )
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    largest = replace(problem, benchmarks=problem.benchmarks[-1:])
    asked = replace(workloads(largest, "native", str(library))[0], device="cpu", calls=2)
    assert run(program(), asked, 60) == ToolResult(0, "65536 1\n" * 2)


def test_the_smallest_benchmark_and_then_the_smallest_test_are_taken(problem: Problem) -> None:
    assert smallest(problem, problem.benchmarks).name == "n30000"
    assert [one.case for one in workloads(problem, "launch", "x")] == ["n30000", smallest(problem, problem.tests).name]
    by_work = replace(problem, work={"flops": "1e9 - n"})
    assert smallest(by_work, by_work.benchmarks).name == "n65536"


# -- the box ---------------------------------------------------------------------------------------

needs_walls = pytest.mark.skipif(probe().level not in PRIVATE, reason="needs boxes with a root of their own")


def processes(mark: str) -> list[int]:
    """Living processes of this machine with a word in their command line."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", name, "cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if mark in line.split("\0"):
            found.append(int(name))
    return found


def sleeper() -> str:
    """For how long to sleep, so that the process can be told from all others."""
    return str(10**6 + uuid.uuid4().int % 10**9)


def test_a_tool_that_hangs_is_killed_with_all_that_it_started(add: Workload) -> None:
    one, other = sleeper(), sleeper()
    script = f"setsid sleep {one} & sleep {other} & echo started; wait"
    for limit_s in (1, 10, 100):  # until it came so far
        done = run(["/bin/sh", "-c", script], add, limit_s)
        if done.output:
            break
    assert done.timed_out
    assert done.output == "started\n"
    assert processes(one) + processes(other) == []


def test_what_a_tool_leaves_behind_is_dead_when_it_has_ended(add: Workload) -> None:
    left = sleeper()
    done = run(["/bin/sh", "-c", f"setsid sleep {left} > /dev/null 2>&1 & echo done"], add, 60)
    assert (done.status, done.output) == (0, "done\n")
    assert processes(left) == []


def test_a_tools_environment_has_no_keys(add: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    done = run(
        ["/bin/sh", "-c", "env; cat /proc/*/environ | tr '\\0' '\\n'; echo ${EXTRA}"], add, 60, {"EXTRA": "given"}
    )
    assert "secret" not in done.output
    assert done.last_words == "given"


@needs_walls
def test_a_tool_sees_no_file_of_the_user(add: Workload, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-very-secret")
    (tmp_path / "key").chmod(0o644)
    script = f"cat {tmp_path}/key; ls -A {Path.home()}/.ssh {tmp_path}"
    done = run(["/bin/sh", "-c", script], add, 60)
    assert "secret" not in done.output
    assert done.output.count("No such file") == 3, done.output


@needs_walls
@pytest.mark.slow
def test_a_kernel_under_a_tool_reads_no_file_of_the_user(install: Install, problem: Problem, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-very-secret")
    (tmp_path / "key").chmod(0o644)
    install("watcher", 'echo watched; exec "$@"')
    kernel = python_kernel(problem, f"print(open({str(tmp_path / 'key')!r}).read())")
    done = run([str(tmp_path / "bin/watcher"), *program()], kernel, 120)
    assert done.output.startswith("watched\n")
    assert "secret" not in done.output
    assert "No such file or directory" in done.last_words


@needs_walls
def test_a_tool_traces_its_own_and_talks_to_itself_over_loopback(add: Workload) -> None:
    """What debuggers and profilers need of the system; a socket to the outside reaches nobody."""
    script = """
import ctypes, os, signal, socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"heard"), daemon=True).start()
print(socket.create_connection(server.getsockname(), 10).recv(9).decode())
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if not child:
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(7)
print(os.WIFSTOPPED(os.waitpid(child, 0)[1]))
libc.ptrace(7, child, 0, 0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    socket.create_connection(("192.0.2.1", 80), 5)
except OSError as error:
    print(error.strerror)
"""
    done = run([sys.executable, "-I", "-S", "-c", script], add, 60)
    assert done.output.splitlines() == ["heard", "True", "7", "Network is unreachable"]


def test_files_that_a_tool_writes_come_out_as_text(add: Workload) -> None:
    done = run(
        ["/bin/sh", "-c", f"mkdir a; echo b > a/c.csv; ln -s {WORKLOAD} d.csv; exit 3"], add, 60, collect=["**/*.csv"]
    )
    assert done == ToolResult(3, "", files={"a/c.csv": "b\n"})


def test_a_tool_that_is_not_there_says_so(add: Workload) -> None:
    done = run(["/nowhere/at/all"], add, 60)
    assert done.status
    assert "/nowhere/at/all" in done.last_words


# -- compute-sanitizer ---------------------------------------------------------------------------

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at gemm(const float *, float *, int)+0x70 in gemm.cu:25
=========     by thread (232,0,0) in block (3,0,0)
=========     Address 0x7f5c92600fa0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f5c92600000 of size 4000 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x8a2e] in python
=========
========= Invalid __global__ read of size 4 bytes
=========     at another(const float *, float *, int)+0x60
=========
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at gemm(float *)+0xb0
=========     and Read access at gemm(float *)+0xc0 [1024 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
UNSUPPORTED = (
    "========= COMPUTE-SANITIZER\n"
    '========= Error: Device not supported. Please refer to the "Supported Devices" section of the documentation'
    "\n=========\n========= ERROR SUMMARY: 2 errors\n"
)


def test_the_first_finding_names_kernel_thread_and_address() -> None:
    assert sanitizer.outcome("memcheck", ToolResult(0, MEMCHECK), 60) == SanitizerFinding(
        tool="memcheck",
        errors=2,
        finding="Invalid __global__ write of size 4 bytes at gemm(const float *, float *, int)+0x70 in gemm.cu:25 "
        "by thread (232,0,0) in block (3,0,0) Address 0x7f5c92600fa0 is out of bounds "
        "and is 1 bytes after the nearest allocation at 0x7f5c92600000 of size 4000 bytes",
    )
    assert sanitizer.outcome("racecheck", ToolResult(0, RACECHECK), 60) == SanitizerFinding(
        tool="racecheck",
        errors=1,
        finding="Error: Race reported between Write access at gemm(float *)+0xb0 "
        "and Read access at gemm(float *)+0xc0 [1024 hazards]",
    )
    assert sanitizer.outcome("initcheck", ToolResult(0, CLEAN), 60) == SanitizerFinding(tool="initcheck", errors=0)


def test_a_sanitizer_that_cannot_look_finds_nothing() -> None:
    for output, words in (
        (UNSUPPORTED, "as in many virtual machines"),
        ("========= Target application terminated before first instrumented API call", "before it reached the device"),
        ("python: cannot execute", "no summary: python: cannot execute"),
    ):
        row = sanitizer.outcome("memcheck", ToolResult(1, output), 60)
        assert words in row.refused
        assert row.errors is None
    assert sanitizer.outcome("memcheck", ToolResult(-9, "", timed_out=True), 9).refused == "it took longer than 9 s"


def test_every_check_is_run_once_and_a_refusal_ends_it(install: Install, add: Workload, tmp_path: Path) -> None:
    says = tmp_path / "bin/says"
    numbered = "".join(f"{tool}) number={index};; " for index, tool in enumerate(sanitizer.TOOLS))
    install(
        "compute-sanitizer", f'case $2 in {numbered}esac; sed "s/: 0/: $number$PYTORCH_NO_CUDA_MEMORY_CACHING/" {says}'
    )
    says.write_text(CLEAN)
    rows = sanitizer.sanitize([add], 60)
    expected = [(tool, index * 10 + 1, add.case) for index, tool in enumerate(sanitizer.TOOLS)]
    assert [(row.tool, row.errors, row.case) for row in rows] == expected
    says.write_text(UNSUPPORTED)
    assert len(sanitizer.sanitize([add], 60)) == 1


@pytest.mark.slow
def test_a_check_that_takes_too_long_looks_at_a_smaller_case(install: Install, add: Workload, tmp_path: Path) -> None:
    (tmp_path / "bin/says").write_text(CLEAN)
    install("compute-sanitizer", f"if grep -q tiny {WORKLOAD}; then cat {tmp_path}/bin/says; else sleep 600; fi")
    (row,) = sanitizer.sanitize([add, replace(add, case="tiny")], 5, ["memcheck"])
    assert row == SanitizerFinding(tool="memcheck", errors=0, case="tiny")


@pytest.fixture
def gpu() -> Iterator[str]:
    """The UUID of a device that nobody has."""
    made = f"test-{uuid.uuid4()}"
    yield made
    Path(lock_file(made)).unlink(missing_ok=True)


KERNEL = Kernel("cuda", {"kernel.cu": "// nothing\n"})
WON = Claim(id="00001", speedup=2.0, low=1.9, high=2.1, faster=True)


def test_winners_are_looked_at_once_and_a_bad_access_is_a_fault_in_strong_mode(
    install: Install, problem: Problem, tmp_path: Path, gpu: str
) -> None:
    says = tmp_path / "bin/says"
    says.write_text(MEMCHECK)
    install("compute-sanitizer", f"cat {says}")
    (tmp_path / "container.json").write_text("{}")
    strong = AcceptedKernel(problem, KERNEL, BuildResult(str(tmp_path / "container.json"), mode="strong"))
    watch = Inspector(profile=False, sanitize=True)
    assert watch(strong, None, {}, gpu) == Findings()
    found = watch(strong, WON, {}, gpu)
    assert [row.tool for row in found.sanitizer] == ["memcheck", "racecheck", "initcheck"]
    assert found.fault.startswith("memcheck: 2 errors, the first: Invalid __global__ write")
    says.write_text(CLEAN)
    assert watch(strong, WON, {}, gpu) == found
    assert Inspector(profile=True, sanitize=True, platform="emulated")(strong, WON, {}, gpu) == Findings()


def test_a_race_in_the_kernels_own_code_leaves_it_unranked(
    install: Install, problem: Problem, tmp_path: Path, gpu: str
) -> None:
    says, (name,) = tmp_path / "bin/says", KERNEL.files
    install("compute-sanitizer", f'[ "$2" = racecheck ] && cat {says} || echo "========= ERROR SUMMARY: 0 errors"')
    (tmp_path / "container.json").write_text("{}")

    def doubt(mode: str, output: str) -> str:
        says.write_text(output)
        built = BuildResult(str(tmp_path / "container.json"), mode=mode)
        found = Inspector(profile=False, sanitize=True)(AcceptedKernel(problem, KERNEL, built), WON, {}, gpu)
        assert not found.fault
        return found.doubt

    lines = RACECHECK.replace("+0xb0", f"+0xb0 in /some/where/{name}:7")
    assert doubt("strong", RACECHECK) == "racecheck: a race in shared memory"
    assert doubt("host", lines) == f"racecheck: a race in shared memory at {name}, line 7"
    assert doubt("host", RACECHECK) == ""
    assert doubt("host", lines.replace(name, "library.cu")) == ""
    assert doubt("strong", lines.replace("Error: Race", "Warning: Race")) == ""
    assert doubt("strong", CLEAN) == ""


def test_counters_are_read_unless_they_are_refused_three_times_in_a_row(
    install: Install, problem: Problem, tmp_path: Path, gpu: str
) -> None:
    (tmp_path / "bin/says").write_text("==ERROR== ERR_NVGPUCTRPERM\n")
    (tmp_path / "container.json").write_text("{}")
    install("ncu", f"cat {tmp_path}/bin/says")
    strong = AcceptedKernel(problem, KERNEL, BuildResult(str(tmp_path / "container.json"), mode="strong"))
    watch = Inspector(profile=None, sanitize=False)
    assert [watch(strong, None, {}, gpu) for _ in range(5)] == [Findings()] * 5
    assert len(watch._refused) == 3
    insists = Inspector(profile=True, sanitize=False)(strong, None, {}, gpu)
    assert insists.profile
    assert "administrators" in insists.profile.refused
    assert Inspector(profile=False, sanitize=False)(strong, None, {}, gpu) == Findings()


def test_host_code_is_looked_at_too_and_findings_are_told(
    install: Install, problem: Problem, tmp_path: Path, gpu: str
) -> None:
    (tmp_path / "bin/says").write_text(MEMCHECK)
    install("compute-sanitizer", f"cat {tmp_path}/bin/says; cat kernel.py")
    kernel = Kernel("python", {"kernel.py": "# python\n"})
    found = Inspector(profile=False, sanitize=True)(AcceptedKernel(problem, kernel, BuildResult()), WON, {}, gpu)
    assert [row.errors for row in found.sanitizer] == [2] * 3
    assert not found.fault


def test_the_device_is_locked_while_a_tool_runs(install: Install, problem: Problem, tmp_path: Path, gpu: str) -> None:
    (tmp_path / "bin/says").write_text(CLEAN)
    mark = sleeper()
    install("compute-sanitizer", f"sleep {mark}; cat {tmp_path}/bin/says")
    (tmp_path / "container.json").write_text("{}")
    strong = AcceptedKernel(problem, KERNEL, BuildResult(str(tmp_path / "container.json"), mode="strong"))
    found: list[object] = []
    looking = threading.Thread(
        target=lambda: found.append(Inspector(profile=False, sanitize=True)(strong, WON, {}, gpu))
    )
    looking.start()
    while not processes(mark):
        assert looking.is_alive()
        time.sleep(0.01)
    taken = "import sys; from ksflow.evaluation.processes.device_lock import lock_device\n"
    taken += "with lock_device(sys.argv[1], 0): pass"
    other = subprocess.run([sys.executable, "-c", taken, gpu], capture_output=True, text=True, check=False)
    with (
        pytest.raises(DeviceBusy, match=rf"process \d+ \(.*, user \w+\) holds .*ksflow-device-{gpu}"),
        lock_device(gpu, 0),
    ):
        pass
    while looking.is_alive():
        for pid in processes(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        looking.join(0.01)
    assert f"DeviceBusy: process {os.getpid()} (" in other.stderr
    assert len(found) == 1
    with lock_device(gpu, 0):
        pass


def test_what_somebody_put_in_a_locks_place_keeps_nobody_from_the_device(gpu: str, tmp_path: Path) -> None:
    Path(lock_file(gpu)).symlink_to(tmp_path / "nothing")
    with lock_device(gpu, 0), pytest.raises(DeviceBusy, match=str(cache())), lock_device(gpu, 0):
        pass
    assert not (tmp_path / "nothing").exists()


# -- rocprofv3 -----------------------------------------------------------------------------------

TRACE = (
    '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",'
    '"Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
    '"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n'
    '"KERNEL_DISPATCH","Agent 2",1,0,70,1,33,"__amd_rocclr_fillBufferAligned",1,1000,9000,0,0,12,4,48,256,1,1,256,1,1\n'
    '"KERNEL_DISPATCH","Agent 2",1,0,70,2,16,"gemm(unsigned char*, float*)",2,10000,50000,32768,0,102,16,48,'
    "256,1,1,2048,12,1\n"
)
COUNTERS = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id","Kernel_Name",'
    '"Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Counter_Name",'
    '"Counter_Value","Start_Timestamp","End_Timestamp"\n'
)


def counted(name: str, *values: float) -> str:
    row = '2,2,"Agent 2",1,70,70,24576,16,"gemm(unsigned char*, float*)",256,32768,0,102,16,48,"{}",{},1,2\n'
    return "".join(row.format(name, value) for value in values)


def test_rocprofv3_runs_once_for_each_group_of_counters(install: Install, add: Workload, tmp_path: Path) -> None:
    """A group that the hardware refuses leaves no file, with status 0."""
    folder = tmp_path / "bin"
    (folder / "trace.csv").write_text(TRACE)
    files = {
        "MfmaUtil": counted("MfmaUtil", 30.0, 34.0) + counted("VALUBusy", 20.0, 20.0),
        "OccupancyPercent": counted("OccupancyPercent", 24.4),
        "MemUnitBusy": counted("MemUnitBusy", 65.0) + counted("MemUnitStalled", 7.25),
        "FETCH_SIZE": counted("FETCH_SIZE", 20480.0) + counted("WRITE_SIZE", 1024.0),
    }
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(COUNTERS + text)
    install(
        "rocprofv3",
        f"""if [ "$1" = --version ]; then printf 'version: 1.0.0\\ngit_revision: 1\\n'; exit; fi
case "$*" in *"--output-format csv"*) ;; *) exit 1;; esac
while [ "$1" != -d ]; do [ "$1" = --pmc ] && first=$2; shift; done
mkdir -p $2/host
cp {folder}/trace.csv $2/host/run_kernel_trace.csv
[ -f {folder}/$first.csv ] && cp {folder}/$first.csv $2/host/run_counter_collection.csv; exit 0""",
    )
    found = rocprof.profile(add, 10)
    assert found.tool == "version: 1.0.0"
    assert found.page.splitlines() == [
        "gemm(unsigned char*, float*): 40 us, 100% of the time; grid 2048x12, block 256, 102 VGPR, 16 AGPR, 48 SGPR, "
        "32768 B LDS",
        "  bound by memory unit: 65 % of its peak",
        "  busy: matrix units 32 %, vector units 20 %, memory unit 65 %, occupancy 24 %",
        "  memory unit stalled 7.2 %; 20 MiB read (524 GB/s); 1 MiB written (26.2 GB/s)",
        "(not counted here: LDSBankConflict, L2CacheHit)",
    ]
    asked = [rocprof.command(counters, "0", ["x"]) for counters in rocprof.PASSES]
    assert "--pmc" not in asked[0]
    assert "--pmc MfmaUtil VALUBusy --output-format csv" in " ".join(asked[1])


def test_rocprofv3_that_may_not_says_so(install: Install, add: Workload, tmp_path: Path) -> None:
    install("rocprofv3", "echo 'Unable to open /dev/kfd read-write: Permission denied'; exit 1")
    assert "groups render and video" in rocprof.profile(add, 10).refused
    install("rocprofv3", "echo 'a new trouble'")
    assert rocprof.profile(add, 10).refused == "rocprofv3 returned no kernels: a new trouble"


def test_a_job_is_plain_json(add: Workload) -> None:
    found = json.loads(add.texts()[WORKLOAD])
    assert (found["case"], found["params"], found["outputs"], found["dims"]) == ("n30000", {"n": 30000}, 1, [30000])
    assert "kernel.py" in add.texts()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_marks_reach_the_library_that_rocprofv3_loaded(tmp_path: Path) -> None:
    source, library = tmp_path / "roctx.c", tmp_path / "librocprofiler-sdk-roctx.so.1"
    source.write_text("int roctxProfilerResume(unsigned long thread) { return thread == 0 ? 42 : 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=30)
    code = "from ksflow.evaluation.profiling.program import _roctx; print(_roctx().roctxProfilerResume(0))"
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.split() == ["42"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_the_memory_of_a_watched_kernel_lives_until_its_last_call(tmp_path: Path) -> None:
    """A kernel knows addresses alone; memory given back too early looked like an access out of bounds."""
    source, reference = tmp_path / "kernel.c", tmp_path / "reference.py"
    source.write_text('#include <stdio.h>\nvoid custom_kernel(void) { puts("called"); fflush(stdout); }\n')
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "kernel.so", source], check=True, timeout=30)
    reference.write_text(
        "import torch, weakref\n"
        "class Drawn:\n"
        "    def to(self, device):\n"
        "        there = torch.zeros(4)\n"
        "        weakref.finalize(there, print, 'given back', flush=True)\n"
        "        return there\n"
        "def generate_input(seed):\n"
        "    return Drawn(), Drawn()\n"
    )
    job = {"mode": "native", "file": "kernel.so", "reference": "reference.py", "case": "one", "params": {}, "seed": 1}
    job |= {"dims": [4], "outputs": 1, "memory_mb": 100, "device": "cpu", "calls": 3}
    (tmp_path / WORKLOAD).write_text(json.dumps(job))
    ran = [sys.executable, "-P", "-m", "ksflow.evaluation.profiling.program", WORKLOAD]
    done = subprocess.run(ran, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["called"] * 3 + ["given back"] * 2
