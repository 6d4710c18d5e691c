"""A problem of a deck as kernelbench.com's: a folder with `reference.py`, `shapes.py` and `problem.yaml`.

Every set of `shapes.py` is a case, for which the module's constants of those names are set. The tolerance, the words
that a kernel's text must not have and the formulas of work in `problem.yaml` decide nothing here: they are recorded
beside the judge's verdict.
"""

import ast
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from ksflow.errors import ConfigError
from ksflow.formats import sizes
from ksflow.formats.assembly import ParsedProblem
from ksflow.formats.checkout import parse_python, provenance, slug
from ksflow.formats.gpumode.importer import read_yaml
from ksflow.kernels.hardware import cost_model
from ksflow.kernels.problem.file import read_text
from ksflow.records import Scalar

NEEDED = ("Model", "get_inputs", "get_init_inputs")
BOUNDS = {"float32": (1e-4, 1e-5), "float16": (1e-2, 1e-3), "bfloat16": (1e-2, 1e-3)}
"""Type of an output -> the relative bound, and how far the judge may narrow it where answers hardly differ."""
_THEIRS = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2, "float8_e4m3fn": 0.1, "float8_e5m2": 0.1, "int8": 0.0,
           "int32": 0.0, "int64": 0.0}  # fmt: skip
_SHAPES = TypeAdapter(list[dict[str, bool | int | float | str]])
_NUMERIC = re.compile(r"super|super\(.*\)\.__init__|int|float|bool|tuple|len|math\.\w+")
_SELECTS = re.compile(r"\b(?:topk|sort|argsort|kthvalue|msort)\(")
_CALLED = (
    "`Model` or `ModelNew`, a `torch.nn.Module` with the constructor and `forward` of the reference's `Model`. It is "
    "made with the same arguments, put into eval mode, and given the reference's weights by "
    "`load_state_dict(strict=True)`: it needs parameters and buffers of the same names and shapes, and nothing may be "
    "computed from weights in `__init__`. It is called without gradients."
)
_TASK = (
    "Compute what `Model` computes, faster. Right means within {}, of an element's size and of the answer's root mean "
    "square together, less where the answers to two sets of inputs come closer than that. Indices select exactly the "
    "values beside them. The board refuses a kernel whose text has one of: {}."
)


class _Meta(BaseModel, extra="allow"):
    """What is read of `problem.yaml`. Beside it are the board's own: clock, devices, other libraries' results."""

    display_name: str = ""
    regime: Literal["compute", "memory"] = "compute"
    flops_formula: str = ""
    bytes_formula: str = ""
    peak_tflops_key: str = ""
    tolerance: dict[str, float | dict[str, float]] = {}
    forbidden: list[str] = []
    world_size: int = 1

    def bounds(self) -> dict[str, tuple[float, float]]:
        """The board's tolerances: type -> (absolute, relative)."""
        given = {kind.removeprefix("torch."): bound for kind, bound in self.tolerance.items()}
        both = ((kind, b if isinstance(b, dict) else {"atol": b, "rtol": b}) for kind, b in (_THEIRS | given).items())
        return {kind: (bound.get("atol", 0.0), bound.get("rtol", 0.0)) for kind, bound in both}


