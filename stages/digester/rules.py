"""Keeps what the population shows."""

from ksflow.records import Material, Note, Problem


class Rules:
    """Placeholder."""

    def __call__(self, problem: Problem, material: Material) -> tuple[Note, ...]:
        return material.notes
