"""A kernel's features in words: a line for each, then a model's statements with their sources."""

from ksflow.errors import one_line, strip_controls
from ksflow.records import Explanation, Presence

_NAME = 24  # columns of a feature's name
_MOST = 400  # characters of evidence on one line


def explanation_lines(explanation: Explanation, known: bool = False) -> list[str]:
    """Return the explanation as lines of text without control characters.

    known: leave out features of unknown presence.
    """
    told, unseen = list[str](), dict[str, list[str]]()
    for feature in explanation.features:
        if feature.state is Presence.UNKNOWN and len(feature.evidence) < 2:  # no line and no figure, only a reason
            unseen.setdefault("".join(feature.evidence) or "no reason is recorded", []).append(feature.name)
        elif not (known and feature.state is Presence.UNKNOWN):
            cut = one_line("; ".join(feature.evidence), _MOST)
            told.append(f"{feature.name:{_NAME}} {feature.state.value:8} {cut}".rstrip())
    if not known:
        told += [f"unknown whether it has {', '.join(names)}: {one_line(why, _MOST)}" for why, names in unseen.items()]
    if explanation.by:
        told += ["", f"In the words of {explanation.by}: {' '.join(explanation.summary.split())}"]
    for statement in explanation.statements:
        fact = explanation.find_contradiction(statement)
        doubt = f" CONTRADICTS THE FACTS: {fact.name} is {fact.state.value}." if fact else ""
        told.append(f"- {' '.join(statement.text.split())} [{', '.join(statement.lines)}]{doubt}")
    return [strip_controls(line) for line in told]


def present(explanation: Explanation) -> str:
    """Return the features that the kernel has, in one line."""
    return ", ".join(feature.name for feature in explanation.features if feature.state is Presence.PRESENT)
