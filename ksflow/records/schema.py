"""JSON on disk: versioned, never NaN, checked by the records once when written and once when read.

Other tools read a lineage by `schemas/*.json`, which `python -m ksflow.records.schema` generates from the records (a
test compares them). Parsing is strict: unknown keys and wrong types are refused, except in `Evidence` and its parts,
where the schema permits them.
"""

import json
from typing import Any, TypeVar

from pydantic_core import to_json

from ksflow.errors import LineageError
from ksflow.home import shipped_path
from ksflow.records import Call, Evaluation, Explanation, Kept, Note, Plan, Proof, RoundStep, Trial, as_json, parse

VERSION = 1
_WIDTH = 120
_MOST_BYTES = 4_000_000  # of a swappable part's result
KINDS: dict[str, Any] = {
    "trial": Trial,
    "evaluation": Evaluation,
    "plan": Plan,
    "call": Call,
    "notes": tuple[Note, ...],
    "trials": tuple[Trial, ...],
    "kept": Kept,
    "explanation": Explanation,
    "proof": Proof,
    "round": RoundStep,
}

T = TypeVar("T")


def dump(kind: str, value: object) -> bytes:
    """Return one record as readable JSON. Raises ValueError for a field of the wrong type."""
    try:
        body = as_json(value)
        parse(KINDS[kind], body)
        data = to_json({"version": VERSION, kind: body}, indent=1, inf_nan_mode="constants") + b"\n"
        if b"NaN" in data or b"Infinity" in data:  # a text may contain the words
            _loaded(data)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{kind}.json cannot be written: {error}") from error
    return data


def check_answer(kind: type[T], value: object) -> T:
    """Return a swappable part's result as a copy that has been through JSON, as a later start will read it.

    Raises TypeError for another kind, ValueError if it cannot be stored.
    """
    if not isinstance(value, kind):
        raise TypeError(f"returned {type(value).__name__}, not a {kind.__name__}")
    try:
        data = to_json(as_json(value), inf_nan_mode="constants")
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it takes {len(data):,} bytes, and {_MOST_BYTES:,} is the most")
        record: T = parse(kind, _loaded(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"the {kind.__name__} that it returned cannot be kept: {error}") from error
    return record


def load(kind: str, data: bytes, expected: type[T]) -> T:
    """Return the record in `data`. Raises LineageError."""
    try:
        body = _loaded(data)
        if not isinstance(body, dict) or body.keys() != {"version", kind} or body["version"] != VERSION:
            raise ValueError(f"it is no object of version {VERSION} with the key {kind}")
        record: T = parse(KINDS[kind], body[kind])
    except (ValueError, TypeError, RecursionError) as error:
        raise LineageError(f"{kind}.json is not valid: {_where(kind, data) or str(error)[:500]}") from error
    return record


def _where(kind: str, data: bytes) -> str:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    try:
        schema = json.loads(shipped_path("schemas", f"{kind}.json").read_bytes())
        found = best_match(Draft202012Validator(schema).iter_errors(_loaded(data)))
    except (ValueError, RecursionError):
        return ""
    return f"{found.json_path}: {found.message[:400]}" if found else ""


def export(kind: str) -> dict[str, Any]:
    """Return the JSON schema of one kind of file."""
    from pydantic import TypeAdapter

    inner = _without_titles(TypeAdapter(KINDS[kind]).json_schema())
    definitions = inner.pop("$defs", {})
    for found in (inner, *definitions.values()):
        if found.get("properties", {}).pop("more", None):  # its items are stored beside the other keys
            found["additionalProperties"] = True
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ksflow {kind}.json",
        "type": "object",
        "properties": {"version": {"const": VERSION}, kind: inner},
        "required": ["version", kind],
        "additionalProperties": False,
        "$defs": definitions,
    }


def _without_titles(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without_titles(item) for key, item in schema.items() if key != "title" or isinstance(item, dict)}


def _lines(schema: Any, indent: str = "") -> str:
    line = json.dumps(schema)
    if len(line) + len(indent) <= _WIDTH or not isinstance(schema, dict):
        return line
    inner = indent + " "
    items = (f"{inner}{json.dumps(key)}: {_lines(item, inner)}" for key, item in schema.items())
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"


def _loaded(data: bytes) -> Any:
    return json.loads(data, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


if __name__ == "__main__":
    for name in KINDS:
        shipped_path("schemas", f"{name}.json").write_text(_lines(export(name)) + "\n", encoding="utf-8")
