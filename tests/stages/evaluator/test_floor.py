"""The floor: below what any kernel could reach, above what only a broken clock shows, none where nothing is known."""

import dataclasses
import time

import pytest

from ksflow.config.compose import build, compose
from ksflow.errors import ConfigError
from ksflow.kernels.hardware import roofline
from ksflow.kernels.hardware.cost_model import evaluate, floor_us
from ksflow.kernels.hardware.target import detect, from_data_sheet, shipped_targets
from ksflow.kernels.problem.loader import load
from ksflow.records import Case, Target

GPU = Target(
    "g", "gpu", "chip", peaks={"flops.fp8": 4e15, "flops.bf16": 2e15, "bytes": 4e12}, sizes={"cache": 50_000_000}
)

CORE = Target("c", "cpu", "chip", peaks={"flops.fp32": 3e11, "bytes.cache": 1.2e12})


def test_expressions_are_arithmetic_over_the_case() -> None:
    names = {"m": 7, "n": 130, "scale": 0.5, "dtype": "float32"}
    assert evaluate("2*m*n", names) == 1820
    assert evaluate("ceil(n / 128) * 4 + -m // 2 + 2**3 % 5", names) == 7
    assert evaluate("max(m, n) - min(m, 3, n) + abs(-scale) + floor(2.7)", names) == 129.5


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("m.__class__", "'m.__class__' is not allowed"),
        ("__import__('os').system('true')", "is not allowed"),
        ("open(1)", "is not allowed"),
        ("[m for m in (1,)]", "is not allowed"),
        ("min(*m)", "is not allowed"),
        ("min(m, key=1)", "is not allowed"),
        ("'a' * m", "is not allowed"),
        ("(lambda: 1)()", "is not allowed"),
        (f"[{'-' * 490}1]", "is not allowed"),
        ("m +", "is not an expression"),
        ("k * 2", "'k' is not known; known are m, n"),
        ("dtype", "'dtype' is not known"),
        ("m / 0", "cannot be computed: division by zero"),
        ("m - 100", "is negative: -93"),
        ("9**9**9", "exponent that is not within 0 and 64"),
        ("10**60", "is no number within 64 bits"),
        ("(0 - m) ** 0.5", "is no number within"),
        ("1e400", "is no number within"),
        ("1e400 - 1e400", "is no number within"),
        ("abs()", "cannot be computed"),
        ("m" * 600, "longer than 500 characters"),
    ],
)
def test_anything_else_is_refused_in_words(expression: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        evaluate(expression, {"m": 7, "n": 3, "dtype": "float32"})


def test_a_hostile_expression_ends_at_once() -> None:
    begin = time.process_time()
    with pytest.raises(ValueError, match="no number within"):
        evaluate("((((m**64)**64)**64)**64)**64", {"m": 7})
    assert time.process_time() - begin < 10


def test_what_takes_longest_sets_the_floor() -> None:
    problem = load("fp8_gemm", "leaderboard")
    large = problem.benchmarks[10]
    least, words = floor_us(problem, Case(large.name, {**large.params, "m": 6144, "n": 4608, "k": 7168}, 0), GPU)
    assert least == pytest.approx(2 * 6144 * 4608 * 7168 / (4e15 * 1.25) * 1e6)
    assert words == "406 GFLOP at 5 PFLOP/s (fp8)"
    thin = Case("thin", {"m": 32, "n": 64, "k": 12_800_000}, 0)
    least, words = floor_us(problem, thin, GPU)
    amount = evaluate(problem.work["bytes"], thin.params)
    assert least == pytest.approx((amount - 50_000_000) / (4e12 * 1.25) * 1e6)
    assert "(memory)" in words


def test_what_fits_the_cache_is_not_charged_to_memory() -> None:
    problem = load("softmax", "leaderboard")
    least, words = floor_us(problem, problem.benchmarks[0], GPU)
    assert least == pytest.approx(8 * 4096 * 1024 / (4e12 * 1.25 * 10) * 1e6)
    assert "(cache)" in words


def test_a_precision_counts_units_for_it_and_for_wider_ones() -> None:
    problem = load("fp8_gemm")
    case = problem.benchmarks[0]
    cpu = Target("c", "cpu", "chip", peaks={"flops.fp32": 2e11, "flops.bf16": 6e12, "flops.int8": 1.2e13})
    assert floor_us(problem, case, cpu)[1].endswith("(bf16)")
    open_to_all = dataclasses.replace(problem, work={"flops": problem.work["flops"]})
    assert floor_us(open_to_all, case, cpu)[1].endswith("(int8)")


def test_without_work_or_peaks_there_is_no_floor() -> None:
    problem = load("softmax")
    case = problem.benchmarks[0]
    unknown = Target("odd", "cpu", "chip")
    assert floor_us(problem, case, unknown) == (0.0, "no floor: no peak rates are known for odd")
    bare = dataclasses.replace(problem, work={})
    assert floor_us(bare, case, detect()) == (0.0, "no floor: problem.yaml has no work")
    assert roofline.describe(bare, case, detect()).endswith("problem.yaml has no work")


def test_a_measured_core_has_a_floor_of_a_multiple_of_its_fastest_rate_and_never_above_its_instruction_sets() -> None:
    problem = load("softmax", "cpu")
    case = problem.benchmarks[0]
    seen = {"flops.fp32": 1e11, "bytes.32768": 2e11, "bytes": 1e10}
    slow, fast = (
        dataclasses.replace(CORE, measured={key: times * rate for key, rate in seen.items()}) for times in (1, 9)
    )
    amount, flops = evaluate(problem.work["bytes"], case.params), evaluate(problem.work["flops"], case.params)
    assert floor_us(problem, case, slow)[0] == pytest.approx(1e6 * max(amount / 4e11, flops / 2e11))
    assert floor_us(problem, case, fast) == floor_us(problem, case, CORE)


def test_a_roofline_of_a_cpu_is_that_of_the_level_which_its_traffic_fits() -> None:
    problem = load("softmax", "cpu")
    seen = {"flops.fp32": 1e15, "bytes.32768": 2e11, "bytes.1048576": 1e11, "bytes": 1e10}
    core = dataclasses.replace(CORE, measured=seen)
    found = {}
    for rows in (2, 64, 4096):
        case = Case("x", {**problem.benchmarks[0].params, "rows": rows, "cols": 1024}, 0)
        (row,) = [roofline.roofline(problem, case, core, 1000.0)]
        assert row is not None
        found[rows] = (row.bound, row.gbs / (row.share or 0) if row.gbs else 0)
    assert found == {
        2: ("cache", pytest.approx(200, rel=1e-3)),
        64: ("cache", pytest.approx(100, rel=1e-3)),
        4096: ("memory", pytest.approx(10, rel=1e-3)),
    }
    assert roofline.roofline(problem, problem.benchmarks[0], CORE, 1000.0) is None  # nothing was measured
    assert "no roofline: no probe ran here" in roofline.describe(problem, problem.benchmarks[0], CORE)


def test_floor_and_roofline_are_two_numbers_of_a_gpu() -> None:
    target = build(compose(["target=h200"]).target)
    problem = load("fp8_gemm", target=target)
    (case,) = (case for case in problem.benchmarks if case.name == "6144x7168x256")
    row = roofline.roofline(problem, case, target, 33.0)
    assert row is not None
    assert row.bound_us == pytest.approx(19.07, rel=1e-3)
    assert floor_us(problem, case, target)[0] == pytest.approx(9.12, rel=1e-2)
    words = roofline.describe(problem, case, target)
    assert "roofline 19.1 µs: memory at 4.8 TB/s" in words
    assert "the judge's floor 9.12 µs: 22.5 GFLOP at 2.47 PFLOP/s (fp8)" in words


@pytest.mark.parametrize(
    "option", ["a100", "h100", "h200", "b200", "l40s", "rtx4090", "mi300x", "mi325x", "mi350x", "mi355x"]
)
def test_known_chips_have_floors_that_make_sense(option: str) -> None:
    target = build(compose([f"target={option}"]).target)
    assert target.kind == "gpu"
    assert option in target.chip.lower().replace(" ", "")
    assert shipped_targets([target.chip]) == (option,)
    problem = load("fp8_gemm", target=target)
    floors = [floor_us(problem, case, target)[0] for case in problem.benchmarks]
    assert len(floors) == 18
    assert all(0.5 < least < 1500 for least in floors)
    assert 1 < target.peaks["flops.bf16"] / target.peaks["flops.fp32"] < 40


def test_names_of_gpus_lead_to_targets() -> None:
    assert shipped_targets(["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090"]) == (
        "h100",
        "a100",
        "rtx4090",
    )
    assert shipped_targets(["card0,AMD Instinct MI300X OAM,0x74a1", "Tesla T4", ""]) == ("mi300x",)


def test_a_chip_with_a_wrong_figure_is_refused() -> None:
    for peaks, words in (
        ({"flops.fp7": 1.0}, "unknown figure 'flops.fp7'"),
        ({"bytes": -1.0}, "not a positive number"),
    ):
        with pytest.raises(ConfigError, match=words):
            from_data_sheet("x", "chip", "sm_1", peaks)
    with pytest.raises(ConfigError, match="unknown figure 'lds'"):
        from_data_sheet("x", "chip", "sm_1", {"bytes": 1.0}, {"lds": 1})
