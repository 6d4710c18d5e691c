"""Evaluations kept from one run to the next: one small file for each kernel and key. May be deleted at any time.

An entry is used only where kernel, problem, judge, target and level of isolation are the same. What it does not do:
stand in for a confirmation, keep what the machine caused (a harness error, a timeout, a time that was not to be
trusted), or keep ratios to another run's trials.
"""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from ksflow import home
from ksflow.errors import LineageError, boolean, reaching
from ksflow.records import Evaluation, Kept, Kernel, Key, digest, schema


class Cache:
    """Entries below `folder`, at most `most` of them: the oldest go first. Shared by any number of processes."""

    def __init__(self, folder: Path, most: int = 2000) -> None:
        self.folder, self.most = folder, most

    def find(self, kernel: Kernel, key: Key) -> Kept | None:
        """What was said of this kernel under this very key; the newest at any level where the key names none."""
        if not all((key.problem, key.judge, key.target)):
            return None
        if key.isolation:
            return self._read(self._file(kernel, key), kernel)
        verdicts = (self._read(file, kernel) for file in self.folder.glob(f"{_name(kernel, key)}-*.json"))
        return max(filter(None, verdicts), key=lambda kept: kept.date, default=None)

    def find_outdated(self, kernel: Kernel, name: str, key: Key) -> Kept | None:
        """The newest that was said of this kernel and a problem of this name under another key."""
        verdicts = (self._read(file, kernel) for file in self.folder.glob(f"{kernel.digest}-*.json"))
        others = [kept for kept in verdicts if kept and kept.name == name and key.describe_changes(kept.evaluation)]
        return max(others, key=lambda kept: kept.date, default=None)

    def keep(self, kernel: Kernel, name: str, source: str, evaluation: Evaluation) -> None:
        """Put an evaluation in, unless it says more of the machine than of the kernel."""
        key = Key(evaluation.problem, evaluation.judge, evaluation.target, evaluation.isolation)
        if not evaluation.cacheable or not all((key.problem, key.judge, key.target)):
            return
        date = datetime.now(UTC).isoformat(timespec="seconds")
        data = schema.dump("kept", Kept(kernel.digest, name, source, date, evaluation))
        with reaching(f"cannot write the cache {self.folder}", "set KSFLOW_CACHE, or cache=false"):
            self.folder.mkdir(parents=True, exist_ok=True)
            home.write(self._file(kernel, key), data.decode())
            self._trim()

    def _file(self, kernel: Kernel, key: Key) -> Path:
        return self.folder / f"{_name(kernel, key)}-{digest(key.isolation)}.json"

    def _read(self, file: Path, kernel: Kernel) -> Kept | None:
        with suppress(OSError):  # there is none, or it may be neither read nor removed
            try:
                kept = schema.load("kept", file.read_bytes(), Kept)
                return kept if kept.kernel == kernel.digest else None
            except LineageError:  # from another version, or damaged: as good as absent
                file.unlink()
        return None

    def _trim(self) -> None:
        aged = []
        for file in self.folder.glob("*"):
            with suppress(FileNotFoundError):
                aged.append((file.stat().st_mtime_ns, file))
        for _, file in sorted(aged)[: max(len(aged) - self.most, 0)]:
            file.unlink(missing_ok=True)


def evaluation_cache(enabled: object) -> Cache | None:
    """Where verdicts are kept, unless `cache=false`. ConfigError where that is neither true nor false."""
    return Cache(home.cache("evaluations")) if boolean("cache", str(enabled)) else None


def _name(kernel: Kernel, key: Key) -> str:
    """What the files of a kernel and a key begin with, at whatever level it was held."""
    return f"{kernel.digest}-{digest(key.problem, key.judge, key.target)}"
