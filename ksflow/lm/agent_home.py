"""What an agent may reach: a folder that is thrown away, a home with copies of its settings, programs and ports; and
what it leaves there, which is hostile.
"""

import contextlib
import json
import os
import stat
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ksflow.errors import UNREADABLE, ConfigError, StageError
from ksflow.evaluation.sandbox.confine import PREFIX
from ksflow.kernels.source.answer import MOST_FILES, needed_files
from ksflow.lm.agent_output import mapping
from ksflow.protocols import call_context
from ksflow.records import Kernel
from ksflow.records.kernels import FILE_NAME

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/etc/ssl", "/etc/ca-certificates"),
    *("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/localtime", "/etc/alternatives"),
    *("/etc/ld.so.cache", "/run/systemd/resolve/stub-resolv.conf", "/proc/meminfo", "/proc/cpuinfo"),
)
ADDRESSES = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")
_LONGEST_SETTING, _LONGEST_FILE = 256 << 10, 1 << 20  # bytes


@contextlib.contextmanager
def thrown_away() -> Iterator[Path]:
    """A folder that is removed afterwards, whatever was built in it: of any depth, closed to its owner."""
    folder = tempfile.mkdtemp(prefix=f"{PREFIX}agent-")
    try:
        yield Path(folder)
    finally:
        for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            if os.path.exists(folder):
                subprocess.run([*command, "--", folder], stderr=subprocess.DEVNULL, check=False)


def copied(names: Sequence[str], home: Path) -> dict[str, bytes]:
    """Copy files below the user's home into another home. Returns name -> contents of the files that are there."""
    contents: dict[str, bytes] = {}
    for name in names:
        file = Path(name).expanduser()
        if not file.is_relative_to(Path.home()):
            raise ConfigError(f"{name}: an agent's files are named from the home folder: ~/.agent/settings.json")
        with contextlib.suppress(OSError):
            if file.is_file() and file.stat().st_size <= _LONGEST_SETTING:
                contents[name] = file.read_bytes()
                target = home / file.relative_to(Path.home())
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(contents[name])
                target.chmod(0o600)
    return contents


def renew(credentials: Mapping[str, bytes], home: Path) -> None:
    """Put what an agent made of its credentials in their place: a plain file with an object of the same parts, where
    nobody else changed the original meanwhile. Anything else is left.
    """
    for name, before in credentials.items():
        file, own = Path(name).expanduser().resolve(), home / Path(name).expanduser().relative_to(Path.home())
        with contextlib.suppress(*UNREADABLE):
            if own.parent.resolve() != home.resolve() / own.parent.relative_to(home):
                continue
            after = _read_plain(own, _LONGEST_SETTING)
            parts = [mapping(json.loads(text)).keys() for text in (before, after)]
            if after == before or parts[0] != parts[1] or not parts[0] or file.read_bytes() != before:
                continue
            draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
            write_new(draft, after, 0o600)
            draft.replace(file)


def write_new(name: str | Path, data: bytes, mode: int, folder: int | None = None) -> None:
    """Write a file that does not exist yet, never through a link. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(name, flags, mode, dir_fd=folder), "wb") as file:
        file.write(data)


def left_files(folder: int, kernel: Kernel) -> dict[str, str]:
    """The main file, what is left of the others, and what they include. StageError where the main one is none."""
    main, *others = kernel.files
    files = {main: _left_file(folder, main)}
    wanted = [*others, *needed_files(files[main])]
    for name in wanted:  # grows on the way
        if name not in files and FILE_NAME.fullmatch(name):
            with contextlib.suppress(StageError):
                files[name] = _left_file(folder, name)
                wanted += needed_files(files[name])
        if len(files) > MOST_FILES:
            raise StageError(call_context().stage, f"the agent left more than {MOST_FILES} files")
    return files


def _left_file(folder: int, name: str) -> str:
    try:
        text = _read_plain(name, _LONGEST_FILE, folder).decode("utf-8", "replace")
        if "\0" in text:
            raise ValueError("it is no text")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise StageError(call_context().stage, f"the agent left no file {name}: {why}") from error
    return text


def _read_plain(name: str | Path, most: int, folder: int | None = None) -> bytes:
    """A file that an agent may have replaced by anything. Raises OSError, or ValueError unless it is a plain one."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > most or status.st_nlink != 1:
            raise ValueError(f"it is no plain file of at most {most} bytes")
        return file.read(most)


def installed(program: str) -> list[str]:
    """Return the paths that a program reads when it starts: the system's, its own, and those installed with it."""
    real = Path(program).resolve()
    folders = [parent for parent in real.parents if parent.name == "node_modules"]
    environment = Path(program).absolute().parent.parent  # an interpreter's own packages
    own = [str(environment)] if (environment / "pyvenv.cfg").is_file() else []
    return [*_SYSTEM, os.path.abspath(program), str(real), *map(str, folders[-1:]), *own]


def proxy_ports(environment: Mapping[str, str]) -> list[int]:
    """Return the ports of the proxies and servers that an environment names."""
    ports = []
    for name, text in environment.items():
        if name in ADDRESSES or name.endswith("_BASE_URL"):
            with contextlib.suppress(ValueError):
                if port := urlsplit(text).port:
                    ports.append(port)
    return ports
