"""What the dummy answers: valid, deterministic, and made of nothing but the prompt.

It knows the sections of the stages' signatures, not the stages.
"""

import difflib
import json
import re
from collections.abc import Callable
from typing import Any

from ksflow.kernels.source.edits import shared_lines
from ksflow.kernels.source.tunables import assign, effective_values, tunables, values
from ksflow.lm.sections import join
from ksflow.records import digest

Sections = dict[str, str]
Made = dict[str, Any]
_HEADER = re.compile(r"^\[\[ ## (\w+) ## \]\]$", re.MULTILINE)
_REQUEST = "Answer with the sections "
_PASSAGE = re.compile(r"^### source: (.+)\n((?:(?!### source: ).*\n?)*)", re.MULTILINE)
_NOTES, _QUOTED = 3, 8  # passages of a question that are noted, and words of each that are quoted
_MARK = re.compile(r"\n(?:static const unsigned dummy|DUMMY)_[0-9a-fA-F]{8} = 1;?\n\Z")


def answer(prompt: str) -> str:
    """A complete answer to a question."""
    question, _, wanted = prompt.rpartition(_REQUEST)
    line = wanted.split("\n")[0]  # what follows is why an earlier answer was refused
    names = re.findall(r"\w+", line.partition(", then ")[0])
    parts = sections(question)
    make = _MAKERS.get(tuple(names))
    values = make(parts) if make else dict.fromkeys(names, "dummy")
    return join({name: values[name] if isinstance(values[name], str) else json.dumps(values[name]) for name in names})


def sections(question: str) -> Sections:
    """Section -> text; the first of a name counts."""
    texts: Sections = {}
    _, *parts = _HEADER.split(question)
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        texts.setdefault(name, text[1:].removesuffix("\n\n"))
    return texts


def draw(question: Sections, *salt: object) -> int:
    """A number that looks random and depends on the question alone."""
    return int(digest(json.dumps([question, *map(str, salt)], sort_keys=True), digits=8), 16)


def _select(question: Sections) -> Made:
    ids = re.findall(r"^\| (\d+) \|", question["population"], re.MULTILINE)
    base = ids[draw(question) % min(3, len(ids))]
    others = [id for id in ids if id != base] or [base]
    reference = others[draw(question, base) % len(others)]
    why = f"Dummy: {base} is among the fastest of {len(ids)}, {reference} is another."
    return {"rationale": why, "base_id": base, "reference_id": reference}


def _design(question: Sections) -> Made:
    avenues, experiments = (int(number) for number in re.findall(r"\d+", question["wanted"])[:2])
    return {
        "avenues": [f"Dummy avenue {index + 1}" for index in range(avenues)],
        "experiments": [_experiment(question, index) for index in range(experiments)],
    }


def _experiment(question: Sections, index: int) -> dict[str, object]:
    number = draw(question, index)
    low = number % 11 - 5
    experiment: dict[str, object] = {
        "description": f"Dummy experiment {index + 1}: mark the kernel with {number:08x}",
        "rubric": "the mark is in the code",
        "gain_percent": [low, low + number % 30],
        "innovation": number % 101,
    }
    code = question["base_code"]
    read = effective_values(tunables(code), values(code))
    declared = [item for item in tunables(code) if len(item.options) > 1 and item.name in read]
    if declared and index % 2 == 0:
        chosen = declared[number % len(declared)]
        others = [option for option in chosen.options if option != chosen.value]
        value = others[number % len(others)]
        experiment["description"] = f"Dummy experiment {index + 1}: {chosen.name} = {value}"
        experiment["rubric"] = f"{chosen.name} is {value}"
        experiment["changes"] = {chosen.name: value}
    return experiment


def _write(question: Sections) -> Made:
    code, done = _changed(question, question["base_code"])
    return {"report": f"Dummy writer: {done}; nothing else was changed.", "code": code}


def _edit(question: Sections) -> Made:
    code = question[question["edits_apply_to"]]
    new, done = _changed(question, code)
    style = _unified if "unified" in question["edit_format"] else _block
    edits = style(*(re.split("\r?\n", text.removesuffix("\n").removesuffix("\r")) for text in (code, new)))
    return {"report": f"Dummy writer: {done}; nothing else was changed.", "edits": edits}


def _changed(question: Sections, code: str) -> tuple[str, str]:
    """The code with the experiment's tunables assigned, or marked; and what was done."""
    wanted = re.search(r"^Tunables to assign: (.+)$", question["experiment"], re.MULTILINE)
    changes = dict(pair.split("=", 1) for pair in wanted[1].split(", ")) if wanted else {}
    try:
        code = assign(code, changes)
    except ValueError:
        changes = {}
    if changes and "failed" not in question:
        return code, ", ".join(f"{name} is now {value}" for name, value in changes.items())
    python = "Language: python" in question["interface"]
    number = f"{draw(question):08x}"
    mark = f"DUMMY_{number.upper()} = 1" if python else f"static const unsigned dummy_{number} = 1;"
    plain = _MARK.sub("\n", f"{code.rstrip()}\n")
    return f"{plain}{mark}\n", "a mark"


