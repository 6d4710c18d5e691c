"""The shipped questions, and nothing else: no model."""

from ksflow.notes import figures, probes
from ksflow.notes.probes import Probe, ProbeBench
from ksflow.records import Note, Problem


class Ready:
    """Settles a claim with a shipped probe whose keywords it has. bench: where probes run."""

    most = 0

    def __init__(self, bench: ProbeBench) -> None:
        self.bench = bench

    def __call__(
        self, problem: Problem, notes: tuple[Note, ...], claim: Note | None = None, failed: str = ""
    ) -> Probe | None:
        return find_probe(claim, self.bench) if claim and not failed else None


def find_probe(claim: Note, bench: ProbeBench) -> Probe | None:
    """Return the shipped probe that measures what a note claims: the one that it names, else one with its words."""
    able = [probe for probe in probes.shipped_probes() if not probe.lacks(bench.target)]
    named = (probe for probe in able if claim.program in probe.kernel.files or claim.title == probe.title)
    worded = (probe for probe in able if figures.measures_claim(probe, f"{claim.title} {claim.text}"))
    return next(named, None) or next(worded, None)
