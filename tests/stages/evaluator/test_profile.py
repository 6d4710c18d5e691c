"""Vendors' tools: what they are asked, what their output becomes, what each refusal is turned into; and the program
that they watch, run on this machine's CPU. The tools themselves are stand-ins that print what the real ones print."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ksflow.errors import ConfigError
from ksflow.records import Problem
from ksflow.stages.evaluator.profile import ncu, rocprof, sanitizer
from ksflow.stages.evaluator.profile.job import Job, job, smallest
from ksflow.stages.evaluator.profile.page import LINES
from ksflow.stages.evaluator.profile.running import Ran, program, run
from ksflow.stages.evaluator.profile.watch import Watch
from ksflow.stages.evaluator.toolchain import Made

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
def add(problem: Problem, tmp_path: Path) -> Job:
    """A Python kernel on the CPU, which leaves a line for each call."""
    kernel = tmp_path / "kernel.py"
    calls = tmp_path / "calls"
    kernel.write_text(
        "import torch\n"
        "def custom_kernel(data):\n"
        f"    open({str(calls)!r}, 'a').write(f'{{tuple(data[0].shape)}}\\n')\n"
        "    return torch.add(data[0], data[1], out=data[2])\n"
    )
    return replace(job(problem, "torch", str(kernel)), device="cpu")


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
    page = ncu.outcome(text, Ran(0, ""), 60)["page"].splitlines()
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
    page = ncu.outcome(report(*many), Ran(0, ""), 60)["page"].splitlines()
    assert len(page) <= LINES
    assert page[0].startswith("kernel_199: ")
    assert page[-1].startswith("(193 more kernels, 96% of the time)")


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
    found = ncu.outcome(f"==PROF== Connected to process 42\n{said}", Ran(9, said), 60)
    assert remedy in found["refused"]
    assert "\n" not in found["refused"]
    assert ncu.outcome("", Ran(-9, "", timed_out=True), 60) == {"refused": "ncu took longer than 60 s"}


@pytest.mark.slow
def test_ncu_watches_the_kernel_and_leaves_the_clocks_alone(install: Install, add: Job, tmp_path: Path) -> None:
    (tmp_path / "report.csv").write_text(report(("gemm", 41_200.0, DRAM)))
    install(
        "ncu",
        f"""if [ "$1" = --version ]; then echo 'Version 2025.3.1.0 (build 36398880)'; exit; fi
