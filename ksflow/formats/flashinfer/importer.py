"""FlashInfer Trace: a definition in JSON with its reference, workloads, solutions.

    problem=flashinfer problem.path=definition.json
    problem=flashinfer problem.root=~/flashinfer-trace problem.definition=gemm_n4096_k4096 problem.workloads='[UUID]'

`problem.workloads=random` makes up three sizes; without it, the first workloads of the data set are taken. Solutions
in Python and Triton become kernels to start from; those whose traces say how they did check the judge.
`ksflow.formats.flashinfer.solutions` writes both.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ksflow.errors import ConfigError, suggest
from ksflow.formats.assembly import ParsedProblem, assemble
from ksflow.formats.checkout import provenance, slug
from ksflow.formats.flashinfer.solutions import adapt_solution, params
from ksflow.formats.gpumode.importer import reference_seed
from ksflow.kernels.languages import detect_language
from ksflow.kernels.problem.loader import read_text
from ksflow.records import Json, Kernel, Problem, Seed, Target

_MOST = 8
"""Workloads that are taken where none are named."""
_PASSED = "PASSED"
_SIZES = (64, 256, 1024)
_DTYPES = {
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8", "bool",
}  # fmt: skip
_BY_SCORES = "dsa_topk_indexer"
"""How definitions begin that have an evaluator of their own upstream."""
_RATIOS = {"moe": 0.95}
"""Kind of operation -> the share of elements that must be right."""


def load(  # noqa: PLR0913 - what a user may say of a definition
    path: str | None = None,
    root: str | None = None,
    definition: str | None = None,
    workloads: str | Sequence[str] | None = None,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    ratio: float | None = None,
    cap: int | str | None = "auto",
    target: Target | None = None,
) -> Problem:
    """The problem of a definition. Raises ConfigError.

    rtol, atol, ratio: an element is wrong where both are exceeded, this share of them must be right, and the rest is
    held to the bounds' root mean square.
    cap: see `assemble`; workloads with tensors from files are never cut.
    """
    file, base = _file(path, root, definition)
    task = _definition(file)
    chosen = [*{repr(params(work)): work for work in _workloads(base, task, workloads)}.values()]
    ratio = ratio if ratio is not None else _RATIOS.get(str(task.get("op_type", "")), 1.0)
    parsed = _parse(file, base, task, chosen, {"rtol": rtol, "atol": atol, "ratio": ratio})
    seeds, good, bad, left_out = _solutions(base, task, [work["uuid"] for work in chosen], target)
    parsed.origin["dropped"] += left_out
    parsed = replace(parsed, seeds=(*parsed.seeds, *seeds), good=tuple(good), bad=tuple(bad))
    fixed = any(tensor["type"] == "safetensors" for work in chosen for tensor in work["inputs"].values())
    return assemble(parsed, target, None if fixed else cap)


def _file(path: str | None, root: str | None, name: str | None) -> tuple[Path, Path]:
    """(the definition's file, the data set's folder)."""
    if path:
        file = Path(path).expanduser().resolve()
        above = [folder.parent for folder in file.parents if folder.name == "definitions"]
        return file, Path(root).expanduser() if root else above[0] if above else file.parent
    if not (root and name):
        raise ConfigError("problem=flashinfer needs problem.path=DEFINITION.json, or problem.root and .definition")
    base = Path(root).expanduser().resolve()
    files = {file.stem: file for file in sorted((base / "definitions").rglob("*.json"))}
    if name not in files:
        raise ConfigError(f"no definition {name!r} below {base / 'definitions'}; {suggest(name, files)}")
    return files[name], base


def _json(body: str, where: Path) -> Json:
    try:
        value = json.loads(body)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where} holds no JSON object")
    return value


def _definition(file: Path) -> Json:
    definition = _json(read_text(file), file)
    if missing := [key for key in ("name", "axes", "inputs", "outputs", "reference") if not definition.get(key)]:
        raise ConfigError(f"{file} is no definition: it lacks {', '.join(missing)}")
    if fault := next(_faults(definition), ""):
        raise ConfigError(f"{file} is no definition: {fault}")
    kinds = {tensor["dtype"] for tensor in (*definition["inputs"].values(), *definition["outputs"].values())}
    if unknown := sorted(kinds - _DTYPES):
        raise ConfigError(f"{file}: {', '.join(unknown)} cannot be judged; it can: {', '.join(sorted(_DTYPES))}")
    if "sampling" in str(definition.get("op_type", "")):
        raise ConfigError(f"{file}: its answer is drawn at random, and the judge compares element by element")
    if definition["name"].startswith(_BY_SCORES):
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
        if axis.get("type") != "var" and not (axis.get("type") == "const" and type(axis.get("value")) is int):
            yield f"axis {name} is neither var, nor const with a whole number as its value"
    for key in ("constraints", "tags"):
        if not _texts(content.get(key) or []):
            yield f"{key} is not a list of texts"
    for name, tensor in (*content["inputs"].items(), *content["outputs"].items()):
        shape = tensor.get("shape", "none")
        if not (isinstance(tensor.get("dtype"), str) and (shape is None or _texts(shape))):
            yield f"{name} has no shape (a list of axes, or null) or no dtype"
        if lost := [axis for axis in shape or () if axis not in content["axes"]]:
            yield f"{name} has the axis {lost[0]}, which axes does not"


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _workloads(base: Path, content: Json, wanted: str | Sequence[str] | None) -> list[Json]:
    """Each with `uuid`, `axes` and `inputs`."""
    known = {} if wanted == "random" else {work["uuid"]: work for work in _listed(base, content["name"])}
    if wanted not in (None, "random"):
        names = [wanted] if isinstance(wanted, str) else list(wanted or ())
        if lost := [name for name in names if name not in known]:
            raise ConfigError(f"{content['name']} has no workload {lost[0]}; {suggest(lost[0], [*known, 'random'])}")
        return [known[name] for name in names]
    if known:
        return list(known.values())[:_MOST]
    axes = [name for name, axis in content["axes"].items() if axis["type"] == "var"]
    inputs = {name: {"type": "random"} for name in content["inputs"]}
    if lost := [name for name, tensor in content["inputs"].items() if tensor["shape"] is None]:
        raise ConfigError(f"{content['name']}: {', '.join(lost)} are numbers; name workloads that have values for them")
    sizes = _SIZES if axes else _SIZES[:1]
    return [{"uuid": f"random-{size}", "axes": dict.fromkeys(axes, size), "inputs": inputs} for size in sizes]


def _listed(base: Path, name: str) -> Iterator[Json]:
    for file, line in _lines(base / "workloads", name):
        work = line.get("workload")
        if not isinstance(work, dict) or not {"uuid", "axes", "inputs"} <= work.keys():
            raise ConfigError(f"{file}: a line without workload, uuid, axes and inputs")
        axes, inputs = work["axes"], work["inputs"]
        if not (
            isinstance(work["uuid"], str)
            and isinstance(axes, dict)
            and isinstance(inputs, dict)
            and all(type(size) is int for size in axes.values())
            and all(isinstance(entry, dict) and "type" in entry for entry in inputs.values())
        ):
            raise ConfigError(f"{file}: workload {work['uuid']}: axes are whole numbers, inputs have a type")
        yield work


def _lines(folder: Path, name: str) -> Iterator[tuple[Path, Json]]:
    """The lines of a definition's files below a folder."""
    for file in sorted(folder.rglob(f"{name}.jsonl")):
        for line in filter(str.strip, read_text(file).splitlines()):
            yield file, _json(line, file)


