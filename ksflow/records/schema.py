"""JSON on disk: versioned, checked against `schemas/*.json` when written and when read, never NaN.

The schemas are exported from the records (`python -m ksflow.records.schema` rewrites them; a test compares), so other
tools can read a lineage without this package. Parsing is strict: unknown keys and wrong types are refused.
"""

import json
from functools import cache
from typing import Any, TypeVar, cast

from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from ksflow.errors import LineageError
from ksflow.home import shipped
from ksflow.records import Call, Evaluation, Kept, Note, Plan, Trial

VERSION = 1
KINDS: dict[str, Any] = {
    "trial": Trial,
    "evaluation": Evaluation,
    "plan": Plan,
    "call": Call,
    "notes": tuple[Note, ...],
    "trials": tuple[Trial, ...],
    "kept": Kept,
}

T = TypeVar("T")


def dump(kind: str, value: object) -> bytes:
    """One record as checked, readable JSON bytes."""
    body = {"version": VERSION, kind: _adapter(kind).dump_python(value, mode="json")}
    _check(kind, body)
    return json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def load(kind: str, data: bytes, expected: type[T]) -> T:
    """The record in `data`. Raises LineageError that says what is wrong with it."""
    try:
        body = json.loads(data, parse_constant=_refuse)
        _check(kind, body)
        return cast(T, _adapter(kind).validate_json(json.dumps(body[kind])))
    except (ValueError, ValidationError) as error:
        first = str(error).strip().split("\n")
        raise LineageError(f"{kind}.json is not valid: {'; '.join(first[:3])}") from error


def export(kind: str) -> dict[str, Any]:
    """The JSON schema of one kind of file."""
    inner = _adapter(kind).json_schema()
    definitions = inner.pop("$defs", {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ksflow {kind}.json",
        "type": "object",
        "properties": {"version": {"const": VERSION}, kind: inner},
        "required": ["version", kind],
        "additionalProperties": False,
        "$defs": definitions,
    }


def _check(kind: str, body: object) -> None:
    error = next(_validator(kind).iter_errors(body), None)
    if error is not None:
        raise ValueError(f"{error.json_path}: {error.message[:200]}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(KINDS[kind])


@cache
def _validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(shipped("schemas", f"{kind}.json").read_text()))


if __name__ == "__main__":
    for name in KINDS:
        text = json.dumps(export(name), indent=1) + "\n"
        shipped("schemas", f"{name}.json").write_text(text)
