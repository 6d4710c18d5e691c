"""Logs: one line of JSON per event in the run's folder. What a person sees on the terminal is `report`'s.

Errors have their tracebacks, without the values of variables: those may hold keys. No line has a secret in it. On the
terminal too are only the questions that wait in a folder for a person's answer (nothing goes on without that person),
what in a lineage was damaged, passed over or healed, and what a model's server does that nobody would notice.
"""

import logging
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import Processor

from ksflow.redaction import redact

_ON_STDERR = ("ksflow.inbox", "ksflow.spool", "ksflow.ray", "ksflow.lineage", "ksflow.models")


def setup(folder: Path) -> None:
    """Send structlog's and the standard library's events to `folder`/events.jsonl. Safe to call once per job."""
    close()
    folder.mkdir(parents=True, exist_ok=True)
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.FileHandler(folder / "events.jsonl", encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(
        _Redacted(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
                structlog.processors.JSONRenderer(ensure_ascii=False),
            ],
        )
    )
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    on_stderr = _Stderr()
    on_stderr.setFormatter(_Redacted(processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _as_line]))
    for name in _ON_STDERR:
        logging.getLogger(name).addHandler(on_stderr)
    logging.captureWarnings(True)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def close() -> None:
    """Close the file of `setup`, and tell nothing on stderr any more: the process goes on, as a notebook's does."""
    for logger in map(logging.getLogger, (None, *_ON_STDERR)):
        for handler in [each for each in logger.handlers if isinstance(each.formatter, _Redacted)]:
            logger.removeHandler(handler)
            handler.close()
    logging.captureWarnings(False)


def keep_quiet() -> None:
    """Keep events off the terminal in a program that has set up no log; handlers of its own for `ksflow` get them."""
    if not logging.getLogger("ksflow").hasHandlers():
        logging.getLogger("ksflow").addHandler(logging.NullHandler())
    if not structlog.is_configured():
        to_logging = structlog.stdlib.render_to_log_kwargs
        structlog.configure([to_logging], logger_factory=structlog.stdlib.LoggerFactory())


def _as_line(logger: object, name: str, event: MutableMapping[str, Any]) -> str:
    """An event as a line for a person: its words, then what else it has."""
    rest = [f"{key} {value}" for key, value in event.items() if key not in ("event", "level", "timestamp")]
    return " ".join(f"ksflow: {'; '.join([str(event['event']), *rest])}".split())


class _Redacted(structlog.stdlib.ProcessorFormatter):
    """Lines without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """To what is stderr now: while a bar is shown, to what prints above it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        """Looked up anew for every event."""
        return sys.stderr
