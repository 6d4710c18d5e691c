"""The prompt's layout, and parsers that refuse instead of repairing.

Questions are sections under header lines. Answers are a row of sections, closed by a marker. Text is taken as it is;
other types are one strict JSON value each. The last section, but for a report on it, is the payload: if it is text,
every character of it is kept, whatever it looks like.
DSPy's own adapters cut code at inner fences, repair JSON into something else, and accept half a kernel.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import dspy
from dspy import AdapterParseError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from ksflow.lm.sections import COMPLETED, check_json, header, join, split, unfence

Signature = type[dspy.Signature]
_ERRORS = 5  # of a JSON value that are told to the model
_LONGEST = 1500  # characters of a reason
_parser = cache(TypeAdapter[Any])


class Malformed(AdapterParseError):  # type: ignore[misc]
    """An answer that is not what was asked for. `reason` is told to the model when it is asked again."""

    def __init__(self, signature: Signature, answer: str, reason: str) -> None:
        super().__init__("KernelAdapter", signature, answer, message=reason)
        self.reason = reason


def parse_failure(error: AdapterParseError) -> str:
    """Return why an answer could not be read, by this or another adapter, for the model."""
    if isinstance(error, Malformed):
        return error.reason
    return str(error).partition("LM Response:")[0].strip()[:_LONGEST] if error.lm_response else "the answer is empty"


class KernelAdapter(dspy.Adapter):  # type: ignore[misc]
    """Lays a question out as sections under header lines, and reads the sections of an answer without changing them."""

    def format(
        self,
        signature: Signature,
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Return the messages: instructions, worked examples, the question."""
        messages = [{"role": "system", "content": self._instructions(signature)}]
        for demo in demos:
            if all(name in demo for name in signature.fields):
                messages.append({"role": "user", "content": self._question(signature, demo)})
                messages.append({"role": "assistant", "content": self.answer(signature, demo)})
        return [*messages, {"role": "user", "content": self._question(signature, inputs)}]

    def parse(self, signature: Signature, completion: str) -> dict[str, Any]:
        """Return the output fields of an answer. Raises Malformed, which names what is wrong."""
        fields = signature.output_fields
        try:
            texts = split(completion, list(fields), payload_of(signature))
            return {name: _value(name, text, fields[name].annotation) for name, text in texts.items()}
        except ValueError as error:
            raise Malformed(signature, completion, str(error)[:_LONGEST]) from error

    def answer(self, signature: Signature, outputs: Mapping[str, Any]) -> str:
        """Return a valid answer with these output fields."""
        return join({name: _shown(outputs[name]) for name in signature.output_fields})

    def _instructions(self, signature: Signature) -> str:
        inputs = [f"- {name}: {doc(field)}" for name, field in signature.input_fields.items()]
        parts = [
            signature.instructions,
            "You are given these sections, of which empty ones are left out:\n" + "\n".join(inputs),
            "Answer with exactly these sections, in this order, each under its own header line:",
            *(
                f"{header(name)}\n({'text' if field.annotation is str else 'JSON'}: {doc(field)})"
                for name, field in signature.output_fields.items()
            ),
            COMPLETED,
            "The last line must be the marker above; without it the answer counts as cut off. "
            "Write text as it is, without escapes. Where JSON is asked for, write one strict JSON "
            "value: double quotes, no comments, no trailing commas, only the keys that are named.",
        ]
        return "\n\n".join(parts)

    def _question(self, signature: Signature, inputs: Mapping[str, Any]) -> str:
        sections = [f"{header(name)}\n{_shown(inputs[name])}" for name in signature.input_fields if inputs.get(name)]
        wanted = ", ".join(map(header, signature.output_fields))
        return "\n\n".join([*sections, f"Answer with the sections {wanted}, then {COMPLETED}"])


def payload_of(signature: Signature) -> str:
    """Return the output field whose text is kept to the letter: the last one, but for a report on it."""
    names: list[str] = list(signature.output_fields)
    return names[-2] if len(names) > 1 and names[-1] == "report" else names[-1]


def _value(name: str, text: str, annotation: Any) -> Any:
    if annotation is str:
        return text
    text = unfence(text.strip()).strip()
    try:
        value = _parser(annotation).validate_json(text)
        check_json(text)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        places = (".".join(map(str, problem["loc"]))[:80] or "value" for problem in problems)
        lines = [f"{place}: {problem['msg'][:200]}" for place, problem in zip(places, problems, strict=True)]
        lines = [*lines[:_ERRORS], f"and {len(lines) - _ERRORS} more"] if len(lines) > _ERRORS else lines
        raise ValueError(f"{name}: {'; '.join(lines)}") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return value


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(to_jsonable_python(value), ensure_ascii=False, indent=1)


def doc(field: Any) -> str:
    """Return the description of a signature's field."""
    return str(field.json_schema_extra["desc"])
