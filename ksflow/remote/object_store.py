"""An object store by its URL, as fsspec knows it: objects are put, got, listed, removed, or only created.

Nothing is renamed, and nothing is locked. The only importer of fsspec; credentials are where the store's own tools have
them, never in a URL.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ksflow.errors import ConfigError, one_line, printable

_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
}
_MADE = ("LastModified", "last_modified", "updated", "mtime", "created")
"""How stores call the time when an object was written."""


class StoreError(OSError):
    """The store did not do what it was asked for. The message is one line."""


@dataclass(frozen=True)
class Stored:
    """An object, as a listing has it."""

    version: str
    """Another one after each write."""
    size: int
    made: float
    """When it was written, by the store's clock; 0 where it does not tell."""


def is_url(folder: str) -> bool:
    """Whether it names an object store, not a folder of this machine."""
    return "://" in folder or "::" in folder


class ObjectStore:
    """The objects below a URL, named by their paths from there. ConfigError; methods: StoreError."""

    def __init__(self, url: str) -> None:
        if re.search(r"://[^/@]*:[^/@]*@", url):
            raise ConfigError(
                "the URL of the object store holds a password: take it out, and give it where fsspec's package for "
                "this store looks for it"
            )
        if not re.search(r"://.*\w", url):
            raise ConfigError(f"{url} names no place in an object store: as s3://bucket/path")
        self.url = url.rstrip("/")
        protocol = re.split(r"::|://", url)[0]
        packages = " ".join(("fsspec", *filter(None, [_PACKAGES.get(protocol)])))
        try:
            from fsspec.core import url_to_fs

            self._fs, root = url_to_fs(self.url, use_listings_cache=False)
        except ImportError as error:
            raise ConfigError(f"{self.url} needs packages that are not here: pip install {packages}") from error
        except Exception as error:
            raise ConfigError(f"{self.url} cannot be opened: {_line(error)}") from error
        self._root = root.rstrip("/")

    def listed(self) -> dict[str, Stored]:
        """Every object, in one request of a thousand where the store can."""
        with _told():
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._root, detail=True)
            except FileNotFoundError:
                found = {}
        files = {path: info for path, info in found.items() if info.get("type") == "file"}
        return {path[len(self._root) :].lstrip("/"): _stored(info) for path, info in files.items()}

    def read(self, path: str) -> bytes | None:
        """What an object holds; None where there is none."""
        with _told():
            try:
                return bytes(self._fs.cat_file(self._path(path)))
            except FileNotFoundError:
                return None

    def has(self, path: str) -> bool:
        """Whether there is such an object now."""
        with _told():
            try:
                return bool(self._fs.info(self._path(path)))
            except FileNotFoundError:
                return False

    def write(self, path: str, data: bytes) -> None:
        """Put an object, or another in its place."""
        with _told():
            self._put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        """Put an object unless there is one; whether this one is there now.

        Of several at once the store has one win. In a store that cannot, the last one does, and now and then two.
        """
        with _told():
            try:
                self._put(path, data, mode="create")
            except (TypeError, NotImplementedError):
                self._put(path, data)
            except Exception as error:  # perhaps that there is one, which each store says in its own way
                if self.read(path) is None:
                    raise StoreError(_line(error)) from error
        return self.read(path) == data

    def remove(self, paths: Iterable[str]) -> None:
        """Have no such objects."""
        for path in paths:
            with _told(), contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self._path(path))

    def _put(self, path: str, data: bytes, **options: str) -> None:
        whole = self._path(path)
        try:
            self._fs.pipe_file(whole, data, **options)
        except FileNotFoundError:  # a store with folders; another says that there is no such bucket
            if "/" in (parent := whole.rpartition("/")[0]):  # a bucket is not made
                with contextlib.suppress(FileExistsError):
                    self._fs.mkdir(parent, create_parents=False)
            self._fs.pipe_file(whole, data, **options)

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"


def _stored(info: Mapping[str, Any]) -> Stored:
    made = next((info[key] for key in _MADE if info.get(key)), 0.0)
    seconds = made.timestamp() if hasattr(made, "timestamp") else made
    return Stored(repr(sorted(info.items())), int(info.get("size") or 0), seconds if type(seconds) is float else 0.0)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Whatever a store's package raises, as a StoreError."""
    try:
        yield
    except (StoreError, ConfigError):
        raise
    except Exception as error:
        raise StoreError(_line(error)) from error


def _line(error: BaseException) -> str:
    """An error's words in one line, without what a signed URL carries."""
    text = re.sub(r"(://[^\s?]*)\?\S+", r"\1", printable(str(error)))
    return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__, 300)
