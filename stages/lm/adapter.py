"""The prompt's layout, and parsers that refuse instead of repairing.

Questions are always sections under header lines. Answers are one of two layouts, chosen by a stage's `adapter`:

- `sections`: a row of sections, closed by a marker. Text is taken as it is; other types are one strict JSON value each.
  The last section is the payload: if it is text, every character of it is kept, whatever it looks like.
- `json`: one JSON object with a key for each field, and code as a JSON string.

Nothing here guesses: DSPy's own adapters cut code at inner fences, lose form feeds, repair JSON into something else,
and accept half a kernel when an answer was truncated.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import dspy
from dspy.utils.exceptions import AdapterParseError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from ksflow.errors import ConfigError
from ksflow.stages.lm import strict
from ksflow.stages.lm.sections import COMPLETED, split, unfence

Signature = type[dspy.Signature]
_ERRORS = 5  # of a JSON value that are told to the model
_LONGEST = 1500  # characters of a reason


class Malformed(AdapterParseError):  # type: ignore[misc]
    """An answer that is not what was asked for. `reason` is told to the model when it is asked again."""

    def __init__(self, signature: Signature, answer: str, reason: str) -> None:
        super().__init__("KernelAdapter", signature, answer, message=reason)
        self.reason = reason


class KernelAdapter(dspy.Adapter):  # type: ignore[misc]
    """Sections in, sections out; code is never touched."""

    def __init__(self, refused: str = "") -> None:
        """`refused` is why the answer before this one was not accepted."""
        super().__init__()
        self.refused = refused

    def format(
        self,
        signature: Signature,
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """The messages: instructions, worked examples, the question."""
        messages = [{"role": "system", "content": self._instructions(signature)}]
        for demo in demos:
            if all(name in demo for name in signature.fields):
                messages.append({"role": "user", "content": self._question(signature, demo)})
                messages.append({"role": "assistant", "content": self.answer(signature, demo)})
        question = self._question(signature, inputs)
        if self.refused:
            question += (
                f"\n\nYour previous answer was refused: {self.refused}\n"
                "Answer again, complete and in the format asked for."
            )
        return [*messages, {"role": "user", "content": question}]

    def parse(self, signature: Signature, completion: str) -> dict[str, Any]:
        """The output fields. Malformed names what is wrong."""
        try:
            return self.values(signature, completion)
        except ValueError as error:
            raise Malformed(signature, completion, str(error)[:_LONGEST]) from error

    def values(self, signature: Signature, completion: str) -> dict[str, Any]:
        """The output fields of an answer. ValueError says what is wrong."""
        fields = signature.output_fields
        return {
            name: _value(name, text, fields[name].annotation) for name, text in split(completion, list(fields)).items()
        }

    def answer(self, signature: Signature, outputs: Mapping[str, Any]) -> str:
        """A good answer with these output fields, as `parse` reads it."""
        sections = [f"[[ ## {name} ## ]]\n{_shown(outputs[name])}" for name in signature.output_fields]
        return "\n".join([*sections, COMPLETED])

    def _instructions(self, signature: Signature) -> str:
        given = [f"- {name}: {_doc(field)}" for name, field in signature.input_fields.items()]
        return "\n\n".join(
            [signature.instructions, "You are given these sections:\n" + "\n".join(given), *self._wanted(signature)]
        )

    def _wanted(self, signature: Signature) -> list[str]:
        """How to answer, in paragraphs."""
        return [
            "Answer with exactly these sections, in this order, each under its own header line:",
            *(
                f"[[ ## {name} ## ]]\n({_kind(field.annotation)}: {_doc(field)})"
                for name, field in signature.output_fields.items()
            ),
            COMPLETED,
            "The last line must be the marker above; without it the answer counts as cut off. "
            "Write text as it is, without escapes. Where JSON is asked for, write one strict JSON "
            "value: double quotes, no comments, no trailing commas, only the keys that are named.",
        ]

    def _question(self, signature: Signature, inputs: Mapping[str, Any]) -> str:
        sections = [f"[[ ## {name} ## ]]\n{_shown(inputs[name])}" for name in signature.input_fields if name in inputs]
        return "\n\n".join([*sections, self._request(signature)])

    def _request(self, signature: Signature) -> str:
        wanted = ", ".join(f"[[ ## {name} ## ]]" for name in signature.output_fields)
        return f"Answer with the sections {wanted}, then {COMPLETED}"


class JsonAdapter(KernelAdapter):
    """Sections in, one strict JSON object out."""

    _NOTES: ClassVar[str] = (
        "Write one strict JSON object and nothing before or after it: double quotes, no comments, no trailing commas, "
        'no other keys, no key twice. Text is a JSON string: a line break in it is \\n, a quote is \\", a backslash is '
        "\\\\. Code is one such string, the whole of it."
    )

    def values(self, signature: Signature, completion: str) -> dict[str, Any]:
        """The output fields of an answer. ValueError says what is wrong."""
        try:
            found = strict.loads(unfence(completion.strip(" \t\r\n")))
        except ValueError as error:
            raise ValueError(f"the answer is not one strict JSON object: {error}") from None
        fields = signature.output_fields
        if not isinstance(found, dict):
            raise ValueError("the answer is JSON, but not an object")
        if missing := [name for name in fields if name not in found]:
            raise ValueError(f"missing keys: {', '.join(missing)}")
        if unknown := [name[:40] for name in found if name not in fields]:
            raise ValueError(f"unknown keys: {', '.join(unknown[:_ERRORS])}; asked for: {', '.join(fields)}")
        return {name: _member(name, found[name], field.annotation) for name, field in fields.items()}

    def answer(self, signature: Signature, outputs: Mapping[str, Any]) -> str:
        """A good answer with these output fields, as `parse` reads it."""
        found = {name: to_jsonable_python(outputs[name]) for name in signature.output_fields}
        return json.dumps(found, ensure_ascii=False, indent=1)

    def _wanted(self, signature: Signature) -> list[str]:
        return [
            "Answer with one JSON object that has exactly these keys, in this order:",
            "\n".join(
                f'- "{name}" ({"a string" if field.annotation is str else "JSON"}): {_doc(field)}'
                for name, field in signature.output_fields.items()
            ),
            self._NOTES,
        ]

    def _request(self, signature: Signature) -> str:
        return f"Answer with one JSON object with the keys {', '.join(signature.output_fields)}"


ADAPTERS: dict[str, type[KernelAdapter]] = {"sections": KernelAdapter, "json": JsonAdapter}
"""Layouts of an answer, by the name a configuration uses."""


def valid(stage: str, name: str) -> str:
    """`name`, if there is such an adapter. ConfigError names those that are."""
    if name not in ADAPTERS:
        raise ConfigError(f"{stage}.adapter={name} is not one of: {', '.join(ADAPTERS)}")
    return name


def make(name: str, refused: str = "") -> KernelAdapter:
    """The adapter of this name; `refused` is why the answer before was not accepted."""
    return ADAPTERS[name](refused)


def _value(name: str, text: str, annotation: Any) -> Any:
    if annotation is str:
        return text
    text = unfence(text.strip()).strip()
    value = _validated(name, text, annotation)
    try:
        strict.loads(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return value


def _member(name: str, value: Any, annotation: Any) -> Any:
    if annotation is not str:
        return _validated(name, strict.dumps(value), annotation)
    if not isinstance(value, str):
        raise ValueError(f"{name}: it must be a string")
    if not value.strip():
        raise ValueError(f"{name} is empty")
    return value


def _validated(name: str, text: str, annotation: Any) -> Any:
    try:
        return _parser(annotation).validate_json(text)
    except ValidationError as error:
        raise ValueError(f"{name}: {explain(error)}") from error


@cache
def _parser(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def explain(error: ValidationError) -> str:
    """The first few errors of a JSON value, each with its place."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    told = [
        f"{'.'.join(str(part) for part in problem['loc'])[:80] or 'value'}: {problem['msg'][:200]}"
        for problem in problems[:_ERRORS]
    ]
    more = len(problems) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more else "")


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(to_jsonable_python(value), ensure_ascii=False, indent=1)


def _doc(field: Any) -> str:
    return str(field.json_schema_extra["desc"])


def _kind(annotation: Any) -> str:
    return "text" if annotation is str else "JSON"
