"""The tools that `mcp` serves: the problem, the lineage, the notes, the judge and the inbox.

Every argument is checked against a schema with bounds, and no tool takes a path.
"""

import json
import textwrap
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import wraps
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ksflow.cli.inbox import InboxFolder
from ksflow.cli.task import winner_folder
from ksflow.errors import ConfigError, KsflowError
from ksflow.integrate.handover.package import write_best
from ksflow.kernels.source.contract import contract, newer_lines
from ksflow.lineage import Lineage
from ksflow.lm.prompts import render
from ksflow.lm.prompts.failures import without_answers, without_paths
from ksflow.lm.prompts.findings import findings
from ksflow.loop.assistant import AskTell
from ksflow.records import Experiment, Json, Kernel, Origin, Population, Target, Trial
from ksflow.redaction import redact
from ksflow.report.headline import headline, known_baselines
from ksflow.report.page import as_markdown, run_facts

_ANSWER = 60_000  # characters of an answer at most
_SEEDS_S, _MOST_WAIT_S = 20.0, 50.0  # how long a call may take: clients give up after a minute

Words = Annotated[str, Field(max_length=4_000)]
Id = Annotated[str, Field(max_length=40, description="a trial's id, as 00012")]
Files = Annotated[
    dict[Annotated[str, Field(max_length=100)], Annotated[str, Field(max_length=400_000)]],
    Field(min_length=1, max_length=8, description="file name -> text; the first one holds custom_kernel"),
]
Seconds = Annotated[float, Field(ge=0, le=_MOST_WAIT_S, description="how long to wait for the answer")]


class PlannedExperiment(BaseModel):
    """One thing to try on the base kernel."""

    model_config = ConfigDict(extra="forbid")

    description: Annotated[str, Field(min_length=1, max_length=4_000, description="what to change, why it should help")]
    rubric: Annotated[str, Field(max_length=4_000, description="how to tell that it was done as meant")]
    lowest_gain_percent: Annotated[
        float, Field(ge=-100, le=10_000, description="of the whole score; 100: twice as fast")
    ]
    highest_gain_percent: Annotated[float, Field(ge=-100, le=10_000)]
    innovation: Annotated[float, Field(ge=0, le=100, description="0 routine, 100 never seen")]

    @property
    def gain_percent(self) -> tuple[float, float]:
        return self.lowest_gain_percent, self.highest_gain_percent


