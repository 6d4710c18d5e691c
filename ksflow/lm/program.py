"""A stage's question to a model as a `dspy.Module`, and how a stage asks it until an answer holds."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import dspy
import structlog
from dspy import AdapterParseError

from ksflow.errors import ConfigError, StageError
from ksflow.lm import compiled
from ksflow.lm.adapter import KernelAdapter, parse_failure
from ksflow.lm.call import first_question, prompt_tokens
from ksflow.lm.client import MeteredLM
from ksflow.lm.lengths import context_of
from ksflow.lm.model import Model
from ksflow.lm.prices import answer_limit
from ksflow.lm.prompts.brief import Brief, Section, SectionKind, count, fill
from ksflow.lm.refusals import Filtered
from ksflow.lm.replay import Replay
from ksflow.lm.sections import header
from ksflow.protocols import call_context
from ksflow.records import Question, digest
from ksflow.redaction import redact

T = TypeVar("T")
_MOST_SHOWN = 3  # how often a model may ask to see more before it answers


class Inquiry(NamedTuple, Generic[T]):
    """What a stage asks, and how it reads the answer."""

    inputs: Mapping[str, str]  # input field -> text: all fields of the signature
    accept: Callable[[dict[str, Any]], T]  # its ValueError says why output fields cannot be used
    answer_tokens: int = 0  # of a whole answer, thinking not counted, if that may be more than `max_tokens`


class MoreWanted(Exception):
    """Raised by `Inquiry.accept` for an answer that asks to see more first. Its text is what the model is shown."""


class Unusable(StageError):
    """No answer of the model could be used, however often it was told what is wrong."""


class Prompt(NamedTuple):
    """A question as it would be sent."""

    label: str  # the stage and its variant
    model: str
    messages: list[dict[str, Any]]
    sections: list[tuple[str, str, int]]  # each with its kind and its tokens; the instructions are the first


class Program(dspy.Module):  # type: ignore[misc]
    """A stage's prompt: `predict` is the one predictor that DSPy's optimisers compile, `ask` is how a stage uses it.

    Called as any `dspy.Module` is, with the signature's input fields, it asks once and returns the prediction. It asks
    the model that DSPy was told to use (`set_lm`, `dspy.context(lm=...)`), else the stage's own. The adapter that DSPy
    was told to use lays questions out and reads answers, else `KernelAdapter`; AdapterParseError is raised for one that
    cannot be read. `dspy.asyncify` does the same from asynchronous code.
    """

    def __init__(
        self,
        label: str,
        signature: type[dspy.Signature],
        lm: Model | None,
        attempts: int = 3,
        prompt: str | None = None,
        seed: int = 0,
    ) -> None:
        """`label` is the stage and its variant: writer=diff. `prompt` names a compiled state in runs/prompts/<stage>/
        or stages/prompts/<stage>/, or is the path of one. ConfigError where one of them cannot be used.
        """
        super().__init__()
        stage = label.partition("=")[0]
        if not isinstance(lm, Model):
            raise ConfigError(f"{label} needs a model: choose one with llm=... or model=...")
        if sys.flags.optimize > 1:
            raise ConfigError(f"{label}: prompts are docstrings, which PYTHONOPTIMIZE=2 (-OO) removes: unset it")
        if attempts < 1:
            raise ConfigError(f"{stage}.attempts must be at least 1, not {attempts}")
        self.stage = stage
        self.label = label
        self.model = lm
        self.attempts = attempts
        self.seed = seed
        self.prompt = prompt
        self.layout: dspy.Adapter | None = None
        self.declared = signature  # whatever an optimiser made of the predictor's
        self.predict = dspy.Predict(signature)
        if prompt is not None:
            self.load(compiled.find(stage, prompt))

    @property
    def answered_by(self) -> str:
        """What its answers are by; in a replay, what the recorded ones were by."""
        engine = self.model.engine
        model = engine.model_of(self.label) if isinstance(engine, Replay) else self.model.model
        return f"{self.label} {model}{f' prompt={self.prompt}' if self.prompt else ''}"

    @cached_property
    def lm(self) -> MeteredLM:
        """The stage's own model as a `dspy.LM`: metered, bounded and recorded as the stage's calls are."""
        return self.model.client.copy(label=self.label)

    @property
    def adapter(self) -> dspy.Adapter:
        """Lays questions out and reads answers: the stage's own, else the one that DSPy was told to use, else ours."""
        return self.layout or dspy.settings.adapter or KernelAdapter()

    def get_lm(self) -> Any:
        """Return the model that `set_lm` set, else the stage's own. DSPy's optimisers call this."""
        return self.predict.lm or self.lm

    def forward(self, **inputs: str) -> dspy.Prediction:
        """One answer to one question. TypeError where the inputs are not the signature's, AdapterParseError where the
        answer cannot be read; StageError, BudgetError or ConfigError where the stage's own model has none.
        """
        self._check(inputs)
        with dspy.context(lm=self.predict.lm or dspy.settings.lm or self.lm, adapter=self.adapter):
            return self.predict(**inputs)

    def ask(self, inquiry: Inquiry[T], key: str = "", before: Callable[[str], None] = lambda refused: None) -> T:
        """Ask the stage's own model until an answer is accepted; return what the inquiry makes of the answer.

        `key` (and the call context's `sample_index`) sets this question apart from an earlier one with the same words:
        the same key gets the same answer out of the cache, another key a new one. `before` is told, ahead of each
        attempt, why the answer before was refused (nothing at first); what it raises ends the asking. Unusable after
        `attempts` answers that cannot be used, or two in a row that were cut off; StageError where the provider fails;
        BudgetError and ConfigError as ever.
        """
        self._check(inquiry.inputs)
        refused, cut, shown, attempt = "", False, list[str](), 0
        asked: dict[str, Any] = {"volatile": self._volatile(inquiry.inputs)}
        if most := answer_limit(self.model, inquiry.answer_tokens):
            asked["max_tokens"] = most
        while attempt < self.attempts:
            before(refused)
            sample = (self.stage, str(self.seed), key, str(attempt), str(call_context().sample_index))
            rollout = int(digest(*sample, digits=12), 16)  # part of a kept answer's name, and not sent
            lm = self.lm.copy(rollout_id=rollout, refused=refused, shown="\n".join(shown), **asked)
            attempt += 1
            try:
                with dspy.context(lm=lm, adapter=self.adapter, trace=None):
                    answer = self.predict(**inquiry.inputs, lm=lm)
                return inquiry.accept({name: answer[name] for name in self.declared.output_fields})
            except Filtered:
                if attempt == self.attempts:
                    raise
                continue
            except MoreWanted as wanted:
                if len(shown) < _MOST_SHOWN:
                    shown.append(str(wanted))
                    refused, attempt = "", attempt - 1
                    continue
                refused = f"you have been shown more {_MOST_SHOWN} times; answer with what you have"
            except AdapterParseError as error:
                refused = parse_failure(error)
            except ValueError as error:
                refused = str(error)
            if lm.last:
                lm.last.forget()
            before_cut, cut = cut, bool(lm.last and lm.last.cut)
            refused += " (it reached the provider's token limit)" if cut else ""
            if cut and before_cut:
                break
        reason = redact(refused)[:1000]
        raise Unusable(self.label, f"malformed answer after {attempt} attempts: {reason}")

    def brief(self, sections: Iterable[Section]) -> Brief:
        """Return the sections as the inputs of a question, cut to what the model can take. Omissions are logged."""
        budget = context_of(self.model)
        if budget is not None:
            fixed = dict.fromkeys(self.declared.input_fields, "x")  # blanks around a text count
            budget -= self.tokens(fixed) + min(self.model.max_tokens or 0, budget // 2)
        brief = fill(sections, budget)
        if brief.left_out:
            log = structlog.get_logger("ksflow.lm.prompts")
            log.info("the prompt has no room for all of it", stage=self.stage, shortened=", ".join(brief.left_out))
        return brief

    def messages(self, inputs: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the prompt with these inputs, as it is sent at the first attempt."""
        messages: list[dict[str, Any]] = self.adapter.format(self.predict.signature, self.predict.demos, dict(inputs))
        return messages

    def tokens(self, inputs: Mapping[str, str]) -> int:
        """Return an estimate of the prompt's tokens with these inputs."""
        return _size(self.messages(inputs))

    def _volatile(self, inputs: Mapping[str, str]) -> str:
        """The header of the first section that the next question will not share: of the first volatile one; where there
        is none, the slow ones are a question's own. Empty where all is shared, or the kinds are not known.
        """
        kinds = inputs.kinds if isinstance(inputs, Brief) else {}
        own = SectionKind.VOLATILE if SectionKind.VOLATILE in kinds.values() else SectionKind.SLOW
        names = [name for name in self.predict.signature.input_fields if kinds.get(name) is own and inputs[name]]
        return f"{header(names[0])}\n" if names else ""

    def first_call(self, inquiry: Inquiry[Any]) -> Question:
        """Return what the first call for an inquiry may cost."""
        texts = [str(message["content"]) for message in self.messages(inquiry.inputs)]
        most = answer_limit(self.model, inquiry.answer_tokens)
        model = replace(self.model, max_tokens=most) if most else self.model
        return first_question(self.label, model, prompt_tokens(texts))

    def laid_out(self, inputs: Mapping[str, str]) -> Prompt:
        """Return the prompt with these inputs, and the tokens of its sections."""
        messages = self.messages(inputs)
        kinds = inputs.kinds if isinstance(inputs, Brief) else {}
        sections = [("instructions", "stable", _size(messages[:-1]))]
        for name in self.predict.signature.input_fields:
            sections.append((name, kinds.get(name, SectionKind.VOLATILE).name.lower(), count(inputs[name])))
        return Prompt(self.label, self.model.model, messages, sections)

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """The prompt and nothing else: no model, so no key and no address, and none of an optimiser's traces."""
        return compiled.strip_state(super().dump_state(json_mode=json_mode))

    def save(self, path: Path | str, save_program: bool = False, modules_to_serialize: Any = None) -> None:
        """Write the prompt as DSPy's JSON state, with the stage and the signature's hash in its metadata.

        ConfigError for DSPy's pickled forms: they would hold the model with its key.
        """
        if save_program or Path(path).suffix != ".json":
            raise ConfigError(
                f"{path}: a prompt is saved as JSON; give a path that ends in .json, without save_program"
            )
        compiled.write(self.dump_state(), self.stage, self.declared, Path(path))

    def load(self, path: Path | str, allow_pickle: bool = False, allow_unsafe_lm_state: bool = False) -> None:
        """Take the prompt from a file that `save`, here or of any `dspy.Module` with this signature, has written.

        ConfigError where it is none, or was compiled for another signature. A model in the file is not taken.
        """
        self.load_state({"predict": compiled.read_state(Path(path), self.stage, self.declared)})

    def _check(self, inputs: Mapping[str, str]) -> None:
        """DSPy would send a prompt with a hole."""
        fields = self.declared.input_fields
        if wrong := sorted(set(inputs) ^ set(fields)):
            raise TypeError(f"{self.label} is asked with {', '.join(fields)}; wrong: {wrong}")


def _size(messages: Iterable[Mapping[str, Any]]) -> int:
    return sum(count(str(message["content"])) for message in messages)


@dataclass(eq=False)
class ModelStage:
    """A stage that asks a model: the class names the prompt, the fields are the keys of its configuration."""

    label: ClassVar[str]  # the stage and its variant: writer=diff
    signature: ClassVar[type[dspy.Signature]]

    lm: Model | None = None
    attempts: int = 3
    """How often a model is asked until its answer can be used."""
    prompt: str | None = None
    """The name or the path of a prompt that `ksflow optimize` wrote; null is the one that ships."""
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        """Make `program`. ConfigError as `Program` raises it."""
        self.program = Program(self.label, self.signature, self.lm, self.attempts, self.prompt, self.seed)
