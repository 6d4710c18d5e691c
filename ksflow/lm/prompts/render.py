"""Records as prompt text. Pure functions: the same values give the same text, so answers can be cached."""

import re
from collections.abc import Iterable, Mapping

from ksflow.errors import shorten
from ksflow.kernels.hardware.compiler_report import by_time
from ksflow.kernels.languages import LANGUAGES
from ksflow.kernels.source.contract import contract, short_contract
from ksflow.lm.prompts.hardware import hardware
from ksflow.lm.prompts.times import figure, format_time, percent, room_left, times
from ksflow.records import (
    Evaluation,
    Experiment,
    Kernel,
    Origin,
    Population,
    Problem,
    Rival,
    Selection,
    Step,
    Trial,
    base_of,
)

_REPORT = 4_000  # characters of a writer's report
_SIBLING = 300  # characters of its description
_SENTENCE = re.compile(r"[.!?]\)?(?=\s|$)")


def task(problem: Problem) -> str:
    """Return the task: what to speed up, on which shapes, and the score."""
    params = [case.params for case in (*problem.tests, *problem.benchmarks)]
    alike = {name: value for name, value in params[0].items() if all(each.get(name) == value for each in params[1:])}
    own = [{name: value for name, value in each.items() if params[1:] and name not in alike} for each in params]
    sizes = ["x".join(map(str, each.values())) for each in own]
    tests, names = len(problem.tests), [case.name for case in problem.benchmarks]
    plain = names == sizes[tests:]
    checked = "; ".join(sizes[i] if plain and [*own[i]] == [*own[-1]] else _params(own[i]) for i in range(tests))
    shapes = f"{' x '.join(own[-1])}: {', '.join(problem.case_words)}"
    if not plain:
        rows = zip(problem.case_words, own[tests:], strict=True)
        shapes = "\n".join(f"- {name}: {_params(each)}" for name, each in rows)
    return (
        f"{problem.title}\n\n{problem.description}\n\n{problem.statement}\n\n"
        f"Languages that a kernel may be in: {', '.join(problem.writable_languages)}.\n"
        f"Correctness is checked first on: {checked}\n"
        f"Then it is timed on these shapes; the score is their {_score(problem)}, lower is "
        f"better:\n{shapes}{f'{chr(10)}All of them: {_params(alike)}' if alike else ''}"
    )


def _score(problem: Problem) -> str:
    words = {"geomean": "geometric mean", "mean": "mean", "last": "last time"}[problem.score]
    return problem.score_name.replace(problem.score, f"{words} in microseconds")


def summary(problem: Problem) -> str:
    """Return the task in a few lines, for a model that does not write code."""
    shapes = ", ".join(problem.case_words)
    return f"{problem.title}\n{problem.description}\nScore: {_score(problem)} over {shapes}; lower is better."


def interface(problem: Problem, kernel: Kernel, cores: int = 1) -> str:
    """Return language, file and contract of the answer, and short contracts of other languages."""
    full = contract(problem, kernel.language, cores)
    text = f"Language: {kernel.language}. File: the main one, whose name stays\n{full}"
    others = [language for language in problem.writable_languages if language != kernel.language]
    if not others:
        return text
    mark = "#" if LANGUAGES[others[0]].python else "//"
    when = "Another language, only where the experiment asks for it"
    if kernel.language not in problem.writable_languages:
        when = f"The answer is in {others[0]}, whatever the base is in"
    return "\n\n".join(
        [
            text,
            f"{when}: the first line of the file then gives its name, "
            f"whose ending tells the language: `{mark} file: kernel{LANGUAGES[others[0]].ending}`; none of the "
            "base's other files is kept. Python that imports Triton is triton.",
            *(short_contract(problem, language) for language in others),
        ]
    )


def listing(kernel: Kernel | None) -> str:
    """Return a kernel's text; of several files each under its name, the main one first."""
    if kernel is None:
        return "(there is no code)"
    return kernel.main if len(kernel.files) == 1 else _files(kernel.files)


def others(kernel: Kernel) -> str:
    """Return the files of a kernel beside the main one, or ""."""
    _, *names = kernel.files
    return _files({name: kernel.files[name] for name in names})


def _files(files: Mapping[str, str]) -> str:
    return "\n".join(f"===== {name} =====\n{text}" for name, text in files.items())


def experiment(tried: Experiment) -> str:
    """Return an experiment in full."""
    low, high = tried.gain_percent
    lines = [
        tried.description,
        f"Rubric: {tried.rubric}",
        f"Predicted gain: {low:g} to {high:g} percent. Innovation: {tried.innovation:g} of 100.",
    ]
    if tried.changes:
        lines.append(f"Tunables to assign: {_params(tried.changes)}")
    return "\n".join(lines)


def analysis(trial: Trial, step: Step, problem: Problem | None = None, second: bool = False) -> str:
    """Return the one-step analysis: the kernel's experiment, its effect per shape, and where it can gain most.

    second: for a kernel beside one whose analysis has the rooflines.
    """
    head = [f"Kernel {trial.id}, score {format_time(step.score_us)}."]
    if step.experiment is None:
        head += ["A seed: it is not the outcome of an experiment."] if trial.origin is Origin.SEED else []
    else:
        head += [f"Made from {step.parent} by this experiment:", experiment(step.experiment)]
    if step.report:
        head.append(f"Its writer's report: {step.report[:_REPORT]}")
    if trial.evaluation:
        head += [*_standing(trial.evaluation, step), *hardware(trial.evaluation, trial.kernel, problem)]
    return "\n".join([*head, times(trial, step, second), *([] if second else room_left(trial, problem))])


