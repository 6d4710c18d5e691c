"""Answers of models as files, which any number of threads and processes read and write whole.

They are the model's own: what `dspy.cache` is, for models that a person asks, stays as it was found.
"""

import json
from contextlib import suppress
from pathlib import Path

from dspy.lm15 import Request, Response

from ksflow import home
from ksflow.errors import UNREADABLE
from ksflow.lm.dspy_seams import request_to_dict, response_from_dict, response_to_dict
from ksflow.records import digest


class AnswerFiles:
    """A file for each answer. A failed write is no error, and what cannot be read is not there."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made with the first answer."""
        self._folder = folder

    def locate(self, request: Request, rollout_id: int) -> Path:
        """Where the answer to a request is, or will be. `rollout_id` sets requests of the same words apart."""
        asked = json.dumps([request_to_dict(request), rollout_id], sort_keys=True, default=str)
        name = digest(asked, digits=64)
        return self._folder / name[:2] / f"{name}.json"

    def get(self, path: Path) -> Response | None:
        """The answer that is kept there, if there is one."""
        with suppress(*UNREADABLE):
            answer: Response = response_from_dict(json.loads(path.read_bytes()))
            return answer
        return None

    def put(self, path: Path, response: Response) -> None:
        """Keep an answer."""
        with suppress(*UNREADABLE):
            text = json.dumps(response_to_dict(response))
            path.parent.mkdir(parents=True, exist_ok=True)
            home.write(path, text)
