"""A long sequence that is never changed, of which others that differ in a place are made cheaply."""

import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, TypeVar, overload

T = TypeVar("T")
_SIZE = 512
_Parts = tuple[tuple[T, ...], ...]


class Chunks(Sequence[T]):
    """Equal to a tuple of the same items. What is made of it shares all parts with it but those that differ."""

    def __init__(self, items: Iterable[T] = (), before: _Parts[T] = (), after: _Parts[T] = ()) -> None:
        """`before`, `after`: parts that come before the items, and after them."""
        rest = tuple(items)
        parts = (rest[at : at + _SIZE] for at in range(0, len(rest), _SIZE))
        self._parts: _Parts[T] = (*before, *parts, *after)
        self._starts = (*accumulate(map(len, self._parts), initial=0),)

    @classmethod
    def of(cls, items: Sequence[T]) -> "Chunks[T]":
        """The items; themselves where they are in chunks already."""
        return items if isinstance(items, Chunks) else cls(items)

    def then(self, at: int, items: Iterable[T]) -> "Chunks[T]":
        """The first `at` items, then others."""
        number = self._number(at)
        return Chunks((*self._part(number)[: at - self._starts[number]], *items), self._parts[:number])

    def with_item(self, at: int, item: T) -> "Chunks[T]":
        """All items, and another one as number `at`."""
        number = self._number(at)
        part, within = self._part(number), at - self._starts[number]
        grown = (*part[:within], item, *part[within:])
        cut = len(grown) if len(grown) <= _SIZE else _SIZE // 2
        return Chunks(grown[cut:], (*self._parts[:number], grown[:cut]), self._parts[number + 1 :])

    def _number(self, at: int) -> int:
        """In which part an item is, or would be at the end: in the last one until that is full."""
        number = bisect.bisect_right(self._starts, at) - 1
        return number - 1 if number == len(self._parts) and number and len(self._parts[-1]) < _SIZE else number

    def _part(self, number: int) -> tuple[T, ...]:
        return self._parts[number] if number < len(self._parts) else ()

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        count = self._starts[-1]
        at = index if index >= 0 else index + count
        if not 0 <= at < count:
            raise IndexError(index)
        number = bisect.bisect_right(self._starts, at) - 1
        found: T = self._parts[number][at - self._starts[number]]
        return found

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._parts)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, tuple | Chunks) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))
