"""A module's forward as Python, and which of its tensors every kernel has to read, by `torch.export`."""

import keyword
import math
import operator
import re
import site
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch.export import Dim
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument

from ksflow.integrate.model.calls import ModuleCall, call_again

_INLINE = 64
"""Elements of a constant that is written into the reference."""
_SIGNS: dict[Any, str] = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.mod: "%",
}
_TAKEN = ("device", "torch", "strides", "seed", "real")
"""Names that the reference and a kernel's arguments have already."""
_KEYWORDS = re.compile(
    "alignas|alignof|asm|auto|bool|case|catch|char|concept|const|constexpr|decltype|default|delete|do|double|enum|"
    "explicit|export|extern|false|float|friend|goto|inline|int|long|mutable|namespace|new|noexcept|nullptr|operator|"
    "private|protected|public|register|requires|short|signed|sizeof|static|struct|switch|template|this|throw|true|"
    "typedef|typeid|typename|union|unsigned|using|virtual|void|volatile|and_eq|bitand|bitor|compl|not_eq|or_eq|xor|xor_eq"
)
"""Of C++, beside those of Python."""
_WHOLE = re.compile(
    "view|_unsafe_view|reshape|permute|transpose|t|numpy_T|unsqueeze|squeeze|flatten|unflatten|expand|repeat|roll|flip|"
    "movedim|clone|contiguous|to|_to_copy|alias|detach|type_as|cat|stack|pixel_shuffle|pixel_unshuffle|"
    "sum|mean|var|var_mean|std|prod|amax|amin|max|min|argmax|argmin|sort|topk|logsumexp|cumsum|linalg_vector_norm|norm|"
    "_?softmax|_?log_softmax|(native_)?(layer|group)_norm|(_fused_)?rms_norm|batch_norm|instance_norm|"
    "_native_batch_norm_legit_no_training|adaptive_avg_pool[123]d|mm|bmm|addmm|baddbmm|matmul|linear|dot|mv"
)
"""Operations that read all of what they are given where all of their result is asked for."""
_ARITHMETIC = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_PIECES = frozenset({"split", "split_with_sizes", "chunk", "unbind", "tensor_split"})
_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d"})


@dataclass(frozen=True)
class Forward:
    """A module's forward over names of its inputs and of its state."""

    body: str
    used: list[str]
    """The parameters and buffers that it uses, by their names in the module."""
    words: list[str]
    """The names in the body of the inputs, then of those."""
    read: set[str]
    """Of these names those whose tensors no kernel can leave out a part of."""
    computed: torch.dtype
    """The least precise type that it computes in; float32 where it computes in whole numbers alone."""
    imports: list[str]
    """The modules that define the operators of others that it calls, where they are installed."""


