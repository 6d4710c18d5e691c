"""A foreign problem as the judge needs it: `generate_input`, `ref_kernel`, and what says whether an answer is right.

Not covered: arguments that are constants for one seed and others for the next; they keep the first seed's values.
"""

import contextlib
import importlib
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch

from ksflow.formats.observed import Seen, flat
from ksflow.judge.tolerance import rms
from ksflow.processes import scratch
from ksflow.sandbox.elsewhere import cuda_means, seeded
from ksflow.sandbox.tree import HIDDEN, Flat, Leaf, Tensors, Tree, build, flatten, pack, portable, returned, unpack

_C1 = 8.0
_SMALL = 1e-30
Json = dict[str, Any]
Params = Mapping[str, Any]


class Task(Protocol):
    """One format's side of it. `inputs` and `answer` run with `cuda` meaning the judge's device."""

    def calling(self, params: Params) -> Json:
        """How a candidate is called: `entry` and what else `box.foreign` reads that is no tensor's place."""

    def inputs(self, params: Params, seed: int) -> Tree:
        """What the function of a case is called with."""

    def answer(self, tree: Tree, params: Params) -> Tree:
        """What the reference returns. It may write into the tree's tensors, as a candidate may."""

    def objection(self, tree: Tree, outputs: Tree) -> str | None:
        """What the format's own check says: "" when it passes; None where it has none but `tolerance`."""

    def tolerance(self, output: torch.Tensor) -> tuple[float, float]:
        """(rtol, atol) of an output, where there is no check of its own."""


class Foreign:
    """The functions that a `reference.py` has."""

    def __init__(self, task: Task, accumulate: str = "bfloat16") -> None:
        """`accumulate`: as in the problem's `Check`, whose c1 is the default."""
        self.task = task
        self.accumulate = accumulate
        self._plans: dict[str, Json] = {}
        self._shapes: dict[str, Tree] = {}
        """What was packed -> the trees, with the types that a box does not have."""
        self._where = "cpu"

    def generate_input(self, seed: int, device: str = "cpu", **params: Any) -> Flat:
        """Inputs, then empty outputs, flat."""
        self._where = device
        plan = self._plan(params, seed)
        _, leaves = flatten(self._inputs(params, seed))
        kept = [leaves[index] for index in plan["kept"]]
        return Flat([*kept, *(_empty(like, device) for like in plan["outputs"])], plan["bind"])

    def ref_kernel(self, data: Flat) -> Any:
        """The reference's results, flat."""
        tree = self._tree(data)
        with cuda_means(self._where):
            result = self.task.answer(tree, unpack(data.bind["params"]))
        found = self._results(data, tree, result)
        return found[0] if len(found) == 1 else found

    def property_check(self, data: Flat, outputs: Any) -> str:
        """What the format's check says, and whether the answer is the same everywhere though the right one is not."""
        flat = outputs if isinstance(outputs, tuple) else (outputs,)
        tree = self._tree(data)
        shape = unpack(data.bind["result_tree"])
        with cuda_means(self._where):
            said = self.task.objection(tree, build(shape, flat)) or ""
        return said or self._flatness(data, flat)

    def oracle(self, data: Flat) -> list[Json]:
        """The reference's answer, with the format's tolerance; never wider than the answer's own size allows."""
        found = self.ref_kernel(data)
        return [self._row(value) for value in (found if isinstance(found, tuple) else (found,))]

    # -- inside ----------------------------------------------------------------------------------

    def _row(self, value: torch.Tensor) -> Json:
        if not value.dtype.is_floating_point:
            return {"expected": value, "magnitude": torch.zeros((), dtype=torch.float64), "terms": 1}
        rtol, atol = self.task.tolerance(value)
        room = min(atol, max(atol, rtol) * rms(value)) + _SMALL
        growth = _C1 * torch.finfo(getattr(torch, self.accumulate)).eps
        magnitude = torch.tensor(room / growth, dtype=torch.float64)
        return {"expected": value, "magnitude": magnitude, "relative": rtol, "terms": 1}

    def _inputs(self, params: Params, seed: int) -> Tree:
        seeded(seed)
        with cuda_means(self._where), _nothing_unwritten():
            return portable(self.task.inputs(params, seed))

    def _tree(self, data: Flat) -> Tree:
        """The arguments of a call on these contents, with tensors that may be written."""
        bind = data.bind
        source = {place: given for given, place in bind["inout"]}
        tensors = [data[source.get(place, place)].clone() for place in bind["order"]]
        shape = self._shapes.get(bind["tree"]) or unpack(bind["tree"])
        return build(shape, tensors)

    def _results(self, data: Flat, tree: Tree, result: Tree) -> Tensors:
        """What was returned, then what was changed in place, as `plan` found it."""
        _, leaves = flatten(tree)
        values = [torch.as_tensor(leaf) for leaf in returned(result)]
        outs = dict(zip(data.bind["results"], values, strict=True))
        for place, leaf in zip(data.bind["order"], leaves, strict=True):
            outs.setdefault(place, leaf)
        first = min(data.bind["outputs"])
        return tuple(outs[place].detach().to(data[place].dtype) for place in range(first, len(data)))

    def _plan(self, params: Params, seed: int) -> Json:
        """How a case's tensors lie: found once, by running the reference on it."""
        key = repr(sorted(params.items())) + self._where
        if key not in self._plans:
            self._plans[key] = self._made(params, seed)
        return self._plans[key]

    def _made(self, params: Params, seed: int) -> Json:
        shape, leaves = flatten(self._inputs(params, seed))
        _, anew = flatten(self._inputs(params, seed))

        def answer(contents: list[torch.Tensor]) -> Tree:
            with cuda_means(self._where):
                return self.task.answer(build(shape, contents), params)

        found = Seen(answer, leaves, anew)
        if not found.outputs:
            raise ValueError("the reference returns no tensor and writes into none of its arguments")
        bind = {
            **self.task.calling(params),
            "tree": pack(shape),
            "params": pack(dict(params)),
            **found.bind(),
            "plain": all(isinstance(leaf, Leaf) for leaf in (shape if isinstance(shape, list | tuple) else [shape])),
            "device": "" if self._where.startswith("cuda") else self._where,
        }
        self._shapes[bind["tree"]] = shape
        likes = [(tuple(out.shape), _steps(out), out.dtype) for out in found.outputs]
        return {"kept": found.kept, "outputs": likes, "bind": bind}

    def _flatness(self, data: Flat, outputs: Tensors) -> str:
        for index, out in enumerate(outputs):
            if out.numel() > 1 and flat(out):
                found = self.ref_kernel(data)
                right = (found if isinstance(found, tuple) else (found,))[index]
                if not flat(right):
                    return f"output {index} is the same everywhere, the reference's is not"
        return ""


