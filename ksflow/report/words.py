"""Texts and consoles that tables, trees and lines of progress share."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ksflow.errors import strip_controls
from ksflow.kernels.source.tunables import values
from ksflow.records import Evaluation, Trial
from ksflow.redaction import LETTERS, redact

ANOTHER_PROBLEM = "No problem= was given. Another: problem=NAME or problem=FOLDER; `ksflow problem list` lists them"
STYLE = {
    "accept": "green",
    "failed": "red",
    "compile-error": "yellow",
    "untimed": "cyan",
    "disputed": "magenta",
    "stale": "dim",
}
_BESIDE_ITSELF = re.compile(r"(.+) against itself read x([\d.]+)")
_HANG = 2  # columns by which continued lines are indented
_LESS = "FRX"  # quit if it fits on one screen, keep colours, leave the text on the screen


class _PrintableConsole(Console):
    """A console that removes control sequences and secrets from texts of models, documents and file names.

    Lines printed with `soft_wrap` stay one line in a file and in a pipe. At a terminal they are wrapped between words,
    with an indent; with `no_wrap` too (for text to copy) they are not wrapped.
    """

    def print(self, *objects: Any, soft_wrap: bool | None = None, no_wrap: bool | None = None, **options: Any) -> None:
        objects = tuple(redact(each) if isinstance(each, str) else each for each in objects)
        if soft_wrap and not no_wrap and self.is_terminal:
            objects = tuple(self._folded(each) if isinstance(each, str | Text) else each for each in objects)
        super().print(*objects, soft_wrap=soft_wrap, no_wrap=no_wrap, **options)

    def _folded(self, words: str | Text) -> Text:
        text = words if isinstance(words, Text) else Text(strip_controls(words))
        lines = (part for line in text.split("\n", allow_blank=True) for part in self._parts(line))
        return Text("\n").join(lines)

    def _parts(self, line: Text) -> Iterator[Text]:
        if line.cell_len <= self.width:
            yield line
            return
        body = line.plain.lstrip(" ")
        indent = len(line.plain) - len(body)
        room, column, breaks = max(self.width - indent - _HANG, 20), 0, []
        for word in re.finditer(r"\S+\s*", body):
            if column and column + cell_len(word[0].rstrip()) > room:
                breaks.append(word.start())
                column = 0
            column += cell_len(word[0])
        for number, part in enumerate(line[indent:].divide(breaks)):
            part.rstrip()
            yield Text(" " * (indent + _HANG * bool(number))).append_text(part)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control or len(text) < LETTERS else redact(strip_controls(text)), style, control)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError instead of ending the program; `main` handles it."""
        raise BrokenPipeError


def console(stderr: bool = False) -> Console:
    """Return a console that does not squeeze tables into 80 columns without a window.

    Brackets in a text are never rich's markup, because most texts are written by models, people and compilers. Numbers
    and paths are not coloured.
    """
    printable = _PrintableConsole(stderr=stderr, markup=False, highlight=False)
    if not printable.is_terminal and "COLUMNS" not in os.environ:
        printable.width = 160
    return printable


def say(console: Console, *lines: str | Text, style: str | None = None) -> None:
    """Print lines without markup; each stays one line in a file and in a pipe."""
    for line in lines:
        console.print(line, style=style, markup=False, soft_wrap=True)


@contextmanager
def page_output(console: Console) -> Iterator[None]:
    """Capture the output of the block, then print it, through $PAGER (less) if it is longer than the window."""
    if not console.is_terminal:
        yield
        return
    with console.capture() as captured:
        yield
    text = captured.get()
    pager = shlex.split(os.environ.get("PAGER", "less"))
    if text.count("\n") < console.height or not pager or not _through(pager, text):
        sys.stdout.write(text)


def _through(pager: list[str], text: str) -> bool:
    """Return whether the pager could be started. The user may leave it early."""
    settings = {"LESS": _LESS, **os.environ}
    try:
        reading = subprocess.Popen(pager, stdin=subprocess.PIPE, encoding="utf-8", env=settings, errors="replace")
    except OSError:
        return False
    with reading, suppress(BrokenPipeError, KeyboardInterrupt):
        reading.communicate(text)
    return True


def fits_window(console: Console, table: Table) -> bool:
    """Return whether the window has room for a table with whole `no_wrap` columns."""
    for column in table.columns:
        if column.no_wrap:
            cells = [cell for cell in (column.header, *column.cells) if isinstance(cell, str | Text)]
            column.min_width = max(console.measure(cell).maximum for cell in cells)
    return Measurement.get(console, console.options.update(width=1000), table).minimum <= console.width


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], **looks: Any) -> Table:
    """Return a table of texts with these column heads."""
    result = Table(*heads, box=SIMPLE_HEAD, **looks)
    for row in rows:
        result.add_row(*map(Text, row))
    return result


