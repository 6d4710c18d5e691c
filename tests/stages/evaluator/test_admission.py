"""A sound problem is admitted; a problem that cannot be judged is refused with the sentence that says why."""

import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from ksflow.evaluation.judge.cases import Reference
from ksflow.evaluation.judge.probes import probe
from ksflow.kernels.problem.loader import load

Rows = dict[str, tuple[bool, str]]
Admit = Callable[..., Rows]

YAML = """
title: a trap
args:
  - {name: x, dtype: float32, shape: "n, 3", layout: "row-major, strides (3, 1)", role: in}
  - {name: y, dtype: DTYPE, shape: n, layout: row-major, role: out}
dims: [n]
check: {c1: 8, accumulate: float32}
cases:
  cpu: {tests: [{n: 1, seed: 1}, {n: 50, seed: 2}], benchmarks: [{n: 400, seed: 3}, {n: 500, seed: 4}]}
"""
CODE = """
import torch
from ksflow.evaluation.judge import bounds

def generate_input(n, seed, device="cpu"):
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn((n, 3), generator=generator), torch.zeros(n, dtype=torch.DTYPE)

def ref_kernel(data):
    x, y = data
    return torch.sum(x, 1, out=y)

def oracle(data):
    return bounds.reduction(data[0], 1)
"""


def admit(problem: str, variant: str | None = None) -> Rows:
    """What the judge says of a problem."""
    found = load(problem, variant=variant)
    cases = {
        kind: [{"name": case.name, "params": dict(case.params), "seed": case.seed} for case in getattr(found, kind)]
        for kind in ("tests", "benchmarks")
    }
    args = [asdict(arg) for arg in found.args]
    spec = {"root": found.root, "args": args, "dims": list(found.dims), "check": asdict(found.check), **cases}
    return {name: (ok, detail) for name, ok, detail in probe(Reference(spec))}


@pytest.fixture
def trap(tmp_path: Path) -> Admit:
    """Row sums, with one thing changed in the code or the YAML."""

    def made(old: str = "", new: str = "", dtype: str = "float32") -> Rows:
        assert old in CODE or old in YAML
        for name, text in (("reference.py", CODE), ("problem.yaml", YAML)):
            changed = text.replace(old, new) if old else text
            (tmp_path / name).write_text(changed.replace("DTYPE", dtype))
        (tmp_path / "statement.md").write_text("Add up the rows.")
        return admit(str(tmp_path))

    return made


def failed(rows: Rows) -> dict[str, str]:
    return {name: detail for name, (ok, detail) in rows.items() if not ok}


def test_a_sound_problem_is_admitted(trap: Admit) -> None:
    rows = trap()
    assert not failed(rows)
    assert "of its bound" in rows["reference"][1]
    assert rows["rejects lower precision"][1].startswith("on ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "variant"),
    [
        ("softmax", None),
        ("fp8_gemm", None),
        pytest.param("fp8_gemm", "e4m3fn_kmajor", marks=pytest.mark.soak),
        pytest.param("depthwise_conv3d", None, marks=pytest.mark.soak),
        ("depthwise_conv3d", "float32"),
        ("trimul", None),
        pytest.param("trimul", "static", marks=pytest.mark.soak),
    ],
)
def test_shipped_problems_are_admitted(problem: str, variant: str | None) -> None:
    assert not failed(admit(problem, variant))


