"""Tunables in every language, from text that may be hostile."""

import time

import pytest

from ksflow.tunables import assign, tunables, values

TEXT = """int x = 3;
constexpr int MR = 8;         // tune: 4 6 8 12 | tile: rows of the register tile
  #define STAGES 2            // tune: 1 2 3
BLOCK_M: tl.constexpr = 64    # tune: 32, 64, 128
constexpr Form FORM = naive;  // tune: naive ikj | form
FAST = 7  # not a tune line
"""


def test_what_is_declared_is_found() -> None:
    found = {t.name: t for t in tunables(TEXT)}
    assert values(TEXT) == {"MR": "8", "STAGES": "2", "BLOCK_M": "64", "FORM": "naive"}
    assert found["MR"].options == ("4", "6", "8", "12")
    assert (found["MR"].kind, found["MR"].doc) == ("tile", "rows of the register tile")
    assert found["BLOCK_M"].options == ("32", "64", "128")
    assert (found["FORM"].kind, found["STAGES"].kind) == ("form", "")


def test_only_the_values_change() -> None:
    changed = assign(TEXT, {"MR": "12", "STAGES": "3", "BLOCK_M": "128", "FORM": "ikj"})
    expected = TEXT.replace("MR = 8", "MR = 12").replace("STAGES 2", "STAGES 3")
    assert changed == expected.replace("= 64 ", "= 128 ").replace("= naive", "= ikj")
    assert assign(TEXT, {}) == TEXT
    assert assign(TEXT.replace("\n", "\r\n"), {"MR": "4"}) == TEXT.replace("MR = 8", "MR = 4").replace("\n", "\r\n")


def test_a_wrong_name_or_value_is_refused() -> None:
    with pytest.raises(ValueError, match="no tunable NR; declared: MR, STAGES, BLOCK_M, FORM"):
        assign(TEXT, {"NR": "4"})
    with pytest.raises(ValueError, match="MR can be 4 6 8 12, not 5"):
        assign(TEXT, {"MR": "5"})


def test_a_value_outside_its_list_is_an_option() -> None:
    assert tunables("A = 7  # tune: 1 2")[0].options == ("7", "1", "2")


@pytest.mark.parametrize(
    "line", [" " * 60_000 + "tune:", " = a" * 20_000 + " // tune: 1", "# define " * 9_000 + "A 1 // tune: 1"]
)
def test_hostile_text_costs_no_time(line: str) -> None:
    started = time.process_time()
    assert values(line + "\n" + TEXT)["MR"] == "8"
    assert time.process_time() - started < 1