def parse(folder: Path) -> tuple[ParsedProblem, dict[str, str]]:
    """The problem in a folder, without seeds, and its `Problem.work`. Raises ConfigError."""
    if missing := [n for n in ("reference.py", "shapes.py", "problem.yaml") if not (folder / n).is_file()]:
        raise ConfigError(f"{folder} is no problem of a deck: it has no {' and no '.join(missing)}")
    source = read_text(folder / "reference.py")
    module = parse_python(folder / "reference.py", source, NEEDED, "a deck's reference")
    meta, shapes, known = _meta(folder / "problem.yaml"), _shapes(folder / "shapes.py"), sizes.constants(module)
    spelt = {name.lower(): name for name in known} | {name: name for name in known}
    names = {key: spelt.get(key) or spelt.get(key.lower(), "") for shape in shapes for key in shape}
    if lost := [key for key, name in names.items() if not name]:
        raise ConfigError(f"{folder}: shapes.py sets {lost[0]}, and reference.py has no constant of that name")
    fixed = [node.value for name, node in known.items() if name not in names.values() if isinstance(node, ast.Constant)]
    theirs, (work, dropped) = meta.bounds(), _work(meta, shapes)
    model = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    words = filter(None, (ast.get_docstring(module), ast.get_docstring(model)))
    bounds = ", ".join(f"{bound:g} ({kind})" for kind, (bound, _) in BOUNDS.items())
    parsed = ParsedProblem(
        name=slug(f"kernelbench-{folder.name}"),
        title=f"{meta.display_name or folder.name} (KernelBench)",
        statement="\n\n".join([*words, _TASK.format(bounds, ", ".join(meta.forbidden) or "none")]),
        format="kernelbench",
        files={"reference.py": source},
        spec={"file": "reference.py", "deck": True, "training": False, "constants": names, "tolerance": BOUNDS,
              "theirs": theirs, "forbidden": meta.forbidden, "selects": bool(_SELECTS.search(source))},
        tests=(),
        benchmarks=[(shape, 1) for shape in shapes],
        listing=source,
        called=_CALLED,
        support={"reference.py": source},
        origin={
            "format": "kernelbench",
            "path": str(folder),
            **provenance(folder),
            "the board's tolerance": ", ".join(f"{kind} {atol:g} + {rtol:g}" for kind, (atol, rtol) in theirs.items()),
            "the board forbids": ", ".join(meta.forbidden),
            "the board's work": "; ".join(f"{key}: {value}" for key, value in work.items()),
            "dropped": [
                "the board's clock, and its scaled and generated inputs: the judge times, and makes its own contents",
                "seeds that get_inputs sets itself, so that every call has new inputs",
                f"of problem.yaml: {', '.join(meta.model_extra or ())}",
                *dropped,
            ],
        },
        arg_names=forward_names(model),
        fixed=[value for value in fixed if type(value) is int and value > 1],
        languages=("python", "triton", "cpp", "cuda", "hip") if is_stateless(model) else ("python", "triton"),
    )  # fmt: skip
    return parsed, work


def _meta(file: Path) -> _Meta:
    try:
        meta = _Meta.model_validate(read_yaml(file))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if meta.world_size > 1:
        raise ConfigError(f"{file}: world_size {meta.world_size}: the judge has one GPU for each kernel")
    return meta


def _shapes(file: Path) -> list[dict[str, Scalar]]:
    """The sets of sizes, without running the file."""
    known = sizes.constants(parse_python(file, read_text(file), (), ""))

    class Constants(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return known.get(node.id, node)

    try:
        shapes = _SHAPES.validate_python(ast.literal_eval(Constants().visit(known["SHAPES"])), strict=True)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{file}: it needs SHAPES, a list of mappings of names to plain values") from error
    if not shapes:
        raise ConfigError(f"{file}: SHAPES is empty")
    return shapes


def _work(meta: _Meta, shapes: list[dict[str, Scalar]]) -> tuple[dict[str, str], list[str]]:
    """The board's formulas as `Problem.work`, and those that cannot be computed, in words."""
    work: dict[str, str] = {"dtype": meta.peak_tflops_key, "regime": meta.regime}
    if meta.peak_tflops_key not in cost_model.PRECISIONS:
        return {}, [f"its formulas: peak_tflops_key {meta.peak_tflops_key!r} names no rate of a target"]
    for key, text in (("flops", meta.flops_formula), ("bytes", meta.bytes_formula)):
        try:
            work |= {key: text} if [cost_model.evaluate(text, shape) for shape in shapes] else {}
        except ValueError as error:
            return {}, [f"its formulas: {key}_formula: {error}"]
    return work, []


def forward_names(model: ast.ClassDef) -> tuple[str, ...]:
    """The names of the arguments of `forward`."""
    forward = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
    return tuple(arg.arg for arg in forward.args.args[1:]) if forward else ()


def is_stateless(model: ast.ClassDef) -> bool:
    """Whether `__init__` calls nothing that could make tensors which `forward` reads: bare pointers are then enough."""
    init = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), model)
    read = {node.attr for node in ast.walk(model) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    buffers = [n for n in ast.walk(init) if isinstance(n, ast.Call) and ast.unparse(n.func) == "self.register_buffer"]
    unread = [n for n in buffers if isinstance(n.args[0], ast.Constant) and n.args[0].value not in read]
    inside = {id(node) for call in unread for node in ast.walk(call)}
    calls = [ast.unparse(n.func) for n in ast.walk(init) if isinstance(n, ast.Call) and id(n) not in inside]
    return init is model or all(map(_NUMERIC.fullmatch, calls))
