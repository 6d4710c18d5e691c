"""Loops over arrays as C++: which arrays have memory of their own, which loops share their rows, and their order.

A `Nest` records `Node`s, each an array that is computed from others. `Nest.text` writes the loops of the nodes that the
outputs need: cheap nodes become part of the expressions that read them, a node that only finishes a reduction is
computed where the reduction ends, and consecutive nodes over the same rows share the loops over these rows, so that
their temporaries stay in the cache.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from ksflow.formats.nest_loops import block, head, loops, memory, parallel, preamble, shared
from ksflow.kernels.source.expressions import calculate

At = Callable[[Sequence[str]], str]
Whole = Callable[[Sequence[str]], list[str]]
MOST = 40  # loop nests of a kernel
_TOO_MANY = f"it takes more than {MOST} loop nests: does it loop over elements in Python?"
_CHEAP = 3  # operations that are repeated rather than kept in memory
_LONG = 10  # operations of an expression
_COSTLY = re.compile(r"std::(?!abs)\w+\(|power|exp_|tanh_|erf_|/")


Reading = tuple["Node", tuple[str, ...]]
Leaf = tuple[str, tuple[str, ...]]


class Node:
    """An array: `value` gives the C++ of an element. reduced: sizes of further indices that `value` takes and `op`
    reduces; base: the array whose elements at `region` are replaced.
    """

    def __init__(  # noqa: PLR0913 - what an array can be made of
        self, nest: "Nest", shape: Sequence[str], value: At, *, reduced: Sequence[str] = (), op: str = "",
        base: At | None = None, region: tuple[Sequence[str], Whole] | None = None, steps: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.nest, self.shape, self.value, self.reduced, self.op = nest, tuple(shape), value, tuple(reduced), op
        self.base, self.region, self.steps, self.out = base, region, steps, ""
        self.looped = region[0] if region else self.shape  # the replaced region, or all
        self.name = f"t{len(nest.nodes)}"
        self.inline = self.in_place = self.local = False
        self.core: Node | None = None  # the reduction whose result this node finishes
        self.level = 0  # the indices that are fixed where a local node is computed
        self.uses = 0
        nest.nodes.append(self)
        if len(nest.nodes) > 25 * MOST or sum(bool(node.op or node.base) for node in nest.nodes) > MOST:
            raise NotImplementedError(_TOO_MANY)

    @cached_property
    def axes(self) -> list[int]:
        """The axes with a loop."""
        return [axis for axis, size in enumerate(self.looped) if size != "1"]

    @property
    def dims(self) -> list[str]:
        """The sizes of these axes."""
        return [self.looped[axis] for axis in self.axes]

    @property
    def index(self) -> list[str]:
        """The loops' indices, 0 for an axis of one element."""
        return _index(self.looped)

    @property
    def target(self) -> list[str]:
        """The index of the element that is assigned."""
        return self.region[1](self.index) if self.region else self.index

    @property
    def inner(self) -> list[str]:
        """The indices of a reduction."""
        return [f"r{at}" for at in range(len(self.sums.reduced))]

    @property
    def sums(self) -> "Node":
        """The reduction."""
        return self.core or self

    def element(self) -> str:
        """The expression that is reduced or, without a reduction, assigned."""
        index = self.core.at(self.index) if self.core else self.index
        return self.nest.within(lambda: self.sums.value([*index, *self.inner]))

    def at(self, index: Sequence[str]) -> list[str]:
        """The index of a node, which may have other axes of one element, with these loops' indices."""
        left = iter(i for i in index if i != "0")
        return [next(left) if axis in self.axes else "0" for axis in range(len(self.shape))]

    def finished(self) -> str:
        """The expression that is assigned after a reduction."""
        return self.nest.within(lambda: self.value(self.index), self.core) if self.core else "v"

    def place(self, index: Sequence[str]) -> str:
        """The C++ of an element in memory."""
        if self.out:
            return self.nest.leaf(self.out, index, self.steps)
        axes = [axis for axis, size in enumerate(self.shape) if size != "1"]
        axes = axes[self.level :] if self.local else axes
        if self.local and not axes:
            return self.name
        sizes = [self.shape[axis] for axis in axes]
        steps = [" * ".join(sizes[at + 1 :]) or "1" for at in range(len(sizes))]
        return self.nest.leaf(self.name, [index[axis] for axis in axes] or ["0"], steps or ["1"])