@pytest.mark.parametrize(
    ("old", "new", "row", "words"),
    [
        ("manual_seed(seed)", "manual_seed(0)", "seeds", "the same contents for seeds 1 and 2"),
        ("manual_seed(seed)", "manual_seed(seed).seed() and None", "seeds", "other contents at each call for seed 1"),
        ("    return torch.sum(x", "    x.abs_()\n    return torch.sum(x", "inputs", "ref_kernel changes its input x"),
        (
            "bounds.reduction(data[0], 1)",
            "bounds.reduction(data[0].add_(1), 1)",
            "inputs",
            "oracle changes its input x",
        ),
        (
            "torch.randn((n, 3), ",
            "torch.randn((n, 3), dtype=torch.float64, ",
            "arguments",
            "x is float64, args declares",
        ),
        ("torch.randn((n, 3), ", "torch.randn((n, 4), ", "arguments", r"x has shape \(1, 4\), args declares \(n, 3\)"),
        ("strides (3, 1)", "strides (1, n)", "arguments", r"case 50: x has strides \(3, 1\), args declares \(1, 50\)"),
        ("strides (3, 1)", "strides (k, 1)", "arguments", "'k' is not known; known are n"),
        ("role: out}", "role: in}", "arguments", "inputs come first, then at least one preallocated output"),
        ("torch.sum(x, 1, out=y)", "torch.sum(x, 1) * 1.5", "reference", "the reference fails its own bound: 1 of 1"),
        ("torch.sum(x, 1, out=y)", "torch.sum(x)", "reference", "ref_kernel returns"),
        ("torch.sum(x, 1, out=y)", "y.fill_(torch.nan)", "reference", "got nan, the oracle expects -?[0-9]"),
        (
            "bounds.reduction(data[0], 1)",
            "bounds.reduction(data[0] / 0, 1)",
            "reference",
            "the oracle expects -?(inf|nan)",
        ),
    ],
)
def test_an_unsound_problem_is_refused(trap: Admit, old: str, new: str, row: str, words: str) -> None:
    rows = trap(old, new)
    assert list(failed(rows)) == [row]
    assert re.search(words, failed(rows)[row]), failed(rows)[row]
    assert list(rows)[-1] == row


