"""KernelBench's files: one `.py` with `Model`, `get_inputs` and `get_init_inputs`; a candidate defines `ModelNew`.

    problem=kernelbench problem.root=~/KernelBench problem.level=1 problem.id=19 problem.precision=bf16
    problem=kernelbench problem.path=my_model.py problem.overrides='{batch_size: 16}'

Sizes are the whole numbers that the file names at its top level. On a CPU they are cut to a cap, the batch first and
sizes that differ to different ones (`formats.sizes`), and what is computed from them follows. Upstream's clock (100
trials between CUDA events) is not repeated: the judge's own counts.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ksflow.errors import ConfigError
from ksflow.formats import sizes
from ksflow.formats.assembly import CUT, Fit, ParsedProblem, problem, slug, text
from ksflow.formats.cases import named
from ksflow.formats.gpumode.importer import provenance
from ksflow.problem.loader import suggest
from ksflow.records import Case, Json, Kernel, Limits, Problem, Seed, Target

PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
TOLERANCES = {"fp32": (1e-4, 1e-5), "fp16": (1e-2, 1e-3), "bf16": (1e-2, 1e-3)}
"""Upstream's, relative and absolute; and how far the judge may narrow it where answers hardly differ."""
_LIMITS = Limits(120.0, 180.0, 180.0, 16384)
_FIT = Fit(memory_mb=64, generate_s=0.3, run_s=0.15)
_BEFORE = 1
"""The public seed."""
_NUMBER = re.compile(r"(\d+)_")
_PLAIN_CALLS = {"super", "int", "float", "bool", "tuple", "len"}
_CALLED = (
    "`ModelNew`, a `torch.nn.Module` with the constructor and `forward` of `Model`. It is made with the same arguments "
    "after the same seed, so its parameters equal `Model`'s where they are created in the same order with the same "
    "initialisation; then it is moved to the device and cast to {dtype}, and called without gradients."
)
_COMPILED = """class ModelNew(Model):
    def __init__(self, *args):
        super().__init__(*args)
        self.compile()
"""
_BASELINES = (
    ("00_eager.py", "the model itself, as PyTorch runs it", "ModelNew = Model\n"),
    ("01_compile.py", "the model as torch.compile makes it", _COMPILED),
)
"""Upstream's two: name, what it is, how it is made."""
_UNCOMPILED = "torch.compile as a second baseline: problem.compile=true has it"


