"""Output for people: progress during a run, tables at its end, the tree of kernels. Text only, no decisions."""

from ksflow.report import explanation
from ksflow.report.headline import known_baselines
from ksflow.report.progress import Display
from ksflow.report.tables import show_calibration, show_ending, show_outcome, show_spending, summary
from ksflow.report.tracking import Tracking
from ksflow.report.tree import show_source, show_tree, show_trial
from ksflow.report.words import console, page_output, say

__all__ = [
    "Display",
    "Tracking",
    "console",
    "explanation",
    "known_baselines",
    "page_output",
    "say",
    "show_calibration",
    "show_ending",
    "show_outcome",
    "show_source",
    "show_spending",
    "show_tree",
    "show_trial",
    "summary",
]