class Nest:
    """Nodes in the order of their computation. exact: divisions stay divisions, because results are rounded."""

    def __init__(self, exact: bool = False) -> None:
        self.nodes: list[Node] = []
        self.exact, self.rounds = exact, False
        self.reads: list[Reading] = []
        self.leaves: list[Leaf] = []
        self.texts: dict[Leaf, str] = {}
        self.packed: dict[Leaf, str] = {}
        self._declared: set[str] = set()
        self._core: Node | None = None

    def read(self, node: Node, index: Sequence[str]) -> str:
        """The C++ of a node's element."""
        self.reads.append((node, tuple(index)))
        if node is self._core:
            return "v"
        return node.value(index) if node.inline else node.place(index)

    def leaf(self, name: str, index: Sequence[str], steps: Sequence[str]) -> str:
        """The C++ of an element in memory, of a packed copy where there is one."""
        place = name, tuple(index)
        self.leaves.append(place)
        self.texts[place] = f"{name}[{offset(index, steps)}]"
        return self.packed.get(place) or self.texts[place]

    def within(self, made: Callable[[], str], core: Node | None = None) -> str:
        """The text of an expression, in which the element of `core` is v."""
        self.leaves, self._core = [], core
        text = made()
        self._core = None
        return text

    def text(self, real: str, signature: str, names: Mapping[str, str]) -> str:
        """The kernel. The nodes with an `out` are the outputs. real: the number format of what is not summed. names:
        placeholder in the nodes -> the signature's name, which `_` follows where the loops use that name themselves.
        """
        self._choose()
        self._absorb()
        lines = [line for group, level in self._groups() for line in self._group(group, level)]
        body = "\n".join(line if line.lstrip().startswith("#") else f"  {line}" for line in lines)
        text = preamble(real, body)
        taken = {*re.findall(r"\w+", body)}
        for placeholder, name in names.items():
            own = name
            while own in taken or (own != name and own in names.values()):
                own += "_"
            taken.add(own)
            signature = re.sub(rf"\b{name}(?=[,)])", own, signature)
            body = re.sub(rf"\b{placeholder}\b", own, body)
        return f"{text}\n{signature} {{\n{body}\n}}\n"

    def least_reads(self, dims: Mapping[str, int]) -> dict[str, list[list[str]]]:
        """Argument -> the parts that results need in full, as the sizes of loops, each of which moves along an axis of
        its own. A part is left out where a condition, or a node of which a part is used, reads it.
        """
        found, asked = dict[str, list[list[str]]](), {node for node in self.nodes if node.out}
        for node in reversed(self.nodes):
            self.reads = []
            if node not in asked or "?" in node.element():
                continue
            sizes = dict(zip([*node.index, *node.inner], [*node.looped, *node.reduced], strict=True))
            for read, index in self.reads:
                part = _moved(index, sizes)
                if len(part) == len(index) and all(
                    calculate(size, dims) == calculate(whole, dims)
                    for size, whole in zip(part, read.shape, strict=True)
                ):
                    asked.add(read)
            for name, index in self.leaves:
                if (part := _moved(index, sizes)) and not any("/" in size for size in part):
                    found.setdefault(name, []).append(part)
        return found

    def _readings(self, node: Node) -> list[Reading]:
        """What the computation of a node reads."""
        made = self._heard(node.element)
        if node.core:
            made += [read for read in self._heard(node.finished) if read[0] is not node.core]
        return made + self._heard(lambda: self.kept(node))

    def kept(self, node: Node) -> str:
        """What the elements are that a node does not replace."""
        return node.base(_index(node.shape)) if node.base and not node.in_place else ""

    def _heard(self, made: Callable[[], str]) -> list[Reading]:
        self.reads = []
        made()
        return [read for read in self.reads if not read[0].inline]

    def _choose(self) -> None:
        """Decide which nodes have memory of their own."""
        direct = {node: self._readings(node) for node in self.nodes}
        for node in reversed(self.nodes):
            for read, _ in direct[node] if node.out or node.uses else []:
                read.uses += 1
        self.nodes = [node for node in self.nodes if node.out or node.uses]
        spread = {read for node in self.nodes for read, index in direct[node] if _repeats(node, index)}
        cost = dict[Node, int]()
        for node in self.nodes:
            cost[node] = 1 + sum(cost[read] for read, _ in direct[node] if read.inline)
            again = node.uses > 1 and (cost[node] > _CHEAP or _COSTLY.search(node.element()))
            own = node.op or node.base or node.out or again or node in spread or cost[node] > _LONG
            node.inline = not own
        self.nodes = [node for node in self.nodes if not node.inline]
        if len(self.nodes) > MOST:
            raise NotImplementedError(_TOO_MANY)

    def _absorb(self) -> None:
        """Let nodes finish the reductions that only they read, and let arrays be changed where they are."""
        for reader in reversed(self.nodes):
            for node, index in self._readings(reader):
                every = [(each, at) for each in self.nodes for read, at in self._readings(each) if read is node]
                if len({*every} if node.op else every) != 1 or node.out or node.inline:
                    continue
                whole = [i for i in index if i != "0"] == [i for i in _index(node.shape) if i != "0"]
                if reader.base and reader.base(_index(reader.shape)) == node.place(index):
                    node.out, node.steps, node.name, reader.in_place = reader.out, reader.steps, reader.name, True
                elif not whole or reader.base or (node.op and node.dims != reader.dims):
                    continue
                elif node.op and not reader.sums.op:
                    reader.core, node.inline = node, True
                elif node.base and reader.out and reader.element() == node.place(index):
                    node.out, node.steps, reader.inline = reader.out, reader.steps, True
        self.nodes = [node for node in self.nodes if not node.inline]

    def _groups(self) -> list[tuple[list[Node], int]]:
        """Nodes in groups that share their first loops, with the number of these loops."""
        groups = list[tuple[list[Node], int]]()
        for node in self.nodes:
            cap = shared(node)
            if groups and groups[-1][1] and not node.base:
                members, level = groups[-1]
                level = min(level, cap if node.sums.op else len(node.dims))
                reads = [read for read in self._readings(node) if read[0] in members]
                while level and not self._fits(node, members[0], reads, level):
                    level -= 1
                if level:
                    groups[-1] = ([*members, node], level)
                    continue
            groups.append(([node], 0 if node.base else cap))
        return groups

    def _fits(self, node: Node, first: Node, reads: list[Reading], level: int) -> bool:
        own = [f"i{at}" for at in range(level)]
        fixed = all([index[axis] for axis in read.axes[:level]] == own for read, index in reads)
        return fixed and node.dims[:level] == first.dims[:level]

    def _group(self, group: list[Node], level: int) -> list[str]:
        outside = {read for node in self.nodes if node not in group for read, _ in self._readings(node)}
        lines, body = list[str](), list[str]()
        level = level if len(group) > 1 else 0
        for node in group:
            node.local, node.level = bool(level) and not node.out and node not in outside, level
            if node.local and len(node.dims) == level:
                body.append(f"REAL {node.name};")
            elif not node.out and node.name not in self._declared:
                self._declared.add(node.name)
                sizes = node.dims[level:] if node.local else node.shape
                (body if node.local else lines).extend(memory(node.name, " * ".join(sizes) or "1"))
        for node in group:
            body += [*self._base(node), *loops(node, level)]
        if not level:
            return [*lines, *body]
        heads = [head(f"i{at}", size) for at, size in enumerate(group[0].dims[:level])]
        return [*lines, *block([parallel(group[0], level) + heads[0], *heads[1:]], body)]

    def _base(self, node: Node) -> list[str]:
        """The loops that copy what a node does not replace."""
        if not node.base or node.in_place:
            return []
        whole = Node(self, node.shape, node.base)
        self.nodes.remove(whole)
        whole.out, whole.steps, whole.name = node.out, node.steps, node.name
        return loops(whole, 0)


