"""FlashInfer Trace and SOL-ExecBench: a definition in JSON with its reference, workloads, solutions.

    problem=flashinfer problem.path=definition.json
    problem=flashinfer problem.root=~/flashinfer-trace problem.definition=gemm_n4096_k4096 problem.workloads='[UUID]'

A problem of SOL-ExecBench is a folder with `definition.json` and `workload.jsonl`. `problem.workloads=random` makes up
three sizes; without it, the first workloads of the data set are taken. Solutions become kernels to start from; those
whose traces say how they did check the judge.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ksflow.errors import ConfigError, suggest
from ksflow.formats.assembly import ParsedProblem, assemble
from ksflow.formats.checkout import parse_python, provenance, slug
from ksflow.formats.flashinfer.solutions import FLOAT4, adapt_solution, axis_sizes, compile_lines, params
from ksflow.formats.gpumode.importer import reference_seed
from ksflow.kernels.languages import LANGUAGES, ON_DEVICE, detect_language
from ksflow.kernels.problem.loader import read_text
from ksflow.records import Json, Kernel, Problem, Seed, Target

_MOST = 8  # workloads that are taken where none are named
_SIZES = (64, 256, 1024)
_FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_DTYPES = {*_FLOATS, "int64", "int32", "int16", "int8", "bool"}
_INPUTS = ("random", "scalar", "safetensors", "custom")
_SOL = "definition.json"  # the file that a problem of SOL-ExecBench is in, with others beside it
_TOLERANCE = {"rtol": "max_rtol", "atol": "max_atol", "ratio": "required_matched_ratio", "most": "max_error_cap"}
"""Bound -> SOL-ExecBench's name for it. It has allow_negative_inf, too: infinities that are equal pass here anyway."""
_PYTHON = ("python", "pytorch", "triton", "tilelang", "cute_dsl", "cutile", "cudnn_frontend")
_ON_GPU = (*ON_DEVICE, "cute_dsl", "cutile", "cudnn_frontend", "cutlass", "cudnn", "cublas")
_COMPILED = ("cuda", "cpp", "cuda_cpp", "cutlass", "cudnn", "cublas")
"""Languages that PyTorch's bindings compile."""


