"""An engine that is a folder: questions are files, and whoever likes writes the answers."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from ksflow.errors import Interrupted, StageError, reaching
from ksflow.home import write
from ksflow.lm.engines import Engine, as_response
from ksflow.lm.model import Model
from ksflow.protocols import call_context
from ksflow.records import digest

if TYPE_CHECKING:
    from dspy.lm15 import Request, Response

POLL_S = 0.2
_PAGE = """# A question of the {stage}

Write your answer into `{answer}`, in this folder; it is taken as soon as it is there and no longer grows.
{again}What follows is the whole prompt. The form of the answer is described in it.

{prompt}
"""


class InboxEngine(Engine):
    """Writes `<stage>-<hash>.md` and waits for `<stage>-<hash>.answer.md`; then both go to `done/`.

    The hash is the content's, so a question that is asked again after a crash finds its answer. Equal questions have
    numbers: `<stage>-<hash>-2.md` is the second, asked by another round at the same time or later.
    """

    price_source = "inbox"

    def __init__(self, folder: str = "runs/inbox") -> None:
        """`folder` is relative to where the program was started."""
        self.folder = Path(folder).expanduser().absolute()
        self._waiting: set[str] = set()  # the names of the questions that are waited for here
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Inbox({str(self.folder)!r})"

    def complete(self, request: "Request") -> "Response":
        """The answer, however long it takes. ConfigError when the folder cannot be written; Interrupted by Ctrl-C."""
        parts = [("system", request.system)] if isinstance(request.system, str) else []
        parts += [(message.role, message.text or "") for message in request.messages]
        return as_response(request, self._asked("\n\n".join(f"## {role}\n\n{content}" for role, content in parts)))

    def _asked(self, prompt: str) -> str:
        _check_deadline()
        stage = call_context().stage.partition("=")[0] or "question"
        with self._name(f"{stage}-{digest(prompt, digits=12)}") as (name, before):
            question, answer = self.folder / f"{name}.md", self.folder / f"{name}.answer.md"
            purpose = call_context().about or "another round"
            event = f"asked again, for {purpose}: an answer of its own is wanted" if before else "waiting for an answer"
            with reaching(f"the inbox {self.folder} cannot be used", "set model.folder"):
                question.parent.mkdir(parents=True, exist_ok=True)
                again = f"`{before}.md` asked the same; this is for {purpose}, and an answer of its own is wanted.\n"
                page = _PAGE.format(stage=stage, answer=answer.name, again=again if before else "", prompt=prompt)
                write(question, page)  # at once, never a half
                with call_context().unanswered() as interrupted:
                    structlog.get_logger("ksflow.inbox").info(event, stage=stage, question=str(question))
                    text = _wait(answer, interrupted)
                done = self.folder / "done"
                done.mkdir(exist_ok=True)
                os.replace(question, done / question.name)
                os.replace(answer, done / answer.name)
            return text

    @contextmanager
    def _name(self, first: str) -> Iterator[tuple[str, str]]:
        """A name that nobody else waits for, and that of the equal question before it, if there is one."""
        name = before = first
        with self._lock:
            number = 1
            while name in self._waiting or (self.folder / "done" / f"{name}.md").exists():
                number, before, name = number + 1, name, f"{first}-{number + 1}"
            self._waiting.add(name)
        try:
            yield name, before if number > 1 else ""
        finally:
            with self._lock:
                self._waiting.discard(name)


def inbox_model(folder: str = "runs/inbox", name: str = "inbox", deadline_s: float | None = None) -> Model:
    """Return a model whose answers come through a folder.

    folder: where the questions are written and answers are read. name: what the records call whoever answers.
    deadline_s: the longest time for one answer; null is any.
    """
    return Model(name, engine=InboxEngine(folder), deadline_s=deadline_s)


def _wait(answer: Path, interrupted: Callable[[], bool]) -> str:
    """What the file says, once it is there, not empty, and the same in two looks.

    StageError after the deadline, Interrupted where the run is being ended: the question stays.
    """
    before = None
    while True:
        seen = _look(answer)
        if seen is not None and seen == before:
            return answer.read_bytes().decode("utf-8-sig", "replace")
        _check_deadline()
        if seen is None and interrupted():
            raise Interrupted("interrupted")
        before = seen
        time.sleep(POLL_S)


def _check_deadline() -> None:
    until = call_context().until
    if until is not None and time.monotonic() > until:
        raise StageError(call_context().stage, "nobody waits for the answer any more")


def _look(path: Path) -> tuple[int, int, int] | None:
    with suppress(FileNotFoundError):
        status = path.stat()
        return (status.st_size, status.st_mtime_ns, status.st_ino) if status.st_size else None
    return None
