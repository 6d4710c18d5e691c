"""The program that every tool starts from. It is text to be changed; nobody runs it."""

import math

# EVOLVE-BLOCK-START
VALUE = 0


def row_maximum(row: list[float]) -> float:
    """The largest of a row, which keeps the exponentials in range."""
    largest = row[0]
    for number in row[1:]:
        if number > largest:
            largest = number
    return largest


def exponentials(row: list[float]) -> tuple[list[float], float]:
    """The exponentials of a row below its maximum, and their sum."""
    largest = row_maximum(row)
    powers = []
    total = 0.0
    for number in row:
        power = math.exp(number - largest)
        powers.append(power)
        total += power
    return powers, total


def custom_kernel(data: tuple[list[list[float]], list[list[float]]]) -> list[list[float]]:
    """The softmax of every row of the first matrix, written into the second."""
    given, out = data
    for i, row in enumerate(given):
        powers, total = exponentials(row)
        scale = 1.0 / total
        for j, power in enumerate(powers):
            out[i][j] = power * scale
    return out


# EVOLVE-BLOCK-END
