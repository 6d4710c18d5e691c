"""A foreign problem as the judge needs it: `generate_input`, `ref_kernel`, and what says whether an answer is right.

Not covered: arguments that are constants for one seed and others for the next; they keep the first seed's values.
"""

import contextlib
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ksflow.evaluation.judge.elements import is_constant
from ksflow.evaluation.judge.tolerance import by_format
from ksflow.evaluation.processes import scratch
from ksflow.evaluation.sandbox.runners.device_mapping import cuda_means, seeded
from ksflow.evaluation.sandbox.runners.pytree import (
    HIDDEN,
    Flat,
    TensorLeaf,
    Tree,
    build,
    check_portable,
    flatten,
    flatten_result,
    pack,
    unpack,
)
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module
from ksflow.formats.layout import CallLayout
from ksflow.records import Check, Json, check_inside

_SPREAD = 0.5  # what is the same for all seeds is multiplied by at least so much, and at most by one
_TINY = 0.02
Params = Mapping[str, Any]


class SourceFiles:
    """A problem's files in a folder of their own, and the modules in them."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.folder = scratch.make_folder()
        for name, text in files.items():
            check_inside(name)
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            sys.modules.pop(path.stem, None)  # another problem's may be called the same
        sys.path.insert(0, str(self.folder))
        importlib.invalidate_caches()

    def load(self, name: str) -> ModuleType:
        """The module in a file, by the name that the others import it by. `cuda` may not be here: it need not be."""
        with cuda_means("cuda" if torch.cuda.is_available() else "cpu"):
            module = load_module(Path(name).stem, self.folder / name)
        setattr(module, HIDDEN, True)
        return module


class Task:
    """A problem as its format runs it. `inputs`, `answer`, `objection` run with `cuda` meaning the judge's device."""

    own_check = False  # whether `objection` decides what is right; else `tolerance` does
    selects = False  # whether the last result may be indices of the values before it, any of equal ones
    forbidden: Sequence[str] = ()  # words that upstream refuses in a kernel's text

    def call_spec(self, params: Params) -> Json:
        """How a candidate is called: `entry`, and what else `sandbox.foreign` reads that is no tensor's place."""
        return {"entry": "custom_kernel"}

    def inputs(self, params: Params, seed: int) -> Tree:
        """What the function of a case is called with."""
        raise NotImplementedError

    def answer(self, tree: Tree, params: Params) -> Tree:
        """What the reference returns. It may write into the tree's tensors, as a candidate may."""
        raise NotImplementedError

    def objection(self, tree: Tree, outputs: Tree, params: Params) -> str:
        """What the format's own check says; empty when it passes."""
        return ""

    def tolerance(self, output: torch.Tensor) -> tuple[float | None, float | None]:
        """(rtol, atol) of an output; None: what its number format allows."""
        raise NotImplementedError


class ImportedReference:
    """The functions that a `reference.py` has."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._layouts: dict[str, tuple[list[int], list[Any], Json]] = {}
        """Case -> which tensors of its arguments are inputs, what outputs are like, the binding."""
        self._shapes: dict[str, Tree] = {}  # packed -> the trees, with the types that a box does not have
        self._device = "cpu"

    def generate_input(self, seed: int, device: str = "cpu", **params: Any) -> Flat:
        """Inputs, then empty outputs, flat."""
        self._device = device
        key = repr(sorted(params.items())) + device
        if key not in self._layouts:
            self._layouts[key] = self._find_layout(params, seed)
        inputs, outputs, binding = self._layouts[key]
        _, leaves = flatten(self._inputs(params, seed))
        empty = (torch.empty_strided(*sizes, dtype=dtype, device=device).zero_() for *sizes, dtype in outputs)
        return Flat([*(leaves[index] for index in inputs), *empty], binding)

    def ref_kernel(self, data: Flat) -> Any:
        """The reference's results, flat: what was returned, then what was changed in place."""
        tree = self._tree(data)
        with cuda_means(self._device):
            result = self.task.answer(tree, unpack(data.binding["params"]))
        _, leaves = flatten(tree)
        values = [torch.as_tensor(leaf) for leaf in flatten_result(result)]
        outputs = dict(zip(data.binding["results"], values, strict=True))
        for place, leaf in zip(data.binding["order"], leaves, strict=True):
            outputs.setdefault(place, leaf)
        first = min(data.binding["outputs"])
        results = tuple(outputs[place].detach().to(data[place].dtype) for place in range(first, len(data)))
        return results[0] if len(results) == 1 else results

    def property_check(self, data: Flat, outputs: Any) -> str:
        """What the format's check says, and whether the answer is the same everywhere though the right one is not."""
        tensors, tree = as_tuple(outputs), self._tree(data)
        with cuda_means(self._device):
            outputs = build(unpack(data.binding["result_tree"]), tensors)
            objection = self.task.objection(tree, outputs, unpack(data.binding["params"]))
        if self.task.selects:
            return objection or self._wrong_selection(data, tensors)
        for index, out in enumerate(() if objection else tensors):
            if out.numel() > 1 and is_constant(out) and not is_constant(as_tuple(self.ref_kernel(data))[index]):
                return f"output {index} is the same everywhere, the reference's is not"
        return objection

    def _wrong_selection(self, data: Flat, outputs: tuple[torch.Tensor, ...]) -> str:
        """Why indices do not select the right values, each place once; empty where no output selects."""
        right, places = as_tuple(self.ref_kernel(data)), outputs[-1].long()
        if (source := selected_from(data, right)) is None:
            return ""
        inside = places.clamp(0, source.shape[-1] - 1)
        off = int(((places != inside) | (source.gather(-1, inside) != right[-2])).sum())
        twice = int((places.sort(-1).values.diff() == 0).sum())
        words = f"{off} of {places.numel()} indices select another value, {twice} a place for the second time"
        return f"output {len(outputs) - 1}: {words}" if off or twice else ""

    def oracle(self, data: Flat) -> list[Json]:
        """The reference's answer, within the format's tolerance and its size; without indices that select values."""
        values = as_tuple(self.ref_kernel(data))
        if self.task.selects and selected_from(data, values) is not None:
            values = values[:-1]
        rows = ((value, *self.task.tolerance(value)) for value in values)
        return [by_format(*row, Check().c1) for row in rows]

    def _inputs(self, params: Params, seed: int) -> Tree:
        seeded(seed)
        with cuda_means(self._device), _no_uninitialised_memory():
            return check_portable(self.task.inputs(params, seed))

    def _tree(self, data: Flat) -> Tree:
        """The arguments of a call on these contents, with tensors that may be written."""
        source = {place: argument for argument, place in data.binding["inout"]}
        tensors = [data[source.get(place, place)].clone() for place in data.binding["order"]]
        packed = data.binding["tree"]
        return build(self._shapes.get(packed) or unpack(packed), tensors)

    def _find_layout(self, params: Params, seed: int) -> tuple[list[int], list[Any], Json]:
        """How a case's tensors lie, found by running the reference on it."""
        shape, leaves = flatten(self._inputs(params, seed))
        _, again = flatten(self._inputs(params, seed))

        def answer(contents: list[torch.Tensor]) -> Tree:
            with cuda_means(self._device):
                return self.task.answer(build(shape, contents), params)

        layout = CallLayout(answer, leaves, again)
        if not layout.outputs:
            arrays = any(type(value).__module__ == "numpy" for value in tree_leaves(layout.result))
            hint = ": it returns NumPy's arrays, so have its file import numpy and not torch" if arrays else ""
            raise ValueError(f"the reference returns no tensor and writes into none of its arguments{hint}")
        binding = {
            **self.task.call_spec(params),
            "tree": pack(shape),
            "params": pack(dict(params)),
            **layout.binding(),
            "plain": all(
                isinstance(leaf, TensorLeaf) for leaf in (shape if isinstance(shape, list | tuple) else [shape])
            ),
            "device": "" if self._device.startswith("cuda") else self._device,
        }
        self._shapes[binding["tree"]] = shape
        dense = [(tuple(out.shape), torch.empty_like(out).stride(), out.dtype) for out in layout.outputs]
        return layout.inputs, dense, binding


