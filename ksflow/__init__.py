"""A kernel scientist: select, design, write, judge and learn. From Python: `run`, `evaluate`, `Study`, records."""

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ksflow.api import Study, evaluate, run
    from ksflow.records import Evaluation, Experiment, Kernel, Plan, Population, Problem, Trial, Verdict

__version__ = "0.1.0"
BEGAN = time.monotonic()  # when a command began: what it imports from here on is part of the time that it takes
__all__ = [
    "Evaluation",
    "Experiment",
    "Kernel",
    "Plan",
    "Population",
    "Problem",
    "Study",
    "Trial",
    "Verdict",
    "evaluate",
    "run",
]


def __getattr__(name: str) -> Any:
    """What `import ksflow` offers, imported when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'ksflow' has no attribute {name!r}")
    return getattr(import_module("ksflow.api" if name in ("Study", "evaluate", "run") else "ksflow.records"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
