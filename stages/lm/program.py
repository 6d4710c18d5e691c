"""One predictor, asked until its answer holds or the attempts are used up."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import dspy
from dspy.utils.exceptions import AdapterParseError

from ksflow.errors import ConfigError, StageError
from ksflow.protocols import sample
from ksflow.stages.lm.adapter import Malformed, make, valid
from ksflow.stages.lm.attempt import Attempt, Filtered
from ksflow.stages.lm.client import ask
from ksflow.stages.lm.model import Model
from ksflow.stages.lm.prompts import load
from ksflow.stages.lm.replay import Replay, replayed

T = TypeVar("T")


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
        self.predict = dspy.Predict(signature)
        if prompt is not None:
            load(self.predict, stage, prompt)

    def __call__(
        self,
        inputs: Mapping[str, str],
        accept: Callable[[dict[str, Any]], T],
        key: str = "",
    ) -> T:
        """What `accept` makes of the output fields; its ValueError is told to the model, which is
        asked again.

        `key` (and `protocols.sample`) set this question apart from an earlier one with the same words: the same key
        gets the same answer out of the cache, another key a new one.
        """
        expected = set(self.predict.signature.input_fields)
        assert set(inputs) == expected, f"{self.stage}: inputs {set(inputs) ^ expected}"
        refused = ""
        for attempt in range(self.attempts):
            asked = Attempt(self.label, self.model)
            try:
                return accept(self._ask(asked, inputs, refused, self._rollout(inputs, key, attempt)))
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

    def _ask(self, asked: Attempt, inputs: Mapping[str, str], refused: str, rollout: int) -> dict[str, Any]:
        adapter = make(self.adapter, refused)
        signature = self.predict.signature
        asked.sent = adapter.format(signature, self.predict.demos, dict(inputs))
        if isinstance(self.model.engine, Replay):
            recorded = replayed(asked, self.model.engine)
            if not recorded:
                raise Malformed(signature, recorded, "the answer is empty")
            return adapter.parse(signature, recorded)
        client = self.model.client

        def question() -> dict[str, Any]:
            with dspy.context(lm=client, adapter=adapter, trace=None, disable_history=False):
                answer = self.predict(**inputs, config={"rollout_id": rollout})
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