def install(namespace: Json, format: str, files: Mapping[str, str], spec: Json) -> None:
    """Make a `reference.py` of a format: its `runtime` module has `create(files, spec) -> Task`."""
    module = importlib.import_module(f"ksflow.formats.{format}.runtime")
    reference = ImportedReference(module.create(SourceFiles(files), spec))
    namespace |= {"generate_input": reference.generate_input, "ref_kernel": reference.ref_kernel}
    namespace["forbidden"] = reference.task.forbidden
    if reference.task.own_check or reference.task.selects:
        namespace["property_check"] = reference.property_check
    if not reference.task.own_check:
        namespace["oracle"] = reference.oracle
    if hasattr(module, "upstream"):
        namespace["upstream_check"] = module.upstream(reference)


@contextlib.contextmanager
def _no_uninitialised_memory() -> Iterator[None]:
    """Meanwhile, empty tensors are full of NaN, or of the largest number: the same each time."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")  # the other way to say it imports torch's compiler, which takes seconds
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_deterministic_debug_mode(before)


def accepts(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def vary_contents(leaf: torch.Tensor) -> torch.Tensor:
    """Other contents that are as good, with the same signs, zeros, symmetry; all zeros become small positive ones."""
    if not leaf.is_floating_point():  # none is smaller or larger, and none comes twice where none did
        flat = leaf.reshape(-1)
        if leaf.dtype is torch.bool or bool((flat.sort().values.diff() != 0).all()):
            return flat[torch.randperm(flat.numel(), device=leaf.device)].reshape(leaf.shape)
        low, high = int(flat.min()), int(flat.max())
        return torch.randint(low, high + 1, leaf.shape, dtype=leaf.dtype, device=leaf.device)
    wide = leaf.float() if leaf.dtype.itemsize == 1 else leaf
    if leaf.numel() and not wide.any():
        return torch.randn(leaf.shape, device=leaf.device).abs_().mul_(_TINY).to(leaf.dtype)
    symmetric = leaf.ndim >= 2 and leaf.shape[-1] == leaf.shape[-2] and torch.equal(wide, wide.mT)
    share = _SPREAD + (1 - _SPREAD) * torch.rand(leaf.shape[:-1] if symmetric else leaf.shape, device=leaf.device)
    if symmetric:
        share = share.sqrt().unsqueeze(-1) * share.sqrt().unsqueeze(-2)
    return (wide * share.to(wide.dtype)).to(leaf.dtype)


def selected_from(data: Flat, values: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The input from which the last result, indices along the last dimension, selects the result before it."""
    if len(values) < 2 or values[-1].dtype not in (torch.int32, torch.int64) or values[-1].shape != values[-2].shape:
        return None
    chosen, places = values[-2], values[-1].long()
    for leaf in data[: min(data.binding["outputs"])]:
        fits = leaf.ndim and leaf.dtype == chosen.dtype and leaf.shape[:-1] == chosen.shape[:-1]
        if fits and int(places.max()) < leaf.shape[-1] and torch.equal(leaf.gather(-1, places), chosen):
            return leaf
    return None


def as_tuple(value: Any) -> tuple[torch.Tensor, ...]:
    """Outputs, of which a single one goes without a tuple."""
    return value if isinstance(value, tuple) else (value,)