class Tools:
    """The tools, each a method whose signature and docstring are what the client sees."""

    def __init__(
        self, study: AskTell, inbox: InboxFolder, opened: Callable[[], AbstractContextManager[Lineage]], target: Target
    ) -> None:
        self._study, self._run, self._lineage = study, study.run, study.run.lineage
        self._inbox, self._opened, self._target = inbox, opened, target

    def all(self) -> list[Callable[..., str]]:
        """Every tool; what a user of the command line would read as an error is one for the client, too."""
        from mcp.server.mcpserver.exceptions import ToolError

        def guarded(tool: Callable[..., str]) -> Callable[..., str]:
            @wraps(tool)
            def call(*args: Any, **kwargs: Any) -> str:
                try:
                    text = redact(tool(*args, **kwargs))
                    if len(text) <= _ANSWER:
                        return text
                    return f"{text[:_ANSWER]}\n({len(text) - _ANSWER} more characters are left out)"
                except KsflowError as error:
                    raise ToolError(redact(" ".join(str(error).split()))) from error
                except Exception as error:  # noqa: BLE001 - its words may name files, and are no client's business
                    traceback.print_exc()
                    name = type(error).__name__
                    raise ToolError(f"an error of ksflow's own, {name}: the server's log has it") from None

            return call

        names = [name for name in vars(type(self)) if not name.startswith("_") and name != "all"]
        return [guarded(getattr(self, name)) for name in names]

    def problem_show(self) -> str:
        """The task, what a kernel must define in each language, the shapes that count, the limits, the target."""
        problem = self._run.problem
        limits = f"compile {problem.limits.compile_s:g} s, memory {problem.limits.memory_mb} MB"
        newer = {name: newer_lines(name, self._target.march) for name in problem.languages}
        told = {name: contract(problem, name, self._target.cores) for name in newer}
        contracts = [f"A kernel in {name}:\n{told[name]}\n{newer[name]}".rstrip() for name in newer]
        return "\n\n".join([render.task(problem), f"Limits: {limits}. Target: {self._target.name}.", *contracts])

    def lineage_population(self, limit: Annotated[int, Field(ge=1, le=200)] = 50, newest: bool = False) -> str:
        """The trials so far: the fastest first, or the newest; a JSON line each, and the best one."""
        population = self._study.population
        first = () if newest else population.ranked
        shown = {trial.id for trial in first}
        rows = [*first, *(trial for trial in reversed(population.trials) if trial.id not in shown)]
        lines = [json.dumps(_row(trial, population)) for trial in rows[:limit]]
        waiting = f"experiments that wait for a kernel: {', '.join(self._study.waiting()) or 'none'}"
        best = f"best: {population.leader.id}" if population.leader else "no kernel is accepted yet"
        left = self._run.remaining_budgets().get("evaluations")
        budget = "no limit" if left is None else f"{left:g} left"
        return "\n".join([f"{len(population.trials)} trials; {best}; {waiting}; evaluations: {budget}", *lines])

    def lineage_trial(self, trial: Id) -> str:
        """Everything about one trial: its experiment, the verdict with times and evidence, and its files."""
        record = self._study.trial(trial)
        return f"{self._study.account(record)}\n\n{render.listing(record.kernel)}"

    def lineage_diff(self, first: Id, second: Id) -> str:
        """What changed in the files from one trial to another."""
        return self._lineage.diff(self._study.trial(first).id, self._study.trial(second).id) or "no difference"

    def lineage_best(self) -> str:
        """The best kernel so far, with its claim, its times and its files."""
        self._study.wait_seeds(_SEEDS_S)
        return self.lineage_trial(self._study.best.id)

    def knowledge_search(self, query: Words) -> str:
        """The notes that bear most on some words: in full as far as there is room, the others by their titles."""
        return findings(self._notes(), about=query, ranked=True)

    def knowledge_read(self, title: Annotated[str, Field(max_length=300)]) -> str:
        """One note by its title, with its sources."""
        note = next((note for note in self._notes() if note.title == title), None)
        if note is None:
            raise ConfigError(f"no note has the title {title[:80]!r}; knowledge_search lists titles")
        return f"{note.title} ({note.status.value})\n\n{note.text}\n\nSources: {'; '.join(note.sources) or 'none'}"

    def plan(
        self,
        base: Id,
        reference: Id,
        rationale: Words,
        avenues: Annotated[list[Words], Field(max_length=20, description="ten directions that were thought of")],
        experiments: Annotated[list[PlannedExperiment], Field(min_length=1, max_length=10, description="five of them")],
    ) -> str:
        """Put a selection and a plan on record, before any code is written. Of the experiments the most innovative, the
        one with the highest and the one with the highest lowest gain are picked: these get ids to submit kernels for.
        """
        self._study.wait_seeds(_SEEDS_S)
        try:
            proposals = [
                Experiment(each.description, each.rubric, each.gain_percent, each.innovation) for each in experiments
            ]
        except ValueError as error:
            raise ConfigError(str(error)) from error
        trials = self._study.plan(proposals, base, reference, rationale, avenues)
        rows = [{"id": trial.id, "description": trial.experiment.description} for trial in trials if trial.experiment]
        return "\n".join(["submit a kernel for each of these:", *map(json.dumps, rows)])

    def submit(
        self, trial: Id, language: Annotated[str, Field(max_length=20)], files: Files, report: Words = ""
    ) -> str:
        """The kernel of a planned experiment: it is committed and judged. The answer is a ticket for `result`."""
        self._study.wait_seeds(_SEEDS_S)
        return f"ticket {self._study.submit(_kernel(language, files, report), trial)}: it is being judged; ask result"

    def evaluate(self, language: Annotated[str, Field(max_length=20)], files: Files) -> str:
        """Have a kernel judged that leaves no record, for trying things out. The answer is a ticket for `result`."""
        return f"ticket {self._study.evaluate(_kernel(language, files))}: it is being judged; ask result"

    def profile(self, trial: Id) -> str:
        """Hardware counters of a kernel of the run, where the device has them. The answer is a ticket for `result`."""
        return f"ticket {self._study.profile(trial)}: it is being judged; ask result"

    def result(self, ticket: Annotated[str, Field(max_length=40)], wait_s: Seconds = 30.0) -> str:
        """What became of a ticket: judging with the seconds so far, or the verdict with its evidence."""
        entry = self._study.ticket(ticket)
        entry.over.wait(wait_s)
        if not entry.over.is_set():
            return f"{entry.about}: judging for {time.monotonic() - entry.asked:.0f} s; ask again"
        if entry.trial is None:
            return f"{entry.about}: the judge failed: {without_paths(entry.error)}"
        trial = entry.trial
        if entry.about == "the winner once more":
            return self._won(trial)
        account = self._study.account(trial)
        if trial.evaluation and (page := trial.evaluation.evidence.profile):
            account += f"\n\n{without_paths(page.page)}"
        claim = trial.evaluation.claim if trial.evaluation else None
        versus = f"\nBeside the best so far, {claim.id}: {claim}" if claim else ""
        return f"{entry.about}, after {entry.ended - entry.asked:.0f} s: verdict {trial.verdict}{versus}\n{account}"

    def finish(self) -> str:
        """Have the winner judged once more beside the runner-up and the baselines; a ticket for `result`."""
        self._study.wait_seeds(_SEEDS_S)
        return f"ticket {self._study.finish()}: the winner is being confirmed; ask result"

    def inbox(self) -> str:
        """The questions of a run with llm=inbox that wait for an answer."""
        return "\n".join(self._inbox.waiting_questions()) or "no question waits"

    def inbox_read(self, question: Annotated[str, Field(max_length=200)], part: Annotated[int, Field(ge=0)] = 0) -> str:
        """One question in full, in parts where it is long."""
        text = self._inbox.read(question)
        shown = text[part * _ANSWER // 2 : (part + 1) * _ANSWER // 2]
        return f"part {part} of {max(-(-len(text) // (_ANSWER // 2)), 1)}\n\n{shown}"

    def inbox_answer(
        self,
        question: Annotated[str, Field(max_length=200)],
        text: Annotated[str, Field(max_length=400_000)],
        complete: Annotated[bool, Field(description="false: another part follows")] = True,
    ) -> str:
        """Answer a question, whole or in parts: those that came before are put in front of the last one."""
        return self._inbox.answer(question, text, complete)

    def report(self) -> str:
        """The run so far as Markdown."""
        with self._opened() as lineage:
            facts = run_facts(lineage, self._run.problem)
        return as_markdown({**facts, "held_out": ""})  # no model is to read of those shapes

    def _notes(self) -> tuple[Any, ...]:
        return (*self._run.initial_notes, *self._lineage.notes())

    def _won(self, best: Trial) -> str:
        """The headline, and where the winner's files are."""
        population = self._lineage.last_population
        claimed = headline(population, known_baselines(population, self._study.seeds))
        self._lineage.store.point_head(self._lineage.branch_of(best.id))
        commit = self._lineage.commit_of(best.id)
        assert best.evaluation
        if claimed and claimed.over is claimed.best:
            return f"{claimed}\nno files are written, as the winner is a baseline"
        claim = claimed.figures if claimed else ""
        shown = replace(best, evaluation=best.evaluation.with_evidence(heldout=None))
        written = write_best(winner_folder(self._lineage), self._run.problem, self._target, shown, commit, claim)
        place = written.relative_to(self._lineage.store.path.parent)
        return f"{claimed}\nwritten to {place} in the run's folder"


def _kernel(language: str, files: dict[str, str], report: str = "") -> Kernel:
    try:
        return Kernel(language, files, report)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _row(trial: Trial, population: Population) -> Json:
    row: Json = {
        "id": trial.id,
        "parents": trial.parents,
        "verdict": trial.verdict,
        "score_us": population.time_us(trial),
    }
    if trial.evaluation and not trial.evaluation.accepted:
        row["why"] = textwrap.shorten(without_paths(without_answers(trial.evaluation).reason), 200)
    return {**row, "what": textwrap.shorten(trial.idea, 200), "seed": trial.origin is Origin.SEED}
