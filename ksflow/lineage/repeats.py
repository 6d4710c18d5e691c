"""Code that was tried before is answered from the record, not judged again."""

from dataclasses import replace

from ksflow.lineage import Lineage
from ksflow.records import Evaluation, Trial

_RATIOS = ("against", "claim", "renewed", "unconfirmed")
"""Evidence about the other trial's neighbours, not about the code."""


def on_record(lineage: Lineage, trial: Trial) -> Evaluation | None:
    """What was said of a trial of the same form; one that is being judged right now is waited for."""
    for name in lineage.earlier_with_same_code(trial):
        other = lineage.wait_finished(name)
        said = other.evaluation if other and not other.stale else None
        if said and said.lasting:
            evidence = {key: value for key, value in said.evidence.items() if key not in _RATIOS}
            origin = evidence.get("repeat", {"of": name})
            return replace(said, evidence={**evidence, "repeat": origin}, wall_s=0.0)
    return None
