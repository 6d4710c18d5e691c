"""What the dummy answers: valid, deterministic, and made of nothing but the prompt.

It knows the sections of the stages' signatures, not the stages.
"""

import hashlib
import json
import re
from collections.abc import Callable

from ksflow.tunables import assign, tunables

Sections = dict[str, str]
_HEADER = re.compile(r"^\[\[ ## (\w+) ## \]\]$", re.MULTILINE)


def answer(prompt: str) -> str:
    """A complete answer to a question in the adapter's layout."""
    question, _, request = prompt.rpartition("Answer with the sections ")
    wanted = request.split("\n")[0]  # what follows is why an earlier answer was refused
    names = [name for name in re.findall(r"\[\[ ## (\w+) ## \]\]", wanted) if name != "completed"]
    given = sections(question)
    make = _MAKERS.get(tuple(names))
    made = make(given) if make else dict.fromkeys(names, "dummy")
    return "\n".join([*(f"[[ ## {name} ## ]]\n{made[name]}" for name in names), "[[ ## completed ## ]]"])


def sections(question: str) -> Sections:
    """Section -> text; the first of a name counts."""
    found: Sections = {}
    marks = [*_HEADER.finditer(question)]
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        end = after.start() if after else len(question)
        found.setdefault(mark[1], question[mark.end() + 1 : end].removesuffix("\n\n"))
    return found


def draw(given: Sections, *more: object) -> int:
    """A number that looks random and depends on the question alone."""
    text = json.dumps([given, *map(str, more)], sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:4], "big")


def _select(given: Sections) -> Sections:
    ids = re.findall(r"^\| (\d+) \|", given["population"], re.MULTILINE)
    base = ids[draw(given) % min(3, len(ids))]
    others = [id for id in ids if id != base] or [base]
    reference = others[draw(given, base) % len(others)]
    why = f"Dummy: {base} is among the fastest of {len(ids)}, {reference} is another."
    return {"base": base, "reference": reference, "rationale": why}


def _design(given: Sections) -> Sections:
    avenues, experiments = (int(number) for number in re.findall(r"\d+", given["wanted"])[:2])
    return {
        "avenues": json.dumps([f"Dummy avenue {index + 1}" for index in range(avenues)]),
        "experiments": json.dumps([_experiment(given, index) for index in range(experiments)]),
    }


def _experiment(given: Sections, index: int) -> dict[str, object]:
    number = draw(given, index)
    low = number % 11 - 5
    made: dict[str, object] = {
        "description": f"Dummy experiment {index + 1}: mark the kernel with {number:08x}",
        "rubric": "the mark is in the code",
        "gain_percent": [low, low + number % 30],
        "innovation": number % 101,
    }
    declared = [item for item in tunables(given["base_code"]) if len(item.options) > 1]
    if declared and index % 2 == 0:
        chosen = declared[number % len(declared)]
        values = [option for option in chosen.options if option != chosen.value]
        value = values[number % len(values)]
        made["description"] = f"Dummy experiment {index + 1}: {chosen.name} = {value}"
        made["rubric"] = f"{chosen.name} is {value}"
        made["changes"] = {chosen.name: value}
    return made


def _write(given: Sections) -> Sections:
    code = given["base_code"]
    wanted = re.search(r"^Tunables to assign: (.+)$", given["experiment"], re.MULTILINE)
    changes = dict(pair.split("=", 1) for pair in wanted[1].split(", ")) if wanted else {}
    try:
        code = assign(code, changes)
    except ValueError:
        changes = {}
    if not changes or not given["failed"].startswith("(none"):
        comment = "#" if "Language: python" in given["interface"] else "//"
        code = f"{code.rstrip()}\n{comment} dummy {draw(given):08x}\n"
    done = ", ".join(f"{name} is now {value}" for name, value in changes.items()) or "a mark"
    return {"report": f"Dummy writer: {done}; nothing else was changed.", "code": code}


def _digest(given: Sections) -> Sections:
    sources = dict.fromkeys(re.findall(r"^### source: (.+)$", given["documents"], re.MULTILINE))
    made = [_note(f"Dummy finding on {source}", "It was read.", source, "documented") for source in sources]
    if tried := re.findall(r"^- (\d+) from (.+)$", given["outcomes"], re.MULTILINE):
        id, text = tried[-1]
        made.append(_note("Dummy finding on the last trial", text, id, "measured"))
    return {"notes": json.dumps(made)}


def _note(title: str, text: str, source: str, status: str) -> dict[str, object]:
    return {"title": title, "text": text, "sources": [source], "status": status}


_MAKERS: dict[tuple[str, ...], Callable[[Sections], Sections]] = {
    ("base", "reference", "rationale"): _select,
    ("avenues", "experiments"): _design,
    ("report", "code"): _write,
    ("notes",): _digest,
}