def _parse(file: Path, base: Path, definition: Json, chosen: Sequence[Json], bounds: Json) -> ParsedProblem:
    dropped = ["upstream's clock and its speed-ups over a baseline: the judge times, and the mean counts"]
    dropped += [f"tags: {', '.join(definition['tags'])}"] if definition.get("tags") else []
    inferred = [
        f"an element is wrong where it is off by more than {bounds['atol']:g} and by more than {bounds['rtol']:g} of "
        f"its size; {bounds['ratio']:.0%} must be right; where the answers are small, so is the first bound"
    ]
    if bounds["ratio"] < 1:
        inferred.append("with those that may be wrong, the errors' root mean square is at most that of the bounds")
    if any(tensor["type"] == "safetensors" for work in chosen for tensor in work["inputs"].values()):
        inferred.append(
            "floats from safetensors files are changed for each seed: signs, zeros, symmetry stay; whole numbers, "
            "which may be indices, are the same in every call"
        )
    files = {"definition_reference.py": definition["reference"]}
    baseline = adapt_solution(definition, "definition_reference", "run", destination=False)
    return ParsedProblem(
        name=slug(definition["name"]),
        title=f"{definition['name']} (FlashInfer)",
        statement=_statement(definition),
        format="flashinfer",
        files=files,
        spec={"definition": {key: definition[key] for key in ("axes", "inputs", "outputs")},
              "inputs": {work["uuid"]: work["inputs"] for work in chosen}, "root": str(base), **bounds},
        tests=(),
        benchmarks=[(params(work), index) for index, work in enumerate(chosen)],
        listing=definition["reference"],
        called=f"`run({', '.join(definition['inputs'])})`: returns {', '.join(definition['outputs'])}; numbers are "
        "Python's, the rest are tensors.",
        origin={"format": "flashinfer", "path": str(file), "definition": definition["name"], **provenance(file.parent),
                "inferred": inferred, "dropped": dropped, "workloads": [dict(work) for work in chosen]},
        seeds=(reference_seed(baseline, files),),
        arg_names=tuple(name for name, tensor in definition["inputs"].items() if tensor["shape"] is not None),
        optional="workload",
        fixed=[axis["value"] for axis in definition["axes"].values() if axis["type"] == "const"],
        score="mean",
    )  # fmt: skip


