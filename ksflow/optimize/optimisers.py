"""DSPy's prompt optimisers, each bounded, single-threaded and drawn from a seed.

One thread, because DSPy's others ask slow questions twice, and because kernels are judged one at a time. Parts that
send source code or whole data sets to a model are switched off: a prompt here may hold several kernels.
"""

import math
from collections.abc import Callable

import dspy

from ksflow.lm.dspy_seams import InstructionProposer
from ksflow.optimize.teaching import CandidateProgram, OptimizerInputs

_PERFECT = 0.999
_MINIBATCH = 3
_SIMBA_BATCH = 8
_SIMBA_CANDIDATES = 3
_DEMOS = 2
"""Worked examples that `bootstrap` adds where nobody says how many."""
Outcome = tuple[CandidateProgram, str]
"""The student, and a remark for whoever reads the card."""


def gepa(course: OptimizerInputs) -> Outcome:
    """Instructions by reflection on graded answers. `remark` says so when no new one held."""
    from gepa.utils import ScoreThresholdStopper

    adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)
    optimiser = dspy.GEPA(
        metric=course.metric,
        max_metric_calls=course.rollouts,
        reflection_lm=course.teacher,
        instruction_proposer=InstructionProposer(adapter=adapter),
        reflection_minibatch_size=min(_MINIBATCH, len(course.train)),
        track_stats=True,
        num_threads=1,
        seed=course.seed,
        gepa_kwargs={"stop_callbacks": [ScoreThresholdStopper(_PERFECT)]},
    )
    made = optimiser.compile(CandidateProgram(course.school), trainset=course.train, valset=course.validation)
    found = len(made.detailed_results.candidates)
    del made.detailed_results
    return made, f"{found - 1} new instructions held on their examples" if found > 1 else _NOTHING


_NOTHING = (
    "no new instruction held: either none was better on its examples, or the teacher's answers could not be read "
    "(see optimizer.log)"
)


def mipro(course: OptimizerInputs) -> Outcome:
    """Instructions proposed at once, and chosen with Optuna's TPE on the validation set."""
    demos = course.demos or 0
    trials = max(3, course.rollouts // max(len(course.validation), 1) - 1)
    candidates = max(2, min(6, trials))
    optimiser = dspy.MIPROv2(
        metric=course.metric,
        prompt_model=course.teacher,
        task_model=dspy.settings.lm,
        auto=None,
        num_candidates=candidates,
        max_bootstrapped_demos=demos,
        max_labeled_demos=0,
        num_threads=1,
        seed=course.seed or 9,  # it takes 0 for none
        metric_threshold=course.start,
    )
    made = optimiser.compile(
        CandidateProgram(course.school),
        trainset=course.train,
        valset=course.validation,
        num_trials=trials,
        minibatch=False,
        program_aware_proposer=False,
        data_aware_proposer=False,
        fewshot_aware_proposer=bool(demos),
    )
    for name in ("trial_logs", "score", "prompt_model_total_calls", "total_calls", "candidate_programs"):
        made.__dict__.pop(name, None)
    return made, f"{candidates} instructions, {trials} trials"


def bootstrap(course: OptimizerInputs) -> Outcome:
    """Worked examples: answers that were graded above the start's mean."""
    demos = _DEMOS if course.demos is None else course.demos
    optimiser = dspy.BootstrapFewShot(
        metric=course.metric,
        metric_threshold=max(course.start, math.ulp(1.0)),
        max_bootstrapped_demos=demos,
        max_labeled_demos=0,
    )
    made = optimiser.compile(CandidateProgram(course.school), trainset=course.train[: course.rollouts])
    return made, f"{len(made.predict.demos)} worked examples"


def simba(course: OptimizerInputs) -> Outcome:
    """Rules drawn from good beside bad answers to the same question."""
    batch = min(_SIMBA_BATCH, len(course.train))
    steps = max(1, course.rollouts // (2 * batch * _SIMBA_CANDIDATES))
    optimiser = dspy.SIMBA(
        metric=course.metric,
        bsize=batch,
        num_candidates=_SIMBA_CANDIDATES,
        max_steps=steps,
        max_demos=course.demos or 0,
        prompt_model=course.teacher,
        num_threads=1,
    )
    made = optimiser.compile(CandidateProgram(course.school), trainset=course.train, seed=course.seed)
    for name in ("candidate_programs", "trial_logs"):
        made.__dict__.pop(name, None)
    return made, f"{steps} steps with {batch} examples"


OPTIMISERS: dict[str, Callable[[OptimizerInputs], Outcome]] = {
    "gepa": gepa,
    "mipro": mipro,
    "bootstrap": bootstrap,
    "simba": simba,
}
"""By the name a command line uses."""
