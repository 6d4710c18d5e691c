"""The text of a Python file that compiles a kernel's source, which it holds, and calls it on the tensors of a case.

A row for each judged case has in numbers all that a call needs: outputs, workspaces, grids, arguments. Text in, text
out: nothing is run. Not covered: tensors of other sizes, strides or types than were judged, which the file refuses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ksflow.export import templates
from ksflow.records import Json, Kernel, Problem, Target
from ksflow.source.contract import ENDINGS, defines

_COMPILERS = {
    "cuda": 'shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"',
    "hip": 'shutil.which("hipcc") or "/opt/rocm/bin/hipcc"',
}
_CURRENT = "torch.cuda.current_stream(data[0].device).cuda_stream"
_WORDLESS = ("gpumode", "popcorn")
"""Formats whose server refuses the word `stream`: there, work goes where handle 0 leads."""
_LAUNCHED = "(variant, workspaces (type, elements), launches)"


@dataclass(frozen=True)
class Facts:
    """What is known of a kernel's cases beside its text."""

    rows: Sequence[Any]
    """Of each case [tensors that are given (sizes, strides, type), [places, outputs, places that are returned],
    numbers, plan: as `recipe.Plan` has it, or None]."""
    sources: Sequence[str]
    """The main file for each variant of a kernel with launch lines; empty without."""


def loader(problem: Problem, target: Target, kernel: Kernel, facts: Facts) -> str:
    """The file's text, for the problem's format. ValueError where cases with the same tensors have other outputs."""
    kind = str(problem.origin.get("format", ""))
    if not facts.sources:
        body = _host(problem, target, kernel, facts, kind)
    elif kernel.language == "triton":
        body = _triton(kernel, facts)
    else:
        body = _device(problem, target, kernel, facts, kind)
    return body + templates.ENTRIES.get(kind, templates.ENTRIES[""])


def _host(problem: Problem, target: Target, kernel: Kernel, facts: Facts, kind: str) -> str:
    """Its own host code launches it, or it runs on the host."""
    names = [name for name in kernel.files if name.endswith(_endings(kernel.language))]
    command = _command(problem, target, kernel.language, ("kernel.so", "-shared", *names))
    own = kernel.language == "cpp"
    constants = [*([templates.CPP] if own else []), f"_COMMAND = {command}", f"_FILES = {_files(kernel.files)}"]
    rows = _rows(facts, lambda row: tuple(row[2]))
    modules = ["ctypes", "functools", "os", "shutil", "subprocess", *(["sys"] if own else []), "tempfile"]
    head = _head(modules, constants, rows, "numbers")
    last = "" if own else f", ctypes.c_void_p({_queue(kind)})"
    return head + templates.COMPILE.format(made="kernel.so") + templates.HOST.format(last=last)


def _device(problem: Problem, target: Target, kernel: Kernel, facts: Facts, kind: str) -> str:
    """CUDA or HIP that the driver launches."""
    main = next(iter(kernel.files))
    form = ("kernel.cubin", "-cubin") if kernel.language == "cuda" else ("kernel.hsaco", "--genco")
    command = _command(problem, target, kernel.language, (*form, main))
    variants = [
        f"({_files({**kernel.files, main: text})}, {shared!r})"
        for text, shared in zip(facts.sources, _most_shared(facts), strict=True)
    ]
    constants = [
        f"_COMMAND = {command}",
        f"_VARIANTS = [{', '.join(variants)}]",
        '"""Files, and of each function the most dynamic shared memory in bytes."""',
    ]
    modules = ["ctypes", "functools", "os", "pathlib", "re", "shutil", "subprocess", "tempfile"]
    head = _head(modules, constants, _rows(facts, lambda row: _planned(row[3], _launch)), _LAUNCHED)
    which = ", on its default queue (handle 0), whichever is current" if kind in _WORDLESS else ""
    calls = templates.DEVICE.format(**templates.DRIVERS[kernel.language], queue=_queue(kind), which=which)
    return head + templates.COMPILE.format(made=form[0]) + templates.SPACES + calls


def _triton(kernel: Kernel, facts: Facts) -> str:
    """Triton's own launcher launches it."""
    main = next(iter(kernel.files))
    files = ", ".join(_files({**kernel.files, main: text}) for text in facts.sources)
    modules = ["functools", "importlib.util", "os", "sys", "tempfile"]
    head = _head(modules, [f"_VARIANTS = [{files}]"], _rows(facts, lambda row: _planned(row[3], _call)), _LAUNCHED)
    return head + templates.SPACES + templates.TRITON.format(main=main)


