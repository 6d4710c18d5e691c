"""Renders facts as a page: one file with style and script, which loads nothing else."""

import base64
import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment

from ksflow.records import Json

_HERE = Path(__file__).parent
_PART = 50  # trials whose details are unpacked at once
_LETTERS = 6_000_000  # limit of a run's details; compression reduces them to a fifth or less


def as_html(runs: Sequence[Json], live: bool = False) -> str:
    """Return the page of one run or of several side by side.

    live: the page polls its server for new facts every few seconds.
    """
    template = Environment(autoescape=True).from_string((_HERE / "page.html").read_text(encoding="utf-8"))
    shown, details = split_details(runs)
    facts = json.dumps(shown, allow_nan=False, separators=(",", ":"))
    return template.render(
        runs=runs,
        facts=facts.replace("<", "\\u003c"),  # so texts of models cannot end the script element
        packed=json.dumps([_packed(run["trials"], own) for run, own in zip(runs, details, strict=True)]),
        part=_PART,
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        script=(_HERE / "page.js").read_text(encoding="utf-8"),
        live=live,
    )


def split_details(runs: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """Return what a page shows at once, and the details, which it looks up on demand."""
    shown = [{key: value for key, value in run.items() if key != "details"} for run in runs]
    return shown, [_bounded(run) for run in runs]


def _bounded(run: Json) -> Json:
    """Return the details of a run. Without room for all, the winner's ancestors and then the fastest have theirs;
    others are marked as left out."""
    details, left, bounded = run["details"], _LETTERS, {}
    fastest = sorted(run["trials"], key=lambda row: row["us"] or math.inf)
    for name in dict.fromkeys([*(step["id"] for step in run["story"]), *(row["id"] for row in fastest)]):
        whole = details.get(name)
        left -= len(json.dumps(whole))
        shorter = {"idea": whole["idea"], "why": whole["why"], "left_out": True} if whole else None
        bounded[name] = whole if left > 0 else shorter
    return bounded


def _packed(trials: Sequence[Json], details: Json) -> list[str]:
    parts = (trials[at : at + _PART] for at in range(0, len(trials), _PART))
    texts = (json.dumps({row["id"]: details.get(row["id"]) for row in part}, allow_nan=False) for part in parts)
    return [base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode() for text in texts]
