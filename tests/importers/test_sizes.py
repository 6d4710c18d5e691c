"""Sizes that are cut for a small machine: those that differ stay apart, so that mixing them up is noticed."""

import ast
from pathlib import Path

import pytest
from importers.test_kernelbench import NEW, answer, foreign, room

from ksflow.errors import ConfigError
from ksflow.evaluation.sandbox.runners.cpu import WrongResult
from ksflow.formats import cases, describe, sizes
from ksflow.formats.kernelbench import importer
from ksflow.kernels.hardware.target import detect

_HEAD = "import torch\nimport torch.nn as nn\n\n\n"
TRANSPOSED = f"""{_HEAD}class Model(nn.Module):
    def forward(self, A, B):
        product = torch.matmul(A.T, B)
        return torch.cat((product, torch.zeros(99999, B.shape[1])))[: A.shape[1]]


M = 1024 * 2
K = 4096 * 2
N = 2048 * 2


def get_inputs():
    return [torch.rand(K, M), torch.rand(K, N)]


def get_init_inputs():
    return []
"""
NORM = f"""{_HEAD}class Model(nn.Module):
    def forward(self, x):
        return x / torch.sqrt((x * x).sum(1, keepdim=True) / x.shape[1])


batch_size = 112
features = 64
dim1 = 512
dim2 = 512


def get_inputs():
    return [torch.rand(batch_size, features, dim1, dim2)]


def get_init_inputs():
    return []
"""
LINKED = f"""{_HEAD}class Model(nn.Module):
    def __init__(self, channels, wide):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, wide, 4, stride=2, padding=1)
        self.norm = nn.LayerNorm(wide)

    def forward(self, x):
        return self.norm(self.up(x))


batch_size = 4096
in_channels, out_channels = 32, 64
height, width = 32, 32


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
"""
"""A layer's size is twice an input's: neither can be cut alone."""
BROKEN = f"""{_HEAD}class Model(nn.Module):
    def forward(self, x):
        return x.nothing_of_the_kind()


rows = 8192


def get_inputs():
    return [torch.rand(rows, rows)]


def get_init_inputs():
    return []
"""


def named(text: str, cap: int) -> dict[str, int]:
    """The sizes of a source under a cap."""
    found = sizes.constants(ast.parse(sizes.resize_source(text, sizes.edits(text), cap)[0]))
    return {name: int(ast.literal_eval(value)) for name, value in found.items()}


@pytest.mark.parametrize("cap", [16, 64, 1024, 2048, 4096])
def test_dimensions_that_differ_still_do_and_keep_their_order(cap: int) -> None:
    found = named(TRANSPOSED, cap)
    assert found["M"] < found["N"] < found["K"] <= cap
    assert found["K"] % found["N"] == found["N"] % found["M"] == 0
    assert sizes.resize_source(TRANSPOSED, sizes.edits(TRANSPOSED), cap)[1] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [(TRANSPOSED, ("A.shape[1]", "A.shape[0]")), (NORM, ("/ x.shape[1])", "/ x.shape[0])"))],
    ids=["rows of another dimension", "divided by the batch"],
)
@pytest.mark.parametrize("cap", [16, 64])
def test_a_kernel_that_takes_one_dimension_for_another_is_wrong_at_small_sizes_too(
    text: str, wrong: tuple[str, str], cap: int
) -> None:
    side = foreign(text)
    data = side.generate_input(3, cap=cap)
    (row,) = side.oracle(data)
    (right,) = answer(text + NEW, data)
    assert ((right.double() - row["expected"]).abs() <= room(row)).all()
    mistaken = text.replace(*wrong)
    if "matmul" in text:
        mistaken = mistaken.replace(
            "torch.matmul(A.T, B)", "torch.nn.functional.pad(torch.matmul(A.T, B), (0, 0, 0, 999))"
        )
    try:
        (out,) = answer(mistaken + NEW, data)
    except WrongResult:
        return
    assert not ((out.double() - row["expected"]).abs() <= room(row)).all()


def test_the_batch_is_cut_first() -> None:
    assert named(NORM, 1024) == {"batch_size": 56, "features": 64, "dim1": 512, "dim2": 512}
    assert named(NORM, 128) == {"batch_size": 8, "features": 64, "dim1": 128, "dim2": 128}


def test_a_batch_that_equals_another_size_stays_equal_to_it() -> None:
    """Targets for each row may be broadcast along the columns: such a loss needs as many of one as of the other."""
    assert named("batch_size = 32768\nwide = 32768\nlong = 4096\n", 64) == {"batch_size": 64, "wide": 64, "long": 32}


