"""An optimiser of DSPy's as the configuration names it: what depends on the examples is filled in by name."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dspy

from ksflow.optimize.teaching import CandidateProgram, OptimizerInputs

_REFLECTED, _BATCH = 3, 8
"""Examples that GEPA reflects on, and that SIMBA takes, at once."""


@dataclass(frozen=True)
class Optimizer:
    """Makes a student with a better prompt, or the same."""

    make: Callable[..., Any]
    """DSPy's class, with the settings that the configuration has."""
    compile: Mapping[str, Any] = field(default_factory=dict)
    """Settings of its `compile`."""

    def __call__(self, course: OptimizerInputs) -> CandidateProgram:
        """The student. Raises what a model call or a grade raises."""
        options = {
            "metric": course.metric,
            "max_metric_calls": course.rollouts,
            "metric_threshold": max(course.start, math.ulp(1.0)),
            "reflection_lm": course.teacher,
            "prompt_model": course.teacher,
            "task_model": dspy.settings.lm,
            "reflection_minibatch_size": min(_REFLECTED, len(course.train)),
            "bsize": min(_BATCH, len(course.train)),
            **({} if course.demos is None else {"max_bootstrapped_demos": course.demos, "max_demos": course.demos}),
        }
        optimiser = self.make(**_taken(self.make, options))
        parts = {"trainset": course.train[: course.rollouts], "valset": course.validation, "seed": course.seed}
        asked = {**_taken(optimiser.compile, parts), **self.compile}
        program: CandidateProgram = optimiser.compile(CandidateProgram(course.school), **asked)
        return program


def _taken(called: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """What of it there are parameters for."""
    return {name: options[name] for name in inspect.signature(called).parameters if name in options}
