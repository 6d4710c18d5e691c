"""A writer of one's own: from an experiment to a whole new kernel."""

from dataclasses import replace

from ksflow.errors import StageError
from ksflow.kernels.source.answer import with_main
from ksflow.kernels.source.tunables import assign
from ksflow.records import Experiment, Kernel, Note, Problem, Selection, Trial


class Mine:
    """The base with the experiment's values of tunables."""

    repairs = False  # True: it is asked again with `failed`, where loop.repairs allows it

    def __init__(self, mark: str = "") -> None:
        self.mark = mark  # every parameter is a key of the command line: writer.mark=...

    def __call__(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
    ) -> Kernel:
        """Change this: whatever `text` becomes is compiled and judged. What is raised costs this one trial."""
        base = selection.base.kernel
        if base is None or not experiment.changes:
            raise StageError("writer=mine", "the experiment names no values of tunables")
        try:
            text = assign(base.main, experiment.changes)
        except ValueError as error:
            raise StageError("writer=mine", str(error)) from error
        return replace(base, files=with_main(base, text), report=f"{self.mark} {dict(experiment.changes)}".strip())