def install(namespace: Json, kind: str, files: Mapping[str, str], spec: Json) -> None:
    """Make a `reference.py` of a format: `kind` is a module of this room that has `task(modules, spec)`."""
    found = importlib.import_module(f"ksflow.formats.{kind}")
    foreign = Foreign(found.task(Files(files), spec), spec["accumulate"])
    namespace |= {"generate_input": foreign.generate_input, "ref_kernel": foreign.ref_kernel}
    if found.OWN_CHECK:
        namespace["property_check"] = foreign.property_check
    else:
        namespace["oracle"] = foreign.oracle
    if hasattr(found, "upstream"):
        namespace["upstream_check"] = found.upstream(foreign)


class Files:
    """A problem's files in a folder of their own, and the modules in them."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.folder = scratch.folder()
        for name, text in files.items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
            sys.modules.pop(place.stem, None)  # another problem's may be called the same
        sys.path.insert(0, str(self.folder))
        importlib.invalidate_caches()

    def load(self, name: str) -> ModuleType:
        """The module in a file, by the name that the others import it by. `cuda` may not be here: it need not be."""
        stem = Path(name).stem
        spec = importlib.util.spec_from_file_location(stem, self.folder / name)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        setattr(module, HIDDEN, True)
        sys.modules[stem] = module
        with cuda_means("cuda" if torch.cuda.is_available() else "cpu"):
            spec.loader.exec_module(module)
        return module


@contextlib.contextmanager
def _nothing_unwritten() -> Iterator[None]:
    """Meanwhile, empty tensors are full of NaN, or of the largest number: the same each time."""
    kept = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")  # the other way to say it imports torch's compiler, which takes seconds
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_deterministic_debug_mode(kept)


def accepts(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter."""
    found = inspect.signature(function).parameters
    return name in found or any(one.kind is one.VAR_KEYWORD for one in found.values())


def _steps(out: torch.Tensor) -> tuple[int, ...]:
    """The strides of a tensor like it that is dense."""
    return torch.empty_like(out).stride()


def _empty(like: tuple[Any, ...], device: str) -> torch.Tensor:
    shape, steps, dtype = like
    return torch.empty_strided(shape, steps, dtype=dtype, device=device).zero_()
