"""Trials of a long run in less memory: what is long in them and seldom looked at is kept compressed."""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ksflow.records.trials import Trial


class CompressedTexts(Mapping[str, str]):
    """Name -> text, as a kernel has them, decompressed each time they are read."""

    __slots__ = ("_data",)

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._data = _compressed(dict(texts))

    def __getitem__(self, name: str) -> str:
        return str(_plain(self._data)[name])

    def __iter__(self) -> Iterator[str]:
        return iter(_plain(self._data))

    def __len__(self) -> int:
        return len(_plain(self._data))


class CompressedNumbers(Sequence[float]):
    """Equal to a tuple of the same numbers."""

    __slots__ = ("_data",)

    def __init__(self, numbers: Sequence[float]) -> None:
        self._data = _compressed(list(numbers))

    def __getitem__(self, index: Any) -> Any:
        return tuple(_plain(self._data))[index]

    def __iter__(self) -> Iterator[float]:
        return iter(_plain(self._data))

    def __len__(self) -> int:
        return len(_plain(self._data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | CompressedNumbers) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


def _compressed(value: object) -> bytes:
    return zlib.compress(json.dumps(value).encode(), 1)


def _plain(data: bytes) -> Any:
    return json.loads(zlib.decompress(data))


def compact(trial: "Trial") -> None:
    """Have a trial take less memory from now on. What it says stays the same."""
    if trial.kernel:
        object.__setattr__(trial.kernel, "files", CompressedTexts(trial.kernel.files))
    if evaluation := trial.evaluation:
        for name in ("target", "judge", "problem", "isolation"):
            object.__setattr__(evaluation, name, intern(getattr(evaluation, name)))
        for timing in evaluation.timings:
            object.__setattr__(timing, "samples_us", CompressedNumbers(timing.samples_us) if timing.samples_us else ())
