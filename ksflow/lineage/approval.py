"""A person's last word on a kernel: an annotated tag on its branch, made with the person's own git identity."""

from ksflow.errors import ConfigError
from ksflow.lineage import Lineage, commit_message
from ksflow.lineage.branches import Branches
from ksflow.records import Approval, Trial


def approve(lineage: Lineage, trial: Trial, note: str = "", sign: bool = False, force: bool = False) -> Approval:
    """Tag the commit of the trial's newest verdict. Raises ConfigError when there is nothing to approve."""
    branch, evaluation = lineage.branch_of(trial.id), trial.evaluation
    if evaluation is None or not evaluation.accepted:
        raise ConfigError(f"{branch} is not accepted ({trial.verdict}); only an accepted kernel can be approved")
    if trial.stale:
        raise ConfigError(
            f"{branch} is stale: {trial.stale} changed since {evaluation.judge or 'an older judge'} accepted it on "
            f"{evaluation.target}; go on with the run first, it is judged again"
        )
    known = approvals(lineage).get(trial.id)
    if known and not force:
        raise ConfigError(f"{branch} is {known} already; force=true replaces that")
    trailers = {
        "Trial": trial.id,
        "Kernel": trial.kernel.digest if trial.kernel else "",
        "Verdict": evaluation.verdict.value,
        "Score-us": f"{evaluation.score_us:.6g}",
        "Target": evaluation.target,
        "Judge": evaluation.judge,
        "Problem": evaluation.problem,
    }
    text = commit_message.plain(f"approve {branch}: {evaluation.score_us:.4g} µs", note, trailers)
    lineage.store.tag(f"{_prefix(lineage)}{trial.id}", lineage.commit_of(trial.id), text, sign, force)
    return approvals(lineage)[trial.id]


def approvals(lineage: Lineage) -> dict[str, Approval]:
    """Trial id -> what a person said of it."""
    prefix, found = _prefix(lineage), {}
    branches = Branches(lineage.store, f"{lineage.problem}/{lineage.run}/")
    for tag in lineage.store.tags(prefix):
        name = tag.name.removeprefix(prefix)
        note = " ".join(line.strip() for line in tag.body.splitlines() if line.startswith("    "))
        head = lineage.store.ref(f"refs/heads/{lineage.branch_of(name)}")
        current = head is not None and tag.commit in (head, branches.judged(head))
        found[name] = Approval(tag.by, note, tag.commit, tag.date, current)
    return found


def _prefix(lineage: Lineage) -> str:
    return f"approved/{lineage.problem}/{lineage.run}/"
