"""The derived bounds let honest float32 kernels pass with room to spare and stop the shortcuts."""

from collections.abc import Callable, Sequence

import numpy
import pytest
import torch

from ksflow.evaluation.judge import bounds
from ksflow.evaluation.judge.cases import Reference
from ksflow.evaluation.judge.elements import errors
from ksflow.evaluation.judge.mutants import MUTANTS, Right
from ksflow.evaluation.judge.tolerance import by_format, by_function, expected, first_error, worst_error
from ksflow.records import Check

SEED = torch.Generator()


@pytest.fixture(autouse=True)
def seeded() -> None:
    SEED.manual_seed(5)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=SEED)


def share(row: bounds.Row, got: torch.Tensor, c1: float = 8.0) -> float:
    """The largest error as a share of its bound; infinite when rejected."""
    want = expected(row, got, {"c1": c1, "accumulate": Check().accumulate})
    return worst_error(want, got) if not first_error(want, got) else float("inf")


def bf16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().to(x.dtype)


def digits(x: torch.Tensor, kept: int, cut: bool = False) -> torch.Tensor:
    """float32 numbers with so many bits after the point: rounded to the nearest even, or cut off."""
    bits, gone = x.view(torch.int32), 23 - kept
    return ((bits if cut else bits + (1 << (gone - 1)) - 1 + ((bits >> gone) & 1)) & -(1 << gone)).view(torch.float32)


