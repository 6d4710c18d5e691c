"""A run as Markdown: the claim, its evidence, the cases, the history. Texts of models are escaped."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from ksflow.errors import pluralize
from ksflow.records import Json


def as_markdown(run: Json) -> str:
    """Return one run's facts as Markdown."""
    names = {name: text for name, text in run["baselines"].items() if name != run["best"]}
    best_name = "winner" if run["winner"] else run["best_name"]
    cases = [["case", f"{best_name} µs", *(f"{name} µs" for name in names.values()), "roofline µs"]]
    for case in run["cases"]:
        times = [case["us"], *(case["baselines"][name] for name in names), (case["roofline"] or {}).get("bound_us")]
        cases.append([case["case"], *map(_us, times)])
    us = {row["id"]: row["us"] for row in run["trials"]}
    story = [{"features": "", **step, "us": us[step["id"]]} for step in run["story"]]
    tried = [row for row in run["trials"] if row["origin"] != "seed" and not row["repeat"]]
    return fill(
        "summary.md.jinja",
        run={**run, "story": story},
        cases=cases,
        tried=tried,
        seeds=sum(row["origin"] == "seed" for row in run["trials"]),
        right=sum(row["verdict"] == "accept" for row in tried),
    )


def fill(template: str, **values: Any) -> str:
    """Return a template of this folder with its values; texts go through its filter `plain`."""
    return _environment().from_string(Path(__file__).with_name(template).read_text(encoding="utf-8")).render(**values)


@cache
def _environment() -> Environment:
    made = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    made.filters.update(
        plain=plain, us=_us, pluralize=pluralize, row=lambda cells: f"| {' | '.join(map(plain, cells))} |"
    )
    return made


def _us(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def plain(text: str) -> str:
    """Return a text on one line, without markup."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in " ".join(text.split()))