def load(  # noqa: PLR0913 - what a user may say of a file
    path: str | None = None,
    root: str | None = None,
    level: int | None = None,
    id: int | None = None,
    precision: str = "fp32",
    overrides: Mapping[str, Any] | None = None,
    training: bool = True,
    compile: bool | None = None,
    device: str = "auto",
    cap: int | str | None = "auto",
    target: Target | None = None,
) -> Problem:
    """The problem in a file, or of a number below a checkout. ConfigError.

    precision: fp32, fp16 or bf16, of the model and of inputs that are floats. overrides: values of names that the file
    assigns at its top level. training: the model's mode; upstream's is True. compile: have the model through
    `torch.compile` as a second baseline; None on a GPU only, as every process of it compiles anew, which takes a CPU
    some ten seconds. device: `cpu` has `cuda` mean the CPU. cap: see `made.problem`.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"problem.precision={precision}; {suggest(precision, PRECISIONS)}")
    file = _file(path, root, level, id)
    source = text(file)
    tree = _tree(file, source)
    given = _given(file, source, overrides or {})
    found = sizes.edits(source, given)
    spec = {
        "file": "model.py",
        "precision": precision,
        "tolerance": TOLERANCES[precision],
        "training": training,
        "sizes": found,
        "cut": sizes.VERSION,
    }
    read = _read(file, tree, source, spec, _name(file, precision), given)
    target = None if device == "cpu" else target
    made = problem(read, target, cap, _FIT)
    compiled = compile is True or (compile is None and target is not None and target.kind == "gpu")
    return _fitted(made, source, found, compiled)


def _file(path: str | None, root: str | None, level: int | None, number: int | None) -> Path:
    if path:
        return Path(path).expanduser().resolve()
    if not root or level is None or number is None:
        raise ConfigError(
            "problem=kernelbench needs problem.path=FILE, or problem.root=CHECKOUT problem.level=1 problem.id=19"
        )
    files = _numbered(root, level)
    if int(number) not in files:
        raise ConfigError(f"no problem {number} in level {level} of {root}; it has {min(files)} to {max(files)}")
    return files[int(number)].resolve()


def _numbered(root: str, level: int) -> dict[int, Path]:
    base = Path(root).expanduser()
    for folder in (base / "KernelBench" / f"level{level}", base / f"level{level}"):
        files = {int(found[1]): file for file in folder.glob("*.py") if (found := _NUMBER.match(file.name))}
        if files:
            return files
    raise ConfigError(
        f"no level{level} with numbered files in {base} or {base}/KernelBench; problem.root is a checkout"
    )


def _tree(file: Path, source: str) -> ast.Module:
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ConfigError(f"{file}:{error.lineno} is not Python: {error.msg}") from error
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    if missing := [name for name in ("Model", "get_inputs", "get_init_inputs") if name not in names]:
        raise ConfigError(f"{file} defines no {' and no '.join(missing)}; a KernelBench file has all three")
    return tree


def _given(file: Path, source: str, overrides: Mapping[str, Any]) -> Json:
    """The overrides; a list for what is a tuple there is one too."""
    known = sizes.constants(source)
    for name in overrides:
        if name not in known:
            raise ConfigError(f"problem.overrides: {file.name} assigns no {name} at top level; {suggest(name, known)}")
    return {
        name: tuple(value) if isinstance(value, list) and isinstance(known[name], ast.Tuple) else value
        for name, value in overrides.items()
    }


def _read(file: Path, tree: ast.Module, source: str, spec: Json, name: str, overrides: Json) -> ParsedProblem:
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    precision = spec["precision"]
    inferred = [f"{key} is {value!r}, as problem.overrides says" for key, value in overrides.items()]
    bare = _bare(model)
    if not bare:
        inferred.append("Model may have parameters, which only a candidate in Python can make: no bare pointers")
    return ParsedProblem(
        name=name,
        title=f"{file.stem} (KernelBench)",
        statement=_statement(model, precision),
        kind="kernelbench",
        files={"model.py": source},
        spec=spec,
        tests=(),
        benchmarks=[({"cap": 0}, _BEFORE)],
        listing=source,
        called=_CALLED.format(dtype=PRECISIONS[precision]),
        origin={
            "format": "kernelbench",
            "path": str(file),
            **_place(file),
            **provenance(file.parent),
            "inferred": inferred,
            "dropped": [
                "upstream's clock: the judge times, with fresh inputs, and checks every timed output",
                "upstream's cast of integer inputs: they stay integers",
                "upstream's static checks of a candidate's text",
            ],
        },
        limits=_LIMITS,
        names=_names(model),
        under=lambda cap: (
            sizes.resized(source, spec["sizes"], cap),
            sizes.merged(source, spec["sizes"], cap) if cap else [],
        ),
        languages=("python", "triton", "cpp", "cuda", "hip") if bare else ("python", "triton"),
    )


def _place(file: Path) -> Json:
    """Level and number of a file that lies where a checkout has it."""
    level, number = re.fullmatch(r"level(\d+)", file.parent.name), _NUMBER.match(file.name)
    return {"level": int(level[1]), "number": int(number[1])} if level and number else {}


def _name(file: Path, precision: str) -> str:
    place = _place(file)
    name = slug(f"kernelbench-{place['level']}-{file.stem}" if place else f"kernelbench-{file.stem}").rstrip("_-.")
    return name if precision == "fp32" else f"{name}-{precision}"


def _statement(model: ast.ClassDef, precision: str) -> str:
    words = " ".join((ast.get_docstring(model) or "").split())
    usual, least = TOLERANCES[precision]
    right = (
        f"within {usual:g} relative, plus {usual:g} absolute or {usual:g} of the answer's own root mean square where "
        f"that is less. Where the answers to two sets of inputs differ by less than {8 * usual:g} of their root mean "
        f"square, an eighth of that difference takes the place of {usual:g}, but no less than {least:g}."
    )
    return f"{words}\n\nCompute what `Model` computes, faster, for the sizes in the file. Right means: {right}".strip()


def _names(model: ast.ClassDef) -> tuple[str, ...]:
    """Of forward's parameters."""
    forward = next((node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward"), None)
    return tuple(arg.arg for arg in forward.args.args[1:]) if forward else ()


def _bare(model: ast.ClassDef) -> bool:
    """Whether `__init__` makes nothing: then there are no parameters."""
    made = [node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return all(_plain(call) for node in made for call in ast.walk(node) if isinstance(call, ast.Call))


def _plain(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id=name):
            return name in _PLAIN_CALLS
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__"):
            return True
    return False


def _fitted(made: Problem, source: str, edits: list[sizes.Edit], compiled: bool) -> Problem:
    """With what is read and what is run as it was sized: the listing, the case's name, the model as baselines."""
    cap = int(made.origin.get("cap") or 0)
    sized = sizes.resized(source, edits, cap)
    whole = sized == sizes.resized(source, edits, 0)
    case = Case(named({"cap": 0 if whole else cap}), {"cap": cap}, _BEFORE)
    kept = "".join(_kept(sized)).strip("\n")
    seeds = [_baseline(*row, kept) for row in _BASELINES[: 1 + compiled]]
    dropped = [*made.origin["dropped"], *([] if compiled else [_UNCOMPILED])]
    return replace(
        made,
        origin={**made.origin, "dropped": dropped, **(_uncut(made) if whole else {})},
        dims=(),
        tests=(case,),
        benchmarks=(case,),
        seeds=tuple(seeds),
        listing=sized,
    )


def _uncut(made: Problem) -> Json:
    """What is said where the cap is above every size."""
    return {"cap": None, "inferred": [line for line in made.origin["inferred"] if not line.startswith(CUT)]}


def _baseline(name: str, report: str, made: str, kept: str) -> Seed:
    """The file without what makes its inputs, and a `ModelNew`."""
    return Seed(name, Kernel("python", {name: f"{kept}\n\n\n{made}"}, report), baseline=True)


def _kept(source: str) -> Iterator[str]:
    lines = source.splitlines(keepends=True)
    left = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            assert node.end_lineno is not None
            left |= set(range(node.lineno - 1, node.end_lineno))
    yield from (line for number, line in enumerate(lines) if number not in left)
