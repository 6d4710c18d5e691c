"""A problem's own check that raises, hangs or defends itself on an answer does not take the judge with it."""

import contextlib
import itertools

import pytest
import torch

from ksflow.evaluation.judge.cases import CheckBroke, ProblemCheck

DATA = (torch.arange(4.0), torch.zeros(4))


def right(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return data[1].copy_(data[0])


def stubborn(_: object, outputs: torch.Tensor) -> str:
    """Loops for ever on 2, whatever exception it meets; catches everything once on 3, and says that all is well."""
    if outputs[0] == 2:
        for _ in itertools.count():
            with contextlib.suppress(Exception):
                outputs.sum()
    if outputs[0] == 3:
        try:
            for _ in itertools.count():
                pass
        except BaseException:  # noqa: BLE001
            return ""
    return "" if outputs[0] == 0 else "off"


@pytest.mark.parametrize("first", [2, 3])
def test_a_check_that_does_not_end_is_interrupted(first: int) -> None:
    check = ProblemCheck("property_check", stubborn, right, 0.2)
    assert check(DATA, torch.zeros(4)) == ""
    assert check(DATA, torch.ones(4)) == "off"
    with pytest.raises(CheckBroke, match=r"property_check did not end within 0\.2 s"):
        check(DATA, torch.full((4,), float(first)))
    assert check(DATA, torch.zeros(4)) == ""


def test_a_check_that_breaks_on_some_contents_whatever_the_answer_is_the_problems_fault() -> None:
    check = ProblemCheck("property_check", lambda data, outputs: "off" if 1 / data[0][1].item() < 0 else "", right, 5.0)
    assert check(DATA, torch.ones(4)) == ""
    with pytest.raises(ValueError, match=r"property_check raised ZeroDivisionError: .* on the reference's own answer"):
        check((torch.zeros(4), torch.zeros(4)), torch.ones(4))
