"""Records as prompt text. Pure functions: the same values give the same words, so answers can be
cached.
"""

import json
from collections.abc import Iterable, Mapping

from ksflow.records import Experiment, Kernel, Note, Population, Problem, Status, Step, Trial

_TRUST = (Status.MEASURED, Status.DOCUMENTED, Status.ASSUMED, Status.REFUTED)
_MEANING = {
    Status.MEASURED: "Measured here",
    Status.DOCUMENTED: "Documented",
    Status.ASSUMED: "Assumed, not checked",
    Status.REFUTED: "Refuted: do not rely on these",
}
_FINDINGS = 60_000  # characters of findings a prompt has room for
_REPORT = 4_000  # characters of a writer's report
_EVIDENCE = 6_000  # characters of a judge's evidence


def task(problem: Problem) -> str:
    """What is to be made fast, on what, and how it is scored."""
    shapes = "\n".join(f"- {case.name}: {_params(case.params)}" for case in problem.benchmarks)
    tests = "; ".join(_params(case.params) for case in problem.tests)
    return (
        f"{problem.title}\n\n{problem.description}\n\n{problem.statement}\n\n"
        f"Correctness is checked first on: {tests}\n"
        f"Then it is timed on these shapes; the score is their {_SCORES[problem.score]}, lower is "
        f"better:\n{shapes}"
    )


_SCORES = {
    "geomean": "geometric mean in microseconds",
    "mean": "mean in microseconds",
    "last": "last time in microseconds",
}


def summary(problem: Problem) -> str:
    """The task in a few lines, for who does not write code."""
    shapes = ", ".join(case.name for case in problem.benchmarks)
    score = _SCORES[problem.score]
    return f"{problem.title}\n{problem.description}\nScore: {score} over {shapes}; lower is better."


def interface(problem: Problem, kernel: Kernel) -> str:
    """The one language and file the answer is in, and what it must define."""
    name = next(iter(kernel.files))
    if kernel.language == "python":
        entry = "it must define `custom_kernel(data)`"
    else:
        entry = f"it must define exactly:\n{problem.signature}"
        if problem.defines:
            entry += f"\nCompiled with {_params(problem.defines)} defined."
    return f"Language: {kernel.language}. File: {name}; {entry}"


def listing(kernel: Kernel | None) -> str:
    """A kernel's text; of several files each under its name, the main one first."""
    if kernel is None:
        return "(there is no code)"
    if len(kernel.files) == 1:
        return kernel.main
    return "\n".join(f"===== {name} =====\n{text}" for name, text in kernel.files.items())


def experiment(tried: Experiment) -> str:
    """An experiment in full."""
    low, high = tried.gain_percent
    lines = [
        tried.description,
        f"Rubric: {tried.rubric}",
        f"Predicted gain: {low:g} to {high:g} percent. Innovation: {tried.innovation:g} of 100.",
    ]
    if tried.changes:
        lines.append(f"Tunables to assign: {_params(tried.changes)}")
    return "\n".join(lines)


def analysis(trial: Trial, step: Step) -> str:
    """The one-step analysis: what was tried to get this kernel, and what that did per shape."""
    head = [f"Kernel {trial.id}, score {_us(trial.score_us)}."]
    if step.experiment is None:
        head.append("A seed: it is not the outcome of an experiment.")
    else:
        head += [f"Made from {step.parent} by this experiment:", experiment(step.experiment)]
    if step.report:
        head.append(f"Its writer's report: {step.report[:_REPORT]}")
    rows = [
        [case, _us(step.before_us.get(case)), _us(us), _gain(step.before_us.get(case), us)]
        for case, us in step.after_us.items()
    ]
    titles = ["shape", f"parent {step.parent}".strip(), f"this {trial.id}", "gain"]
    return "\n".join([*head, table(titles, rows)])


def failure(failed: Trial | None) -> str:
    """An attempt to repair, with the judge's evidence; empty when there is none."""
    if failed is None:
        return "(none: this is a first attempt)"
    found = failed.evaluation
    evidence = json.dumps(found.evidence, default=str, ensure_ascii=False) if found else ""
    return (
        f"Attempt {failed.id} at this experiment failed: {failed.verdict}. "
        f"{found.reason if found else failed.failure}\n"
        f"Evidence: {evidence[:_EVIDENCE]}\nIts code:\n{listing(failed.kernel)}"
    )


def findings(notes: Iterable[Note], room: int = _FINDINGS) -> str:
    """The notes, the most trusted first; what has no room is counted."""
    blocks = []
    left = sorted(notes, key=lambda note: _TRUST.index(note.status))
    for index, note in enumerate(left):
        chips = f" (for {', '.join(note.targets)})" if note.targets else ""
        text = f"### {note.title}{chips}\n{_MEANING[note.status]}. Sources: "
        blocks.append(f"{text}{'; '.join(note.sources)}\n{note.text.strip()}")
        room -= len(blocks[-1])
        if room < 0:
            blocks[-1] = f"({len(left) - index} more notes have no room here)"
            break
    return "\n\n".join(blocks) or "(there are no findings yet)"


def outcome(trial: Trial, population: Population) -> str:
    """One line: what was tried on what, and what came of it."""
    what = short(trial.experiment.description if trial.experiment else trial.name or "by hand")
    base = population.by_id.get(trial.parents[0]) if trial.parents else None
    line = f"{trial.id} from {base.id if base else 'nothing'}: {what} -> "
    if trial.score_us is not None:
        gain = _gain(base.score_us if base else None, trial.score_us)
        return f"{line}{_us(trial.score_us)}{f', {gain}' if gain else ''}"
    reason = trial.evaluation.reason if trial.evaluation else trial.failure
    return f"{line}{trial.verdict} {short(reason, 300)}".rstrip()


def outcomes(trials: Iterable[Trial], population: Population) -> str:
    """One line for each trial."""
    return "\n".join(f"- {outcome(trial, population)}" for trial in trials) or "(none)"


def table(titles: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def short(text: str, room: int = 160) -> str:
    """`text` on one line, cut at `room` characters, safe in a table."""
    line = " ".join(text.replace("|", "/").split())
    return line if len(line) <= room else f"{line[: room - 3]}..."


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g} us"


def _gain(before: float | None, after: float) -> str:
    return "" if before is None else f"{(before / after - 1) * 100:+.1f} %"


def _params(params: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items())
