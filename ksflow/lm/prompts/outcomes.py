"""Results of experiments, for digesters: the newest in full, the others in a line each."""

from collections.abc import Iterator, Sequence

from ksflow.errors import shorten
from ksflow.lm.prompts.brief import count
from ksflow.lm.prompts.failures import redacted_failure
from ksflow.lm.prompts.hardware import hardware, whole_lines
from ksflow.lm.prompts.render import outcome, sentences, times
from ksflow.records import Population, Problem, Trial

_DESCRIPTION = 600  # characters
_REASON = 1_500  # of a failure's reason, with messages of compiler and judge
_HARDWARE = 2_500  # of compiler's lines and counters


def reports(trials: Sequence[Trial], population: Population, problem: Problem, tokens: int) -> str:
    """Return a line for each trial, oldest first; the newest of them, as many as fit, with times and gains by shape,
    reports of compiler and counters, or why they failed. If not even the lines fit, the oldest are counted. "" without
    trials.
    """
    shown: list[str] = []
    lines = [f"- {outcome(trial, population)}" for trial in trials]
    sizes = [count(line) + 1 for line in lines]
    first = next((at for at in range(len(lines)) if sum(sizes[at:]) <= tokens), len(lines))
    room = tokens - sum(sizes[first:])
    for trial, line, size in reversed([*zip(trials, lines, sizes, strict=True)][first:]):
        full = "\n".join([line, *_details(trial, population, problem)])
        extra = count(full) + 1 - size
        shown.insert(0, full if extra <= room else line)
        room -= extra if extra <= room else 0
    return "\n".join([*([f"({first} earlier ones are not shown)"] if first else []), *shown])


def _details(trial: Trial, population: Population, problem: Problem) -> Iterator[str]:
    if trial.experiment:
        yield f"The experiment: {sentences(trial.experiment.description, _DESCRIPTION)}"
    if trial.evaluation is None or not trial.evaluation.accepted:
        yield whole_lines(redacted_failure(trial), _REASON)
        return
    yield times(trial, population.step(trial))
    if measured := "\n".join(hardware(trial.evaluation, trial.kernel, problem)):
        yield whole_lines(measured, _HARDWARE)
    if trial.kernel and trial.kernel.report:
        yield f"Its writer's report: {shorten(trial.kernel.report, _DESCRIPTION)}"
