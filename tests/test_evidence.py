"""A verdict on a device as a person reads it: resources, roofline, clocks, faults, counters, and what is untimed."""

from rich.console import Console

from ksflow.kernels.hardware import compiler_report
from ksflow.records import CompiledKernel, Evaluation, Evidence, Json, Timing, Verdict, parse
from ksflow.report import evidence

COMPILER: list[Json] = [
    {
        "kernel": "gemm",
        "target": "sm_90a",
        "registers": 168,
        "spill_bytes": 0,
        "shared_bytes": 98304,
        "occupancy": 0.25,
        "limited_by": "shared",
        "compiler": "nvcc 13.0 / ptxas 13.0",
        "variant": {"BM": 64, "BN": 128},
        "instructions": {"QGMMA": 8, "LDG": 3},
    },
    {"kernel": "transpose", "target": "sm_90a", "registers": 40, "instructions": {"LDG": 4}},
]
ROOFLINE: list[Json] = [
    {"case": "large", "tflops": 456.7, "gbs": 321.0, "bound": "compute", "bound_us": 11.4, "share": 0.231}
]


def shown(evaluation: Evaluation) -> str:
    console = Console(width=200, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as capture:
        evidence.show(console, evaluation)
    return capture.get()


def accepted(**found: object) -> Evaluation:
    return Evaluation(Verdict.ACCEPT, "", 49.3, (Timing("large", 49.3),), parse(Evidence, found))


def test_resources_and_roofline_are_tables() -> None:
    text = shown(accepted(compiler=COMPILER, roofline=ROOFLINE))
    row = next(line for line in text.splitlines() if line.strip().startswith("gemm"))
    for part in ("BM=64 BN=128", "sm_90a", "168", "0 B", "96 KiB", "25 % (shared)", "8 QGMMA"):
        assert part in row
    assert next(line for line in text.splitlines() if line.strip().startswith("transpose")).rstrip().endswith("none")
    timed = next(line for line in text.splitlines() if line.strip().startswith("large"))
    assert [part for part in ("457", "321", "23.1 % compute") if part in timed] == ["457", "321", "23.1 % compute"]
    assert "roofline: 23.1% of what the hardware's rates allow" in text
    assert "compiled by: nvcc 13.0 / ptxas 13.0" in text
    assert "AGPR" not in text


def test_the_device_is_told_in_lines() -> None:
    text = shown(
        accepted(
            transfer={"mode": "copies on the device", "cost_us": 3.5},
            clocks={"sm_mhz": 1755, "memory_mhz": 3201, "watts": 699, "celsius": 61, "throttled": ["power cap"]},
            timed=[{"case": "large", "clock": "the judge's, because the box's events say less"}],
            sanitizer=[
                {
                    "tool": "memcheck",
                    "errors": 2,
                    "finding": "Invalid write at gemm()+0x70 by thread (1,0,0)",
                },
                {"tool": "racecheck", "errors": 0},
                {"tool": "initcheck", "refused": "it took longer than 60 s"},
            ],
            profile={"tool": "ncu 2025.3", "case": "large", "page": "gemm: 41 us\n  bound by DRAM: 71 % of its peak"},
        )
    )
    assert "transfer: mode copies on the device, cost us 3.5" in text
    assert "clocks: SM 1755 MHz, memory 3201 MHz, 699 W, 61 °C (power cap)" in text
    assert "clock: the judge's, because the box's events say less (of large)" in text
    assert "sanitizer memcheck: 2 errors; first: Invalid write at gemm()+0x70 by thread (1,0,0)" in text
    assert "sanitizer racecheck: no errors" in text
    assert "sanitizer initcheck: did not run: it took longer than 60 s" in text
    assert "profile: ncu 2025.3 large\n    gemm: 41 us\n      bound by DRAM: 71 % of its peak" in text


def test_one_reading_of_the_clocks_will_do() -> None:
    assert "clocks: SM 1755 MHz (not throttled)" in shown(accepted(clocks={"sm_mhz": 1755, "throttled": []}))
    untold = "clocks: SM 1755 MHz (whether it was throttled is not told)"
    assert untold in shown(accepted(clocks={"sm_mhz": 1755}))
    assert "clocks: cannot be read here" in shown(accepted(clocks={"state": "cannot be read here"}))


def test_what_is_untimed_says_so() -> None:
    reason = "compiled for gfx942: 102 VGPRs, occupancy 50 %; nothing was timed"
    found = {"compiler": COMPILER[1:], "emulated": "right on 5 cases"}
    text = shown(Evaluation(Verdict.UNTIMED, reason, evidence=parse(Evidence, found)))
    assert f"verdict untimed: {reason}" in text
    assert "emulated: right on 5 cases" in text
    assert "transpose" in text


def test_torn_evidence_is_shown_as_far_as_it_goes() -> None:
    text = shown(
        accepted(
            compiler=["text", {"kernel": "k[red]", "registers": "many", "spill_bytes": None, "variant": 3}],
            roofline=[{"case": "large", "share": "?"}, 7],
            clocks="unknown",
            profile="none",
            sanitizer={"tool": "memcheck"},
        )
    )
    assert "k[red]" in text
    assert "clocks: unknown" in text
    assert compiler_report.line(CompiledKernel()) == ": nothing is known"


def test_a_kernels_line_holds_what_is_known() -> None:
    assert compiler_report.line(parse(CompiledKernel, COMPILER[0])) == (
        "gemm BM=64 BN=128: registers 168, spills 0 B, shared 96 KiB, occupancy 25 % (shared), "
        "matrix instructions 8 QGMMA"
    )
    amd = {"kernel": "gemm", "registers": 102, "agprs": 16, "sgprs": 30, "scratch_bytes": 2048}
    assert compiler_report.line(parse(CompiledKernel, amd)) == "gemm: registers 102 + 16 AGPR + 30 SGPR, stack 2 KiB"
