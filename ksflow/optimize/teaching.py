"""A stage's prompt as something to be taught: questions it would ask, graded answers, a prompt that changes.

Every call, of the pupil and of the teacher, goes through the stage's own client: it is metered, redacted, kept in the
transcript and answered from the cache where it was asked before. That cache is also how an interrupted optimisation
goes on: everything is drawn from a seed and asked in order, so the same command comes to the same questions, and those
with an answer cost nothing. The optimisers' own snapshots are not used: they do not restore what is drawn next.

What it does not do: judge. Grades come from whoever compiles.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy import AdapterParseError

from ksflow.errors import BudgetError, ConfigError, LeaveStage, StageError, boundary
from ksflow.lm.adapter import why
from ksflow.lm.client import MeteredLM
from ksflow.lm.model import Model
from ksflow.lm.program import Inquiry, Program
from ksflow.lm.refusals import Filtered
from ksflow.optimize.metrics import Grade, Grader
from ksflow.protocols import call_context, calling
from ksflow.records import digest
from ksflow.redaction import redact

_LONGEST = 4000  # characters of an unreadable answer that a teacher is shown


class Halt(LeaveStage):
    """An optimisation must end: no optimiser may take it for a bad answer. `cause` says why."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class OptimizerLM(MeteredLM):
    """A model as an optimiser asks it, from any thread: raises Halt where the budget, the provider or the configuration
    has no answer, so that the optimisation ends.
    """

    def __init__(self, model: Model, label: str, count: Callable[[], None] = lambda: None) -> None:
        """`label` is what the calls are recorded under, `count` is called for each. The connection is the model's."""
        self.__dict__.update(model.client.copy(label=label).__dict__)
        self.count, self.context = count, call_context()

    def __call__(self, prompt: Any = None, *, messages: Any = None, **settings: Any) -> Any:
        """One answer, recorded and metered where the optimisation is, though a thread of DSPy's has no such context.

        Raises Filtered where a safety filter kept it back, else Halt where there is none.
        """
        self.count()
        try:
            with calling(record=self.context.record, meter=self.context.meter):
                return super().__call__(prompt, messages=messages, **settings)
        except Filtered:
            raise
        except (StageError, BudgetError, ConfigError) as error:
            raise Halt(error) from error


class CandidateProgram(Program):
    """A copy of the stage's program whose unreadable answers are predictions too, to be graded and learnt from.

    DSPy's optimisers take an exception for the end, or leave the question out.
    """

    def __init__(self, school: "PromptCompiler") -> None:
        taught = school.program
        super().__init__(taught.label, taught.declared, taught.model, taught.attempts, seed=taught.seed)
        self.predict = taught.predict.deepcopy()
        self._school = school

    def forward(self, **inputs: str) -> dspy.Prediction:
        """The output fields; `refused` is why there are none, `prompt` names instruction and demos."""
        prompt = self._school.remember(self.predict)
        try:
            prediction = super().forward(**inputs)
        except (AdapterParseError, Filtered) as error:
            return self._refused(inputs, error, prompt)
        return dspy.Prediction(**prediction.toDict(), refused="", prompt=prompt)

    def _refused(self, inputs: Mapping[str, str], error: AdapterParseError | Filtered, prompt: str) -> dspy.Prediction:
        names = list(self.predict.signature.output_fields)
        answer = "" if isinstance(error, Filtered) else str(error.lm_response)[:_LONGEST]
        reason = error.reason if isinstance(error, Filtered) else why(error)
        if dspy.settings.trace is not None:
            seen = dspy.Prediction(**{**dict.fromkeys(names, ""), names[-1]: answer})
            dspy.settings.trace.append((self.predict, dict(inputs), seen))
        return dspy.Prediction(**{names[-1]: answer} if answer else {}, refused=reason, prompt=prompt)


def prompt_hash(predict: dspy.Predict) -> str:
    """Names an instruction with its demos."""
    state = predict.dump_state()
    return digest(json.dumps([state["signature"], state["demos"]], sort_keys=True, default=str))


