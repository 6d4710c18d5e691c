"""An indexed run -> rows in the layouts that TRL's trainers read. One row at a time; nothing is kept but digests.

chat        messages                            SFT: answers that led to something
preference  prompt, chosen, rejected, margin    DPO and reward models
rl          prompt, completion, label, reward   KTO, and anything that learns from a scalar
prompts     prompt and what a reward needs      GRPO and its kin: the trainer samples and has kernels judged
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ksflow.kernels.problem.licences import UNKNOWN, join_licences
from ksflow.records import Origin, Problem, Trial, Verdict
from ksflow.training.dataset.record import DatasetIndex, IndexReader, RecordedCall
from ksflow.training.dataset.reward import (
    Worth,
    are_comparable,
    beside_incumbent,
    is_valid,
    relative_worth,
    review_worth,
    verdict_key,
)

Row = dict[str, Any]
Message = dict[str, str]

STAGES = ("writer", "designer", "selector", "verifier", "digester")
FORMATS = {"chat": ("chat",), "preference": ("preference",), "rl": ("rl", "prompts"), "prompts": ("prompts",)}
"""What is asked for -> the configurations that it makes."""
_UNNAMED = "unknown"  # in a row whose licence nobody named


@dataclass(frozen=True)
class RowSource:
    """What the rows of one run are made from."""

    run: DatasetIndex
    reader: IndexReader
    stages: tuple[str, ...]
    seen: set[Hashable]  # digests of what was written, over all runs
    problem: Problem | None = None  # None where it is not at hand
    reference: str = UNKNOWN  # the licence of the problem's reference, which every prompt shows

    def calls(self) -> Iterator[RecordedCall]:
        """Return the answered calls of the wanted stages."""
        return (call for call in self.run.calls if call.answer and call.stage in self.stages)

    def rate_call(self, call: RecordedCall) -> tuple[Worth | None, Trial | None]:
        """What an answer led to, None if unknown, and the trial that shows it: a writer's own, or a round's first of
        the best.
        """
        if call.malformed:
            return Worth(0.0, False), None
        incumbent = partial(beside_incumbent, scale=self.run.scale)
        own: dict[str, Callable[[Trial], Worth | None]]
        own = {"selector": incumbent, "digester": incumbent, "verifier": review_worth}
        rate = own.get(call.stage, self.rate)
        trials = self.run.outcomes(call.about) if call.used else ()
        candidates = [(worth, trial) for trial in trials if (worth := rate(trial))]
        return max(candidates, key=lambda pair: pair[0], default=(None, None))

    def rate(self, trial: Trial) -> Worth | None:
        """Return what a trial's kernel is worth beside the one it was made from; None if the record cannot tell."""
        return relative_worth(trial, self.run.base(trial), self.run.scale)

    def shared_columns(self, call: RecordedCall) -> Row:
        """Return the columns that all rows have, for a model call."""
        rated, trial = self.rate_call(call)
        row = self.columns_of(call.stage, call.model, call.about, trial, rated)
        return row | ({"verdict": Verdict.MALFORMED.value} if call.malformed else {})

    def columns_of(self, stage: str, model: str, about: str, trial: Trial | None, rated: Worth | None) -> Row:
        """Return the columns that all rows have, from their values."""
        evaluation = trial.evaluation if trial else None
        return {
            "stage": stage,
            "kind": "answers",
            "model": model,
            "problem": self.run.problem,
            "run": self.run.name,
            "about": about,
            "target": evaluation.target if evaluation else "",
            "judge": evaluation.judge if evaluation else "",
            "verdict": evaluation.verdict.value if evaluation else "",
            "reward": rated.reward if rated else 0.0,
            "licence": self.licence_of(trial),
        }

    def licence_of(self, *trials: Trial | None) -> str:
        """Return the licence of a row that shows the problem's reference and these kernels, ancestors included."""
        names = {self.reference}.union(*(self.run.licences[trial.id] for trial in trials if trial))
        return join_licences(name or _UNNAMED for name in names)

    def mark_seen(self, *names: Hashable) -> bool:
        """Return whether none of the names was seen before, and remember all of them."""
        if not self.seen.isdisjoint(names):
            return False
        self.seen.update(names)
        return True

    def is_new(self, configuration: str, call: RecordedCall) -> bool:
        """Return whether neither this answer nor a kernel of its form was written before, and remember both."""
        names: list[Hashable] = [(configuration, call.prompt, call.answer)]
        trial = self.rate_call(call)[1] if call.stage == "writer" else None
        if trial and trial.form and trial.evaluation:
            names.append((configuration, self.run.problem, trial.evaluation.target, trial.form))
        return self.mark_seen(*names)

    def prompt_and_answer(self, commit: str) -> tuple[list[Message], list[Message]]:
        """Return the prompt and the answer of a call."""
        call = self.reader.call(commit)
        prompt = [{"role": message["role"], "content": message["content"]} for message in call.messages]
        return prompt, [{"role": "assistant", "content": call.answer}]


def chat(source: RowSource) -> Iterator[Row]:
    """Yield good answers: those that gained beyond noise, and notes that were kept."""
    for call in source.calls():
        rated, _ = source.rate_call(call)
        learnt = call.stage == "digester" and call.used and not call.malformed
        if (learnt or (rated and rated.good)) and source.is_new("chat", call):
            prompt, answer = source.prompt_and_answer(call.commit)
            yield {"messages": prompt + answer, **source.shared_columns(call)}


def rl(source: RowSource) -> Iterator[Row]:
    """Yield every answer whose worth is known."""
    for call in source.calls():
        rated, _ = source.rate_call(call)
        if rated and source.is_new("rl", call):
            prompt, answer = source.prompt_and_answer(call.commit)
            yield {"prompt": prompt, "completion": answer, "label": rated.good, **source.shared_columns(call)}


def prompts(source: RowSource) -> Iterator[Row]:
    """Yield the writer's questions, if the writer is among the stages."""
    baselines: dict[tuple[str, str, str], float] = {}  # the fastest seed's time under each key
    for seed in (result.trial for result in source.run.results.values()):
        if seed.origin is Origin.SEED and is_valid(seed) and (us := source.run.scale.time_us(seed.id)):
            baselines[verdict_key(seed)] = min(us, baselines.get(verdict_key(seed), us))
    for call in source.calls():
        trial = source.rate_call(call)[1] if call.stage == "writer" else None
        base = source.run.base(trial) if trial else None
        if not (trial and base and base.score_us and are_comparable(trial, base)):
            continue
        if source.mark_seen(("prompts", call.question)):
            yield {
                "prompt": source.prompt_and_answer(call.first)[0],
                "base": base.id,
                "base_commit": source.run.results[base.id].commit,
                "base_us": source.run.scale.time_us(base.id),
                "baseline_us": baselines.get(verdict_key(base), source.run.scale.time_us(base.id)),
                "score_us": source.run.scale.time_us(trial.id) or 0.0,
                **source.shared_columns(call),
            }
