"""The command `explain`: what a kernel does, feature by feature, kept on its branch.

Facts come from the source and the compiler's report, without a model; `llm=` has one describe the kernel, with lines of
the source for each of its claims. What is kept is shown again until the catalogue of features, the compiler's report or
the kernel says something else, or another model is asked; `again=true` asks anew.
"""

from dataclasses import replace

from ksflow import report
from ksflow.cli.task import recorded_run, recorded_task, some_trials, winner
from ksflow.config import compose, keys
from ksflow.errors import BudgetError, ConfigError, KsflowError, StageError, boolean, stage_boundary
from ksflow.kernels.source import features
from ksflow.lineage import Lineage
from ksflow.lineage.history import locate
from ksflow.protocols import Explainer, override_call
from ksflow.records import Explanation, Trial, schema
from ksflow.redaction import redact


def explain(words: list[str], overrides: list[str]) -> int:
    """`explain [ID | best] [again=true]`: 0, or ConfigError."""
    if len(words) > 1:
        raise ConfigError(f"the command is: explain [ID] [problem=NAME] [run=NAME], for one kernel, not {len(words)}")
    own, rest = keys.own_options(overrides, "again")
    again = boolean("again", own.get("again", "false"))
    cfg = compose.compose(rest)
    explainer: Explainer = compose.build(cfg.explainer)
    with recorded_run(cfg) as (problem, lineage):
        trial = _trial(lineage, "".join(words))
        assert trial.kernel
        feature_list = features.features(trial.kernel, trial.evaluation)
        facts = Explanation(trial.kernel.digest, features.reader(), feature_list)
        before = lineage.explanation(trial.id)
        explanation, cost = facts, ""
        failed: KsflowError | None = None
        if before and before.kernel == facts.kernel:  # a model's words on this source last, whatever else is found out
            explanation = replace(facts, by=before.by, summary=before.summary, statements=before.statements)
        if explainer.by and (again or before != explanation or before.by != explainer.by):
            tip = lineage.store.ref(f"refs/heads/{lineage.branch_of(trial.id)}") if again else ""
            # another answer than those that it was given since its verdict
            others = lineage.store.list_ancestors(tip, lineage.commit_of(trial.id)) if tip else ()
            try:
                with (
                    recorded_task(cfg, problem, f"explain {trial.id}") as transcript,
                    override_call(sample_index=len(others)),
                    stage_boundary("explainer"),
                ):
                    explanation = schema.check_answer(
                        Explanation, explainer(problem, trial, lineage.last_population.step(trial), facts)
                    )
                redacted = tuple(replace(s, text=redact(s.text)) for s in explanation.statements)
                explanation = replace(explanation, summary=redact(explanation.summary), statements=redacted)
                total = transcript.total
                cost = "; " + ", ".join(filter(None, (f"{total.tokens} tokens", total.dollars())))
            except BudgetError as error:
                failed = BudgetError(f"{error}; the facts are kept, a model's words take a higher limit")
            except StageError as error:
                failed = error
        if explanation != before:
            lineage.explain(trial, explanation)
        elif not cost:
            cost = ", as kept before"
        head = f"{lineage.branch_of(trial.id)}, {trial.kernel.language}, {trial.verdict}{cost}"
        report.say(report.console(), head, *report.explanation.explanation_lines(explanation))
    if failed:
        raise failed  # what source and compiler show is kept and told; the model's words are missing
    return 0


def _trial(lineage: Lineage, word: str) -> Trial:
    """The trial that is named, or the winner. ConfigError where there is none, or it has no kernel."""
    if word in ("", "best"):
        return winner(lineage, "explain")
    trials = some_trials(lineage)
    place = locate(lineage.store, word, lineage.problem, lineage.run)
    if (place.problem, place.run) != (lineage.problem, lineage.run):
        raise ConfigError(f"{place.branch} is of another run: add problem={place.problem} run={place.run}")
    trial = trials.get(place.trial)
    if trial is None or trial.kernel is None:
        raise ConfigError(f"{place.branch} has no kernel{f': {trial.failure}' if trial else ''}; name another trial")
    return trial
