"""A repository at a URL, reached by git's own commands: each ends in time, whatever the network does.

Git asks nobody for anything: credentials come from its helpers. The URL goes to git in its environment, where no list
of processes shows it.
"""

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ksflow.errors import ConfigError, KsflowError, one_line, printable

SHARED = "refs/remotes/shared/"
"""Where the refs of the remote are kept as they were last seen: `refs/heads/x` as `refs/remotes/shared/heads/x`."""
_REMOTE = "ksflow-shared"
_SILENT_S = 10.0
"""A git command that says nothing and does nothing for so long has lost its connection."""
_LONGEST_S = 1800.0
_MOST_REFS = 200
"""Refs of one push."""
_RACES = ("stale info", "fetch first", "reference already exists", "failed to update ref", "cannot lock ref", "atomic")
"""How git says that another host was faster."""
_USERINFO = re.compile(r"(\w[\w+.-]*://)[^/@\s]*@")
_QUIET_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"


class Unreachable(KsflowError):
    """The remote did not answer, or does not let us in. The message is git's last line."""


class Push(NamedTuple):
    """A ref as it is to be on the remote, and as it is expected there; empty for none."""

    ref: str
    new: str
    old: str


class Remote:
    """The refs of some patterns at a URL, for the repository at `path`."""

    def __init__(self, url: str, path: Path, patterns: Sequence[str]) -> None:
        check_url(url)
        self.name = _USERINFO.sub(r"\1", url)
        """The URL as it may be shown."""
        fetched = [(f"remote.{_REMOTE}.fetch", f"+{ref}:{SHARED}{ref.removeprefix('refs/')}") for ref in patterns]
        self._env = _environment(path, [(f"remote.{_REMOTE}.url", _absolute(url)), *fetched])

    def probe(self) -> None:
        """Whether it answers. Raises Unreachable."""
        self._run("ls-remote", "--heads", _REMOTE, "refs/heads/ksflow-is-there")

    def fetch(self) -> None:
        """Bring what is new there below `SHARED`, without what is gone there. Raises Unreachable."""
        options = ("--prune", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules")
        self._run("fetch", "--progress", *options, _REMOTE)

    def push(self, pushes: Sequence[Push], atomic: bool = True) -> dict[str, str]:
        """Push refs, each only where it is as expected there. Ref -> why it was not taken. Raises Unreachable.

        atomic: of each two hundred refs all are taken, or none.
        """
        refused = dict[str, str]()
        for at in range(0, len(pushes), _MOST_REFS):
            some = pushes[at : at + _MOST_REFS]
            leases = [f"--force-with-lease={push.ref}:{push.old}" for push in some]
            specs = [f"{push.new}:{push.ref}" for push in some]
            options = ["--progress", "--porcelain", *(["--atomic"] if atomic else [])]
            refused |= self._refused(self._run("push", *options, *leases, _REMOTE, *specs, parse=True))
        return refused

    def _refused(self, said: str) -> dict[str, str]:
        rows = re.findall(r"^!\t[^\t]*:(\S+)\t\[?(.*?)\]?(?: \((.*)\))?$", said, re.MULTILINE)
        return {ref: self._plain(why or what) for ref, what, why in rows}

    def _run(self, *arguments: str, parse: bool = False) -> str:
        """What a git command says. Raises Unreachable where it fails; not with `parse`, where it tells of refs."""
        code, out, err = _limited(["git", *arguments], self._env)
        if code and not (parse and re.search(r"^!\t", out, re.MULTILINE)):
            lines = [line.strip() for line in re.split(r"[\r\n]+", err) if line.strip()]
            told = [line for line in lines if line.startswith(("fatal:", "error:", "ssh:"))] or lines[-1:]
            raise Unreachable(self._plain(told[0]) if told else "no answer in time")
        return out

    def _plain(self, text: str) -> str:
        return one_line(_USERINFO.sub(r"\1", printable(text)).removeprefix("fatal: ").removeprefix("error: "))


def lost_race(why: str) -> bool:
    """Whether a push was refused because another host was faster."""
    return any(words in why for words in _RACES)


def check_url(url: str) -> None:
    """Raise ConfigError, which does not repeat it, where a URL holds a secret or names a program."""
    userinfo = re.match(r"(\w[\w+.-]*)://([^/@]*)@", url)
    if userinfo and (":" in userinfo[2] or userinfo[1] != "ssh"):
        raise ConfigError(
            "lineage.remote= holds credentials, and would be kept with the run: take them out of the URL, and give "
            "them to git's credential helper (`git help credentials`)"
        )
    if not url.strip() or url.startswith("-") or re.match(r"\w[\w+.-]*::", url):
        raise ConfigError("lineage.remote= must be a URL that git fetches from (https, ssh, git, file) or a folder")


def _absolute(url: str) -> str:
    """A folder by its whole path: git runs elsewhere."""
    return url if re.match(r"[\w.@-]+:", url) else str(Path(url).expanduser().absolute())


def _environment(path: Path, settings: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    found = {**os.environ, "GIT_DIR": str(path), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    found.setdefault("GIT_SSH_COMMAND", _QUIET_SSH)
    found["GIT_ALLOW_PROTOCOL"] = "file:git:http:https:ssh"
    first = int(found.get("GIT_CONFIG_COUNT", "0") or 0)
    given = [*settings, ("fetch.fsckObjects", "true"), ("gc.auto", "0"), ("core.warnAmbiguousRefs", "false")]
    for number, (key, value) in enumerate(given, first):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {**found, "GIT_CONFIG_COUNT": str(first + len(given))}


def _limited(command: Sequence[str], env: Mapping[str, str]) -> tuple[int, str, str]:
    """A command's exit status, output and errors. One that falls silent is ended with all that it has started."""
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C at the terminal is not for it
    )
    assert process.stdout
    assert process.stderr
    said: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    began, used = time.monotonic(), 0
    try:
        with selectors.DefaultSelector() as waiting:
            for stream in said:
                waiting.register(stream, selectors.EVENT_READ)
            while waiting.get_map():
                ready, before = waiting.select(_SILENT_S), used
                used = used if ready else _processor_ticks(process.pid)
                if (not ready and used <= before + 1) or time.monotonic() - began > _LONGEST_S:
                    break
                for key, _ in ready:
                    if data := os.read(key.fd, 1 << 16):
                        said[key.fd].append(data)
                    else:
                        waiting.unregister(key.fd)
            else:
                process.wait(_SILENT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None:
            _end(process)
        out, err = (b"".join(data).decode(errors="replace") for data in said.values())
        process.stdout.close()
        process.stderr.close()
    return process.returncode, out, err


def _processor_ticks(group: int) -> int:
    """The processor time of a group of processes: git says nothing while it writes many refs."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = file.read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12]) if int(fields[2]) == group else 0
    return ticks


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command and what it has started; it may take its locks and drafts away first."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(2)
            return