def test_what_sizes_are_divided_by_still_divides_them() -> None:
    text = "heads = 12\nwide = 768\nlength = 1024\ngroups = 3\nchannels, more = 240, 480\nclasses = 1000\n"
    for cap in (64, 128, 256):
        found = named(text, cap)
        assert found["wide"] % found["heads"] == 0
        assert found["channels"] % found["groups"] == 0
        assert len({*found.values()}) == len(found)
    found = named("groups = 3\nchannels, more = 240, 480\nclasses = 1000\n", 64)
    assert found["more"] % found["channels"] == found["channels"] % found["groups"] == 0


def test_names_that_are_assigned_together_are_one_size() -> None:
    text = "batch = 64\nheight = width = 256\nwide = 128\n"
    assert named(text, 64) == {"batch": 4, "height": 64, "width": 64, "wide": 32}


def test_an_odd_size_stays_odd() -> None:
    found = named("M = 8205\nN = 5921\nP = 8191\n", 256)
    assert all(value % 2 for value in found.values())
    assert len({*found.values()}) == 3


def test_no_cut_size_becomes_one_that_stays() -> None:
    text = NORM.replace("torch.rand(batch_size", "torch.rand(8 + batch_size")
    assert 8 not in named(text, 16).values()
    assert 7 not in sizes.cut_sizes([("m", 49), ("n", 4096)], 14, fixed=[7])


def test_where_there_is_no_room_it_is_said() -> None:
    text = "\n".join(f"d{number} = {number}" for number in range(20, 40))
    assert {*named(text, 16).values()} == {16}
    (said,) = sizes.resize_source(text, sizes.edits(text), 16)[1]
    assert said.startswith("d20 and d21 and")
    assert said.endswith("are 16")


def test_parameters_of_a_case_stay_apart_too() -> None:
    case = {"m": 1024, "n": 1536, "k": 7168, "shape": [6144, 4], "fast": True, "mode": "x"}
    found = cases.cap_params(case, 1024)
    assert found["m"] < found["n"] < found["shape"][0] < found["k"] <= 1024
    assert found["k"] % 128 == 0
    assert (found["fast"], found["mode"], found["shape"][1]) == (True, "x", 4)
    assert cases.merged_sizes([({"m": 20, "n": 30}, 1)], 4, ()) == ["m and n are 4"]


def written(folder: Path, text: str) -> str:
    (folder / "mine.py").write_text(text)
    return str(folder / "mine.py")


@pytest.mark.slow
@pytest.mark.parametrize(("cap", "pair"), [(16, "8, 16"), (32, "16, 32")])
def test_sizes_that_hang_together_are_cut_together(tmp_path: Path, cap: int, pair: str) -> None:
    found = importer.load(written(tmp_path, LINKED), cap=cap, target=detect())
    assert f"in_channels, out_channels = {pair}" in found.listing


@pytest.mark.slow
def test_a_warning_where_sizes_became_alike(tmp_path: Path) -> None:
    found = importer.load(written(tmp_path, TRANSPOSED), cap=4, target=detect())
    (said,) = [line for line in found.origin["inferred"] if "not noticed" in line]
    assert said.endswith("M and K and N are 4")


@pytest.mark.slow
def test_a_failure_that_has_nothing_to_do_with_size_ends_the_search_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        importer.load(written(tmp_path, BROKEN), target=detect())
    assert "AttributeError" in str(caught.value)
    assert "problem.cap" not in str(caught.value)
    assert "at the largest size" not in str(caught.value)


def test_the_limit_that_was_met_is_named() -> None:
    order = {"device": "cpu", "memory": 1 << 20, "generate_s": 0.5, "run_s": 0.01}
    row = {"bytes": 3 << 20, "generate_s": 0.0, "run_s": 0.0, "first_s": 0.0}
    small = {**row, "bytes": 0}
    assert describe._beyond(row, order) == "its inputs and outputs are 3 MB, and may be 1"
    assert describe._beyond({**small, "run_s": 2.0}, order) == "the reference runs for 2.0 s, and may for 0.01"
    assert describe._beyond({**small, "generate_s": 2.0}, order) == "its inputs take 2.0 s to make, and may take 0.5"
    assert describe._beyond({**small, "first_s": 9.0}, order) == "the reference takes 9.0 s to be made, and may take 5"
    assert describe._beyond(small, order) == ""


@pytest.mark.slow
def test_sizes_as_they_are_are_taken_where_the_limits_of_a_search_would_cut_them(tmp_path: Path) -> None:
    text = NORM.replace("batch_size = 112", "batch_size = 1")  # 128 MB, where 64 are the limit
    found = importer.load(written(tmp_path, text), cap=None, target=detect())
    assert found.benchmarks[0].name == "original"
    assert found.origin["cap"] is None
