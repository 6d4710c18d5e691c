"""The text of a Python file that compiles a kernel's source, which it holds, and calls it on the tensors of a case.

A row for each judged case has in numbers all that a call needs: outputs, workspaces, grids, arguments. Text in, text
out: nothing is run. Not covered: tensors of other sizes, strides or types than were judged, which the file refuses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ksflow.evaluation.sandbox.tensor_maps import tensor_map_numbers
from ksflow.home import sections
from ksflow.integrate.handover.table import configurations, nearest
from ksflow.kernels.languages import LANGUAGES
from ksflow.kernels.source.contract import defines, thread_defines
from ksflow.kernels.source.flags import compiler_flags
from ksflow.records import Json, Kernel, Problem, Target

TEXTS = sections(Path(__file__).with_name("templates.txt"))
"""What the files that are written are made of."""
_ATTRIBUTE = '_EARLY = ctypes.create_string_buffer(struct.pack("=i4xi60x", 6, 1))  # CUlaunchAttribute'
"""What allows programmatic dependent launch."""
_DRIVERS = {
    "cuda": {"library": "libcuda.so.1", "stem": "libcuda", "prefix": "cu", "launch": "LaunchKernel"},
    "hip": {"library": "libamdhip64.so", "stem": "libamdhip64", "prefix": "hip", "launch": "ModuleLaunchKernel"},
}
"""Language -> how its driver calls things."""
_COMPILERS = {
    "cuda": 'shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"',
    "hip": 'shutil.which("hipcc") or "/opt/rocm/bin/hipcc"',
}
_BINARIES = {"cuda": "kernel.cubin", "hip": "kernel.hsaco"}
_FORMS = {("cuda", True): ["-cubin"], ("hip", True): ["--genco"], ("cuda", False): ["-shared", "-Xcompiler", "-fPIC"]}
"""(language, device code alone) -> the options that say what is made; else a shared object."""
_CURRENT = "torch.cuda.current_stream(data[0].device).cuda_stream"
WORDLESS = ("gpumode", "popcorn")
"""Formats whose server refuses the word `stream`: there, work goes where handle 0 leads."""
_LAUNCHED = "(variant, workspaces (type, elements), launches)"


@dataclass(frozen=True)
class Facts:
    """What is known of a kernel's cases beside its text."""

    rows: Sequence[Any]
    """Of each case [tensors that are given (sizes, strides, type), [places, outputs, places that are returned],
    numbers, plan: as `launches.LaunchPlan` has it, or None]."""
    sources: Sequence[str]
    """The main file for each variant of a kernel with launch lines; empty without."""


def loader(problem: Problem, target: Target, kernel: Kernel, facts: Facts, tuned: Sequence[Json] = ()) -> str:
    """The file's text, for the problem's format. ValueError where cases with the same tensors have other outputs.

    tuned: the rows of the kernel's table.
    """
    kind = str(problem.origin.get("format", ""))
    stream = "0" if kind in WORDLESS else _CURRENT
    if not facts.sources:
        last = "" if kernel.language == "cpp" else f", ctypes.c_void_p({stream})"
        rows = _rows(facts, lambda row: tuple(row[2]))
        body = host_code(problem, target, kernel, rows, tuned=tuned)
        body += TEXTS["HOST"].format(last=last, nearest=nearest(tuned))
    elif LANGUAGES[kernel.language].compiler == "triton":
        body = _triton(kernel, facts)
    else:
        which = ", on its default queue (handle 0), whichever is current" if kind in WORDLESS else ""
        body = _device_code(problem, target, kernel, facts, {"queue": stream, "which": which})
    return body + TEXTS.get(f"ENTRY_{kind.upper()}", TEXTS["ENTRY"])