def load(  # noqa: PLR0913 - what a user may say of a definition
    path: str | None = None,
    root: str | None = None,
    definition: str | None = None,
    workloads: str | Sequence[str] | None = None,
    solutions: str | Sequence[str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    ratio: float | None = None,
    cap: int | str | None = "auto",
    target: Target | None = None,
) -> Problem:
    """The problem of a definition. Raises ConfigError.

    path: the file of a definition, or its folder. root: a data set, of which `definition` names one. definition: its
    name. workloads: files of the shapes to use instead of the data set's own, or one such file. solutions: files with
    solutions beside those of the data set, or folders of such files. rtol, atol: an element is wrong where both are
    exceeded (in SOL-ExecBench: their sum). None: as a workload says, else as is usual. ratio: the share of the elements
    that must be right; the rest is held to the bounds' root mean square. cap: the largest size; `auto` has a CPU take
    the largest that fits the budget, null is none; workloads with tensors from files are never cut.
    """
    file, base = _file(path, root, definition)
    task, sol = _definition(file), file.name == _SOL
    chosen = [*{repr(params(work)): work for work in _workloads(file, base, task, workloads)}.values()]
    asked = {"rtol": rtol, "atol": atol, "ratio": ratio}
    usual = {"rtol": 1e-2, "atol": 1e-2, "ratio": 0.99 if sol else 0.95 if task.get("op_type") == "moe" else 1.0}
    own = {work["uuid"]: _bounds(usual, work["tolerance"], asked) for work in chosen if work.get("tolerance")}
    bounds = {**_bounds(usual, {}, asked), **({"sol": True} if sol else {}), **({"own": own} if own else {})}
    parsed = _parse(file, base, task, chosen, bounds)
    traced = _traced(base, task["name"], [work["uuid"] for work in chosen])
    seeds, good, bad, left_out = _solutions(_solution_files(file, base, solutions), task, traced, target, sol)
    parsed.origin["dropped"] += left_out
    parsed = replace(parsed, seeds=(*parsed.seeds, *seeds), good=tuple(good), bad=tuple(bad))
    fixed = any(tensor["type"] == "safetensors" for work in chosen for tensor in work["inputs"].values())
    return assemble(parsed, target, None if fixed else cap)


def _file(path: str | None, root: str | None, name: str | None) -> tuple[Path, Path]:
    """(the definition's file, the data set's folder)."""
    if path:
        file = Path(path).expanduser().resolve()
        file = file / _SOL if file.is_dir() else file
        above = [folder.parent for folder in file.parents if folder.name == "definitions"]
        return file, Path(root).expanduser() if root else above[0] if above else file.parent
    if not (root and name):
        raise ConfigError("problem=flashinfer needs problem.path=DEFINITION.json, or problem.root and .definition")
    base = Path(root).expanduser().resolve()
    files = {file.stem: file for file in sorted((base / "definitions").rglob("*.json"))}
    files |= {} if files else {file.parent.name: file for file in sorted(base.rglob(_SOL))}
    if name not in files:
        raise ConfigError(f"no definition {name!r} below {base}; {suggest(name, files)}")
    return files[name], base


def _bounds(usual: Json, tolerance: Json, asked: Json) -> Json:
    """What a user asks for, else a workload says, else is usual."""
    said = {key: asked.get(key) if asked.get(key) is not None else tolerance.get(_TOLERANCE[key]) for key in _TOLERANCE}
    return {**usual, **{key: value for key, value in said.items() if value is not None}}


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
        if not _texts(content.get(key) or []):
            yield f"{key} is not a list of texts"
    for name, tensor in (*content["inputs"].items(), *content["outputs"].items()):
        shape = tensor.get("shape", "none")
        if not (isinstance(tensor.get("dtype"), str) and (shape is None or _texts(shape))):
            yield f"{name} has no shape (a list of axes, or null) or no dtype"
        if lost := [axis for axis in shape or () if axis not in content["axes"] and not axis.isdecimal()]:
            yield f"{name} has the axis {lost[0]}, which axes does not"


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _workloads(file: Path, base: Path, content: Json, wanted: str | Sequence[str] | None) -> list[Json]:
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
    for file, line in _lines([beside] if beside.is_file() else (base / "workloads").rglob(f"{name}.jsonl")):
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


def _lines(files: Iterable[Path]) -> Iterator[tuple[Path, Json]]:
    for file in sorted(files):
        for line in filter(str.strip, read_text(file).splitlines()):
            yield file, _json(line, file)


def _parse(file: Path, base: Path, definition: Json, chosen: Sequence[Json], bounds: Json) -> ParsedProblem:
    dropped = ["upstream's clock and its speed-ups over a baseline: the judge times, and the mean counts"]
    dropped += [f"tags: {', '.join(definition['tags'])}"] if definition.get("tags") else []
    said = {name for work in chosen for name in work.get("tolerance") or {}}
    if unread := sorted(said - {*_TOLERANCE.values(), "allow_negative_inf"}):
        dropped.append(f"tolerance: {', '.join(unread)}, which upstream does not know either")
    both = "the sum of {} and {} of" if bounds.get("sol") else "more than {} and by more than {} of"
    inferred = [
        f"an element is wrong where it is off by {both.format(*(f'{bounds[name]:g}' for name in ('atol', 'rtol')))} "
        f"its size; {bounds['ratio']:.0%} must be right; where the answers are small, so is the first bound"
        + ("; workloads with a tolerance of their own have that" if "own" in bounds else "")
    ]
    if bounds["ratio"] < 1 or any(own.get("ratio", 1) < 1 for own in bounds.get("own", {}).values()):
        inferred.append("with those that may be wrong, the errors' root mean square is at most that of the bounds")
    if any(tensor["type"] == "safetensors" for work in chosen for tensor in work["inputs"].values()):
        inferred.append(
            "floats from safetensors files are changed for each seed: signs, zeros, symmetry stay; whole numbers, "
            "which may be indices, are the same in every call"
        )
    files = {"definition_reference.py": definition["reference"]}
    baseline = adapt_solution(definition, "from definition_reference import run as _run", destination=False)
    kept = ("axes", "inputs", "outputs", *(["custom_inputs_entrypoint"] if bounds.get("sol") else []))
    return ParsedProblem(
        name=slug(definition["name"]),
        title=f"{definition['name']} ({'SOL-ExecBench' if bounds.get('sol') else 'FlashInfer'})",
        statement=_statement(definition),
        format="flashinfer",
        files=files,
        spec={"definition": {key: definition.get(key) for key in kept},
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
        f"- {role} `{name}`: {shape(tensor)} {tensor['dtype']}"
        f"{FLOAT4.get(tensor['dtype'], '')}. {tensor.get('description') or ''}".rstrip()
        for role in ("inputs", "outputs")
        for name, tensor in definition[role].items()
    )
    sizes = {name: axis.get("value", axis.get("expression")) for name, axis in definition["axes"].items()}
    axes = [f"{name} = {size}" for name, size in sizes.items() if size is not None]
    rules = "\n".join(f"- {rule}" for rule in definition.get("constraints") or ())
    words = [str(definition.get("description") or ""), shapes, f"Sizes: {', '.join(axes)}." if axes else "", rules]
    return "\n\n".join(filter(None, words))


def _solutions(
    files: Iterable[Path], definition: Json, traced: Mapping[str, set[str]], target: Target | None, sol: bool
) -> tuple[list[Seed], list[Seed], list[Seed], list[str]]:
    """A data set's solutions by what its traces say: those to start from, which are all but those that are known not to
    run or not to be right; those that are known to be right, and to be wrong; why others are left out. Without any
    trace, all are taken for right.
    """
    seeds, good, bad, left_out = list[Seed](), list[Seed](), list[Seed](), list[str]()
    gpu = target is not None and target.kind == "gpu"
    for file in files:
        solution = _json(read_text(file), file)
        if solution.get("definition") != definition["name"]:
            continue
        name = str(solution.get("name", file.stem))
        seed = _solution(definition, solution, sol)
        statuses = traced.get(name, set()) if traced else {"PASSED"}
        if isinstance(seed, str):
            left_out.append(f"solution {name}: {seed}")
        elif not gpu and (kinds := [kind for kind in _kinds(solution) if kind in _ON_GPU]):
            left_out.append(f"solution {name}: {kinds[0]} needs a GPU")
        elif any(status.startswith("INCORRECT") for status in statuses):
            bad.append(seed)
        elif statuses <= {"PASSED"}:
            seeds.append(seed)
            good += [seed] if statuses else []
        else:
            left_out.append(f"solution {name}: its traces say {', '.join(sorted(statuses))}")
    return seeds, good, bad, left_out


def _traced(base: Path, name: str, uuids: Sequence[str]) -> dict[str, set[str]]:
    """Solution -> what upstream found on these workloads, or on any where none of these was tried."""
    here, anywhere = dict[str, set[str]](), dict[str, set[str]]()
    for _, row in _lines((base / "traces").rglob(f"{name}.jsonl")):
        if (solution := row.get("solution")) and isinstance(row.get("evaluation"), dict):
            work = row.get("workload")
            for known in (anywhere, *([here] if isinstance(work, dict) and work.get("uuid") in uuids else [])):
                known.setdefault(str(solution), set()).add(str(row["evaluation"].get("status")))
    return {**anywhere, **here}


def _solution_files(definition: Path, base: Path, named: str | Sequence[str] | None) -> list[Path]:
    """Where solutions may be. Raises ConfigError for a named one that is not there."""
    found = {*(base / "solutions").rglob("*.json")}
    found |= {*definition.parent.glob("*solution*.json")} if definition.name == _SOL else set()
    for name in [named] if isinstance(named, str) else named or ():
        if not (path := Path(name).expanduser().resolve()).exists():
            raise ConfigError(f"problem.solutions: there is no {path}; name a solution's file, or a folder of them")
        found |= {*path.rglob("*solution*.json")} if path.is_dir() else {path}
    return sorted(found)


def _kinds(solution: Json) -> list[str]:
    """The languages of its files, then those that it says."""
    texts = [(str(source.get("path")), str(source.get("content"))) for source in solution["sources"]]
    return [*(detect_language(*text, LANGUAGES) for text in texts), *solution["spec"].get("languages", ())]


def _solution(definition: Json, solution: Json, sol: bool = False) -> Seed | str:
    spec, files = solution.get("spec"), solution.get("sources")
    if not (isinstance(spec, dict) and isinstance(files, list) and all(isinstance(source, dict) for source in files)):
        return "it is not as the format has it: spec is a mapping, sources a list of mappings"
    languages = spec.get("languages", [spec.get("language")])
    binding = spec.get("binding") or ("torch" if sol else None)
    if not isinstance(languages, list) or (lost := [name for name in languages if name not in _PYTHON + _COMPILED]):
        return f"in {', '.join(map(str, lost))}, which cannot be run here"
    compiled = [name for name in languages if name in _COMPILED]
    if compiled and binding != "torch":
        return f"in {compiled[0]}, with bindings of its own"
    file, _, entry = str(spec.get("entry_point", "")).partition("::")
    sources = {str(source.get("path")): str(source.get("content")) for source in files}
    if file not in sources or not entry.isidentifier():
        return f"its entry point {file}::{entry} is in none of its files"
    lines = f"from {Path(file).stem} import {entry} as _run"
    if compiled:
        options = spec.get("compile_options")
        if not isinstance(options, dict | None) or not all(map(_texts, (options or {}).values())):
            return "compile_options are not lists of texts"
        lines = compile_lines(sources, entry, options)
    main = adapt_solution(definition, lines, bool(spec.get("destination_passing_style", True)), zeros=sol)
    name = slug(str(solution.get("name")))
    kind = "triton" if "triton" in _kinds(solution) else "python"
    try:
        kernel = Kernel(kind, {f"ksflow_{Path(file).stem}.py": main, **sources}, str(solution.get("description") or ""))
    except ValueError as error:
        return str(error)
    return Seed(f"{name}.py", kernel)