def _statement(definition: Json) -> str:
    def shape(tensor: Json) -> str:
        return "a number," if tensor["shape"] is None else f"[{', '.join(map(str, tensor['shape']))}]"

    shapes = "\n".join(
        f"- {role} `{name}`: {shape(tensor)} {tensor['dtype']}. {tensor.get('description') or ''}".rstrip()
        for role in ("inputs", "outputs")
        for name, tensor in definition[role].items()
    )
    axes = [f"{name} = {axis['value']}" for name, axis in definition["axes"].items() if axis["type"] == "const"]
    rules = "\n".join(f"- {rule}" for rule in definition.get("constraints") or ())
    words = [str(definition.get("description") or ""), shapes, f"Constant: {', '.join(axes)}." if axes else "", rules]
    return "\n\n".join(filter(None, words))


def _solutions(
    base: Path, definition: Json, uuids: Sequence[str], target: Target | None
) -> tuple[list[Seed], list[Seed], list[Seed], list[str]]:
    """A data set's solutions in Python or Triton by what its traces say: those to start from, which are all but those
    that are known not to run or not to be right; those that are known to be right, and to be wrong; why others are
    left out. Without any trace, all are taken for right.
    """
    seeds: list[Seed] = []
    good: list[Seed] = []
    bad: list[Seed] = []
    left_out: list[str] = []
    here: dict[str, set[str]] = {}  # solution -> what upstream found on these workloads
    anywhere: dict[str, set[str]] = {}  # and on any, which counts where none of these was tried
    for _, row in _lines(base / "traces", definition["name"]):
        if row.get("solution") and isinstance(row.get("evaluation"), dict):
            status, work = str(row["evaluation"].get("status")), row.get("workload")
            anywhere.setdefault(str(row["solution"]), set()).add(status)
            if isinstance(work, dict) and work.get("uuid") in uuids:
                here.setdefault(str(row["solution"]), set()).add(status)
    traced = {**anywhere, **here}
    gpu = target is not None and target.kind == "gpu"
    for file in sorted((base / "solutions").rglob("*.json")):
        solution = _json(read_text(file), file)
        if solution.get("definition") != definition["name"]:
            continue
        name = str(solution.get("name", file.stem))
        seed = _solution(definition, solution)
        statuses = traced.get(name, set()) if traced else {_PASSED}
        if isinstance(seed, str):
            left_out.append(f"solution {name}: {seed}")
        elif seed.kernel.language != "python" and not gpu:
            left_out.append(f"solution {name}: triton needs a GPU")
        elif any(status.startswith("INCORRECT") for status in statuses):
            bad.append(seed)
        elif statuses <= {_PASSED}:
            seeds.append(seed)
            good += [seed] if statuses else []
        else:
            left_out.append(f"solution {name}: its traces say {', '.join(sorted(statuses))}")
    return seeds, good, bad, left_out


def _solution(definition: Json, solution: Json) -> Seed | str:
    spec, files = solution.get("spec"), solution.get("sources")
    if not (isinstance(spec, dict) and isinstance(files, list) and all(isinstance(source, dict) for source in files)):
        return "it is not as the format has it: spec is a mapping, sources a list of mappings"
    if spec.get("language") not in ("python", "triton"):
        return f"in {spec.get('language')}, with bindings of its own"
    file, _, entry = str(spec.get("entry_point", "")).partition("::")
    sources = {str(source.get("path")): str(source.get("content")) for source in files}
    if file not in sources or not entry.isidentifier():
        return f"its entry point {file}::{entry} is in none of its files"
    main = adapt_solution(definition, Path(file).stem, entry, bool(spec.get("destination_passing_style", True)))
    name = slug(str(solution.get("name")))
    kind = "triton" if any(detect_language(path, body) == "triton" for path, body in sources.items()) else "python"
    try:
        kernel = Kernel(kind, {f"ksflow_{Path(file).stem}.py": main, **sources}, str(solution.get("description") or ""))
    except ValueError as error:
        return str(error)
    return Seed(f"{name}.py", kernel)