def export_forward(module: torch.nn.Module, calls: Sequence[ModuleCall]) -> Forward:
    """Export a module's forward for the sizes of all calls. Raises ValueError where it is no function of tensors."""
    largest = max(calls, key=lambda call: sum(tensor.nbytes for tensor in call.inputs))
    names_in = [tensor.name for tensor in largest.inputs]
    changing: list[Any] = []
    for several in zip(*(call.inputs for call in calls), strict=True):
        sizes = zip(*(tensor.shape for tensor in several), strict=True)
        changing.append({axis: Dim.AUTO for axis, values in enumerate(sizes) if len(set(values)) > 1} or None)
    program = torch.export.export(
        _Flat(module, largest), largest.tensors, dynamic_shapes=[tuple(changing)] if any(changing) else None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 warns of itself
        functional = program.run_decompositions({})  # where writes are results, as they need not be in the first
    specs = functional.graph_signature.output_specs
    written = {spec.target for spec in specs if spec.kind is not OutputKind.USER_OUTPUT}
    places = functional.graph_signature.user_inputs
    expected = {place for place, name in zip(places, names_in, strict=True) if name in largest.written}
    if written != expected:
        raise ValueError("writes into its inputs or its buffers through other tensors")
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph.nodes}
    state = {
        spec.arg.name: str(spec.target).removeprefix("module.")
        for spec in signature.input_specs
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and nodes[spec.arg.name].users
    }
    words = names_for([*(tensor.name for tensor in largest.inputs), *state.values()])
    inputs, held = iter(words), dict(zip(state, words[len(largest.inputs) :], strict=True))
    names: dict[str, str] = {}
    constants: list[str] = []
    for spec in signature.input_specs:
        node = getattr(spec.arg, "name", "")
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument):
            names[node] = next(inputs)
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            names[node] = node
            tensor = program.constants[str(spec.target)]
            if tensor.numel() > _INLINE:
                raise ValueError(f"has a tensor {spec.target} that is neither a parameter nor a buffer")
            constants.append(f"{node} = torch.tensor({tensor.tolist()}, dtype={tensor.dtype}, device=device)")
        elif node in held:
            names[node] = held[node]
    read = {names[node] for node in _read(functional.graph) if node in names}
    changed = [word for word, name in zip(words, names_in, strict=False) if name in largest.written]
    lines = "\n".join(f"    {line}" for line in [*constants, *_lines(program.graph, names, changed)])
    return Forward(lines, list(state.values()), words, read, _computed(functional.graph), _imports(program.graph))


class _Flat(torch.nn.Module):
    """A module as a function of the tensors in its arguments, which returns those in its result that are new."""

    def __init__(self, module: torch.nn.Module, call: ModuleCall) -> None:
        super().__init__()
        self.module, self._call = module, call
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return call_again(self.module, self._call, tensors)[len(self._call.written) :]


def _imports(graph: torch.fx.Graph) -> list[str]:
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    modules = set()
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace != "aten":
            defined = OPDEFS.get(node.target._schema.name)
            modules.add(defined._init_fn.__module__ if defined else node.target.namespace)
    installed = {name for name in modules if PathFinder.find_spec(name.partition(".")[0], folders)}
    return sorted(installed & {*sys.modules})


def _lines(graph: torch.fx.Graph, names: dict[str, str], changed: Sequence[str]) -> list[str]:
    """A graph's operations as Python. changed: the names of inputs that it changes, which are returned first."""
    lines = []
    for node in graph.nodes:
        checked = node.users and all("_assert_" in str(user.target) for user in node.users)
        if node.op == "call_function" and not checked and "_assert_" not in str(node.target):
            lines += _line(node, names)
        elif node.op == "output":
            results = [_text(result, names) for result in node.args[0] if isinstance(result, torch.fx.Node)]
            lines.append(f"return {', '.join([*changed, *results])}")
    return lines


def _line(node: torch.fx.Node, names: dict[str, str]) -> list[str]:
    """An operation as Python, whose result has a name from then on."""
    if node.target is operator.getitem:
        names[node.name] = f"{_text(node.args[0], names)}[{node.args[1]}]"
        return []
    if sign := _SIGNS.get(node.target):
        names[node.name] = f"({f' {sign} '.join(_text(arg, names) for arg in node.args)})"
        return []
    if not isinstance(node.target, torch._ops.OpOverload):
        raise ValueError(f"calls {node.target}, which is no operation on tensors")
    words = [_text(arg, names) for arg in node.args]
    words += [f"{key}={_text(value, names)}" for key, value in node.kwargs.items()]
    result = node.name
    while result in names.values():
        result += "_"
    names[node.name] = result
    return [f"{result} = torch.ops.{node.target}({', '.join(words)})"]


def _text(value: Any, names: dict[str, str]) -> str:
    """An argument of an operation as Python."""
    match value:
        case torch.fx.Node():
            return names[value.name]
        case list() | tuple():
            return f"[{', '.join(_text(item, names) for item in value)}]"
        case torch.device():
            return "device"
        case float() if not math.isfinite(value):
            return f'float("{value}")'
    return repr(value)


