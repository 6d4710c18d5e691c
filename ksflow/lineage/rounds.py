"""What a run's rounds decided, step by step: each commit of the chain `rounds` says in `round.json` what it stands for.

`round.json` is a `RoundStep`. Beside it, where experiments were given ids, are `trials.json` and, of a plan,
`plan.json`. Commits from before there was a `round.json` are read by their trailers.
"""

from ksflow.lineage.store import Store, trailer
from ksflow.records import Plan, PlannedRound, RoundStep, Trial, schema

PLANS = 60
"""So many rounds' plans are in memory."""


def step_of(store: Store, commit: str) -> RoundStep | None:
    """The step of a round that a commit stands for; None for any other commit. Raises LineageError."""
    entries = store.entries(commit)
    if "round.json" in entries:
        return schema.load("round", store.read(entries["round.json"]), RoundStep)
    text = store.header(commit)[1]
    cause, name, base = (trailer(text, key) for key in ("Cause", "Round", "Base"))
    if cause and "trials.json" in entries:
        trials: tuple[Trial, ...] = schema.load("trials", store.read(entries["trials.json"]), tuple)
        return RoundStep(cause, ids=tuple(trial.id for trial in trials), planned="plan.json" in entries)
    if "trial.json" in entries or not (name or base):
        return None
    body = "\n".join(line[4:] for line in text.split("\n") if line.startswith("    ")) if base else ""
    return RoundStep(name, base, trailer(text, "Reference"), body)


def plan_of(store: Store, commit: str, step: RoundStep) -> Plan | None:
    """The plan that a step kept; None where the step is none of a plan. Raises LineageError."""
    return schema.load("plan", store.read(f"{commit}:plan.json"), Plan) if step.planned else None


class Decisions:
    """Takes the steps of a run's rounds in their order; `plans` is what the newest rounds decided."""

    def __init__(self) -> None:
        self.plans: tuple[PlannedRound, ...] = ()
        self._chosen: dict[str, RoundStep] = {}
        """A round without a plan -> its selection."""

    def take(self, step: RoundStep, plan: Plan | None) -> None:
        """Take in the next step, with its plan where it has one."""
        if step.base:
            self._chosen[step.cause] = step
        elif plan and (chosen := self._chosen.pop(step.cause, None)):
            planned = PlannedRound(chosen.base, chosen.reference, chosen.rationale, plan, step.ids)
            self.plans = (*self.plans, planned)[-PLANS:]