echo "$@" > {tmp_path}/asked
while [ "$1" != --log-file ]; do shift; done
cp {tmp_path}/report.csv "$2"; shift 2; exec "$@" """,
    )
    found = ncu.profile(add, 60)
    assert found["tool"] == "Version 2025.3.1.0 (build 36398880)"
    assert found["case"] == "n30000"
    assert found["page"].startswith("gemm: 41.2 us, 100% of the time")
    asked = (tmp_path / "asked").read_text()
    for words in ("--clock-control none", "--profile-from-start off", "--csv --page raw", "sm__throughput"):
        assert words in asked
    assert (tmp_path / "calls").read_text().splitlines() == ["(30000,)"] * 3


def test_a_tool_that_is_missing_says_what_to_install(add: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if shutil.which("ncu", path="/usr/local/cuda/bin") or shutil.which("rocprofv3", path="/opt/rocm/bin"):
        pytest.skip("a vendor's tools are installed in their own folder")
    rows = [ncu.profile(add, 1), rocprof.profile(add, 1), *sanitizer.sanitize([add], 1)]
    assert ["install" in row["refused"] for row in rows] == [True] * 3


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_a_shared_object_gets_pointers_sizes_strides_and_a_stream(problem: Problem, tmp_path: Path) -> None:
    source, library, seen = tmp_path / "k.cpp", tmp_path / "k.so", tmp_path / "seen"
    source.write_text(
        "#include <cstdint>\n#include <cstdio>\n"
        'extern "C" void custom_kernel(const float *a, const float *b, float *out, int64_t n, const int64_t *strides,'
        " void *stream) {\n"
        "for (int64_t i = 0; i < n; i++) out[i * strides[2]] = a[i] + b[i];\n"
        f'FILE *file = fopen("{seen}", "a");\n'
        'fprintf(file, "%ld %d\\n", (long)n, out[7] == a[7] + b[7]); fclose(file); }\n'
    )
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    asked = replace(job(problem, "native", str(library), "n65536"), device="cpu", calls=2)
    done = run(program(asked.write(tmp_path / "job.json")), 60)
    assert done == Ran(0, "")
    assert seen.read_text().splitlines() == ["65536 1"] * 2


def test_the_smallest_benchmark_is_taken_unless_one_is_named(problem: Problem) -> None:
    assert smallest(problem, problem.benchmarks).name == "n30000"
    assert job(problem, "launch", "x").case == "n30000"
    by_work = replace(problem, work={"flops": "1e9 - n"})
    assert smallest(by_work, by_work.benchmarks).name == "n65536"
    with pytest.raises(ConfigError, match="no benchmark 'n1'; those are: n30000, n65536"):
        job(problem, "launch", "x", "n1")


def test_a_tool_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    script = f"(setsid sleep 6000 & echo $! > {one}; sleep 6001 & echo $! > {other}; echo started; wait) & wait"
    for limit_s in (1, 10, 100):  # until it came so far
        done = run(["/bin/sh", "-c", script], limit_s)
        if done.output:
            break
    assert done.timed_out
    assert done.output == "started\n"
    begun = time.monotonic()
    for file in (one, other):
        while _runs(file.read_text().strip()):
            assert time.monotonic() - begun < 100
            time.sleep(0.01)


def _runs(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_tools_environment_has_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    done = run(["/bin/sh", "-c", "env; echo ${EXTRA}"], 10, {"EXTRA": "given"})
    assert "secret" not in done.output
    assert done.last_words == "given"


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
    assert sanitizer.outcome("memcheck", Ran(0, MEMCHECK), 60) == {
        "tool": "memcheck",
        "errors": 2,
        "finding": "Invalid __global__ write of size 4 bytes at gemm(const float *, float *, int)+0x70 in gemm.cu:25 "
        "by thread (232,0,0) in block (3,0,0) Address 0x7f5c92600fa0 is out of bounds "
        "and is 1 bytes after the nearest allocation at 0x7f5c92600000 of size 4000 bytes",
    }
    assert sanitizer.outcome("racecheck", Ran(0, RACECHECK), 60) == {
        "tool": "racecheck",
        "errors": 1,
        "finding": "Error: Race reported between Write access at gemm(float *)+0xb0 "
        "and Read access at gemm(float *)+0xc0 [1024 hazards]",
    }
    assert sanitizer.outcome("initcheck", Ran(0, CLEAN), 60) == {"tool": "initcheck", "errors": 0}


def test_a_sanitizer_that_cannot_look_finds_nothing() -> None:
    for output, words in (
        (UNSUPPORTED, "as in many virtual machines"),
        ("========= Target application terminated before first instrumented API call", "before it reached the device"),
        ("python: cannot execute", "no summary: python: cannot execute"),
    ):
        row = sanitizer.outcome("memcheck", Ran(1, output), 60)
        assert words in row["refused"]
        assert "errors" not in row
    assert sanitizer.outcome("memcheck", Ran(-9, "", timed_out=True), 9)["refused"] == "it took longer than 9 s"


def test_every_check_is_run_once_and_a_refusal_ends_it(install: Install, add: Job, tmp_path: Path) -> None:
    install("compute-sanitizer", f'echo "$2 $PYTORCH_NO_CUDA_MEMORY_CACHING" >> {tmp_path}/asked; cat {tmp_path}/says')
    (tmp_path / "says").write_text(CLEAN)
    rows = sanitizer.sanitize([add], 60)
    assert rows == [{"tool": tool, "errors": 0, "case": add.case} for tool in sanitizer.TOOLS]
    assert sorted((tmp_path / "asked").read_text().splitlines()) == sorted(f"{tool} 1" for tool in sanitizer.TOOLS)
    (tmp_path / "says").write_text(UNSUPPORTED)
    assert len(sanitizer.sanitize([add], 60)) == 1


@pytest.mark.slow
def test_a_check_that_takes_too_long_looks_at_a_smaller_case(install: Install, add: Job, tmp_path: Path) -> None:
    (tmp_path / "says").write_text(CLEAN)
    install("compute-sanitizer", f'case "$*" in *0.json) sleep 600;; *) cat {tmp_path}/says;; esac')
    (row,) = sanitizer.sanitize([add, replace(add, case="tiny")], 5, ["memcheck"])
    assert row == {"tool": "memcheck", "errors": 0, "case": "tiny"}


def test_winners_in_strong_mode_are_looked_at_and_a_bad_access_is_a_fault(
    install: Install, problem: Problem, tmp_path: Path
) -> None:
    (tmp_path / "says").write_text(MEMCHECK)
    install("compute-sanitizer", f'echo "$2" >> {tmp_path}/asked; cat {tmp_path}/says')
    (tmp_path / "container.json").write_text("{}")
    strong, won = Made(str(tmp_path / "container.json"), "strong"), {"claim": {"faster": True}}
    watch = Watch(profile=False, sanitize=True)
    assert watch(problem, strong, {}, {}) == {}
    found = watch(problem, strong, won, {})
    assert [row["tool"] for row in found["sanitizer"]] == ["memcheck", "racecheck", "initcheck"]
    assert found["fault"].startswith("memcheck: 2 errors, the first: Invalid __global__ write")
    assert watch(problem, strong, won, {}) == found
    assert len((tmp_path / "asked").read_text().splitlines()) == 3
    assert "outside its box" in watch(problem, Made("kernel.so"), won, {})["sanitizer"]


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


def test_rocprofv3_runs_once_for_each_group_of_counters(install: Install, add: Job, tmp_path: Path) -> None:
    """A group that the hardware refuses leaves no file, with status 0."""
    (tmp_path / "trace.csv").write_text(TRACE)
    files = {
        "MfmaUtil": counted("MfmaUtil", 30.0, 34.0) + counted("VALUBusy", 20.0, 20.0),
        "OccupancyPercent": counted("OccupancyPercent", 24.4),
        "MemUnitBusy": counted("MemUnitBusy", 65.0) + counted("MemUnitStalled", 7.25),
        "FETCH_SIZE": counted("FETCH_SIZE", 20480.0) + counted("WRITE_SIZE", 1024.0),
    }
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(COUNTERS + text)
    install(
        "rocprofv3",
        f"""if [ "$1" = --version ]; then printf 'version: 1.0.0\\ngit_revision: 1\\n'; exit; fi
