"""A stage's program, with the questions of recorded rounds, as the optimisers of DSPy take it.

Every call, of the program and of the teacher, goes through the stage's own client: it is metered, redacted, kept in the
transcript and answered from the cache where it was asked before. That cache is also how an interrupted optimisation
goes on: everything is drawn from a seed and asked in order, so the same command comes to the same questions, and those
with an answer cost nothing. The optimisers' own snapshots are not used: they do not restore what is drawn next.
"""

import inspect
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dspy
from dspy import AdapterParseError

from ksflow.errors import BudgetError, ConfigError, LeaveStage, StageError, one_of, stage_boundary
from ksflow.lm.adapter import parse_failure
from ksflow.lm.client import MeteredLM
from ksflow.lm.model import Model
from ksflow.lm.program import Program
from ksflow.lm.refusals import Filtered
from ksflow.protocols import call_context, override_call
from ksflow.records import digest
from ksflow.redaction import redact
from ksflow.training.optimize.examples import Case
from ksflow.training.optimize.metrics import Grade

_LONGEST = 4000  # characters of an unreadable answer that a teacher is shown
_REFLECTED, _BATCH = 3, 8  # examples that GEPA reflects on, and that SIMBA takes, at once


@dataclass(frozen=True)
class Settings:
    """Settings of the command `optimize`."""

    lm: Any = None
    """The teacher's model; the stage's own where there is none."""
    runs: Sequence[str] | None = None
    """Runs to learn from; all of the problem's where none is named."""
    problems: Sequence[str] = ()
    """Other problems to learn from as well."""
    measure: str = "record"
    """Designs: `record` looks their experiments up, `live` has the picked ones written and judged."""
    rollouts: int = 200
    """About how many answers an optimiser may have graded."""
    evaluations: int = 500
    """Kernels that this command may have judged."""
    examples: int = 60
    """Questions at most, all parts together."""
    name: str | None = None
    """Of the prompt; None is <optimizer>_v<next free number>."""
    folder: str = "runs/prompts"
    """Where <stage>/<name>.json goes."""
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("optimize.measure", self.measure, ("record", "live"))
        for name in ("rollouts", "evaluations", "examples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"optimize.{name} must be at least 1, not {getattr(self, name)}")
        if self.name is not None and not self.name.replace("_", "").replace("-", "").isalnum():
            raise ConfigError(f"optimize.name={self.name} must be letters, digits, - and _")


class Halt(LeaveStage):
    """Ends an optimisation, so that no optimiser takes the cause for a bad answer."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class OptimizerLM(MeteredLM):
    """A model as an optimiser asks it, from any thread: raises Halt where the budget, the provider or the configuration
    has no answer, so that the optimisation ends.
    """

    def __init__(self, model: Model, label: str) -> None:
        """`label` is what the calls are recorded under. The connection is the model's."""
        self.__dict__.update(model.client.copy(label=label).__dict__)
        self.asked, self.context = 0, call_context()

    def __call__(self, prompt: Any = None, *, messages: Any = None, **settings: Any) -> Any:
        """One answer, recorded and metered in any thread. Raises Filtered where a safety filter kept it back, else
        Halt.
        """
        self.asked += 1
        try:
            with override_call(record=self.context.record, meter=self.context.meter):
                return super().__call__(prompt, messages=messages, **settings)
        except Filtered:
            raise
        except (StageError, BudgetError, ConfigError) as error:
            raise Halt(error) from error


class CandidateProgram(Program):
    """A copy of the stage's program whose unreadable answers are predictions too, to be graded and learnt from.

    DSPy's optimisers take an exception for the end, or leave the question out.
    """

    def __init__(self, course: "Course", predict: dspy.Predict) -> None:
        taught = course.original
        super().__init__(taught.label, taught.declared, taught.model, taught.attempts, seed=taught.seed)
        self.predict = predict.deepcopy()
        self._course = course

    def forward(self, **inputs: str) -> dspy.Prediction:
        """Return the output fields; `refused` says why there are none, `prompt` names instruction and demos."""
        prompt = self._course.remember(self.predict)
        try:
            prediction = super().forward(**inputs)
        except Filtered as error:
            answer, reason = "", error.reason
        except AdapterParseError as error:
            answer, reason = str(error.lm_response)[:_LONGEST], parse_failure(error)
        else:
            return dspy.Prediction(**prediction.toDict(), refused="", prompt=prompt)
        names = list(self.predict.signature.output_fields)
        if dspy.settings.trace is not None:
            seen = dspy.Prediction(**{**dict.fromkeys(names, ""), names[-1]: answer})
            dspy.settings.trace.append((self.predict, dict(inputs), seen))
        return dspy.Prediction(**{names[-1]: answer} if answer else {}, refused=reason, prompt=prompt)


class Course:
    """What an optimiser of DSPy's takes: program, examples, metric and teacher. Use them inside `with course.open():`.

    An example has the inputs of a question and `case`, its number. `held_out` is for measuring, never for compiling.
    """

    def __init__(self, program: Program, parts: Sequence[Sequence[Case]], teacher: Model | None = None) -> None:
        """parts: the cases to learn from, to choose by, and to measure on. teacher: else the program's own model."""
        self.original, self.teaching_model = program, teacher or program.model
        self.cases = [case for part in parts for case in part]
        examples = (dspy.Example(**case.inquiry.inputs, case=at) for at, case in enumerate(self.cases))
        ready = (example.with_inputs(*program.declared.input_fields) for example in examples)
        self.train, self.validation, self.held_out = ([next(ready) for _ in part] for part in parts)
        self._lock = threading.RLock()
        """Held while an answer is graded: kernels are judged one at a time, whatever threads an optimiser has."""
        self.graded, self.most, self.rollouts = 0, math.inf, 0
        """How many answers were graded, may be, and are to be by an optimiser."""
        self.watch: Callable[[], None] = lambda: None  # called after each graded answer
        self._scores: dict[str, dict[int, float]] = {}
        self._prompts: dict[str, dspy.Predict] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Course":
        """Itself: optimisers copy the programs."""
        return self

    @contextmanager
    def open(self) -> Iterator["Course"]:
        """Have DSPy ask the stage's model inside the block. Raises what a model call or a grade raises."""
        self.teacher = OptimizerLM(self.teaching_model, f"{self.original.stage}=teacher")
        try:
            with dspy.context(lm=OptimizerLM(self.original.model, self.original.label), num_threads=1):
                yield self
        except Halt as halt:
            raise halt.cause from halt

    @property
    def program(self) -> CandidateProgram:
        """A copy of the stage's program: what is made of it changes no stage."""
        return CandidateProgram(self, self.original.predict)

    def metric(
        self, gold: dspy.Example, pred: Any, trace: Any = None, pred_name: str | None = None, pred_trace: Any = None
    ) -> Any:
        """Return a score; with feedback for GEPA, which names the predictor."""
        with self._lock:
            self.graded += 1
            if self.graded > self.most:
                raise Halt(BudgetError(f"optimize.rollouts={self.rollouts} used up"))
            score, feedback = self._grade(self.cases[gold.case], pred)
            if prompt := pred.get("prompt"):
                self._scores.setdefault(prompt, {}).setdefault(gold.case, score)
            self.watch()
        return dspy.Prediction(score=score, feedback=feedback) if pred_name else score

    def _grade(self, case: Case, prediction: dspy.Prediction) -> Grade:
        """Return the grade of an answer, 0 if it is refused. Raises Halt if it cannot be measured."""
        refused = str(prediction.get("refused") or "")
        try:
            if not refused:
                names = self.original.declared.output_fields
                answer = case.inquiry.accept({name: prediction[name] for name in names if name in prediction})
        except ValueError as error:
            refused = str(error) or "it cannot be used"
        if refused:
            return 0.0, redact(f"The answer was refused: {refused}")
        try:
            score, feedback = case.grade(answer)
        except (StageError, BudgetError, ConfigError) as error:
            raise Halt(error) from error
        return score, redact(feedback)

    def examine(self, program: CandidateProgram, examples: Sequence[dspy.Example]) -> list[float]:
        """Return the scores of a program's answers. Raises what a model call or a grade raises."""
        return [self.metric(example, program(**example.inputs())) for example in examples]

    def remember(self, predict: dspy.Predict) -> str:
        """Keep a predictor's prompt for `best`, and return its name."""
        state = predict.dump_state()
        name = digest(json.dumps([state["signature"], state["demos"]], sort_keys=True, default=str))
        with self._lock:
            if name not in self._prompts:
                self._prompts[name] = predict.deepcopy()
                self._prompts[name].lm = None
        return name

    def best(self) -> tuple[CandidateProgram, float]:
        """Return the prompt with the highest mean score on the whole validation set, and the mean."""
        cases = {example.case for example in self.validation}
        means = {
            name: math.fsum(scores[case] for case in cases) / len(cases)
            for name, scores in self._scores.items()
            if scores.keys() >= cases
        }
        name = max(means, key=lambda name: means[name])
        return CandidateProgram(self, self._prompts[name]), means[name]


def compiled(
    course: Course, settings: Settings, start: float, make: Callable[..., Any], compile: Mapping[str, Any] | None = None
) -> tuple[CandidateProgram, str]:
    """Run an optimiser of DSPy's. Returns the program with its new prompt, which may be the old one, and a remark.

    start: the mean score of the old prompt on the validation set. make: DSPy's class with its configured settings.
    compile: settings of its method `compile`. Arguments that depend on the examples are passed by name. Raises what a
    call or a grade raises, and BudgetError far beyond `settings.rollouts`.
    """
    options = {
        "metric": course.metric,
        "max_metric_calls": settings.rollouts,
        "metric_threshold": max(start, math.ulp(1.0)),
        "reflection_lm": course.teacher,
        "prompt_model": course.teacher,
        "task_model": dspy.settings.lm,
        "reflection_minibatch_size": min(_REFLECTED, len(course.train)),
        "bsize": min(_BATCH, len(course.train)),
    }
    parts = {"trainset": course.train[: settings.rollouts], "valset": course.validation, "seed": settings.seed}
    course.rollouts, course.most = (
        settings.rollouts,
        course.graded + settings.rollouts + len(course.train) + len(course.validation),
    )
    with stage_boundary("optimizer"):
        try:
            optimizer = make(**_taken(make, options))
            program = optimizer.compile(course.program, **{**_taken(optimizer.compile, parts), **(compile or {})})
        except AdapterParseError:
            return course.program, "it ended where an answer of the teacher could not be read"
        finally:
            course.most = math.inf
    return program, "it came to its end"


def _taken(called: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in inspect.signature(called).parameters if name in options}
