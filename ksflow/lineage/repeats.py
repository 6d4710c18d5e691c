"""Code that was tried before is answered from the record, not judged again."""

from dataclasses import replace
from typing import Any

from ksflow.lineage import Lineage
from ksflow.records import Evaluation, Repeat, Trial


def on_record(lineage: Lineage, trial: Trial) -> Evaluation | None:
    """What was said of a trial of the same form; one that is being judged right now is waited for."""
    for name in lineage.earlier_with_same_code(trial):
        other = lineage.wait_finished(name)
        said = other.evaluation if other and other.form == trial.form and not other.stale else None
        if said and said.lasting:
            origin = said.evidence.repeat or Repeat(of=name)
            about_neighbours: dict[str, Any] = {"against": (), "claim": None, "renewed": None, "unconfirmed": ""}
            return replace(said.with_evidence(repeat=origin, **about_neighbours), wall_s=0.0)
    return None