def _block(old: list[str], new: list[str]) -> str:
    """One search/replace block around all that differs, with as many lines above it as make it occur once."""
    first = shared_lines(old, new)
    same = shared_lines(old[first:][::-1], new[first:][::-1])
    start, end = first, len(old) - same
    while sum(old[index : index + end - start] == old[start:end] for index in range(len(old))) != 1:
        start, end = (start - 1, end) if start else (start, end + 1)
    text = [*old[start:first], *new[first : len(new) - same], *old[len(old) - same : end]]
    opened, divided, closed = (sign * 15 for sign in "<=>")  # no code has lines like these
    return "\n".join([f"{opened} SEARCH", *old[start:end], divided, *text, f"{closed} REPLACE"])


def _unified(old: list[str], new: list[str]) -> str:
    """A unified diff with the whole file as context."""
    return "\n".join(list(difflib.unified_diff(old, new, lineterm="", n=len(old)))[2:])


def _digest(question: Sections) -> Made:
    passages = _PASSAGE.findall(question.get("documents", ""))[:_NOTES]
    notes = [_note(f"Dummy finding on {name}", name, " ".join(text.split()[:_QUOTED])[:200]) for name, text in passages]
    if tried := re.findall(r"^- (\d+) from ", question.get("outcomes", ""), re.MULTILINE):
        notes.append(_note("Dummy finding on the last trial", tried[-1], ""))
    return {"notes": notes}


def _note(title: str, source: str, quote: str) -> dict[str, object]:
    status = "documented" if quote else "measured"
    return {"title": title[:120], "text": "It says so [1].", "sources": [source], "quotes": [quote], "status": status}


def _ask(asked: Sections) -> Made:
    """A chain of additions, in the language that the interface names."""
    language = re.search(r"^Language: (\w+)\.", asked["interface"], re.MULTILINE)
    if language and language[1] == "cpp":
        head = 'extern "C" void custom_kernel(const float *x, float *y, int64_t n, int64_t turns, const int64_t *)'
        lines = ["#include <cstdint>", f"{head} {{"]
    else:
        lines = ["#include <hip/hip_runtime.h>"] if language and language[1] == "hip" else []
        head = 'extern "C" __global__ void chain(const float *x, float *y, long long turns)'
        lines = ["// launch: chain [1] [1] (x, y, turns)", *lines, f"{head} {{"]
    lines += ["  float sum = 0;", "  for (long long turn = 0; turn < turns; ++turn) sum += x[0];", "  y[0] = sum;", "}"]
    question = {
        "title": f"Dummy question {draw(asked):08x}",
        "question": "How long does an addition take that needs the one before it?",
        "form": "loop",
        "cases": {"chain": {"n": 1, "turns": 10000}},
        "figures": {"each": {"value": "us * 1000 / turns", "unit": "ns", "case": "chain"}},
        "text": "An fp32 addition that needs the one before it takes {each}.",
    }
    return {"question": question, "code": "\n".join(lines)}


def _explain(question: Sections) -> Made:
    """A statement on the first line of the source that says something, and one on a fact."""
    name = re.search(r"^===== (.+) =====$", question["code"], re.MULTILINE)
    line = re.search(r"^ *(\d+) \| .*\S", question["code"], re.MULTILINE)
    location = [f"{name[1]}:{line[1]}" if name and line else "?"]
    statements: list[dict[str, object]] = [{"text": "Dummy: the kernel begins here.", "lines": location}]
    if fact := re.search(r"^(.+): (present|absent); ", question["facts"], re.MULTILINE):
        statements.append(
            {"text": f"Dummy: {fact[1]} {fact[2]}.", "lines": location, "feature": fact[1], "says": fact[2]}
        )
    return {"summary": "Dummy: it computes what the task asks for.", "statements": statements}


def _verify(question: Sections) -> Made:
    """Every other kernel is sound; of the others its last line is doubted."""
    line = question["code"].rstrip().rpartition("\n")[2]
    mistake = {
        "text": f"Dummy: the mark {draw(question):08x} is not the one that is meant.",
        "quote": line if len(line) < 300 else "",
    }
    doubted = draw({"code": question["code"]}) % 2
    return {"mistakes": [mistake] if doubted else [], "risk_percent": float(draw(question) % 101)}


_MAKERS: dict[tuple[str, ...], Callable[[Sections], Made]] = {
    ("rationale", "base_id", "reference_id"): _select,
    ("avenues", "experiments"): _design,
    ("code", "report"): _write,
    ("edits", "report"): _edit,
    ("notes",): _digest,
    ("places",): lambda parts: {"places": [int(n) for n in re.findall(r"(?m)^(\d+)\. ", parts["outline"])[:_NOTES]]},
    ("question", "code"): _ask,
    ("summary", "statements"): _explain,
    ("mistakes", "risk_percent"): _verify,
    ("numbers", "greeting"): lambda parts: {
        "numbers": [*map(int, re.findall(r"\d+", parts["text"]))],
        "greeting": "ready",
    },
}