@dataclass
class OptimizerInputs:
    """What an optimiser works with. Examples carry their inputs and `case`, the number of the inquiry they are of."""

    school: "PromptCompiler"
    teacher: OptimizerLM
    train: list[dspy.Example]
    validation: list[dspy.Example]
    held_out: Sequence[dspy.Example] = ()
    """For measuring, never for compiling."""
    start: float = 0.0
    """The mean score of the prompt as it is, on the validation set."""
    rollouts: int = 200
    """About how many answers may be graded."""
    demos: int | None = None
    seed: int = 0
    most: int | None = None
    """After so many graded answers it ends."""
    graded: int = 0

    @property
    def program(self) -> Program:
        """A copy of the stage's program: what is made of it changes no stage."""
        return self.school.student()

    def metric(
        self, gold: dspy.Example, pred: Any, trace: Any = None, pred_name: str | None = None, pred_trace: Any = None
    ) -> Any:
        """A score; with feedback for GEPA, which asks for it by naming the predictor."""
        with self.school.lock:
            self.graded += 1
            if self.most is not None and self.graded > self.most:
                raise Halt(BudgetError(f"optimize.rollouts={self.rollouts} used up"))
            score, feedback = self.school.grade(gold, pred)
        return dspy.Prediction(score=score, feedback=feedback) if pred_name else score