echo "$@" >> {tmp_path}/asked
while [ "$1" != -d ]; do [ "$1" = --pmc ] && first=$2; shift; done
mkdir -p $2/host
cp {tmp_path}/trace.csv $2/host/run_kernel_trace.csv
[ -f {tmp_path}/$first.csv ] && cp {tmp_path}/$first.csv $2/host/run_counter_collection.csv; exit 0""",
    )
    found = rocprof.profile(add, 10)
    assert found["tool"] == "version: 1.0.0"
    assert found["page"].splitlines() == [
        "gemm(unsigned char*, float*): 40 us, 100% of the time; grid 2048x12, block 256, 102 VGPR, 16 AGPR, 48 SGPR, "
        "32768 B LDS",
        "  bound by memory unit: 65 % of its peak",
        "  busy: matrix units 32 %, vector units 20 %, memory unit 65 %, occupancy 24 %",
        "  memory unit stalled 7.2 %; 20 MiB read (524 GB/s); 1 MiB written (26.2 GB/s)",
        "(not counted here: LDSBankConflict, L2CacheHit)",
    ]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == len(rocprof.PASSES)
    assert "--pmc" not in asked[0]
    assert "--pmc MfmaUtil VALUBusy --output-format csv" in asked[1]


def test_rocprofv3_that_may_not_says_so(install: Install, add: Job, tmp_path: Path) -> None:
    install("rocprofv3", "echo 'Unable to open /dev/kfd read-write: Permission denied'; exit 1")
    assert "groups render and video" in rocprof.profile(add, 10)["refused"]
    install("rocprofv3", "echo 'a new trouble'")
    assert rocprof.profile(add, 10)["refused"] == "rocprofv3 brought no kernels: a new trouble"


def test_a_job_is_plain_json(add: Job, tmp_path: Path) -> None:
    found = json.loads(add.write(tmp_path / "job.json").read_text())
    assert (found["case"], found["params"], found["outputs"], found["dims"]) == ("n30000", {"n": 30000}, 1, [30000])


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_marks_reach_the_library_that_rocprofv3_loaded(tmp_path: Path) -> None:
    source, library = tmp_path / "roctx.c", tmp_path / "librocprofiler-sdk-roctx.so.1"
    source.write_text("int roctxProfilerResume(unsigned long thread) { return thread == 0 ? 42 : 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=30)
    code = "from ksflow.stages.evaluator.profile.program import _roctx; print(_roctx().roctxProfilerResume(0))"
    done = run([sys.executable, "-P", "-c", code], 60, {"LD_PRELOAD": str(library)})
    assert done.output.split() == ["42"]
