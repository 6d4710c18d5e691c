"""One predictor, asked until its answer holds or the attempts are used up."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import dspy
from dspy.utils.exceptions import AdapterParseError

from ksflow.errors import ConfigError, StageError
from ksflow.protocols import sample
from ksflow.stages.lm.adapter import Malformed, make, valid
from ksflow.stages.lm.attempt import Attempt, Filtered
from ksflow.stages.lm.client import ask
from ksflow.stages.lm.model import Model
from ksflow.stages.lm.prompts import load, save
from ksflow.stages.lm.replay import Replay, replayed

T = TypeVar("T")
Accept = Callable[[dict[str, Any]], Any]


class Inquiry(NamedTuple):
    """What a stage would ask, and how it reads the answer."""

    inputs: dict[str, str]
    accept: Accept


class Overheard(Exception):
    """Raised in place of an answer while somebody listens."""

    def __init__(self, inquiry: Inquiry) -> None:
        super().__init__("this question is not asked")
        self.inquiry = inquiry


_listening: ContextVar[bool] = ContextVar("listening", default=False)


@contextmanager
def listening() -> Iterator[None]:
    """Meanwhile, in this context, programs raise `Overheard` with their question and ask nobody."""
    token = _listening.set(True)
    try:
        yield
    finally:
        _listening.reset(token)


class Program:
    """A stage's question to a model. `predict` is the part that a prompt optimiser compiles."""

    def __init__(  # noqa: PLR0913 - what every model stage's constructor takes
        self,
        label: str,
        signature: type[dspy.Signature],
        lm: Model | None,
        attempts: int = 3,
        prompt: str | None = None,
        seed: int = 0,
        adapter: str = "sections",
    ) -> None:
        """`label` is the stage and its variant: writer=diff. `prompt` names a compiled state in
        stages/prompts/<stage>/, or is the path of one. `adapter` is how questions and answers are
        laid out: a name of `adapter.ADAPTERS`.
        """
        stage = label.partition("=")[0]
        if not isinstance(lm, Model):
            raise ConfigError(f"{label} needs a model: choose one with llm=... or model=...")
        if attempts < 1:
            raise ConfigError(f"{stage}.attempts must be at least 1, not {attempts}")
        self.stage = stage
        self.label = label
        self.adapter = valid(stage, adapter)
        self.model = lm
        self.attempts = attempts
        self.seed = seed
        self.prompt = prompt
        self.predict = dspy.Predict(signature)
        if prompt is not None:
            load(self.predict, stage, prompt)

    @property
    def by(self) -> str:
        """What its answers are by; in a replay, what the recorded ones were by."""
        engine = self.model.engine
        model = engine.model_of(self.label) if isinstance(engine, Replay) else self.model.model
        return f"{self.label} {model}{f' prompt={self.prompt}' if self.prompt else ''}"

    def __call__(
        self,
        inputs: Mapping[str, str],
        accept: Callable[[dict[str, Any]], T],
        key: str = "",
        before: Callable[[str], None] = lambda refused: None,
    ) -> T:
        """What `accept` makes of the output fields; its ValueError is told to the model, which is
        asked again.

        `key` (and `protocols.sample`) set this question apart from an earlier one with the same words: the same key
        gets the same answer out of the cache, another key a new one. `before` is told, ahead of each attempt, why the
        answer before was refused (nothing at first); what it raises ends the asking.
        """
        expected = set(self.predict.signature.input_fields)
        assert set(inputs) == expected, f"{self.stage}: inputs {set(inputs) ^ expected}"
        if _listening.get():
            raise Overheard(Inquiry(dict(inputs), accept))
        refused = ""
        for attempt in range(self.attempts):
            before(refused)
            asked = Attempt(self.label, self.model)
            try:
                rollout = self._rollout(inputs, key, attempt)
                return accept(self._ask(asked, self.predict, inputs, refused, rollout))
            except Filtered:
                if attempt + 1 == self.attempts:
                    raise
                continue
            except Malformed as error:
                refused = error.reason
            except AdapterParseError:
                refused = "the answer is empty"
            except ValueError as error:
                refused = str(error)
            refused += " (it reached the provider's token limit)" if asked.cut else ""
        reason = self.model.redact(refused)[:1000]
        raise StageError(self.label, f"malformed answer after {self.attempts} attempts: {reason}")

    def __deepcopy__(self, memo: dict[int, Any]) -> "Program":
        """Itself: optimisers copy what holds it, and a model is shared."""
        return self

    def once(self, predict: dspy.Predict, inputs: Mapping[str, str], which: int = 0) -> dict[str, Any]:
        """The output fields of `predict`'s only answer, unread by the stage; `which` of several to the same question.

        AdapterParseError where it is not in the form asked for. StageError, BudgetError, ConfigError as ever.
        """
        rollout = self._rollout(inputs, f"teaching {which}", 0)
        return self._ask(Attempt(self.label, self.model), predict, inputs, "", rollout)

    def save(self, predict: dspy.Predict, path: Path) -> None:
        """Write a compiled state of this stage's prompt, which `prompt=` loads."""
        save(predict, self.stage, path)

    def _ask(
        self, asked: Attempt, predict: dspy.Predict, inputs: Mapping[str, str], refused: str, rollout: int
    ) -> dict[str, Any]:
        adapter = make(self.adapter, refused)
        signature = predict.signature
        asked.sent = adapter.format(signature, predict.demos, dict(inputs))
        if isinstance(self.model.engine, Replay):
            recorded = replayed(asked, self.model.engine)
            if not recorded:
                raise Malformed(signature, recorded, "the answer is empty")
            return adapter.parse(signature, recorded)
        client = self.model.client

        def question() -> dict[str, Any]:
            with dspy.context(lm=client, adapter=adapter, trace=None, disable_history=False):
                answer = predict(**inputs, lm=client, config={"rollout_id": rollout})
            return {name: answer[name] for name in signature.output_fields}

        return ask(asked, question)

    def _rollout(self, inputs: Mapping[str, str], key: str, attempt: int) -> int:
        """Names one sample. It is part of DSPy's cache key and is not sent."""
        parts = [
            self.model.identity,
            self.stage,
            str(self.seed),
            key,
            str(attempt),
            str(sample.get()),
            *inputs.values(),
        ]
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).digest()
        return int.from_bytes(digest[:6], "big")