def reference(problem: Problem, selection: Selection) -> str:
    """Return why base and reference were chosen, and the one-step analysis of the reference."""
    why = f"Why these two were chosen: {selection.rationale}" if selection.rationale else ""
    text = "(the base itself)"
    if selection.reference.id != selection.base.id:
        text = analysis(selection.reference, selection.reference_step, problem, second=True)
    return f"{why}\n{text}" if why else text


def standings(rivals: Iterable[Rival], left: Mapping[str, float] | None = None) -> str:
    """Return the kernels to beat, a line each, and the remaining budget in a last line, if known."""
    lines = []
    for index, rival in enumerate(rivals):
        trial = rival.trial
        named = f"Baseline {trial.name or trial.id} ({trial.id})" if trial.baseline else trial.id
        if index == 0:
            named = f"Best so far: {named}"
        elif not trial.baseline:
            named = f"Fastest by all comparisons together: {named}"
        beside = f"; the best so far is {rival.lead} as fast" if rival.lead else ""
        lines.append(f"{named}, {format_time(rival.us)}{beside}.")
    known = {unit: left[name] for name, unit in _LEFT.items() if name in left} if left else {}
    amounts = [f"{figure(round(amount, 1 if amount < 10 else 0))} {unit}" for unit, amount in known.items()]
    return "\n".join([*lines, *([f"Left of the budget: {', '.join(amounts)}."] if amounts else [])])


_LEFT = {"evaluations": "evaluations", "rounds": "rounds after this one", "minutes": "minutes", "usd": "US dollars"}
"""Budget -> its unit."""


def topics(problem: Problem, selection: Selection) -> str:
    """Return what a round is about: why its base was chosen, what was changed last, the slowest device functions."""
    base, step = selection.base, selection.base_step
    rows = by_time(base.evaluation, base.kernel, problem) if base.evaluation else []
    tried = step.experiment.description if step.experiment else ""
    return "\n".join([selection.rationale, tried, step.report, *(row.kernel for row, _ in rows)])


def commission(selection: Selection, tried: Experiment) -> str:
    """Return an experiment for its writer: in full, with its avenue and how others on the base failed, newest first."""
    avenue = f"\nThe avenue that it follows: {selection.avenue}" if selection.avenue else ""
    lines = [
        f"- {trial.id}: {sentences(trial.experiment.description, _SIBLING)} -> {trial.verdict} "
        f"{shorten(trial.evaluation.reason if trial.evaluation else trial.failure, 300)}"
        for trial in selection.siblings
        if trial.experiment and trial.experiment != tried
    ]
    if lines:
        lines = ["\nOthers that began at this base failed, for reasons to steer clear of:", *lines]
    return "\n".join([f"{experiment(tried)}{avenue}", *lines])


def sentences(text: str, room: int) -> str:
    """Return as many whole sentences of a text as fit in so many characters, or the beginning of the first."""
    text = " ".join(text.split())
    if len(text) <= room:
        return text
    whole = max((match.end() for match in _SENTENCE.finditer(text[: room + 1])), default=0)
    return text[:whole].rstrip() if whole else shorten(text, room)


def _standing(evaluation: Evaluation, step: Step) -> list[str]:
    lines = [
        f"Timed side by side with {name}: {row} as fast{' (no difference beyond noise)' if row.tie else ''}."
        for name, row in step.versus.items()
    ]
    if evaluation.why_unranked:
        lines.append(
            f"Unranked: the machine was too noisy when it was judged ({shorten(evaluation.why_unranked, 200)}). "
            "Its times may be off by more than their intervals: do not build on small differences."
        )
    return lines


def work_text(problem: Problem) -> str:
    """Return the run's task as one text, by which `findings` ranks notes. It excludes the base: the same notes are
    shown for every base, so that prompts have a common beginning, which providers cache.
    """
    texts = (problem.name, problem.title, problem.description, problem.statement, problem.reference_text)
    return "\n".join([*texts, *problem.languages])


def outcome(trial: Trial, population: Population) -> str:
    """Return one line: what was tried on which base, and the result."""
    what = shorten(trial.experiment.description if trial.experiment else trial.name or "by hand")
    base = base_of(trial, population.by_id)
    line = f"{trial.id} from {base.id if base else 'nothing'}: {what} -> "
    if trial.score_us is not None:
        speed = population.speedup(trial, base)
        gain = f", {percent(speed.ratio)}" if speed else ""
        doubt = ", unranked (noise)" if trial.evaluation and trial.evaluation.why_unranked else ""
        return f"{line}{format_time(population.time_us(trial))}{gain}{doubt}"
    reason = trial.evaluation.reason if trial.evaluation else trial.failure
    return f"{line}{trial.verdict} {shorten(reason, 300)}".rstrip()


def _params(params: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items())
