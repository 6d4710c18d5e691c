"""`benchmarks/ablations.py`: variants side by side, and the same figures again."""

import importlib.util
from types import ModuleType

import pytest

from ksflow.home import PACKAGE

WORDS = ["--seeds", "1", "--evaluations", "3", "problem=softmax", "--", "selector=fastest", "designer=random"]


@pytest.fixture
def ablations() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ablations", PACKAGE.parent / "benchmarks" / "ablations.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_variants_stand_in_tables_that_come_out_the_same_again(
    ablations: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablations.main(WORDS) == 0
    told = capsys.readouterr().out
    first, second = told.split("\n\n")
    assert {row.split("`")[1] for row in first.splitlines()[2:]} == {"selector=fastest", "designer=random"}
    assert second.splitlines()[2].startswith("| `selector=fastest` | `designer=random` | ")
    assert ablations.main(WORDS) == 0
    assert capsys.readouterr().out == told
