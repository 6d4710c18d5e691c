"""A model asks the hardware: a question is a program, a form that checks it, and what its numbers mean.

What a model writes is parsed, bounded and run in the judge's boxes; the reference that checks it is ours. Of what its
program puts out only numbers reach a note.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dspy

from ksflow.kernels.languages import LANGUAGES
from ksflow.kernels.source.contract import contract
from ksflow.lm.program import Inquiry, ModelStage
from ksflow.lm.prompts import render
from ksflow.lm.prompts.brief import STABLE, VOLATILE, Section
from ksflow.lm.prompts.findings import FINDINGS
from ksflow.lm.prompts.findings import findings as written
from ksflow.notes import probes
from ksflow.notes.probes import Figure, Probe, ProbeBench
from ksflow.records import Kernel, Note, Problem, Record, Scalar, Target, digest
from ksflow.stages.prober.ready import find_probe

_LONGEST = {"title": 120, "question": 300, "text": 1500, "code": 24_000}
_MOST_CASES, _MOST_FIGURES = 4, 8
_LARGEST = {"n": 1 << 28, "turns": 1 << 24, "out": 4096, "line": 64, "each": 1 << 32}
_ELEMENTS = 1 << 28
_SCALAR = 1 << 31
_FORMS = ("copy", "sum", "loop", "chase", "places", "values")


@dataclass(frozen=True)
class Asked(Record):
    """A question as a model writes it."""

    title: str
    question: str
    form: str
    cases: Mapping[str, Mapping[str, Scalar]]
    figures: Mapping[str, Figure]
    text: str


class Ask(dspy.Signature):  # type: ignore[misc]
    """You put questions to a chip, as small programs, for a team that optimises one kernel for it. The answers are
    findings that its engineers rely on.

    Ask what the task needs, what no finding says yet, and what documents do not tell: a rate, a latency, a limit, a
    layout, what an instruction costs beside another. One question, one program that isolates it: long enough that
    starting it does not count, with work that the compiler can neither foresee nor leave out, and with an answer that
    its form can check. If there is a claim, the program measures what the claim says, in the claim's units. If an
    earlier program failed, mend it.
    """

    task: str = dspy.InputField(desc="the task that the questions are for")
    target: str = dspy.InputField(desc="the chip")
    findings: str = dspy.InputField(desc="the findings so far, answers to earlier questions included")
    interface: str = dspy.InputField(desc="forms to choose from, and what a program must define")
    claim: str = dspy.InputField(desc="what somebody doubts, if anything")
    failed: str = dspy.InputField(desc="your program that did not answer, if any, and why")
    question: Asked = dspy.OutputField(
        desc='an object {"title": "...", "question": "...", "form": "...", "cases": {NAME: {"n": 1, "turns": 1000, '
        '...}}, "figures": {NAME: {"value": "2 * each * turns / us / 1000", "unit": "GFLOP/s", "case": NAME or ""}}, '
        '"text": "..."}. A figure is arithmetic over the case\'s numbers and either us, the time of one call in '
        "microseconds, or y0 to y15, the first values of the output. text is the finding, with {NAME} where a figure "
        "goes, and says under which conditions it holds"
    )
    code: str = dspy.OutputField(desc="the whole program")


@dataclass(eq=False)
class LlmProber(ModelStage):
    """Asks up to `most` questions of its own, and settles claims that no shipped probe settles."""

    label, signature = "prober=llm", Ask
    bench: ProbeBench = field(kw_only=True)
    """Where probes run."""
    most: int = 3
    """How many questions of its own it asks at most."""
    findings: int = FINDINGS
    """Tokens of the notes that are shown."""

    def __call__(
        self, problem: Problem, notes: tuple[Note, ...], claim: Note | None = None, failed: str = ""
    ) -> Probe | None:
        if claim is not None and not failed and (shipped := find_probe(claim, self.bench)):
            return shipped
        return self.program.ask(self.question(problem, notes, claim, failed))

    def question(
        self, problem: Problem, notes: tuple[Note, ...], claim: Note | None = None, failed: str = ""
    ) -> Inquiry[Probe]:
        """What the model is asked, and how its answer becomes a probe."""
        target = self.bench.target
        language = probes.language(target)
        doubt = f"{claim.title}: {claim.text}" if claim else ""
        sections = [
            Section("task", STABLE, render.summary(problem)),
            Section("target", STABLE, _described(target)),
            Section("findings", STABLE, lambda room: written(notes, room), self.findings, priority=1),
            Section("interface", STABLE, _interface(language)),
            Section("claim", VOLATILE, doubt),
            Section("failed", VOLATILE, failed),
        ]
        taken = {note.title for note in notes} | {probe.title for probe in probes.shipped_probes()}

        def accept(answer: dict[str, Any]) -> Probe:
            return _probe(answer["question"], answer["code"], language, set() if failed or claim else taken)

        return Inquiry(self.program.brief(sections), accept)


def _probe(asked: Asked, code: str, language: str, taken: set[str]) -> Probe:
    """Return a probe that can be run. Raises ValueError for an invalid question."""
    for name, longest in _LONGEST.items():
        text = code if name == "code" else getattr(asked, name)
        if not text.strip() or len(text) > longest:
            raise ValueError(f"{name} must have 1 to {longest} characters, not {len(text)}")
    if asked.title in taken:
        raise ValueError(f"question.title: {asked.title!r} is answered already; ask something else")
    if len(asked.cases) > _MOST_CASES or not 1 <= len(asked.figures) + (asked.form == "places") <= _MOST_FIGURES:
        raise ValueError(f"question: at most {_MOST_CASES} cases, and 1 to {_MOST_FIGURES} figures")
    for name, params in asked.cases.items():
        _bounded(name, params)
    # titles that begin alike, or have no Latin letter, keep programs of their own
    plain = re.sub(r"[^a-z0-9]+", "-", asked.title.lower()).strip("-")[:40].strip("-")
    stem = "-".join(part for part in ("asked", plain, digest(asked.title, digits=6)) if part)
    probe = Probe(
        name=stem,
        title=asked.title,
        question=asked.question,
        form=asked.form,
        kernel=Kernel(language, {f"{stem}{LANGUAGES[language].ending}": code}),
        cases=asked.cases,
        figures=asked.figures,
        text=asked.text,
    )
    probes.check(probe)
    return probe


def _bounded(name: str, params: Mapping[str, Scalar]) -> None:
    for key, value in params.items():
        most = _LARGEST.get(key, _SCALAR)
        if not key.isidentifier() or key == "seed" or isinstance(value, str) or not 0 <= value <= most:
            raise ValueError(f"question.cases: {name}: {key}={value!r} is not a number from 0 to {most}")
    if any(not isinstance(params.get(key, 1), int) or params.get(key, 1) == 0 for key in ("n", "turns", "out", "line")):
        raise ValueError(f"question.cases: {name}: n, turns, out and line are whole numbers from 1 on")
    if int(params.get("n", 1)) * int(params.get("line", 1)) > _ELEMENTS:
        raise ValueError(f"question.cases: {name}: more than {_ELEMENTS} elements")


def _described(target: Target) -> str:
    features = f", with {', '.join(target.features)}" if target.features else ""
    peaks = "; ".join(f"{key} {value:.4g} a second" for key, value in target.peaks.items())
    return f"{target.chip} ({target.march}){features}. Peaks that nothing exceeds: {peaks or 'not known'}"


def _interface(language: str) -> str:
    """Return the forms with their arguments, and the language's contract for one of them."""
    rows = []
    for name in _FORMS:
        form = probes.forms()[name]
        args = ", ".join(
            f"{arg.name} {arg.dtype}[{arg.shape}]{' out' if arg.role == 'out' else ''}" for arg in form.args
        )
        rows.append(f"form {name} ({args}): {form.doc}")
    kernel = Kernel(language, {f"k{LANGUAGES[language].ending}": ""})
    cases = {"case": {"n": 1, "turns": 1, "out": 1, "each": 1}}
    sample = Probe("sample", "", "", "loop", kernel, cases, {"time": Figure("us", "us")}, "")
    return "\n".join([*rows, "", f"Language: {language}. For the form loop:", contract(sample.problem, language)])
