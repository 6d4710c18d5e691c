"""Trials of a long run in less memory: what is long in them and seldom looked at is kept compressed."""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import TYPE_CHECKING, Any

from ksflow.records.evidence import Evidence

if TYPE_CHECKING:
    from ksflow.records.trials import Trial

_NOTHING = Evidence()
_NO_CHANGES: Mapping[str, str] = {}


class CompressedTexts(Mapping[str, str]):
    """Name -> text, as a kernel has them, decompressed each time they are read.

    `like`: other texts, as JSON. What stands there, too, takes next to no room.
    """

    __slots__ = ("_data", "_like")

    def __init__(self, texts: Mapping[str, str], like: bytes = b"") -> None:
        self._data, self._like = _compressed(json_of(texts), like), like

    def __getitem__(self, name: str) -> str:
        return str(self._plain()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._plain())

    def __len__(self) -> int:
        return len(self._plain())

    def _plain(self) -> Any:
        return json.loads(zlib.decompressobj(zdict=self._like).decompress(self._data))


class CompressedNumbers(Sequence[float]):
    """Equal to a tuple of the same numbers."""

    __slots__ = ("_data", "_row")

    def __init__(self, data: bytes, row: int) -> None:
        """`data`: as `rows` has it."""
        self._data, self._row = data, row

    @classmethod
    def rows(cls, rows: Sequence[Sequence[float]]) -> Sequence["CompressedNumbers"]:
        """Several of them that share what is compressed."""
        data = _compressed(json.dumps([list(row) for row in rows]).encode())
        return [cls(data, row) for row in range(len(rows))]

    def __getitem__(self, index: Any) -> Any:
        return self._plain()[index]

    def __iter__(self) -> Iterator[float]:
        return iter(self._plain())

    def __len__(self) -> int:
        return len(self._plain())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | CompressedNumbers) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def _plain(self) -> tuple[float, ...]:
        return tuple(json.loads(zlib.decompressobj().decompress(self._data))[self._row])


def _compressed(data: bytes, like: bytes = b"") -> bytes:
    made = zlib.compressobj(zdict=like)
    return made.compress(data) + made.flush()


def json_of(texts: Mapping[str, str]) -> bytes:
    """Texts as what others may be like."""
    return json.dumps(dict(texts)).encode()


def compact(trial: "Trial", like: bytes = b"") -> None:
    """Have a trial take less memory from now on. What it says stays the same. `like`: see `CompressedTexts`."""
    if trial.kernel:
        object.__setattr__(trial.kernel, "files", CompressedTexts(trial.kernel.files, like))
    if trial.experiment and not trial.experiment.changes:
        object.__setattr__(trial.experiment, "changes", _NO_CHANGES)
    if evaluation := trial.evaluation:
        for name in ("target", "judge", "problem", "isolation"):
            object.__setattr__(evaluation, name, intern(getattr(evaluation, name)))
        if evaluation.evidence == _NOTHING:
            object.__setattr__(evaluation, "evidence", _NOTHING)
        rows = CompressedNumbers.rows([timing.samples_us for timing in evaluation.timings])
        for timing, numbers in zip(evaluation.timings, rows, strict=True):
            object.__setattr__(timing, "samples_us", numbers if timing.samples_us else ())
