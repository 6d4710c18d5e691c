"""A long sequence that is never changed, of which another one that differs near the end is made cheaply."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar, overload

T = TypeVar("T")
_SIZE = 512


class Chunks(Sequence[T]):
    """Equal to a tuple of the same items. `then` shares all parts before a place with what it comes from."""

    def __init__(self, items: Iterable[T] = (), before: tuple[tuple[T, ...], ...] = ()) -> None:
        """`before`: parts of `_SIZE` that come first."""
        rest = tuple(items)
        self._parts = (*before, *(rest[at : at + _SIZE] for at in range(0, len(rest), _SIZE)))
        self._length = _SIZE * len(before) + len(rest)

    @classmethod
    def of(cls, items: Sequence[T]) -> "Chunks[T]":
        """The items; themselves where they are in chunks already."""
        return items if isinstance(items, Chunks) else cls(items)

    def then(self, at: int, items: Iterable[T]) -> "Chunks[T]":
        """The first `at` items, then others."""
        whole, more = divmod(at, _SIZE)
        kept = self._parts[whole][:more] if more else ()
        return Chunks((*kept, *items), self._parts[:whole])

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(self._length)))
        at = index if index >= 0 else index + self._length
        if not 0 <= at < self._length:
            raise IndexError(index)
        return self._parts[at // _SIZE][at % _SIZE]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._parts)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, tuple | Chunks) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))
