"""The interval of a ratio: as wide as what was seen allows."""

import torch

from ksflow.judge import statistics


def logs(rows: list[tuple[list[float], list[float]]]) -> list[torch.Tensor]:
    """Draws of each leg: what the other took, and what the kernel took."""
    generator = torch.Generator().manual_seed(0)
    return [statistics.ratio_logs(other, own, [True] * len(own), generator) for other, own in rows]


def test_legs_of_one_sample_do_not_make_a_point_of_an_interval() -> None:
    low, high = statistics.interval(logs([([11.0], [10.0]), ([11.4], [10.0]), ([10.9], [10.1])]))
    assert low < 1.04
    assert high > 1.15
    low, high = statistics.interval(logs([([11.0], [10.0])]))
    assert low < 0.6
    assert high > 2


def test_legs_with_samples_are_as_they_were() -> None:
    own = [10.0, 10.1, 9.9, 10.05, 10.2, 9.95]
    low, high = statistics.interval(logs([([2 * us for us in own], [us * 1.01 for us in own[::-1]])] * 3))
    assert 1.95 < low < high < 2.01
