"""What a worker needs of this package, copied to where the jobs are: it runs with Python, torch and nothing else."""

import hashlib
import json
from pathlib import Path

from ksflow import home
from ksflow.evaluation.remote.job_store import read_json, write
from ksflow.home import PACKAGE, shipped_path

FOLDER = "worker"
_MANIFEST = "manifest.json"
_COMMAND = ("cli/__init__.py", "cli/usage.py", "cli/usage.txt")
"""What `python -m ksflow` itself imports, before it knows that the command is `worker`."""
_PACKAGES = ("protocols", "records", "kernels", "formats", "evaluation")


def refresh(root: Path) -> None:
    """Have this package's judge in `root`/worker; the manifest is written last, and is how a worker notices."""
    paths = [
        *PACKAGE.glob("*.py"),
        *map(PACKAGE.joinpath, _COMMAND),
        *shipped_path("conf", "target").glob("*.yaml"),
        *(path for package in _PACKAGES for path in PACKAGE.joinpath(package).rglob("*")),
    ]
    plain = (path for path in paths if path.is_file() and "__pycache__" not in path.parts)
    files = {f"ksflow/{path.relative_to(PACKAGE)}": path.read_bytes() for path in plain}
    folder = root / FOLDER
    listed = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    known = _listed(folder)
    for name, data in files.items():
        path = folder / name
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
    files = (read_json(folder / _MANIFEST) or {}).get("files")
    return files if isinstance(files, dict) else {}
