"""A digester of one's own: what is learnt from the trials so far, for whoever designs and writes next."""

from ksflow.records import Material, Note, Problem, Status


class Mine:
    """The notes that there are, and one on what was rejected most often."""

    title = "Rejected so far"

    def __init__(self, most: int = 5) -> None:
        self.most = most  # every parameter is a key of the command line: digester.most=3

    def __call__(self, problem: Problem, material: Material) -> tuple[Note, ...]:
        """Change this: all notes to keep are returned, the old ones too. A measured note cites its trials."""
        others = tuple(note for note in material.notes if note.title != self.title)
        rejected = [t for t in material.population.trials if t.evaluation and not t.evaluation.accepted][-self.most :]
        if not rejected:
            return others
        text = "\n".join(f"- {t.id}: {t.evaluation.reason[:200]}" for t in rejected if t.evaluation)
        ids = tuple(trial.id for trial in rejected)
        return (*others, Note(self.title, text, ids, status=Status.MEASURED, problems=(problem.name,)))
