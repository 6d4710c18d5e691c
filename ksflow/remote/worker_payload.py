"""What a worker needs of this package, copied to where the jobs are: it runs with Python, torch and nothing else."""

import hashlib
import io
import json
import zipfile
import zlib
from pathlib import Path

from ksflow import home
from ksflow.home import PACKAGE, shipped
from ksflow.remote.job_store import read, write

FOLDER = "worker"
_MANIFEST = "manifest.json"
_MOST_FILES, _MOST_BYTES = 4096, 128 << 20
"""Of what is unpacked; the code itself is a hundredth of that."""
_COMMAND = ("cli/__init__.py", "cli/usage.py")
"""What `python -m ksflow` itself imports, before it knows that the command is `worker`."""
_ROOMS = (
    *("records", "hardware", "processes", "source", "problem", "formats"),
    *("sandbox", "compilers", "profiling", "judge", "remote"),
)


def refresh(root: Path) -> None:
    """Have this package's judge in `root`/worker."""
    _install(root, _sources())


def packed() -> bytes:
    """The same as a zip file; of the same code the same bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(_sources().items()):
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def unpack(root: Path, archive: bytes) -> None:
    """Have what `packed` made in `root`/worker. ValueError where it is something else, or not all of it."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as found:
            rows = found.infolist()
            if len(rows) > _MOST_FILES or sum(row.file_size for row in rows) > _MOST_BYTES:
                raise ValueError(f"too large: more than {_MOST_FILES} files or {_MOST_BYTES >> 20} MB")
            files = {row.filename: found.read(row) for row in rows}
    except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError) as error:
        raise ValueError(f"no zip file: {error}") from error
    if "ksflow/__main__.py" not in files:
        raise ValueError("no code of a worker")
    _install(root, files)


def _install(root: Path, files: dict[str, bytes]) -> None:
    """Have these files in `root`/worker; the manifest is written last, and is how a worker notices."""
    folder = root / FOLDER
    listed = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    known = _listed(folder)
    for name, data in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{name} is not in the folder")
        if known.get(name) != listed[name] or not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            home.write(path, data, durable=True)
    for name in known.keys() - listed.keys():
        if (path := (folder / name).resolve()).is_relative_to(folder.resolve()):
            path.unlink(missing_ok=True)
    if known != listed:
        write(folder / _MANIFEST, {"files": listed})


def stamp(root: Path) -> str:
    """Names the code in `root`/worker, if this process runs it; empty otherwise."""
    folder = root / FOLDER
    if PACKAGE.parent != folder.resolve():
        return ""
    return hashlib.sha256(json.dumps(_listed(folder), sort_keys=True).encode()).hexdigest()


def _listed(folder: Path) -> dict[str, str]:
    files = (read(folder / _MANIFEST) or {}).get("files")
    return files if isinstance(files, dict) else {}


def _sources() -> dict[str, bytes]:
    """Name in the copy -> what is in the file: the core, the rooms that judge, the known chips."""
    found = [
        *PACKAGE.glob("*.py"),
        *map(PACKAGE.joinpath, _COMMAND),
        *shipped("conf", "target").glob("*.yaml"),
        *(path for room in _ROOMS for path in PACKAGE.joinpath(room).rglob("*")),
    ]
    plain = (path for path in found if path.is_file() and "__pycache__" not in path.parts)
    return {f"ksflow/{path.relative_to(PACKAGE)}": path.read_bytes() for path in plain}
