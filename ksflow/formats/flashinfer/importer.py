"""FlashInfer Trace and SOL-ExecBench: a definition in JSON with its reference, workloads, solutions.

    problem=flashinfer problem.path=definition.json
    problem=flashinfer problem.root=~/flashinfer-trace problem.definition=gemm_n4096_k4096 problem.workloads='[UUID]'

A problem of SOL-ExecBench is a folder with `definition.json` and `workload.jsonl`. `problem.workloads=random` makes up
three sizes; without it, the first workloads of the data set are taken. Solutions become kernels to start from; those
whose traces say how they did check the judge.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ksflow.errors import ConfigError, suggest
from ksflow.formats.assembly import ParsedProblem, assemble
from ksflow.formats.checkout import provenance, slug
from ksflow.formats.flashinfer.definitions import is_texts, json_lines, read_definition, read_json, read_workloads
from ksflow.formats.flashinfer.solutions import FLOAT4, adapt_solution, compile_lines, params
from ksflow.formats.gpumode.importer import reference_seed
from ksflow.kernels.languages import LANGUAGES, ON_DEVICE, detect_language
from ksflow.kernels.problem.file import read_text
from ksflow.records import Json, Kernel, Problem, Seed, Target

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
    task, sol = read_definition(file), file.name == _SOL
    chosen = [*{repr(params(work)): work for work in read_workloads(file, base, task, workloads)}.values()]
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
        solution = read_json(read_text(file), file)
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
    for _, row in json_lines((base / "traces").rglob(f"{name}.jsonl")):
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
        if not isinstance(options, dict | None) or not all(map(is_texts, (options or {}).values())):
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