def host_code(
    problem: Problem,
    target: Target,
    kernel: Kernel,
    rows: str | None = None,
    arrays: str = "torch",
    tuned: Sequence[Json] = (),
) -> str:
    """What compiles a kernel whose own host code launches it, or that runs on the host. rows: of the judged cases.

    arrays: what is imported for the call's arrays; where that is not torch, nothing holds tensors to anything.
    tuned: the rows of the kernel's table.
    """
    own = kernel.language == "cpp"
    endings = LANGUAGES[kernel.language].endings
    sources = [name for name in kernel.files if name.endswith(endings)]
    command = compile_command(problem, target, kernel.language, sources)
    if own:
        asked = [*compiler_flags(kernel.main, target.cores), *thread_defines(kernel, target)]
        constants = [TEXTS["CPP"], f"_COMMAND = _command({target.march!r}, {asked!r}, *{command!r})"]
    else:
        constants = [f"_COMMAND = [{_COMPILERS[kernel.language]}, *{command!r}]"]
    modules = ["ctypes", "functools", *(["math"] if nearest(tuned) else []), "os", "shutil", "subprocess"]
    modules += [*(["sys"] if own else []), "tempfile"]
    device, choice, words = "cpu" if own else "cuda", "", {"variant": "", "files": "_FILES"}
    if nearest(tuned):
        texts, found = configurations(kernel, problem.dims, tuned)
        constants += [*_variants(kernel, texts), f"_TABLE = {found!r}"]
        choice = TEXTS["VARIANTS"].format(main=next(iter(kernel.files))) + TEXTS["NEAREST"].format(device=device)
        words = {"variant": "variant", "files": "_variant(variant)"}
    else:
        constants.append(f"_FILES = {_files(kernel.files)}")
    head = _head(modules, constants, rows, "numbers", device, arrays)
    return head + choice + TEXTS["COMPILE"].format(made="kernel.so") + TEXTS["KERNEL"].format(**words)


def compile_command(
    problem: Problem, target: Target, language: str, sources: Sequence[str], device_only: bool = False
) -> list[str]:
    """The words after the compiler's name."""
    march = target.march
    virtual = march.replace("sm_", "compute_", 1)
    architecture = {"cuda": [f"-gencode=arch={virtual},code={march}"], "hip": [f"--offload-arch={march}"]}
    form = _FORMS.get((language, device_only), ["-shared", "-fPIC"])
    binary = _BINARIES[language] if device_only else "kernel.so"
    return ["-O3", "-std=c++20", *architecture.get(language, []), *defines(problem), *form, "-o", binary, *sources]


def _device_code(problem: Problem, target: Target, kernel: Kernel, facts: Facts, words: dict[str, str]) -> str:
    """CUDA or HIP that the driver launches."""
    main, plans = next(iter(kernel.files)), [plan for *_, plan in facts.rows]
    shared: list[dict[str, int]] = [{} for _ in facts.sources]  # of each variant: function -> bytes
    for plan in plans:
        most = shared[plan["variant"]]
        for step in plan["launches"]:
            most[step["kernel"]] = max(step["shared"], most.get(step["kernel"], 0))
    command = compile_command(problem, target, kernel.language, [main], device_only=True)
    constants = [
        f"_COMMAND = [{_COMPILERS[kernel.language]}, *{command!r}]",
        *_variants(kernel, facts.sources),
        f"_SHARED = {shared!r}",
        '"""Of each variant and function, the most dynamic shared memory in bytes."""',
    ]
    modules = ["ctypes", "functools", "os", "pathlib", "re", "shutil", "subprocess", "tempfile"]
    words = words | {"limit": TEXTS["LIMIT"] if kernel.language == "cuda" else "", "pdl": "", "early": ""}
    words |= {"maps": "", "described": "", "address": "ctypes.addressof(held) + 8 * at "}
    spaces = TEXTS["SPACES"]
    if early := any(step["pdl"] for plan in plans for step in plan["launches"]):
        modules = sorted([*modules, "struct"])
        constants.append(_ATTRIBUTE)
        words |= {"pdl": ", pdl", "early": TEXTS["EARLY"]}
    if maps := any(plan["tensor_maps"] for plan in plans):
        words["address"] = f'values[at] if arguments[at][0] == "tensor_map" else {words["address"]}'
        words |= {"maps": ", maps", "described": TEXTS["DESCRIBED"]}
        spaces += TEXTS["TENSOR_MAP"]

    def launch(step: Json) -> tuple[Any, ...]:
        sizes, args = (*step["grid"], *step["block"]), tuple(map(tuple, step["args"]))
        return step["kernel"], sizes, step["shared"], args, *([step["pdl"]] if early else [])

    def planned(row: Any) -> tuple[Any, ...]:
        described = [tuple(map(_described, row[3]["tensor_maps"]))] if maps else []
        return (*_planned(row[3], launch), *described)

    text = _head(modules, constants, _rows(facts, planned), _LAUNCHED) + TEXTS["VARIANTS"].format(main=main)
    text += TEXTS["COMPILE"].format(made=_BINARIES[kernel.language])
    return text + spaces + TEXTS["DEVICE"].format(**_DRIVERS[kernel.language], **words)


