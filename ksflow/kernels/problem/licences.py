"""Licences of kernels and problems: what kernels' texts and checkouts name, and what that comes to together.

What a kernel was made from does not lose its licence on the way: a kernel has its own and those of all that it was made
from, the reference that its writer read included. Nothing here is legal advice; it says what the texts say.
"""

import re
from collections.abc import Iterable, Mapping

from ksflow.home import shipped_path
from ksflow.records import Problem, Trial

UNKNOWN = ""  # of a text that names no licence
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
_HUB = (
    "apache-2.0 mit bsd-2-clause bsd-3-clause mpl-2.0 isc bsl-1.0 cc0-1.0 cc-by-4.0 cc-by-sa-4.0 unlicense zlib "
    "gpl-2.0 gpl-3.0 lgpl-2.1 lgpl-3.0 agpl-3.0"
)  # names of licences in Hugging Face's cards


def parse_licence(text: str) -> str:
    """Return the SPDX expression in a text (`GPL-2.0-only AND MIT`), or `UNKNOWN`."""
    found = _MARK.search(text)
    if not found:
        return UNKNOWN
    expression = found[1]
    while expression.count(")") > expression.count("(") and expression.endswith(")"):
        expression = expression[:-1]  # of the comment around it
    return expression if expression.count("(") == expression.count(")") else expression.strip("()")


def of_problem(problem: Problem) -> str:
    """Return the licence that a problem's reference or checkout names, this project's if it ships, or `UNKNOWN`."""
    if found := parse_licence(problem.reference_text) or parse_licence(problem.reference):
        return found
    if problem.root.startswith(f"{shipped_path('problems').resolve()}/"):
        return "Apache-2.0"
    line = str(problem.origin.get("licence", "")).strip()
    return _FIRST_LINES.get(line.lower(), UNKNOWN)


def of_kernel(problem: Problem, trials: Mapping[str, Trial], name: str) -> str:
    """Return the licences of a trial's kernel, its ancestors and its problem; `UNKNOWN` if any of them is."""
    found, left = {of_problem(problem)}, [name]
    for one in left:  # grows on the way
        trial = trials[one]
        own = {parse_licence(text) for text in trial.kernel.files.values()} - {UNKNOWN} if trial.kernel else set()
        found |= own or ({of_problem(problem)} if not trial.parents else set())
        left += [parent for parent in trial.parents if parent in trials and parent not in left]
    return UNKNOWN if UNKNOWN in found else join_licences(found)


def join_licences(names: Iterable[str]) -> str:
    """Return all licences as one expression, each part once, in alphabetical order: `GPL-2.0-only AND MIT`."""
    parts: set[str] = set()
    for name in names:
        parts |= {name} if "(" in name or " OR " in name else set(name.split(" AND "))
    several = len(parts) > 1
    return " AND ".join(f"({part})" if several and " OR " in part else part for part in sorted(parts))


def on_the_hub(licence: str) -> str:
    """Return Hugging Face's name for a licence; "" for several, or one without such a name."""
    name = licence.removesuffix("-only").removesuffix("-or-later").lower()
    return name if name in _HUB.split() else ""
