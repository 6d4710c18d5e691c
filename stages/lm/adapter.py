"""The prompt's layout, and a parser that refuses instead of repairing.

An answer is a row of sections under header lines, closed by a marker. Text is taken as it is; other
types are one strict JSON value each. The last section is the payload: if it is text, every
character of it is kept, whatever it looks like. Nothing here guesses: DSPy's own adapters cut code
at inner fences, lose form feeds, and accept half a kernel when an answer was truncated.
"""

import json
import re
from functools import cache
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

HEADER = re.compile(r"\[\[ ## (\w+) ## \]\]")
COMPLETED = "[[ ## completed ## ]]"
_FENCE = re.compile(r"```[\w+.-]*[ \t\r]*")
_ERRORS = 5  # of a JSON value that are told to the model


class Malformed(AdapterParseError):  # type: ignore[misc]
    """An answer that is not what was asked for. `reason` is told to the model when it is asked
    again.
    """

    def __init__(self, signature: type[dspy.Signature], answer: str, reason: str) -> None:
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
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """The messages: instructions, worked examples, the question."""
        messages = [{"role": "system", "content": _instructions(signature)}]
        for demo in demos:
            if all(name in demo for name in signature.fields):
                messages.append({"role": "user", "content": _question(signature, demo)})
                messages.append({"role": "assistant", "content": _answer(signature, demo)})
        question = _question(signature, inputs)
        if self.refused:
            question += (
                f"\n\nYour previous answer was refused: {self.refused}\n"
                "Answer again, complete and in the format asked for."
            )
        return [*messages, {"role": "user", "content": question}]

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """The output fields. Malformed names what is wrong."""
        try:
            sections = split(completion, list(signature.output_fields))
            return {
                name: _value(name, text, signature.output_fields[name].annotation) for name, text in sections.items()
            }
        except ValueError as error:
            raise Malformed(signature, completion, str(error)) from error


def split(answer: str, names: list[str]) -> dict[str, str]:
    """Section -> text. Headers inside the last one belong to it. ValueError says what is wrong."""
    try:
        answer.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("the answer is not valid Unicode") from None
    lines = answer.split("\n")
    marks = [index for index, line in enumerate(lines) if line.strip() == COMPLETED]
    if not marks:
        raise ValueError(f"the last line must be {COMPLETED}; the answer was cut off or not closed")
    if any(line.strip() for line in lines[marks[-1] + 1 :]):
        raise ValueError(f"there is text after {COMPLETED}")
    starts: dict[str, int] = {}
    for index, line in enumerate(lines[: marks[-1]]):
        match = HEADER.fullmatch(line.strip())
        if match and match[1] in names and names[-1] not in starts:
            if match[1] in starts:
                raise ValueError(f"the section {match[1]} appears twice")
            starts[match[1]] = index
    if missing := [name for name in names if name not in starts]:
        raise ValueError(f"missing sections: {', '.join(missing)}; {names[-1]} comes last")
    ends = sorted([*starts.values(), marks[-1]])
    texts = {name: "\n".join(lines[starts[name] + 1 : ends[ends.index(starts[name]) + 1]]) for name in names}
    return {name: _section(name, text, name == names[-1]) for name, text in texts.items()}


def _section(name: str, text: str, payload: bool) -> str:
    text = unfence(text) if payload else text.strip()
    if not text.strip():
        raise ValueError(f"the section {name} is empty")
    return text


def unfence(text: str) -> str:
    """`text` without a fence around all of it. ValueError if it does not end the text."""
    lines = text.strip("\n").split("\n")
    if not _FENCE.fullmatch(lines[0]):
        return text
    last = max(index for index, line in enumerate(lines) if line.strip())
    if last == 0 or lines[last].strip() != "```":
        raise ValueError("a ``` fence opens and is not closed at the section's end")
    return "".join(f"{line}\n" for line in lines[1:last])


def _value(name: str, text: str, annotation: Any) -> Any:
    if annotation is str:
        return text
    try:
        return _parser(annotation).validate_json(unfence(text.strip()).strip())
    except ValidationError as error:
        raise ValueError(f"{name}: {explain(error)}") from error


@cache
def _parser(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def explain(error: ValidationError) -> str:
    """The first few errors of a JSON value, each with its place."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    told = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'value'}: {problem['msg']}"
        for problem in problems[:_ERRORS]
    ]
    more = len(problems) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more else "")


def _instructions(signature: type[dspy.Signature]) -> str:
    given = [f"- {name}: {_doc(field)}" for name, field in signature.input_fields.items()]
    wanted = [
        f"[[ ## {name} ## ]]\n({_kind(field.annotation)}: {_doc(field)})"
        for name, field in signature.output_fields.items()
    ]
    return "\n\n".join(
        [
            signature.instructions,
            "You are given these sections:\n" + "\n".join(given),
            "Answer with exactly these sections, in this order, each under its own header line:",
            *wanted,
            f"{COMPLETED}",
            "The last line must be the marker above; without it the answer counts as cut off. "
            "Write text as it is, without escapes. Where JSON is asked for, write one strict JSON "
            "value: double quotes, no comments, no trailing commas, only the keys that are named.",
        ]
    )


def _question(signature: type[dspy.Signature], inputs: dict[str, Any]) -> str:
    sections = [f"[[ ## {name} ## ]]\n{_shown(inputs[name])}" for name in signature.input_fields if name in inputs]
    wanted = ", ".join(f"[[ ## {name} ## ]]" for name in signature.output_fields)
    return "\n\n".join([*sections, f"Answer with the sections {wanted}, then {COMPLETED}"])


def _answer(signature: type[dspy.Signature], outputs: dict[str, Any]) -> str:
    sections = [f"[[ ## {name} ## ]]\n{_shown(outputs[name])}" for name in signature.output_fields]
    return "\n".join([*sections, COMPLETED])


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(to_jsonable_python(value), ensure_ascii=False, indent=1)


def _doc(field: Any) -> str:
    return str(field.json_schema_extra["desc"])


def _kind(annotation: Any) -> str:
    return "text" if annotation is str else "JSON"
