"""Licences of kernels and problems: what kernels' texts and checkouts name, and what that comes to together.

What a kernel was made from does not lose its licence on the way: a kernel has its own and those of all that it was made
from, the reference that its writer read included. Nothing here is legal advice; it says what the texts say.
"""

import re
from collections.abc import Iterable, Mapping

from ksflow.home import shipped_path
from ksflow.records import Problem, Trial

UNKNOWN = ""
"""Of a text that names no licence."""
_NAME = r"[A-Za-z0-9][A-Za-z0-9.+-]{0,60}"
_TERM = rf"\(*{_NAME}(?: WITH {_NAME})?\)*"
_MARK = re.compile(rf"SPDX-License-Identifier:[ \t]*({_TERM}(?: (?:AND|OR) {_TERM})*)")
_FIRST_LINES = {
    "mit license": "MIT",
    "the mit license (mit)": "MIT",
    "apache license": "Apache-2.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "mozilla public license version 2.0": "MPL-2.0",
}
"""How well-known licence files begin -> SPDX."""
_HUB = {
    **{name: name.lower() for name in ("Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "MPL-2.0", "ISC")},
    **{name: name.lower() for name in ("BSL-1.0", "CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0", "Unlicense", "Zlib")},
    **{f"{kind}{tail}": kind.lower() for kind in ("GPL-2.0", "GPL-3.0", "LGPL-2.1", "LGPL-3.0", "AGPL-3.0")
       for tail in ("-only", "-or-later")},
}  # fmt: skip
"""SPDX -> the name that Hugging Face's cards have for it."""


def parse_licence(text: str) -> str:
    """The SPDX expression that a text carries (`GPL-2.0-only AND MIT`); `UNKNOWN` where it carries none."""
    found = _MARK.search(text)
    if not found:
        return UNKNOWN
    expression = found[1]
    while expression.count(")") > expression.count("(") and expression.endswith(")"):
        expression = expression[:-1]  # of the comment around it
    return expression if expression.count("(") == expression.count(")") else expression.strip("()")


def of_problem(problem: Problem) -> str:
    """The licence of a problem's reference: as its text names it, or the file in its checkout; the project's own for a
    problem that ships. `UNKNOWN` where nobody said.
    """
    if found := parse_licence(problem.reference_text) or parse_licence(problem.reference):
        return found
    if problem.root.startswith(f"{shipped_path('problems').resolve()}/"):
        return "Apache-2.0"
    line = str(problem.origin.get("licence", "")).strip()
    return _FIRST_LINES.get(line.lower(), UNKNOWN)


def of_kernel(problem: Problem, trials: Mapping[str, Trial], name: str) -> str:
    """The licences of a trial's kernel, of what it was made from, and of its problem; `UNKNOWN` where one of them is.

    A kernel that comes from nowhere and names none has its problem's.
    """
    found, left = {of_problem(problem)}, [name]
    for one in left:  # grows on the way
        trial = trials[one]
        own = {parse_licence(text) for text in trial.kernel.files.values()} - {UNKNOWN} if trial.kernel else set()
        found |= own or ({of_problem(problem)} if not trial.parents else set())
        left += [parent for parent in trial.parents if parent in trials and parent not in left]
    return UNKNOWN if UNKNOWN in found else join_licences(found)


def join_licences(names: Iterable[str]) -> str:
    """All of them together, each part once, in alphabetical order: `GPL-2.0-only AND MIT`."""
    parts: set[str] = set()
    for name in names:
        parts |= {name} if "(" in name or " OR " in name else set(name.split(" AND "))
    several = len(parts) > 1
    return " AND ".join(f"({part})" if several and " OR " in part else part for part in sorted(parts))


def on_the_hub(licences: Iterable[str]) -> str:
    """What a card's front matter calls the one licence that all rows have; empty where they have several, or one that
    Hugging Face has no name for.
    """
    known = set(licences)
    return _HUB.get(known.pop(), "") if len(known) == 1 else ""