def one_after_another(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = numpy.zeros((len(a), b.shape[1]), numpy.float32)
    for left, right in zip(a.T.numpy(), b.numpy(), strict=True):
        total += left[:, None] * right
    return torch.from_numpy(total)


def in_parts(add: Callable[..., torch.Tensor], a: torch.Tensor, b: torch.Tensor, count: int) -> torch.Tensor:
    total = torch.zeros(len(a), b.shape[1])
    for left, right in zip(a.split(count, 1), b.split(count), strict=True):
        total = total + add(left, right)
    return total


def by_lanes(a: torch.Tensor) -> torch.Tensor:
    return a.reshape(len(a), -1, 16).mT.reshape(len(a), -1)


def compensated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = lost = torch.zeros(len(a), b.shape[1])
    for left, right in zip(a.T, b, strict=True):
        product = left[:, None] * right - lost
        after = total + product
        total, lost = after, (after - total) - product
    return total


def three_terms_of_tf32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    high, low = zip(*((digits(x, 10), digits(x - digits(x, 10), 10)) for x in (a, b)), strict=True)
    small = in_parts(torch.mm, low[0], high[1], 32) + in_parts(torch.mm, high[0], low[1], 32)
    return in_parts(torch.mm, high[0], high[1], 32) + small


Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
MATMULS: dict[str, Product] = {
    "PyTorch": torch.mm,
    "NumPy": lambda a, b: torch.from_numpy(a.numpy() @ b.numpy()),
    "one after another": one_after_another,
    "backwards": lambda a, b: one_after_another(a.flip(1), b.flip(0)),
    "blocks": lambda a, b: in_parts(one_after_another, a, b, 32),
    "split k": lambda a, b: in_parts(torch.mm, a, b, -(-a.shape[1] // 4)),
    "lanes": lambda a, b: in_parts(torch.mm, by_lanes(a), by_lanes(b.T).T, a.shape[1] // 16),
    "pairs": lambda a, b: (a.T[:, :, None] * b[:, None]).sum(0),
    "compensated": compensated,
    "three terms of TF32": three_terms_of_tf32,
}
CONTENTS: dict[str, Callable[..., torch.Tensor]] = {
    "normal": normal,
    "uniform": lambda *shape: torch.rand(shape, generator=SEED) * 2 - 1,
    "heavy-tailed": lambda *shape: normal(*shape) * normal(*shape).mul(2).exp(),
    "one-signed": lambda *shape: torch.rand(shape, generator=SEED),
}
LOWER = {"TF32": 10, "bf16": 7, "e4m3": 3}


@pytest.mark.parametrize("contents", CONTENTS)
@pytest.mark.parametrize("depth", [16, 512, 4096, pytest.param(65536, marks=pytest.mark.slow)])
def test_float32_products_pass_and_products_of_rounded_operands_do_not(contents: str, depth: int) -> None:
    """By a factor of four either way; of one sign and from a depth of 4,096 on nothing tells them apart."""
    a, b = CONTENTS[contents](24, depth), CONTENTS[contents](depth, 24)
    row = bounds.matmul(a, b)
    bound = row["magnitude"] * 8 * 2**-23 * depth**0.5

    def off(got: torch.Tensor) -> float:
        return float(((got.double() - row["expected"]).abs() / bound).max())

    for name, product in MATMULS.items():
        assert off(product(a, b)) < 0.25, name
    told = contents != "one-signed" or depth < 4096
    for name, kept in LOWER.items():
        for cut in (False, True):
            lower = digits(a, kept, cut).double() @ digits(b, kept, cut).double()
            assert off(lower) > 4 or not (told or cut), (name, cut)


def test_a_problem_may_allow_lower_precision_by_name() -> None:
    for allow, kept in (("tf32", 10), ("bf16", 7)):
        for cut, part in ((False, normal), (True, CONTENTS["one-signed"])):
            a, b = part(64, 2048), part(2048, 64)
            row = bounds.matmul(a, b)
            got = (digits(a, kept, cut).double() @ digits(b, kept, cut).double()).float()
            coarser = (digits(a, kept - 3, cut).double() @ digits(b, kept - 3, cut).double()).float()
            for answer, word, right in ((got, allow, True), (got, "", False), (coarser, allow, False)):
                check = {"c1": 8.0, "accumulate": "float32", "allow": word}
                assert (not first_error(expected(row, answer, check), answer)) is right, (allow, cut, word)


def test_each_tensor_of_a_function_is_bounded_by_its_own_type() -> None:
    """Weights in float32 beside activations in bf16 must not be rounded to bf16; a cast may be a rounding."""
    x, weight, scale = normal(40, 300).bfloat16(), normal(300, 70), normal(300).bfloat16()

    def project(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x.float() @ weight

    def norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return scale * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype)

    def right(function: Product, inputs: Sequence[torch.Tensor], got: torch.Tensor, c1: int) -> bool:
        want = expected(bounds.perturbed(function, inputs)[0], got, {"c1": c1, "accumulate": "float32"})
        return not first_error(want, got)

    assert right(project, (x, weight), project(x, weight), 4)
    assert not right(project, (x, weight), project(x, bf16(weight)), 4)
    assert right(norm, (x, scale), norm(x, scale), 1)
    assert right(norm, (x, scale), norm(x.float(), scale.float()).bfloat16(), 1)
    wide = normal(40, 300).double(), normal(300, 70).double()
    assert right(torch.matmul, wide, wide[0] @ wide[1], 4)
    assert not right(torch.matmul, wide, (wide[0].float() @ wide[1].float()).double(), 4)


def test_matmul() -> None:
    a, b = normal(33, 64), normal(64, 65)
    row = bounds.matmul(a, b)
    assert share(row, a @ b) < 0.9
    assert share(row, bf16(a @ b)) == float("inf")
    shapes = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (5, 3, 4)), ((4, 0), (0, 3)), ((0, 4), (4, 3))]
    for left, right in shapes:
        a, b = normal(*left), normal(*right)
        assert bounds.matmul(a, b)["magnitude"].shape == (a @ b).shape
        assert not first_error(expected(bounds.matmul(a, b), a @ b, {"c1": 8.0, "accumulate": "float32"}), a @ b)


@pytest.mark.parametrize("depth", [256, 4096])
def test_a_matrix_unit_that_accumulates_in_less_has_room_and_rounded_operands_have_none(depth: int) -> None:
    a, b = normal(128, depth), normal(depth, 128)
    exact, spread = a.double() @ b.double(), (a.double().square() @ b.double().square()).sqrt()
    coarse = (exact + 0.0016 * spread * normal(128, 128).sign()).float()
    rounded = (bf16(a) @ bf16(b)).float()
    row = bounds.matmul(a, b)
    for got, unit, right in ((coarse, 0.004, True), (coarse, 0.0, False), (rounded, 0.004, False)):
        want = expected(row, got, {"c1": 8.0, "accumulate": "float32", "unit": unit})
        assert (not first_error(want, got)) is right


def test_matmul_in_batches_beyond_float32_and_of_integers() -> None:
    a, b = normal(2, 3, 4, 8), normal(2, 3, 8, 5)
    assert share(bounds.matmul(a, b), a @ b) < 0.5
    huge = bounds.matmul(a.double() * 1e30, b.double() * 1e30)
    assert bool(huge["magnitude"].isfinite().all())
    whole = torch.full((2, 2), 2**31 - 1)
    assert bounds.matmul(whole, whole)["expected"].tolist() == [[2 * (2**31 - 1) ** 2] * 2] * 2


@pytest.mark.parametrize("kind", ["sum", "mean"])
@pytest.mark.parametrize("dim", [0, 1, (0, 2)])
def test_sums(kind: str, dim: int | tuple[int, ...]) -> None:
    x = normal(7, 300, 11) + 1
    row = bounds.reduction(x, dim, kind)
    got = getattr(torch, kind)(x, dim)
    assert row["expected"].shape == got.shape
    assert share(row, got) < 0.5
    assert share(row, got * 1.0001) == float("inf")
    assert share(row, getattr(torch, kind)(bf16(x), dim)) == float("inf")


LONG: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "normal": lambda z: z,
    "far from zero": lambda z: z + 10,
    "squares": lambda z: z * z,
    "half of them zero": lambda z: z.relu(),
    "bf16": bf16,
    "few bits": lambda z: (z * 4).round() / 4 + 3,
    "sorted": lambda z: z.sort(dim=1).values,
    "one sign, then the other": lambda z: z.abs() * torch.linspace(1, -1, z.shape[1]).sign(),
    "alternating": lambda z: (z.abs() + 1) * (1 - 2 * (torch.arange(z.shape[1]) % 2)),
    "a wave": lambda z: torch.linspace(0, 700, z.shape[1]).sin() + z / 10,
}


def in_order(x: torch.Tensor) -> torch.Tensor:
    """One float32 accumulator for each row."""
    return torch.from_numpy(numpy.add.accumulate(x.numpy(), axis=1)[:, -1].copy())


HONEST: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "the library's, by pairs": lambda x: x.sum(1),
    "one accumulator": in_order,
    "backwards": lambda x: in_order(x.flip(1)),
    "two accumulators": lambda x: in_order(in_order(x.view(len(x), -1, 2).mT.reshape(-1, x.shape[1] // 2)).view(-1, 2)),
    "vectors of 16": lambda x: in_order(in_order(x.view(len(x), -1, 16).mT.reshape(-1, x.shape[1] // 16)).view(-1, 16)),
    "eight parts": lambda x: in_order(in_order(x.view(-1, x.shape[1] // 8)).view(-1, 8)),
    "atomic additions of blocks": lambda x: in_order(
        in_order(x.view(-1, 256)).view(len(x), -1)[:, torch.randperm(x.shape[1] // 256, generator=SEED)]
    ),
}


@pytest.mark.parametrize("n", [1 << 15, pytest.param(1 << 19, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", LONG)
def test_long_sums_in_any_order(kind: str, n: int) -> None:
    x = LONG[kind](normal(2, n))
    row = bounds.reduction(x, 1)
    usual = 8 * 2**-23 * n**0.5 * x.double().abs().sum(1)
    for name, add in HONEST.items():
        off = (add(x).double() - row["expected"]).abs()
        if bool((off < usual / 2).all()):  # what is so far off was never right
            assert share(row, add(x)) < 0.9, name
    assert share(bounds.reduction(x, 1, "mean"), add(x) / n) < 0.5


@pytest.mark.parametrize("kind", ["normal", "far from zero", "half of them zero"])
def test_a_mean_of_two_fifths_is_wrong(kind: str) -> None:
    x = LONG[kind](normal(4, 1 << 20))
    lazy = x[:, : x.shape[1] * 2 // 5].mean(1)
    assert share(bounds.reduction(x, 1, "mean"), lazy) == float("inf")
    assert share(bounds.reduction(x.view(4, 1024, 1024), (1, 2), "mean"), lazy) == float("inf")
    assert share(bounds.reduction(x.T, 0, "mean"), lazy) == float("inf")


def test_picks_and_integers_are_exact() -> None:
    x = normal(40, 50)
    for kind in ("max", "min", "argmax", "argmin"):
        got = getattr(torch, f"a{kind}" if kind in ("max", "min") else kind)(x, dim=1)
        assert share(bounds.reduction(x, 1, kind), got) == 0
        assert share(bounds.reduction(x, 1, kind), got.roll(1)) == float("inf")
    whole = torch.randint(-9, 9, (6, 6), generator=SEED)
    assert share(bounds.reduction(whole, 0), whole.sum(0)) == 0
    assert share(bounds.reduction(whole, 0), whole.sum(0) + 1) == float("inf")
    with pytest.raises(ValueError, match="kind 'median' is not one of sum, mean, max"):
        bounds.reduction(x, 0, "median")


def test_exact_allows_one_rounding_of_the_output_and_no_more() -> None:
    x = normal(1000)
    assert share(bounds.exact(x), x) == 0
    assert share(bounds.exact(x), x.nextafter(torch.tensor(9.0))) == float("inf")
    assert share(bounds.exact(x), x.bfloat16()) <= 1
    assert share(bounds.exact(x > 0), x > 0) == 0
    assert share(bounds.exact(x > 0), x >= 9) == float("inf")


@pytest.mark.parametrize("scale", [0.01, 1, 30])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(scale: float, dim: int) -> None:
    x = normal(9, 700, 5) * scale
    row = bounds.softmax(x, dim)
    got = torch.softmax(x, dim)
    torch.testing.assert_close(row["expected"], torch.softmax(x.double(), dim))
    assert share(row, got, 4) < 0.9
    assert share(row, torch.softmax(bf16(x), dim), 4) == float("inf")
    assert share(row, bf16(got), 4) == float("inf")
    assert share(row, got * 1.0001, 4) == float("inf")


Exponential = Callable[[torch.Tensor], torch.Tensor]
Softmax = Callable[[torch.Tensor], torch.Tensor]


def from_largest(x: torch.Tensor) -> torch.Tensor:
    return x - x.amax(1, keepdim=True)


def normed(exponential: Exponential, add: Callable[[torch.Tensor], torch.Tensor] = in_order) -> Softmax:
    """Two passes: exponentials, then each over their sum."""

    def softmax(x: torch.Tensor) -> torch.Tensor:
        powers = exponential(from_largest(x))
        return powers / add(powers).unsqueeze(1)

    return softmax


def online(x: torch.Tensor) -> torch.Tensor:
    """By blocks of 64, with the largest value and the sum so far."""
    largest, total = torch.full((len(x), 1), -torch.inf), torch.zeros(len(x), 1)
    for part in x.split(64, 1):
        now = largest.maximum(part.amax(1, keepdim=True))
        total = total * (largest - now).exp() + (part - now).exp().sum(1, keepdim=True)
        largest = now
    return (x - largest).exp() / total


def two_units_off(d: torch.Tensor) -> torch.Tensor:
    return d.exp() * (1 + torch.randint(-2, 3, d.shape, generator=SEED) * 2.0**-23)


def of_third_degree(d: torch.Tensor) -> torch.Tensor:
    """2^(d·log2 e), the fraction's part by a polynomial that is off by some 1e-4."""
    power = d.double() / numpy.log(2)
    whole, part = power.floor(), power - power.floor()
    nodes = (numpy.cos(numpy.pi * (numpy.arange(4) + 0.5) / 4) + 1) / 2
    fitted = numpy.polyfit(nodes, 2.0**nodes, 3)
    return (sum(float(one) * part ** (3 - at) for at, one in enumerate(fitted)) * 2.0**whole).float()


HONEST_SOFTMAX: dict[str, Softmax] = {
    "one accumulator": normed(torch.exp),
    "backwards": normed(torch.exp, lambda x: in_order(x.flip(1))),
    "by pairs": normed(torch.exp, lambda x: x.sum(1)),
    "online": online,
    "through the logarithm": lambda x: x.log_softmax(1).exp(),
    "a fast exponential": normed(two_units_off),
    "a rounded product": normed(lambda d: (d * torch.tensor(1.442695)).exp2()),
}


@pytest.mark.parametrize("shape", [(1, 262144), (4, 8192), (17, 1000), (13, 65)])
@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (30, 0), (0.01, 1000)])
def test_a_row_shares_what_its_sum_is_off_by_and_no_more(shape: tuple[int, int], scale: float, shift: float) -> None:
    x = normal(*shape) * scale + shift
    row = bounds.softmax(x)
    for name, kernel in HONEST_SOFTMAX.items():
        assert share(row, kernel(x), 4) < 0.6, name
    for add in (in_order, lambda powers: powers.double().sum(1).float()):
        lazy = normed(of_third_degree, add)(x)
        for most in (1 << 12, 1 << 22):
            want = expected(row, lazy, {"c1": 4.0, "accumulate": "float32"}, most)
            assert first_error(want, lazy)
            assert not first_error(want, online(x))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_common_factor_is_that_of_its_own_group(dim: int) -> None:
    x = normal(70, 60, 50)
    row = {**bounds.softmax(x, dim), "common": torch.full_like(x.amax(dim, keepdim=True), 1e4)}
    shared, own = (1 + 1e-3 * normal(*size).clamp(-1, 1) for size in (row["common"].shape, x.shape))
    for factor, right in ((shared, True), (own, False)):
        got = torch.softmax(x, dim) * factor
        for most in (1 << 10, 1 << 22):
            assert (not first_error(expected(row, got, {"c1": 4.0, "accumulate": "float32"}, most), got)) is right


def test_softmax_of_masked_and_of_impossible_rows() -> None:
    x = normal(6, 100)
    x[:, 50:] = -torch.inf
    x[0, 0] = torch.inf
    x[1, 3] = torch.nan
    row = bounds.softmax(x)
    got = torch.softmax(x, 1)
    assert got[:2].isnan().all()
    assert share(row, got, 4) < 0.9
    assert share(row, got.nan_to_num(), 4) == float("inf")
    assert share(row, got.roll(1, dims=1), 4) == float("inf")


def test_a_row_of_nan_leaves_the_other_rows_bounds_alone() -> None:
    x = normal(6, 100) * 10
    x[0, 0] = torch.nan
    assert bounds.softmax(x)["magnitude"][1:].equal(bounds.softmax(x[1:])["magnitude"])


def test_softmax_of_more_rows_than_fit_a_cache() -> None:
    x = normal(300, 1000)
    assert bounds.softmax(x)["expected"].equal(torch.cat([bounds.softmax(part)["expected"] for part in x.split(7)]))


def test_elementwise_knows_cancellation_and_condition() -> None:
    x, y = normal(5000), normal(5000)
    total = bounds.elementwise(x.double() * y.double() + x.double(), x.double() * y.double(), x)
    assert share(total, x * y + x) < 0.5
    assert share(total, bf16(x) * y + x) == float("inf")
    assert share(bounds.elementwise(x.double() - y.double(), x, y), x - y) < 0.5
    large = x * 18
    honest = torch.exp(large - y)
    exponent = large.double() - y.double()
    known = bounds.elementwise(exponent.exp(), condition=exponent.abs())
    assert share(known, honest) < 0.5
    assert share(bounds.elementwise(exponent.exp()), honest) == float("inf")
    assert share(bounds.elementwise(x.double() + 3, 3.0), x + 3) < 0.5


@pytest.mark.parametrize("most", [1 << 14, 1 << 22])
@pytest.mark.parametrize("left", [0, 1, 63])
def test_every_sample_of_a_large_output_has_its_very_end(most: int, left: int) -> None:
    exact = torch.zeros((1 << 22) + 64 + left)
    want = expected(bounds.exact(exact), exact, {"c1": 8.0, "accumulate": "float32"}, most)
    assert want.sample is not None
    assert not first_error(want, exact)
    for place in {0, len(exact) - 1, len(exact) - max(left, 1)}:
        got = exact.clone()
        got[place] = torch.nan
        assert first_error(want, got)["index"] == [place]


def test_helpers_leave_their_operands_alone() -> None:
    x = normal(8, 8)
    kept = x.clone()
    bounds.matmul(x, x), bounds.softmax(x), bounds.reduction(x, 0), bounds.elementwise(x, x), bounds.exact(x)
    assert x.equal(kept)


def answer(kind: torch.dtype) -> torch.Tensor:
    """One of a type, with which all kinds of wrong answers can be told from right ones."""
    if kind.is_complex or kind.is_floating_point:
        return normal(96).to(torch.complex64).mul(1 + 2j).to(kind) if kind.is_complex else normal(96).to(kind)
    return (torch.arange(96) % 3 % 2).to(kind)


@pytest.mark.parametrize("kind", ["complex64", "complex128", "float64", "bfloat16", "bool", "int8", "uint64"])
def test_wrong_answers_of_every_type_are_told_from_right_ones(kind: str) -> None:
    out = answer(getattr(torch, kind))
    row = {"expected": out, "magnitude": torch.zeros(()) if not out.is_complex() else out.abs(), "terms": 1}
    want = (expected(row, out, {"c1": 4.0, "accumulate": "float32"}),)
    other = torch.cat((out[1:], out[:1]))
    right = Right((out, out), (out,), want, (other, other), lambda data: (data[0],))
    assert not first_error(want[0], out)
    assert errors(out, out) == (0.0, 0.0)
    played = set()
    for mutant in MUTANTS:
        for made in mutant.answers(right):
            played.add(mutant.name)
            assert made[0].dtype == out.dtype
            assert first_error(want[0], made[0]), mutant.name
    assert {"zeros", "a constant", "one wrong element", "unwritten outputs"} <= played
    assert ("a wrong scale" in played) == (out.is_complex() or out.is_floating_point())


def test_truth_values_are_bytes_and_complex_numbers_have_two_parts() -> None:
    check = {"c1": 4.0, "accumulate": "float32"}
    bools = expected(bounds.exact(torch.ones(4, dtype=torch.bool)), torch.zeros(4, dtype=torch.bool), check)
    assert not first_error(bools, torch.ones(4, dtype=torch.bool))
    for byte in (0xFF, 0x3F, 2, 0):
        assert first_error(bools, torch.full((4,), byte, dtype=torch.uint8).view(torch.bool))["bad"] == 4
    z = torch.complex(normal(3, 5), normal(3, 5))
    row = {"expected": z, "magnitude": torch.zeros(()), "terms": 1}
    want = expected({**row, "relative": 1e-3}, z, check)
    turned = torch.complex(z.real, z.imag + 2e-4 * z.abs())
    assert not first_error(want, turned)
    assert 0.1 < worst_error(want, turned) < 0.3
    found = first_error(want, torch.complex(z.real, torch.full((3, 5), 7.0)))
    assert (found["index"], found["got"], found["of"]) == ([0, 0, 1], 7.0, 30)
    assert first_error(expected(row, z, check), turned)


def test_what_cannot_be_compared_is_refused_by_name() -> None:
    check = {"c1": 4.0, "accumulate": "float32"}
    for value in (torch.tensor([1.5]), torch.tensor([torch.nan]), torch.tensor([1 + 2j])):
        with pytest.raises(ValueError, match=r"of an output of torch\.int32 is no integer"):
            expected(bounds.exact(value), torch.zeros(1, dtype=torch.int32), check)
    unknown = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    reference = object.__new__(Reference)
    reference.outputs = 1
    with pytest.raises(ValueError, match=r"argument 1 is torch\.float4_e2m1fn_x2, which the judge cannot compare"):
        reference.layout((torch.zeros(4), unknown))
    for row in (bounds.matmul, bounds.elementwise):
        with pytest.raises(ValueError, match="takes real tensors only"):
            row(torch.zeros(2, 2, dtype=torch.complex64), torch.zeros(2, 2))


def _distances(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """In float32 it cancels digits."""
    a, b = data
    return torch.exp(-((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * (a @ b.T)).clamp(min=0) / 2)


def test_a_functions_rounding_errors_are_not_what_is_right() -> None:
    points = torch.rand(400, 32, generator=torch.Generator().manual_seed(0)) * 10
    data = (points, torch.cat((points[:200] + 0.05, points[300:])))
    (row,) = by_function(_distances, data, ())
    own = by_format(_distances(data))
    out, check = torch.empty(400, 300), {"c1": 1, "accumulate": "float32"}
    exact = torch.exp(-((data[0].double()[:, None] - data[1].double()) ** 2).sum(-1) / 2).float()
    assert first_error(expected(own, out, check), exact), "its own answer is no better than the bound"
    want = expected(row, out, check)
    assert not first_error(want, exact)
    assert not first_error(want, _distances(data))
    for wrong in (exact * 0, exact * 1.001, exact.roll(1, 0)):
        assert first_error(want, wrong)


@pytest.mark.parametrize(
    "function",
    [
        lambda data: (data[0] * 100).round().to(torch.int32),
        lambda data: data[0].view(torch.int32).bitwise_and(-256).view(torch.float32),
        lambda data: data[0] * (1 if data[0].dtype is torch.float32 else 2),
        lambda data: data[0] @ torch.ones(8, 8),
    ],
    ids=["integers", "bits", "another result in float64", "no float64"],
)
def test_a_functions_own_answer_is_right_where_float64_says_nothing(
    function: Callable[[tuple[torch.Tensor, ...]], torch.Tensor],
) -> None:
    data = (torch.rand(8, 8, generator=torch.Generator().manual_seed(0)),)
    (row,) = by_function(function, data, ())
    assert torch.equal(row["expected"], function(data))
