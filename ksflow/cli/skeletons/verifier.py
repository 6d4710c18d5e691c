"""A verifier of one's own: what reads a kernel before it is compiled, for `writer=verified`."""

from ksflow.kernels.source.tunables import values
from ksflow.records import Experiment, Finding, Kernel, Note, Problem, Review, Selection, Trial


class Mine:
    """Sends a kernel back that has lost tunables of its base."""

    def __init__(self, risk: float = 20.0) -> None:
        self.risk = risk  # every parameter is a key of the command line: verifier.risk=10

    def __call__(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        kernel: Kernel,
        failed: Trial | None = None,
    ) -> Review:
        """Change this: with findings the kernel goes back to its writer once. What is raised costs no kernel."""
        before = selection.base.kernel
        lost = sorted(values(before.main).keys() - values(kernel.main).keys()) if before else []
        findings = [Finding(f"The tunable {name} of the base is gone: declare it again.") for name in lost[:5]]
        return Review(tuple(findings), self.risk)