def _triton(kernel: Kernel, facts: Facts) -> str:
    """Triton's own launcher launches it."""
    main = next(iter(kernel.files))
    modules = ["functools", "importlib.util", "os", "sys", "tempfile"]

    def launch(step: Json) -> tuple[Any, ...]:
        options = {**step["constants"], "num_warps": step["warps"], "num_stages": step["stages"]}
        return step["kernel"], tuple(step["grid"]), tuple(map(tuple, step["args"])), options

    rows = _rows(facts, lambda row: _planned(row[3], launch))
    head = _head(modules, _variants(kernel, facts.sources), rows, _LAUNCHED) + TEXTS["VARIANTS"].format(main=main)
    return head + TEXTS["SPACES"] + TEXTS["TRITON"].format(main=main)


def _variants(kernel: Kernel, sources: Sequence[str]) -> list[str]:
    """The files once, and what is otherwise in each variant, as constants."""
    main, first = next(iter(kernel.files)), sources[0].split("\n")
    others = [
        {at: new for at, (old, new) in enumerate(zip(first, text.split("\n"), strict=True)) if new != old}
        for text in sources
    ]
    return [
        f"_FILES = {_files({**kernel.files, main: sources[0]})}",
        "_VARIANTS = [\n" + "".join(f"    {lines!r},\n" for lines in others) + "]",
        '"""Lines of the main file that are others in a variant, by their number from 0."""',
    ]


def ambiguous_dims(dims: Sequence[str], facts: Facts) -> dict[str, int]:
    """Names of numbers in which cases differ whose tensors do not -> what such cases are called with."""
    values: dict[str, int] = {}
    for rows in _by_tensors(facts).values():
        for index, name in enumerate(dims):
            if len({row[2][index] for row in rows}) > 1:
                values[name] = max(rows, key=lambda row: row[2])[2][index]
    return values


def _by_tensors(facts: Facts) -> dict[str, list[Any]]:
    """What a call can tell its case by -> the rows of such cases."""
    groups: dict[str, list[Any]] = {}
    for row in facts.rows:
        key = repr(tuple((tuple(sizes), tuple(steps), kind) for sizes, steps, kind in row[0]))
        groups.setdefault(key, []).append(row)
    return groups


def _rows(facts: Facts, rest: Callable[[Any], tuple[Any, ...]]) -> str:
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
        tensors = {int(place): (tuple(sizes), tuple(steps), kind) for place, (sizes, steps, kind) in outputs.items()}
        lines.append(f"    {key}: {(tuple(places), tensors, tuple(returned), rest(row))!r},")
    return "\n".join(lines)


def _planned(plan: Json, launch: Callable[[Json], tuple[Any, ...]]) -> tuple[Any, ...]:
    workspaces = tuple((row["dtype"], row["elements"]) for row in plan["workspaces"])
    return plan["variant"], workspaces, tuple(map(launch, plan["launches"]))


def _described(tensor_map: Json) -> tuple[Any, ...]:
    """A tensor map: where its array is, and what cuTensorMapEncodeTiled takes, enumerations by their numbers."""
    kind, swizzle, promotion = tensor_map_numbers(tensor_map)
    sizes = (tuple(tensor_map[key]) for key in ("extents", "strides", "box"))
    return tuple(tensor_map["place"]), kind, *sizes, swizzle, promotion


def _head(
    modules: Sequence[str],
    constants: Sequence[str],
    rows: str | None,
    row: str,
    device: str = "cuda",
    arrays: str = "torch",
) -> str:
    imports = "\n".join(f"import {name}" for name in modules)
    head = TEXTS["HEAD"].format(imports=imports, arrays=arrays, constants="\n".join(constants))
    head += TEXTS["GUARDS"].format(device=device) if arrays == "torch" else ""
    return head + (TEXTS["CASES"].format(rows=rows, row=row) if rows is not None else "")


def _files(files: Mapping[str, str]) -> str:
    """A dictionary of files; a text stands as it is where Python can have it so."""

    def quoted(text: str) -> str:
        plain = text.isprintable() or all(letter.isprintable() or letter in "\n\t" for letter in text)
        return f"r'''{text}'''" if plain and "'''" not in text and text[-1:] not in ("'", "\\") else repr(text)

    return "{" + ", ".join(f"{name!r}: {quoted(text)}" for name, text in files.items()) + "}"