def names_for(names: Sequence[str]) -> list[str]:
    """Tensors' names as names of C and of Python, no two of them alike."""
    words: list[str] = []
    for name in names:
        word = re.sub(r"\W", "_", name, flags=re.ASCII)
        word = word if word.isidentifier() else f"p_{word}"
        while keyword.iskeyword(word) or _KEYWORDS.fullmatch(word) or word in _TAKEN or word in words:
            word += "_"
        words.append(word)
    return words


def _read(graph: torch.fx.Graph) -> set[str]:
    """The nodes of a functional graph whose tensors are surely read in full, since all of the outputs are asked for."""
    asked: dict[torch.fx.Node, set[int]] = {}
    """Node -> the places of its results that are asked for; 0 where it has one result."""
    for node in reversed(graph.nodes):
        if node.op == "output":
            asked |= {result: {0} for result in node.args[0] if isinstance(result, torch.fx.Node)}
        elif node.op == "call_function" and node in asked:
            if node.target is operator.getitem:
                asked.setdefault(node.args[0], set()).add(node.args[1])
                continue
            for tensor in _reads(node, asked[node]):
                asked.setdefault(tensor, set()).add(0)
    return {node.name for node in asked}


def _computed(graph: torch.fx.Graph) -> torch.dtype:
    """The least precise type of what is computed; views of inputs are not."""
    kinds = set()
    for node in graph.nodes:
        kind = getattr(node.meta.get("val"), "dtype", None)
        if node.op == "call_function" and kind in _ARITHMETIC:
            schema = getattr(node.target, "_schema", None)
            view = schema is not None and any(value.alias_info is not None for value in schema.returns)
            if not view or all(arg.meta["val"].dtype is not kind for arg in _tensors(node)):
                kinds.add(kind)
    return max(kinds, key=lambda kind: torch.finfo(kind).eps, default=torch.float32)


def _tensors(node: torch.fx.Node) -> list[torch.fx.Node]:
    return [arg for arg in node.all_input_nodes if isinstance(arg.meta.get("val"), torch.Tensor)]


def _reads(node: torch.fx.Node, results: set[int]) -> list[torch.fx.Node]:
    """The tensors that an operation surely reads in full for these of its results."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return []
    name = node.target._schema.name.removeprefix("aten::")
    tensors = _tensors(node)
    if torch.Tag.pointwise in node.target.tags:  # where a mask is false, the other operand need not be read
        return [arg for arg in tensors if arg.meta["val"].dtype is torch.bool][:1] or tensors
    if name in _PIECES:
        return tensors if len(results) == len(node.meta["val"]) else []
    if name == "einsum":
        operands = str(node.args[0]).replace(" ", "").partition("->")[0].split(",")
        return [] if any(len(set(indices)) < len(indices) for indices in operands) else tensors
    if name == "scaled_dot_product_attention":
        masked = len(node.args) > 3 or not {"attn_mask", "is_causal"}.isdisjoint(node.kwargs)
        return tensors[:1] if masked else tensors
    if name in _CONVOLUTIONS:
        return _convolved(node, tensors)
    return tensors if _WHOLE.fullmatch(name) else []


def _convolved(node: torch.fx.Node, tensors: list[torch.fx.Node]) -> list[torch.fx.Node]:
    """A convolution reads all of its input where windows do not skip any, and of its filters where it is large enough
    for each of their taps."""
    names = ("input", "weight", "bias", "stride", "padding", "dilation")
    args: dict[str, Any] = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    image, window = tensors[0].meta["val"].shape[2:], tensors[1].meta["val"].shape[2:]
    image = image[len(image) - len(window) :]
    if any(step != 1 for key in ("stride", "dilation") for step in args.get(key, [1])):
        return tensors[2:]
    fits = all(isinstance(size, int) and size >= taps for size, taps in zip(image, window, strict=True))
    return tensors if fits or all(taps == 1 for taps in window) else [tensors[0], *tensors[2:]]
