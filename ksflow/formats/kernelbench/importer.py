"""KernelBench's files: one `.py` with `Model`, `get_inputs` and `get_init_inputs`; a candidate defines `ModelNew`.

    problem=kernelbench problem.root=~/KernelBench problem.level=1 problem.id=19 problem.precision=bf16
    problem=kernelbench problem.path=my_model.py problem.cap=256
    problem=kernelbench problem.path=~/kernelbench.com/benchmarks/hard/problems-h100/07_w4a16_gemm   see `deck`

Sizes are the whole numbers that the file names at its top level. On a CPU they are cut to a cap (`formats.sizes`), and
what is computed from them follows.
"""

import ast
import re
from dataclasses import replace
from pathlib import Path

from ksflow.errors import ConfigError, suggest
from ksflow.formats import sizes
from ksflow.formats.assembly import CUT, CaseBudget, ParsedProblem, assemble, without_compile
from ksflow.formats.cases import case_name
from ksflow.formats.checkout import parse_python, provenance, slug
from ksflow.formats.kernelbench import deck
from ksflow.kernels.problem.file import read_text
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.records import Case, Json, Kernel, Problem, Seed, Target

PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
TOLERANCES = {name: deck.BOUNDS[kind] for name, kind in PRECISIONS.items()}
"""Upstream's, relative and absolute; and how far the judge may narrow it where answers hardly differ."""
_BUDGET = CaseBudget(memory_mb=64, generate_s=0.3, run_s=0.15)
_PUBLIC_SEED = 1
_NUMBER = re.compile(r"(\d+)_")
_CALLED = (
    "`ModelNew`, a `torch.nn.Module` with the constructor and `forward` of `Model`. It is made with the same arguments "
    "after the same seed, so its parameters equal `Model`'s where they are created in the same order with the same "
    "initialisation. Parameters and running statistics that are the same everywhere (weights of 1, biases of 0) are "
    "then drawn anew on both sides, by shape and order: `forward` has to read them, and nothing may be computed from "
    "them in `__init__`. Then it is moved to the device and cast to {dtype}, and called without gradients."
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


def load(  # noqa: PLR0913 - what a user may say of a file
    path: str | None = None,
    root: str | None = None,
    level: int | None = None,
    id: int | None = None,
    precision: str = "fp32",
    training: bool = True,
    compile: bool | None = None,
    cap: int | str | None = "auto",
    target: Target | None = None,
) -> Problem:
    """The problem in a file, in a deck's folder, or of a number below a checkout. Raises ConfigError.

    path: the file, or the folder of a deck. root: a checkout of KernelBench, of which `level` and `id` name a file.
    level: its level there. id: its number there. precision: fp32, fp16 or bf16, of the model and of inputs that are
    floats. training: False has the model in eval(); True leaves it as its constructor does, which is upstream's way.
    compile: have the model through `torch.compile` as a second baseline; None on a GPU only, as every process of it
    compiles anew, which takes a CPU some ten seconds. cap: the largest size; `auto` has a CPU take the largest that
    fits the budget, null is none.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"problem.precision={precision}; {suggest(precision, PRECISIONS)}")
    compiled = compile is True or (compile is None and target is not None and target.kind == "gpu")
    if path and (folder := Path(path).expanduser()).is_dir():
        if precision != "fp32" or not training:
            raise ConfigError("problem.precision and problem.training are for KernelBench's files; a deck says its own")
        folder = folder.resolve()
        parsed, work = deck.parse(folder)
        task = assemble(parsed, target, cap, _BUDGET)
        seeds = _baselines(parsed.listing, compiled)
        if (folder / "solution.py").is_file():
            kernel = kernel_file(str(folder / "solution.py"), task.languages)
            seeds = (*seeds, Seed(next(iter(kernel.files)), kernel))
        return without_compile(replace(task, seeds=seeds, work=work), compiled)
    file = _file(path, root, level, id)
    source = read_text(file)
    module = parse_python(file, source, deck.NEEDED, "a KernelBench file")
    spec: Json = {
        "file": "model.py",
        "precision": precision,
        "tolerance": TOLERANCES[precision],
        "training": training,
        "constants": "drawn",
        "sizes": sizes.edits(source),
        "cut": sizes.VERSION,
    }
    task = assemble(_parse(file, module, source, spec), target, cap, _BUDGET)
    return without_compile(_resized(task, source, spec["sizes"], compiled), compiled)


def _file(path: str | None, root: str | None, level: int | None, number: int | None) -> Path:
    if path:
        return Path(path).expanduser().resolve()
    if not root or level is None or number is None:
        needed = "problem.path=FILE, or problem.root=CHECKOUT problem.level=1 problem.id=19"
        raise ConfigError(f"problem=kernelbench needs {needed}")
    base = Path(root).expanduser()
    files: dict[int, Path] = {}
    for folder in (base / f"level{level}", base / "KernelBench" / f"level{level}"):
        files = {int(n[1]): file for file in folder.glob("*.py") if (n := _NUMBER.match(file.name))} or files
    if not files:
        places = f"{base} or {base}/KernelBench"
        raise ConfigError(f"no level{level} with numbered files in {places}; problem.root is a checkout")
    if int(number) not in files:
        raise ConfigError(f"no problem {number} in level {level} of {root}; it has {min(files)} to {max(files)}")
    return files[int(number)].resolve()


def _parse(file: Path, module: ast.Module, source: str, spec: Json) -> ParsedProblem:
    model = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    bare, precision = deck.is_stateless(model), spec["precision"]
    inferred = []
    if not bare:
        inferred.append("Model may have parameters, which only a candidate in Python can make: no bare pointers")
    level, number = re.fullmatch(r"level(\d+)", file.parent.name), _NUMBER.match(file.name)
    place = {"level": int(level[1]), "number": int(number[1])} if level and number else {}  # as in a checkout
    words = " ".join((ast.get_docstring(model) or "").split())
    usual, least = TOLERANCES[precision]
    right = (
        f"within {usual:g} relative, plus {usual:g} absolute or {usual:g} of the answer's own root mean square where "
        f"that is less. Where the answers to two sets of inputs differ by less than {8 * usual:g} of their root mean "
        f"square, an eighth of that difference takes the place of {usual:g}, but no less than {least:g}."
    )
    task = f"Compute what `Model` computes, faster, for the sizes in the file. Right means: {right}"
    name = slug(f"kernelbench-{place['level']}-{file.stem}" if place else f"kernelbench-{file.stem}").rstrip("_-.")
    return ParsedProblem(
        name=name if precision == "fp32" else f"{name}-{precision}",
        title=f"{file.stem} (KernelBench)",
        statement=f"{words}\n\n{task}".strip(),
        format="kernelbench",
        files={"model.py": source},
        spec=spec,
        tests=(),
        benchmarks=[({"cap": 0}, _PUBLIC_SEED)],
        listing=source,
        called=_CALLED.format(dtype=PRECISIONS[precision]),
        origin={
            "format": "kernelbench",
            "path": str(file),
            **place,
            **provenance(file.parent),
            "inferred": inferred,
            "dropped": [
                "upstream's clock: the judge times, with fresh inputs, and checks every timed output",
                "upstream's cast of integer inputs: they stay integers",
                "upstream's static checks of a candidate's text",
            ],
        },
        arg_names=deck.forward_names(model),
        resize=lambda cap: sizes.resize_source(source, spec["sizes"], cap),
        languages=("python", "triton", "cpp", "cuda", "hip") if bare else ("python", "triton"),
    )


def _resized(task: Problem, source: str, edits: list[sizes.Edit], compiled: bool) -> Problem:
    """With what is read and what is run as it was sized: the listing, the case's name, the model as baselines."""
    cap = int(task.origin.get("cap") or 0)
    sized, _ = sizes.resize_source(source, edits, cap)
    origin = dict(task.origin)
    if whole := sized == source:  # the cap is above every size
        origin |= {"cap": None, "inferred": [line for line in origin["inferred"] if not line.startswith(CUT)]}
    case = Case(case_name({"cap": 0 if whole else cap}), {"cap": cap}, _PUBLIC_SEED)
    seeds = _baselines(sized, compiled)
    return replace(task, origin=origin, dims=(), tests=(case,), benchmarks=(case,), seeds=seeds, listing=sized)


def _baselines(source: str, compiled: bool) -> tuple[Seed, ...]:
    lines = source.splitlines(keepends=True)  # kept: the file without what makes its inputs
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            del lines[node.lineno - 1 : node.end_lineno]
    model = "".join(lines).strip("\n")
    return tuple(
        Seed(name, Kernel("python", {name: f"{model}\n\n\n{text}"}, report), baseline=True)
        for name, report, text in _BASELINES[: 1 + compiled]
    )
