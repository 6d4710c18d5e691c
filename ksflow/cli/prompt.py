"""The command `prompt`: what a stage would ask its model now. No model is asked, nothing is written, no key is needed.

The stage's `question` is asked with what a round would give it. Verdicts are told as recorded,
whatever machine this is. What a selector that asks a model would answer is not known: in its place stands the newest
selection on record. Notes that `inherit=` would bring are not among those shown.
"""

from typing import Any, cast

from ksflow import report
from ksflow.cli import usage
from ksflow.cli.task import named_trial, recorded_run
from ksflow.config import compose, keys
from ksflow.errors import ConfigError, boolean, stage_boundary
from ksflow.lineage import Lineage
from ksflow.lineage.history import CommitKind
from ksflow.lineage.record import step_of
from ksflow.lineage.rounds import RunReader
from ksflow.lm.program import Prompt
from ksflow.loop.estimate import stage_asked_first
from ksflow.loop.round import writer_question
from ksflow.protocols import MODEL_STAGES, NO_CONTEXT, Asks, Composite, call_stage
from ksflow.records import Material, Note, Population, Problem, Selection, Trial
from ksflow.report.words import table


def prompt(words: list[str], overrides: list[str]) -> int:
    """`prompt STAGE [ID] [--sections]`: 0. ConfigError for a stage that asks no model, or a trial that is not there."""
    usage.expect_word("prompt", words, MODEL_STAGES)
    if not 1 <= len(words) <= 2 or (words[1:] and words[0] in ("selector", "digester")):
        raise ConfigError(
            "the command is: prompt selector|digester, or prompt designer|writer|verifier [ID], for a trial"
        )
    own, rest = keys.own_options(overrides, "sections")
    cfg = compose.without_keys(compose.compose(rest))
    with recorded_run(cfg) as (problem, lineage):
        if not lineage.population().ranked:
            raise ConfigError(f"{problem.name}/{cfg.run} has no accepted kernel to go on from; runs: {lineage.runs()}")
        asked = Asker(cfg, problem, lineage).ask(words[0], "".join(words[1:]))
    console = report.console()
    with report.page_output(console):
        if not boolean("sections", own.get("sections", "false")):
            for message in asked.messages:
                console.print(f"----- {message['role']} -----", style="bold")
                report.say(console, str(message["content"]))
        rows = [(name, kind, str(tokens)) for name, kind, tokens in asked.sections]
        sizes = table(("section", "kind", "tokens"), rows, title=f"{asked.label} {asked.model}")
        sizes.columns[2].justify = "right"
        sizes.add_section()
        sizes.add_row("all", "", str(sum(tokens for _, _, tokens in asked.sections)))
        console.print(sizes)
    return 0


class Asker:
    """Calls the configured stages as a round that begins now would."""

    def __init__(self, cfg: Any, problem: Problem, lineage: Lineage) -> None:
        learnt = lineage.current_notes()
        initial = compose.build(cfg.knowledge)(target=compose.build(cfg.target), problem=problem.name)
        self._cfg, self._problem, self._lineage, self._learnt = cfg, problem, lineage, learnt
        self._notes: tuple[Note, ...] = (*initial, *learnt)
        self._known: Population = lineage.last_population.prune(learnt)

    def ask(self, name: str, id: str) -> Prompt:
        """What the stage asks first. ConfigError where it asks nobody."""
        if name not in self._cfg:
            raise ConfigError(f"nobody would ask the {name}: add writer=verified")
        stage, problem, notes = compose.build(self._cfg[name]), self._problem, self._notes
        while name == "writer" and isinstance(stage, Composite):  # a mix would write a change of tunables by rule
            stage = stage.parts[0]
        values: tuple[Any, ...]
        if name == "selector":
            values = (self._known,)
        elif name == "designer":
            values = (self._known, self._selection(id), notes)
        elif name in ("writer", "verifier"):
            trial = self._experiment(id)
            selection, failed = writer_question(self._known, trial)
            written = (trial.kernel,) if name == "verifier" else ()
            if written == (None,):
                raise ConfigError(f"{trial.id} has no kernel to verify; name a trial that has one")
            values = (selection, trial.experiment, notes, *written, failed)
        else:
            values = (Material((), self._known, self._learnt),)
        with stage_boundary(name):
            stage = stage_asked_first(stage, values)
            if isinstance(stage, Asks) and (inquiry := stage.question(problem, *values)):
                prompt: Prompt = stage.program.laid_out(inquiry.inputs)
                return prompt
        raise ConfigError(f"{name}={type(stage).__name__} asks no model; name one with llm=... (llm=dummy will do)")

    def _selection(self, id: str) -> Selection:
        """Base and reference of a trial's experiment; without one, what a round would start from, or the newest did."""
        if id:
            return writer_question(self._known, self._experiment(id))[0]
        select = compose.build(self._cfg.selector)
        if not isinstance(select, Asks):
            with stage_boundary("selector"):
                return cast(Selection, call_stage(select, self._problem, self._known, context=NO_CONTEXT))
        lineage = self._lineage
        for commit in reversed(RunReader(lineage.store, lineage.problem, lineage.run).commits(CommitKind.ROUNDS)):
            step = step_of(lineage.store, commit.name)
            if step and step.base and {step.base, step.reference} <= self._known.by_id.keys():
                return self._known.choose(step.base, step.reference, step.rationale)
        best = self._known.ranked[0].id
        return self._known.choose(best, best, "")

    def _experiment(self, id: str) -> Trial:
        """The trial that is named, or the newest experiment."""
        trials = {trial.id: trial for trial in self._lineage.all_trials()}
        named = [named_trial(id, trials)] if id else list(trials.values())
        tried = [trial for trial in named if trial.experiment]
        if not tried:
            what = f"{named[0].id} is no experiment" if id else "the run has no experiment yet"
            raise ConfigError(f"{what}: there is nothing to write; ask for the designer's prompt, or name a trial")
        return tried[-1]