LAZY = {
    "constant in its input": (
        "torch.sum(x, 1, out=y)",
        "y.copy_(torch.arange(len(y)))",
        "bounds.reduction(data[0], 1)",
        "bounds.exact(torch.arange(len(data[1])))",
        "the answer to other inputs",
        "hardly depend on the inputs, so a kernel could keep its first answer; draw inputs that move",
    ),
    "looser than the signal": (
        "bounds.reduction(data[0], 1)",
        '{"expected": data[0].double().sum(1), "magnitude": 1e9, "terms": 1}',
        "",
        "",
        "zeros",
        "accepted on case 400, 500: a kernel that writes nothing but zeros would win; let the oracle's magnitude",
    ),
    "mean near 0": (
        "torch.randn((n, 3), ",
        "1 + 1e-7 * torch.randn((n, 3), ",
        "",
        "",
        "a constant",
        "a kernel that writes the mean everywhere would win",
    ),
    "bf16 is near enough": ("c1: 8", "c1: 40000", "", "", "lower precision", "arithmetic in bf16 would pass where"),
    "2 % is near enough": ("c1: 8", "c1: 400000", "", "", "a wrong scale", "outputs 2 % too large would pass"),
    "no bound for a part": (
        "return bounds.reduction(data[0], 1)",
        "row = bounds.reduction(data[0], 1)\n    row['magnitude'][-1] = torch.inf\n    return row",
        "",
        "",
        "one wrong element",
        "an index that is off would pass",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAZY)
def test_a_problem_that_takes_wrong_answers_is_refused(trap: Admit, tmp_path: Path, name: str) -> None:
    old, new, more, instead, row, words = LAZY[name]
    trap(old, new)
    code = tmp_path / "reference.py"
    code.write_text(code.read_text().replace(more, instead) if more else code.read_text())
    found = failed(admit(str(tmp_path)))
    assert words in found[f"rejects {row}"], found


@pytest.mark.slow
def test_a_mean_of_values_far_from_zero_is_refused_and_one_around_zero_is_admitted(trap: Admit, tmp_path: Path) -> None:
    """What a lazy mean is off by has to be more than one float32 accumulator is."""
    trap()
    yaml, code = tmp_path / "problem.yaml", tmp_path / "reference.py"
    yaml.write_text(yaml.read_text().replace('"n, 3"', '"n, 65536"').replace("(3, 1)", "(65536, 1)"))
    yaml.write_text(yaml.read_text().replace("n: 400", "n: 4").replace("n: 500", "n: 5"))
    text = code.read_text().replace("(n, 3)", "(n, 65536)").replace("torch.sum(", "torch.mean(")
    text = text.replace("bounds.reduction(data[0], 1)", 'bounds.reduction(data[0], 1, "mean")')
    code.write_text(text)
    assert not failed(admit(str(tmp_path)))
    code.write_text(text.replace("torch.randn(", "1000 + torch.arange(n).unsqueeze(1) + torch.randn("))
    found = failed(admit(str(tmp_path)))
    words = "a kernel that takes the first 7 of 8 parts of x along dimension 1 for the rest too would win"
    assert f"accepted on case 4, 5: {words}" in found["rejects a part of an input"]
    assert "draw contents in which every part weighs more than the bound" in found["rejects a part of an input"]


PRODUCT = """
import torch
from ksflow.evaluation.judge import bounds

def generate_input(m, seed, device="cpu"):
    generator = torch.Generator(device=device).manual_seed(seed)
    a, b = (torch.randn(m, m, generator=generator) for _ in range(2))
    return a, b, torch.zeros(m, m)

def ref_kernel(data):
    return torch.mm(data[0], data[1], out=data[2])

def oracle(data):
    row = bounds.matmul(data[0], data[1])
    return {**row, "magnitude": row["magnitude"] * LOOSER}
"""


@pytest.mark.parametrize(
    ("looser", "change", "kinds"),
    [
        (1, "", {}),
        (2000, "", {"one operand in lower precision": "rounds [ab] to bf16"}),
        (
            7e5,
            "",
            {
                "a part of an input": "takes the first .* of [ab] along dimension [01]",
                "one operand in lower precision": "rounds [ab] to bf16",
            },
        ),
        (1, "a, b = a + 30, b + 30", {}),
        (
            100,
            "a, b = a + 300, b + 300",
            {"a matrix of low rank": "computes a matrix of rank 1 in place of the output"},
        ),
        (100, "a = 300 + a.cumsum(0) / m", {"outputs copied from their neighbours": "every other element along dim"}),
    ],
)
def test_shortcuts_in_a_product_are_named(tmp_path: Path, looser: float, change: str, kinds: dict[str, str]) -> None:
    args = "".join(f'  - {{name: {name}, dtype: float32, shape: "m, m", role: in}}\n' for name in "ab")
    cases = "cases:\n  cpu: {tests: [{m: 16, seed: 1}], benchmarks: [{m: 64, seed: 2}]}\ncheck: {contents: own}\n"
    yaml = (
        f"title: a product\nargs:\n{args}  - {{name: c, dtype: float32, shape: 'm, m', role: out}}\ndims: [m]\n{cases}"
    )
    (tmp_path / "problem.yaml").write_text(yaml)
    (tmp_path / "statement.md").write_text("Multiply.")
    code = PRODUCT.replace("LOOSER", str(looser)).replace("    return a, b,", f"    {change}\n    return a, b,")
    (tmp_path / "reference.py").write_text(code)
    found = failed(admit(str(tmp_path)))
    for kind, words in kinds.items():
        assert re.search(words, found.get(f"rejects {kind}", "")), found
    assert kinds or not found


STEP = """
import torch
from ksflow.evaluation.judge import bounds

def generate_input(n, seed, device="cpu"):
    generator = torch.Generator(device=device).manual_seed(seed)
    weight, gradient = (torch.randn(n, generator=generator) for _ in range(2))
    mask = torch.ones(n)
    CHANGE
    return weight, gradient, mask, torch.zeros(n)

def ref_kernel(data):
    weight, gradient, mask, out = data
    return out.copy_(weight - RATE * gradient * mask)

def oracle(data):
    weight, gradient, mask = (one.double() for one in data[:3])
    moved = RATE * gradient * mask
    row = bounds.elementwise(weight - moved, weight, moved)
    return {**row, "magnitude": row["magnitude"] * LOOSER}
"""


@pytest.mark.parametrize(
    ("rate", "looser", "change", "words"),
    [
        (0.5, 1, "mask[torch.rand(n, generator=generator) < 0.5] = 0", ""),
        (0.5, 1, "", "in every case mask is the same for every seed: a kernel that never reads it would win"),
        (0.5, 1, "mask[::3] = 0", ""),
        (1e-3, 1e5, "mask[::2] = seed % 5", "gradient may be any other within the bound; mask may be any other"),
    ],
    ids=["sound", "a mask that never masks", "a mask that may be kept", "a step that is within the bound"],
)
def test_an_input_that_need_not_be_read_is_named(
    tmp_path: Path, rate: float, looser: float, change: str, words: str
) -> None:
    args = "".join(f"  - {{name: {name}, dtype: float32, role: in}}\n" for name in ("weight", "gradient", "mask"))
    cases = "cases:\n  cpu: {tests: [{n: 16, seed: 1}], benchmarks: [{n: 64, seed: 2}]}\n"
    (tmp_path / "problem.yaml").write_text(
        f"title: a step\nargs:\n{args}  - {{name: out, dtype: float32, role: out}}\ndims: [n]\n{cases}"
    )
    (tmp_path / "statement.md").write_text("One step of an optimiser.")
    text = STEP.replace("RATE", str(rate)).replace("LOOSER", str(looser)).replace("CHANGE", change)
    (tmp_path / "reference.py").write_text(text)
    rows = admit(str(tmp_path))
    found = failed(rows)
    assert ("but for mask: the same for every seed" in rows["seeds"][1]) == (
        "seed" not in change and "rand" not in change
    )
    assert bool(words) == ("rejects inputs that are never read" in found), found
    assert words in found.get("rejects inputs that are never read", "")


def test_a_property_alone_can_decide(trap: Admit, tmp_path: Path) -> None:
    trap()
    code = tmp_path / "reference.py"
    body, _, _ = code.read_text().partition("def oracle")
    near = "torch.isclose(outputs, data[0].sum(1)).all()"
    code.write_text(f'{body}\ndef property_check(data, outputs):\n    return "" if {near} else "no sum"\n')
    rows = admit(str(tmp_path))
    assert not failed(rows)
    assert "does not apply" in rows["rejects one wrong element"][1]
    code.write_text(f'{body}\ndef property_check(data, outputs):\n    return ""\n')
    assert {"rejects zeros", "rejects the answer to other inputs", "rejects unwritten outputs"} <= failed(
        admit(str(tmp_path))
    ).keys()
    code.write_text(f'{body}\ndef property_check(data, outputs):\n    return "never right"\n')
    assert failed(admit(str(tmp_path)))["reference"].endswith("fails property_check: never right")


def test_integers_are_admitted_by_the_checks_that_apply(trap: Admit, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"of an output of torch.int64 is no integer"):
        trap(dtype="int64")
    code = tmp_path / "reference.py"
    text = code.read_text().replace("torch.sum(x, 1, out=y)", "y.copy_(x.argmax(1))")
    code.write_text(text.replace("bounds.reduction(data[0], 1)", 'bounds.reduction(data[0], 1, "argmax")'))
    rows = admit(str(tmp_path))
    assert not failed(rows)
    assert "does not apply: the outputs are integers" in rows["rejects a wrong scale"][1]


def test_the_mutation_score_names_what_the_check_cannot_tell(trap: Admit) -> None:
    words = trap()["mutation score"][1]
    killed, kinds = map(int, re.findall(r"kills (\d+) of (\d+) kinds", words)[0])
    assert killed == kinds >= 40, words
    words = trap("c1: 8", "c1: 40000")["mutation score"][1]
    assert "it does not detect:" in words
    assert "rounded to TF32" in words


def test_one_signed_products_are_told_apart_on_contents_of_both_signs(tmp_path: Path) -> None:
    """On their own contents float32 products err as much as TF32 products do; a problem may keep to those."""
    args = "".join(f'  - {{name: {name}, dtype: float32, shape: "{shape}", role: in}}\n' for name, shape in AB)
    yaml = f"title: a product\nargs:\n{args}  - {{name: c, dtype: float32, shape: 'm, m', role: out}}\ndims: [m, k]\n"
    cases = "cases:\n  cpu: {tests: [{m: 4, k: 8, seed: 1}], benchmarks: [{m: 12, k: 8192, seed: 2}]}\n"
    (tmp_path / "statement.md").write_text("Multiply.")
    code = PRODUCT.replace('"] * LOOSER', '"]').replace("(m, seed", "(m, k, seed")
    code = code.replace("a, b = (torch.randn(m, m, generator=generator) for _ in range(2))", DEEP)
    (tmp_path / "reference.py").write_text(code)
    for contents, told in (("structured", True), ("own", False)):
        (tmp_path / "problem.yaml").write_text(f"{yaml}check: {{contents: {contents}}}\n{cases}")
        found = failed(admit(str(tmp_path)))
        assert bool(found) is not told, found
        assert told or re.search("rounds [ab] to TF32 would win.*check.allow", found[ONE_OPERAND])


AB = (("a", "m, k"), ("b", "k, m"))
DEEP = "a, b = torch.rand(m, k, generator=generator), torch.rand(k, m, generator=generator)"
ONE_OPERAND = "rejects one operand in lower precision"
