"""JSON on disk: versioned, checked once when written and once when read, never NaN.

What a file may hold is what the records are: unknown keys and wrong types are refused. `schemas/*.json` says the same
to other tools, which can read a lineage without this package (`python -m ksflow.records.schema` rewrites them; a test
compares).
"""

import json
from functools import cache
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, create_model
from pydantic_core import PydanticSerializationError

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
    """One record as checked, readable JSON bytes. ValueError where a field is not of its type."""
    try:
        body = {"version": VERSION, kind: _adapter(kind).dump_python(value, mode="json", warnings="error")}
    except PydanticSerializationError as error:
        raise ValueError(f"{kind}.json cannot be written: {error}") from error
    return json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def load(kind: str, data: bytes, expected: type[T]) -> T:
    """The record in `data`. Raises LineageError that says what is wrong with it."""
    try:
        if b"NaN" in data or b"Infinity" in data:  # the words may stand in a text
            json.loads(data, parse_constant=_refuse)
        return cast(T, getattr(_file(kind).model_validate_json(data), kind))
    except ValueError as error:
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


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(KINDS[kind])


@cache
def _file(kind: str) -> type[BaseModel]:
    """What a whole file of this kind is."""
    fields: dict[str, Any] = {"version": (Literal[1], ...), kind: (KINDS[kind], ...)}
    return create_model(kind, __config__={"extra": "forbid", "strict": True}, **fields)


if __name__ == "__main__":
    for name in KINDS:
        text = json.dumps(export(name), indent=1) + "\n"
        shipped("schemas", f"{name}.json").write_text(text)