def offset(index: Sequence[str], steps: Sequence[str]) -> str:
    """The place of an element in memory."""
    terms = [f"({i}) * {step}" if step != "1" else i for i, step in zip(index, steps, strict=True)]
    return " + ".join(term for term in terms if not term.startswith("(0) *")) or "0"


def _moved(index: Sequence[str], sizes: Mapping[str, str]) -> list[str]:
    """The size of the loop that moves along each axis; [] where loops and axes are no pairs."""
    loops = [re.findall(r"\b[ir]\d+\b", i) for i in index]
    moving = [loop for each in loops for loop in each]
    if len({*moving}) < len(moving) or max(map(len, loops), default=0) > 1:
        return []
    return [sizes[each[0]] if each else "1" for each in loops]


def _repeats(node: Node, index: Sequence[str]) -> bool:
    """Whether a node reads an element at `index` in several iterations of its loops."""
    mine = {i for i in [*node.index, *(f"r{at}" for at in range(len(node.reduced)))] if i != "0"}
    return not mine <= set(re.findall(r"\b[ir]\d+\b", " ".join(index)))


def _index(shape: Sequence[str]) -> list[str]:
    """The indices of loops over a shape, 0 for an axis of one element."""
    places = [axis for axis, size in enumerate(shape) if size != "1"]
    return [f"i{places.index(axis)}" if axis in places else "0" for axis in range(len(shape))]
