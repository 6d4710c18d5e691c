"""Compiled prompts: DSPy's own state files, bound to the stage and the signature that they were compiled for.

DSPy matches field descriptions by position, so a state loaded into a changed signature shifts all of them without a
word. The hash in the file's metadata refuses that.
"""

import json
import platform
from pathlib import Path
from typing import Any

import dspy
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from ksflow import home
from ksflow.errors import ConfigError, reaching
from ksflow.records import digest

FOLDER = Path("runs", "prompts")
"""Where the working folder's compiled prompts are: `<stage>/<name>.json`. They go before those that ship."""
Signature = type[dspy.Signature]
State = dict[str, Any]


class _SavedField(BaseModel, strict=True):
    prefix: str
    description: str


class _SavedSignature(BaseModel, strict=True):
    instructions: str
    fields: list[_SavedField]


class _SavedState(BaseModel, strict=True, extra="forbid"):
    """A predictor's state: DSPy takes whatever stands there, and breaks on it when it is asked."""

    demos: list[dict[str, Any]]
    signature: _SavedSignature
    traces: Any = None
    train: Any = None
    lm: Any = None


def signature_hash(signature: Signature) -> str:
    """Names what a signature means: instruction, and name, order, direction, values and description of its fields."""
    schemas = {name: TypeAdapter(field.annotation).json_schema() for name, field in signature.fields.items()}
    values = {name: _inlined(schema, schema.get("$defs", {}), ()) for name, schema in schemas.items()}
    fields = [
        [name, name in signature.input_fields, values[name], field.json_schema_extra["desc"]]
        for name, field in signature.fields.items()
    ]
    return digest(json.dumps([signature.instructions, fields], sort_keys=True))


def strip_state(state: State) -> State:
    """States of predictors without model, traces and training data, and with worked examples as JSON values."""
    rest: State = {"lm": None, "traces": [], "train": []}
    return {name: {**entry, **rest, "demos": to_jsonable_python(entry["demos"])} for name, entry in state.items()}


def write(state: State, stage: str, signature: Signature, path: Path) -> None:
    """Write a program's state as DSPy does, and what `read_state` wants to know of it."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2]), "dspy": dspy.__version__}
    metadata = {"dependency_versions": versions, "ksflow": {"stage": stage, "signature": signature_hash(signature)}}
    path.parent.mkdir(parents=True, exist_ok=True)
    home.write(path, json.dumps({**state, "metadata": metadata}, indent=1, ensure_ascii=False) + "\n")


def read_state(path: Path, stage: str, signature: Signature) -> State:
    """The predictor's state in a compiled prompt. ConfigError if it is none, or was made for another signature."""
    try:
        with reaching(f"{stage}.prompt: cannot read {path}", "name another file"):
            record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    try:
        metadata = record.pop("metadata", None)
        state = record.get("predict", record)  # a lone dspy.Predict is saved without a name
        _SavedState.model_validate(state)
    except (AttributeError, TypeError, ValidationError) as error:
        writers = "`program.save` and `python -m ksflow optimize` write them"
        raise ConfigError(f"{path} is not a compiled prompt; {writers}") from error
    ours = metadata.get("ksflow") if isinstance(metadata, dict) else None
    ours = ours if isinstance(ours, dict) else {}
    again = f"compile it again with `python -m ksflow optimize stage={stage}`, or set {stage}.prompt=null"
    now = signature_hash(signature)
    compiled = [ours.get("stage", stage), ours.get("signature", now)]
    if compiled != [stage, now]:
        raise ConfigError(f"{path} was compiled for {' '.join(map(str, compiled))}, this is {stage} {now}: {again}")
    saved, declared = state["signature"]["fields"], signature.dump_state()["fields"]
    # Where no hash says so, the names must be the same. A prefix is made of its field's name; optimisers (COPRO) change
    # the last one.
    names, wanted = ([field["prefix"] for field in fields[:-1]] for fields in (saved, declared))
    if len(saved) != len(declared) or ("signature" not in ours and names != wanted):
        raise ConfigError(f"{path} was compiled for other fields than {stage} has now: {again}")
    return {**state, "lm": None, "traces": [], "train": []}


def find(stage: str, prompt: str) -> Path:
    """The file of a prompt. ConfigError names those that there are."""
    if Path(prompt).suffix == ".json":
        return Path(prompt)
    folders = (FOLDER / stage, home.shipped_path("stages", "prompts", stage))
    for folder in folders:
        if (folder / f"{prompt}.json").is_file():
            return folder / f"{prompt}.json"
    names = {folder: ", ".join(sorted(file.stem for file in folder.glob("*.json"))) for folder in folders}
    known = "; ".join(f"{found or 'none'} in {folder}" for folder, found in names.items())
    raise ConfigError(f"{stage}.prompt: cannot read {prompt}; there are: {known}; a path ends in .json")


def _inlined(part: Any, defs: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """A JSON schema, or a part of one, without names and documentation."""
    if isinstance(part, list):
        return [_inlined(item, defs, inside) for item in part]
    if not isinstance(part, dict):
        return part
    inlined = {
        key: _inlined(value, defs, inside)
        for key, value in part.items()
        if key not in ("$defs", "$ref") and not (key in ("title", "description") and isinstance(value, str))
    }
    if isinstance(ref := part.get("$ref"), str):
        name = ref.rpartition("/")[2]
        inlined |= {"again": inside.index(name)} if name in inside else _inlined(defs[name], defs, (*inside, name))
    return inlined