def grid(
    console: Console,
    rows: Sequence[Mapping[str, str | Text]],
    left: Container[str],
    folded: Container[str] = (),
    dispensable: Iterable[str] = (),
    least: int | None = None,
    **looks: Any,
) -> Table:
    """Return a table of rows by column name, without empty columns.

    left: columns of words, not of figures. folded: columns whose cells may be wrapped, at least `least` wide.
    dispensable: columns to drop in a narrow window, in this order; the caption names those dropped. looks: title,
    caption, and `shown_by`, what shows the dropped columns.
    """
    shown_by = looks.pop("shown_by", "a wider window")

    def filled() -> Table:
        table = Table(box=SIMPLE_HEAD, title_justify="left", caption_justify="left", **looks)
        for name in names:
            whole = name not in folded
            justify: JustifyMethod = "left" if name in left else "right"
            table.add_column(name, justify=justify, no_wrap=whole, overflow="fold", min_width=None if whole else least)
        for row in rows:
            table.add_row(*(Text.assemble(row.get(name, "")) for name in names))
        return table

    names = [name for name in dict.fromkeys(chain(*rows)) if any(row.get(name) for row in rows)]
    table, dropped = filled(), list[str]()
    for name in dispensable:
        if name in names and not fits_window(console, table):
            names.remove(name)
            dropped.append(name)
            table = filled()
    if dropped:
        missing = f"not in this window: {', '.join(dropped[::-1])} ({shown_by} shows them)"
        table.caption = f"{table.caption} {missing}" if table.caption else missing
    return table


def format_us(value: float) -> str:
    """Return a time in µs to four digits, without an exponent: `0.8512`, `661.9`, `12750`."""
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def percent(value: float) -> str:
    """Return a gain in percent to three digits, as the page has it: `+3.25`, `-12.5`, `+1250`, `0`."""
    value = round(value, 2)  # as in the page's facts
    return "0" if not value else f"{value:+.3g}" if abs(value) < 99.95 else f"{value:+.0f}"


def day(moment: float) -> str:
    """Return `2 November 2026`, in UTC."""
    return time.strftime("%d %B %Y", time.gmtime(moment)).lstrip("0")


def truncate(text: str, width: int) -> str:
    """Return as many whole words as fit into so many columns, on one line, with an ellipsis if some are left out."""
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    head = text[: max(width - 1, 1)]
    whole = head if text[len(head)] == " " else head.rpartition(" ")[0] or head
    return f"{whole.rstrip(' ,;:')}…"


def describe_changes(trial: Trial, by_id: Mapping[str, Trial], width: int) -> str:
    """Return what a trial changed, in so many columns: `VL 16→64, NT 4→3`, with the number of changes left out.

    Without assigned tunables: the beginning of its idea; for a seed its file name.
    """
    repeat = f"same code as {trial.repeats} | " if trial.repeats else ""
    base = by_id.get(trial.parents[0]) if trial.parents else None
    before = values(base.kernel.main) if base and base.kernel else {}
    changes = trial.experiment.changes if trial.experiment else {}
    steps = [
        f"{name} {before[name]}→{value}" if name in before else f"{name}: {value}"
        for name, value in changes.items()
        if before.get(name) != value
    ]
    for shown in range(len(steps), 0, -1):
        rest = f" +{len(steps) - shown}" if shown < len(steps) else ""
        if len(text := f"{repeat}{', '.join(steps[:shown])}{rest}") <= width or shown == 1:
            return truncate(text, width)
    return truncate(repeat + trial.idea, width)


def why_unranked(trial: Trial, doubt: str | None = None) -> str:
    """Return why it has no rank: the judge's reason, or why it has no kernel or no place; "" if it has one.

    doubt: why its time is not ranked, if that is known better than from its own verdict.
    """
    evaluation = trial.evaluation
    cached = f"judged on {evaluation.evidence.cached.date[:10]}" if evaluation and evaluation.evidence.cached else ""
    doubt = not_ranked(evaluation) if doubt is None else doubt
    return " | ".join(" ".join(part.split()) for part in (trial.reason, doubt, cached) if part)


def review(trial: Trial) -> list[str]:
    """Return a verifier's review of a trial's kernel, and what followed, as lines; empty without a review."""
    if not (opinion := trial.review):
        return []
    then = "its writer wrote another kernel then, which was judged" if opinion.mended else "it was judged as it was"
    findings = [f"{number}. {finding}" for number, finding in enumerate(opinion.findings, 1)] or ["no mistakes found"]
    return [f"the risk that the judge refuses it: {opinion.risk_percent:.0f} %", *findings, then]


def not_ranked(evaluation: Evaluation | None) -> str:
    """Return why a time is not ranked; "" if it is."""
    if not evaluation or not evaluation.why_unranked:
        return ""
    if itself := _BESIDE_ITSELF.fullmatch(evaluation.why_unranked):
        apart = abs(float(itself[2]) - 1)
        return f"not ranked: the machine was too busy ({itself[1]}, timed twice, came out {apart:.1%} apart)"
    return f"not ranked: {evaluation.why_unranked}"


def recorded_verdict(trial: Trial) -> str:
    """Return the verdict on record, even if it is stale."""
    return trial.evaluation.verdict.value if trial.evaluation else trial.verdict