@dataclass
class PromptCompiler:
    """Teaches one stage. `watch` is told after each graded answer."""

    program: Program
    teacher: Model | None = None
    watch: Callable[[], None] = lambda: None
    asked: int = 0
    """Questions to the teacher."""
    scores: dict[str, dict[int, float]] = field(default_factory=dict)
    """Prompt -> case -> score."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while an answer is graded: kernels are judged one at a time, whatever threads an optimiser has."""
    _inquiries: list[Inquiry[Any]] = field(default_factory=list)
    _graders: list[Grader] = field(default_factory=list)
    _grades: dict[tuple[int, str], Grade] = field(default_factory=dict)
    _prompts: dict[str, dspy.Predict] = field(default_factory=dict)

    def __deepcopy__(self, memo: dict[int, Any]) -> "PromptCompiler":
        """Itself: optimisers copy their students."""
        return self

    # -- questions -----------------------------------------------------------------------------

    def hear(self, question: Callable[[], Inquiry[Any] | None], grader: Callable[[str], Grader]) -> int | None:
        """The number of the question that `question` makes; None where there is none to ask.

        `grader` makes, of all that the model is shown, what grades the answers.
        """
        try:
            inquiry = question()
        except StageError:
            return None
        if inquiry is None:
            return None
        self._inquiries.append(inquiry)
        self._graders.append(grader(self.shown(len(self._inquiries) - 1)))
        return len(self._inquiries) - 1

    def inputs(self, case: int) -> dict[str, str]:
        """What a question consists of."""
        return dict(self._inquiries[case].inputs)

    def shown(self, case: int) -> str:
        """The same as one text."""
        return "\n".join(self._inquiries[case].inputs.values())

    @property
    def keeps(self) -> bool:
        """Whether an answer is had again for nothing."""
        return self.program.model.cache and (self.teacher or self.program.model).cache

    @property
    def versions(self) -> dict[str, str]:
        """For a card: the models and versions."""
        return {
            "model": self.program.model.model,
            "teacher": (self.teacher or self.program.model).model,
            "dspy": dspy.__version__,
        }

    # -- students ------------------------------------------------------------------------------

    def student(self) -> CandidateProgram:
        """One with the prompt as it is."""
        return CandidateProgram(self)

    def best(self, cases: Sequence[int]) -> CandidateProgram:
        """The one with the highest mean of those whose every case was graded; of equals the first."""
        means = {
            prompt: sum(scores[case] for case in cases)
            for prompt, scores in self.scores.items()
            if scores.keys() >= set(cases)
        }
        student = CandidateProgram(self)
        student.predict = self._prompts[max(means, key=lambda prompt: means[prompt])].deepcopy()
        return student

    def mean(self, student: CandidateProgram, cases: Sequence[int]) -> float:
        """The mean score of a student whose every case was graded."""
        scores = self.scores[prompt_hash(student.predict)]
        return sum(scores[case] for case in cases) / len(cases)

    def examine(self, student: CandidateProgram, cases: Sequence[int]) -> list[float]:
        """The scores of a student's answers. Raises what a model call or a grade raises."""
        with self._open():
            return [self.grade(example, student(**example.inputs()))[0] for example in map(self.example, cases)]

    def compile(
        self,
        optimizer: Callable[["OptimizerInputs"], CandidateProgram],
        train: Sequence[int],
        validation: Sequence[int],
        **settings: Any,
    ) -> tuple[CandidateProgram, str]:
        """A student with a better prompt, or the same, and a remark. The settings are `OptimizerInputs`'s.

        Raises what a model call or a grade raises; BudgetError where a round over all examples more than `rollouts`
        answers were graded.
        """
        with self.course(train, validation, **settings) as course, boundary("optimizer"):
            course.most = course.rollouts + len(train) + len(validation)
            try:
                student, remark = optimizer(course), "it came to its end"
            except AdapterParseError:
                student, remark = CandidateProgram(self), "it ended where an answer of the teacher could not be read"
        student.predict.lm = None
        return student, remark

    @contextmanager
    def course(
        self, train: Sequence[int], validation: Sequence[int], held_out: Sequence[int] = (), **settings: Any
    ) -> Iterator[OptimizerInputs]:
        """What an optimiser works with; meanwhile DSPy asks the stage's model. Raises what a model call raises."""
        teacher = OptimizerLM(self.teacher or self.program.model, f"{self.program.stage}=teacher", self._count)
        learnt, chosen, reserved = ([*map(self.example, part)] for part in (train, validation, held_out))
        with self._open():
            yield OptimizerInputs(self, teacher, learnt, chosen, reserved, **settings)

    def _count(self) -> None:
        self.asked += 1

    @contextmanager
    def _open(self) -> Iterator[None]:
        lm = OptimizerLM(self.program.model, self.program.label)
        try:
            with dspy.context(lm=lm, num_threads=1):
                yield
        except Halt as halt:
            raise halt.cause from halt

    def example(self, case: int) -> dspy.Example:
        """A question as DSPy's optimisers take it; `case` is its number."""
        inputs = self.inputs(case)
        return dspy.Example(**inputs, case=case).with_inputs(*inputs)

    def remember(self, predict: dspy.Predict) -> str:
        """The name of the predictor's prompt, which `best` may choose from now on."""
        name = prompt_hash(predict)
        with self.lock:
            if name not in self._prompts:
                self._prompts[name] = predict.deepcopy()
                self._prompts[name].lm = None
        return name

    def grade(self, example: dspy.Example, prediction: dspy.Prediction) -> Grade:
        """Once for each answer to a question; a refusal is graded too. Raises Halt where it cannot be measured."""
        case, names = int(example.case), self.program.predict.signature.output_fields
        fields = {name: prediction[name] for name in names if name in prediction}
        refused = str(prediction.get("refused") or "")
        key = (case, digest(repr(fields), refused, digits=64))
        if key not in self._grades:
            self._grades[key] = self._judged(case, fields, refused)
        if prompt := prediction.get("prompt"):
            self.scores.setdefault(str(prompt), {}).setdefault(case, self._grades[key][0])
        self.watch()
        return self._grades[key]

    def _judged(self, case: int, fields: dict[str, Any], refused: str) -> Grade:
        answer = None
        if not refused:
            try:
                answer = self._inquiries[case].accept(fields)
            except ValueError as error:
                refused = str(error) or "the answer was refused"
        try:
            score, feedback = self._graders[case](answer, refused)
        except (StageError, BudgetError, ConfigError) as error:
            raise Halt(error) from error
        return score, redact(feedback)
