"""Definitions and workloads as the data set has them, read and checked."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ksflow.errors import ConfigError, suggest
from ksflow.formats.checkout import parse_python
from ksflow.formats.flashinfer.solutions import FLOAT4, axis_sizes
from ksflow.kernels.problem.file import read_text
from ksflow.records import Json

_MOST = 8  # workloads that are taken where none are named
_SIZES = (64, 256, 1024)
_FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_DTYPES = {*_FLOATS, "int64", "int32", "int16", "int8", "bool"}
_INPUTS = ("random", "scalar", "safetensors", "custom")


def read_json(body: str, where: Path) -> Json:
    """A JSON object of a file. Raises ConfigError."""
    try:
        value = json.loads(body)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where} holds no JSON object")
    return value


def read_definition(file: Path) -> Json:
    """A definition. Raises ConfigError for one that cannot be judged."""
    definition = read_json(read_text(file), file)
    if missing := [key for key in ("name", "axes", "inputs", "outputs", "reference") if not definition.get(key)]:
        raise ConfigError(f"{file} is no definition: it lacks {', '.join(missing)}")
    if fault := next(_faults(definition), ""):
        raise ConfigError(f"{file} is no definition: {fault}")
    taken, made = ({tensor["dtype"] for tensor in definition[side].values()} for side in ("inputs", "outputs"))
    if unknown := sorted((taken - {*FLOAT4} | made) - _DTYPES):
        can = f"{', '.join(sorted(_DTYPES))}, and float4 of inputs"
        raise ConfigError(f"{file}: {', '.join(unknown)} cannot be judged; it can: {can}")
    entry = definition.get("custom_inputs_entrypoint")
    parse_python(file, definition["reference"], ["run", *([str(entry)] if entry else [])], "its reference has to")
    if "sampling" in str(definition.get("op_type", "")):
        raise ConfigError(f"{file}: its answer is drawn at random, and the judge compares element by element")
    if definition["name"].startswith("dsa_topk_indexer"):
        raise ConfigError(
            f"{file}: upstream compares the scores of what is chosen, in any order; the judge compares element by "
            "element and would reject right answers"
        )
    return definition


def _faults(content: Json) -> Iterator[str]:
    """What of a definition is not as the format has it; only the first is to be trusted."""
    if not (isinstance(content["name"], str) and isinstance(content["reference"], str)):
        yield "name and reference are text"
    for kind in ("axes", "inputs", "outputs"):
        if not (isinstance(content[kind], dict) and all(isinstance(item, dict) for item in content[kind].values())):
            yield f"{kind} is not a mapping of names to mappings"
    for name, axis in content["axes"].items():
        value = {"const": axis.get("value"), "expr": axis.get("expression"), "var": ""}.get(axis.get("type"))
        if type(value) is not (int if axis.get("type") == "const" else str):
            yield f"axis {name} is neither var, nor const with a whole number as its value, nor expr with an expression"
    for key in ("constraints", "tags"):
        if not is_texts(content.get(key) or []):
            yield f"{key} is not a list of texts"
    for name, tensor in (*content["inputs"].items(), *content["outputs"].items()):
        shape = tensor.get("shape", "none")
        if not (isinstance(tensor.get("dtype"), str) and (shape is None or is_texts(shape))):
            yield f"{name} has no shape (a list of axes, or null) or no dtype"
        if lost := [axis for axis in shape or () if axis not in content["axes"] and not axis.isdecimal()]:
            yield f"{name} has the axis {lost[0]}, which axes does not"


def is_texts(value: Any) -> bool:
    """Return whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def read_workloads(file: Path, base: Path, content: Json, wanted: str | Sequence[str] | None) -> list[Json]:
    """Each with `uuid`, `axes` and `inputs`."""
    known = {} if wanted == "random" else {work["uuid"]: work for work in _listed(file, base, content["name"])}
    if wanted not in (None, "random"):
        names = [wanted] if isinstance(wanted, str) else list(wanted or ())
        if lost := [name for name in names if name not in known]:
            raise ConfigError(f"{content['name']} has no workload {lost[0]}; {suggest(lost[0], [*known, 'random'])}")
        works = [known[name] for name in names]
    else:
        works = list(known.values())[:_MOST] or _random_workloads(content)
    for work in works:
        where, kinds = f"{file}: workload {work['uuid']}", dict.fromkeys(content["inputs"], "random")
        kinds |= {name: entry["type"] for name, entry in work["inputs"].items()}
        try:
            axis_sizes(content["axes"], work["axes"])
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from error
        if odd := [f"{name} is {kind}" for name, kind in kinds.items() if kind not in _INPUTS]:
            raise ConfigError(f"{where}: input {odd[0]}; it can be {', '.join(_INPUTS)}")
        if "custom" in kinds.values() and not content.get("custom_inputs_entrypoint"):
            raise ConfigError(f"{where} has custom inputs, and custom_inputs_entrypoint names no function")
        numbers = (name for name, row in content["inputs"].items() if row["shape"] is None)
        if lost := [name for name in numbers if kinds[name] == "random"]:
            raise ConfigError(f"{where}: {', '.join(lost)} are numbers; name workloads that have values for them")
    return works


def _random_workloads(content: Json) -> list[Json]:
    axes = [name for name, axis in content["axes"].items() if axis["type"] == "var"]
    inputs = {name: {"type": "random"} for name in content["inputs"]}
    sizes = _SIZES if axes else _SIZES[:1]
    return [{"uuid": f"random-{size}", "axes": dict.fromkeys(axes, size), "inputs": inputs} for size in sizes]


def _listed(definition: Path, base: Path, name: str) -> Iterator[Json]:
    beside = definition.with_name("workload.jsonl")
    for file, line in json_lines([beside] if beside.is_file() else (base / "workloads").rglob(f"{name}.jsonl")):
        work = line.get("workload", line)
        if not isinstance(work, dict) or not {"uuid", "axes", "inputs"} <= work.keys():
            raise ConfigError(f"{file}: a line without workload, uuid, axes and inputs")
        axes, inputs, tolerance = work["axes"], work["inputs"], work.get("tolerance") or {}
        if not (
            isinstance(work["uuid"], str)
            and isinstance(axes, dict)
            and isinstance(inputs, dict)
            and all(type(size) is int for size in axes.values())
            and all(isinstance(entry, dict) and "type" in entry for entry in inputs.values())
            and isinstance(tolerance, dict)
            and all(isinstance(bound, int | float | None) for bound in tolerance.values())
        ):
            kinds = "axes are whole numbers, inputs have a type, tolerance maps names to numbers"
            raise ConfigError(f"{file}: workload {work['uuid']}: {kinds}")
        yield work


def json_lines(files: Iterable[Path]) -> Iterator[tuple[Path, Json]]:
    """The JSON objects in the lines of files, in the order of the files."""
    for file in sorted(files):
        for line in filter(str.strip, read_text(file).splitlines()):
            yield file, read_json(line, file)