# -- rows ------------------------------------------------------------------------------------------


def unseen(dims: Sequence[str], facts: Facts) -> dict[str, int]:
    """Names of numbers in which cases differ whose tensors do not -> what such cases are called with."""
    found: dict[str, int] = {}
    for rows in _by_tensors(facts).values():
        for place, name in enumerate(dims):
            if len({row[2][place] for row in rows}) > 1:
                found[name] = max(rows, key=lambda row: row[2])[2][place]
    return found


def _by_tensors(facts: Facts) -> dict[str, list[Any]]:
    """What a call can tell its case by -> the rows of such cases."""
    found: dict[str, list[Any]] = {}
    for row in facts.rows:
        key = repr(tuple((tuple(sizes), tuple(steps), kind) for sizes, steps, kind in row[0]))
        found.setdefault(key, []).append(row)
    return found


def _rows(facts: Facts, rest: Any) -> str:
    """A line for each case. Of cases with the same tensors, which differ in numbers that a call does not show, the one
    with the largest: it asks most of a kernel. Whether that is right for the others, the judge says of the file.
    """
    lines = []
    for key, rows in _by_tensors(facts).items():
        row = max(rows, key=lambda row: row[2])
        alike = [other for other in rows if other[2] == row[2]]
        if any(other[1] != row[1] for other in rows) or any(rest(other) != rest(row) for other in alike):
            raise ValueError("two cases have tensors of the same sizes, and other outputs or launches")
        places, outputs, returned = row[1]
        made = {int(place): (tuple(sizes), tuple(steps), kind) for place, (sizes, steps, kind) in outputs.items()}
        lines.append(f"    {key}: {(tuple(places), made, tuple(returned), rest(row))!r},")
    return "\n".join(lines)


def _planned(plan: Json, launch: Any) -> tuple[Any, ...]:
    rooms = tuple((room["dtype"], room["elements"]) for room in plan["workspaces"])
    return plan["variant"], rooms, tuple(map(launch, plan["launches"]))


def _launch(step: Json) -> tuple[Any, ...]:
    return step["kernel"], (*step["grid"], *step["block"]), step["shared"], tuple(map(tuple, step["args"]))


def _call(step: Json) -> tuple[Any, ...]:
    options = {**step["constants"], "num_warps": step["warps"], "num_stages": step["stages"]}
    return step["kernel"], tuple(step["grid"]), tuple(map(tuple, step["args"])), options


def _most_shared(facts: Facts) -> list[dict[str, int]]:
    """Of each variant, function -> bytes."""
    found: list[dict[str, int]] = [{} for _ in facts.sources]
    for *_, plan in facts.rows:
        here = found[plan["variant"]]
        for step in plan["launches"]:
            here[step["kernel"]] = max(step["shared"], here.get(step["kernel"], 0))
    return found


# -- pieces of text --------------------------------------------------------------------------------


def _head(modules: Sequence[str], constants: Sequence[str], rows: str, row: str) -> str:
    imports = "\n".join(f"import {name}" for name in modules)
    return templates.HEAD.format(imports=imports, constants="\n".join(constants), rows=rows, row=row)


def _queue(kind: str) -> str:
    return "0" if kind in _WORDLESS else _CURRENT


def _endings(language: str) -> tuple[str, ...]:
    return (".cpp", ".cc", ".c") if language == "cpp" else (ENDINGS[language],)


def _files(files: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {_quoted(text)}" for name, text in files.items()) + "}"


def _quoted(text: str) -> str:
    """As it stands, where Python can have it so."""
    plain = text.isprintable() or all(letter.isprintable() or letter in "\n\t" for letter in text)
    return f"r'''{text}'''" if plain and "'''" not in text and text[-1:] not in ("'", "\\") else repr(text)


def _command(problem: Problem, target: Target, language: str, rest: Sequence[str]) -> str:
    """rest: what is made, the option that says so, the sources."""
    virtual = target.march.replace("sm_", "compute_", 1)
    made, how, *sources = rest
    shared = how == "-shared"
    options = {
        "cpp": ["-fPIC"],
        "cuda": [f"-gencode=arch={virtual},code={target.march}", *(["-Xcompiler", "-fPIC"] if shared else [])],
        "hip": [f"--offload-arch={target.march}", *(["-fPIC"] if shared else [])],
    }
    words = ["-O3", "-std=c++20", *options[language], how, *defines(problem), "-o", made, *sources]
    if language == "cpp":
        return f"_command({target.march!r}, *{words!r})"
    return f"[{_COMPILERS[language]}, *{words!r}]"
