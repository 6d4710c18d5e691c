"""What a prompt says of a kernel on a device: resources, roofline, faults and counters, bounded whatever there is."""

from dataclasses import replace

from conftest import paired

from ksflow.lm.prompts.failures import failure
from ksflow.lm.prompts.hardware import hardware, roofline_share
from ksflow.lm.prompts.tried import tried_experiments
from ksflow.lm.prompts.views import view
from ksflow.records import Evaluation, Evidence, Kernel, Origin, Timing, Trial, Verdict, parse

COMPILER = [
    {"kernel": "gemm", "registers": 168, "spill_bytes": 0, "occupancy": 0.25, "limited_by": "shared"},
    {"kernel": "transpose", "registers": 40},
]
ROOFLINE = [
    {"case": "small", "bound": "memory", "share": 0.04},
    {"case": "large", "bound": "compute", "share": 0.36},
]


def evaluated(verdict: Verdict, reason: str = "", **evidence: object) -> Evaluation:
    if verdict is Verdict.ACCEPT:
        return Evaluation(verdict, reason, 5.0, (Timing("small", 5.0),), parse(Evidence, evidence))
    return Evaluation(verdict, reason, evidence=parse(Evidence, evidence))


def test_a_kernel_on_a_device_in_a_few_lines():
    found = evaluated(
        Verdict.ACCEPT,
        compiler=COMPILER,
        roofline=ROOFLINE,
        sanitizer=[{"tool": "memcheck", "errors": 1, "finding": "Invalid read"}, {"tool": "racecheck", "errors": 0}],
        profile={"tool": "ncu", "page": "gemm: 41 us\n  bound by DRAM: 71 % of its peak"},
        emulated="right on 5 tests",
    )
    assert hardware(found) == [
        "Compiled: gemm: registers 168, spills 0 B, occupancy 25 % (shared)",
        "Compiled: transpose: registers 40",
        "Roofline: 12 % of what the hardware's rates allow (geometric mean); farthest small: 4 % of memory; "
        "nearest large: 36 % of compute",
        "Emulated on a CPU: right on 5 tests",
        "memcheck found 1 faults, the first: Invalid read",
        "Counters, of one shape:",
        "gemm: 41 us\n  bound by DRAM: 71 % of its peak",
    ]
    assert roofline_share(found) == "12 %"
    assert hardware(None) == hardware(evaluated(Verdict.ACCEPT)) == []


def test_it_is_bounded_whatever_there_is():
    long = "x" * 50_000
    found = evaluated(
        Verdict.ACCEPT,
        compiler=[{"kernel": long, "registers": index, "variant": {"BM": long}} for index in range(500)],
        roofline=[{"case": long, "bound": long, "share": 0.1 + index} for index in range(500)],
        sanitizer=[{"tool": "memcheck", "errors": 1, "finding": long}] * 50,
        profile={"page": f"{long}\n{long}"},
        emulated=long,
    )
    text = "\n".join(hardware(found))
    assert len(text) < 7_500
    assert "(494 more compiled kernels)" in text
    torn = evaluated(Verdict.ACCEPT, compiler=[3], roofline="?", sanitizer={}, profile=["page"], emulated=0)
    assert hardware(torn) == []


def test_a_failure_shows_the_kernels_resources_and_not_the_judges_means():
    found = evaluated(
        Verdict.INCORRECT, "why", compiler=COMPILER, clocks={"sm_mhz_before": 1980}, transfer={"mode": "copies"}
    )
    kernel = Kernel("cuda", {"k.cu": "x"})
    text = failure(Trial("00007", Origin.EXPERIMENT, kernel=kernel, evaluation=found))
    assert "Compiled: gemm: registers 168, spills 0 B, occupancy 25 % (shared)" in text
    assert "1980" not in text
    assert "Besides" not in text


def test_the_table_says_how_near_the_roofline_is(problem, population):
    seed, faster, wrong = population.trials
    fast = replace(faster, evaluation=replace(faster.evaluation, evidence=parse(Evidence, {"roofline": ROOFLINE})))
    table = view(problem, paired((seed, fast, wrong)), 6000).table
    assert "| 00002 | 00001 | 15.81 (12 % of roofline) | 5 | 50 |" in table
    assert "| 00001 |  | 20 | 4 | 100 |" in table


def test_what_could_not_be_timed_is_listed_and_is_no_failure(problem, population, selection):
    reason = "compiled for gfx942: 102 VGPRs; nothing was timed"
    base = selection.base
    trials = [
        replace(base, id=f"000{index}", parents=(base.id,), evaluation=evaluated(Verdict.UNTIMED, reason))
        for index in range(10, 60)
    ]
    grown = paired((*population.trials, *trials))
    assert (
        "-> untimed compiled for gfx942: 102 VGPRs; nothing was timed (49 more like it)"
        in view(problem, grown, 6000).failures
    )
    assert "0 were faster, 1 failed)" in tried_experiments(grown, selection, 500)
