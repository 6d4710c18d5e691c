"""Plumbing: a bare git repository as an object store with atomic refs and claims that die with their owner.

Never a checkout, never an index. Every object is written by git itself, through helper processes that stay alive
(`hash-object`, `mktree`, `update-ref`, `cat-file`); refs change in transactions with their expected old values, so two
processes cannot overwrite each other. What it does not do: know anything about kernels (that is `lineage`).
"""

import fcntl
import hashlib
import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import git

from ksflow.errors import ConfigError, LineageError

ZERO = "0" * 40
_AUTHOR = "ksflow <ksflow@localhost>"
_PACK_EVERY = 1000
"""Loose objects written before they are packed."""

Ref = tuple[str, str, str]
"""(name, new, expected old). `ZERO` as new deletes, as old creates; an empty new only verifies."""


class Tag(NamedTuple):
    """An annotated tag."""

    name: str
    commit: str
    by: str
    date: str
    body: str


class Store:
    """One bare repository. Not for use by two threads at once; any number of processes may share the repository."""

    def __init__(self, path: Path, create: bool = True) -> None:
        self.path = path
        self._repo = _open(path, create)
        self._helpers: dict[str, Any] = {}
        self._scratch = os.memfd_create("ksflow-object")
        self._claims = os.open(path / "ksflow" / "claims", os.O_RDWR | os.O_CREAT, 0o644)
        self._held: set[str] = set()
        self._written = 0

    # -- objects ---------------------------------------------------------------------------------

    def blob(self, data: bytes) -> str:
        """Write a blob; its id."""
        return self._hash("blob", data)

    def tree(self, entries: Mapping[str, str]) -> str:
        """Write a tree of blobs (name -> blob id); its id."""
        lines = "".join(f"100644 blob {blob}\t{name}\n" for name, blob in entries.items())
        return self._ask("mktree", f"{lines}\n".encode())

    def commit(self, tree: str, parents: Iterable[str], message: str, when: int) -> str:
        """Write a commit (`when`: seconds since 1970, UTC); its id."""
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
        lines += [f"author {_AUTHOR} {when} +0000", f"committer {_AUTHOR} {when} +0000"]
        return self._hash("commit", "\n".join([*lines, "", message]).encode())

    def read(self, name: str) -> bytes:
        """The content of an object (`sha`, or `sha:path`)."""
        try:
            return bytes(self._repo.git.get_object_data(name)[3])
        except (ValueError, git.GitError, OSError) as error:
            raise LineageError(
                f"{self.path}: object {name} is missing or damaged; restore it from a clone, or see `git fsck`"
            ) from error

    def entries(self, commit: str) -> dict[str, str]:
        """The files of a commit's tree: name -> blob id."""
        data, found = self.read(f"{commit}^{{tree}}"), {}
        while data:
            head, _, rest = data.partition(b"\0")
            mode, _, name = head.partition(b" ")
            if mode.startswith(b"100"):
                found[name.decode(errors="replace")] = rest[:20].hex()
            data = rest[20:]
        return found

    def header(self, commit: str) -> tuple[tuple[str, ...], str]:
        """A commit's parents and message."""
        head, _, message = self.read(commit).decode(errors="replace").partition("\n\n")
        parents = [line[7:] for line in head.split("\n") if line.startswith("parent ")]
        return tuple(parents), message

    def trailer(self, commit: str, key: str) -> str:
        """The last such line of a commit's message; empty when there is none."""
        found = re.findall(rf"^{key}: (\S+)$", self.header(commit)[1], re.MULTILINE)
        return str(found[-1]) if found else ""

    def history(self, *prefixes: str) -> list[str]:
        """Every commit below refs that start so (each prefix ends in a slash)."""
        with tempfile.TemporaryFile() as tips:
            tips.write("".join(f"{tip}\n" for tip in set(self.refs(*prefixes).values())).encode())
            tips.seek(0)
            return str(self._repo.git.rev_list("--stdin", istream=tips)).split()

    def told(self, commit: str) -> tuple[str, int, str]:
        """A commit's tree, its date (seconds since 1970) and its message."""
        head, _, text = self.read(commit).decode(errors="replace").partition("\n\n")
        found = re.search(r"^tree (\w+)$.*^committer .* (\d+) [+-]\d{4}$", head, re.MULTILINE | re.DOTALL)
        return (found[1], int(found[2]), text) if found else ("", 0, text)

    def commits(self, prefix: str) -> list[str]:
        """The commits whose ids start so (four hexadecimal digits or more)."""
        if not re.fullmatch(r"[0-9a-f]{4,40}", prefix):
            return []
        found = self._git("rev-parse", f"--disambiguate={prefix}").split()
        return [name for name in found if self._git("cat-file", "-t", name) == "commit"]

    # -- refs ------------------------------------------------------------------------------------

    def refs(self, *prefixes: str) -> dict[str, str]:
        """Every ref below the prefixes (which end in a slash): full name -> commit."""
        out = self._git("for-each-ref", "--format=%(objectname) %(refname)", *prefixes)
        pairs = (line.split(" ", 1) for line in out.splitlines())
        return {name: commit for commit, name in pairs}

    def containing(self, commit: str) -> list[str]:
        """The branches that have this commit in their history, without `refs/heads/`."""
        return self._git("for-each-ref", "--format=%(refname:lstrip=2)", f"--contains={commit}", "refs/heads/").split()

    def ref(self, name: str) -> str | None:
        """The commit a ref points to."""
        try:
            found: str | bytes = self._repo.git.get_object_header(name)[0]
        except ValueError:
            return None
        return found if isinstance(found, str) else found.decode()

    def move(self, changes: Iterable[Ref]) -> bool:
        """All changes at once, or none: False when a ref was not at its expected value."""
        lines = "".join(
            f"update {name} {new} {old}\n" if new else f"verify {name} {old}\n" for name, new, old in changes
        )
        helper = self._helper("update-ref", "--stdin")
        try:
            helper.stdin.write(f"start\n{lines}prepare\ncommit\n".encode())
            helper.stdin.flush()
            answers = [helper.stdout.readline() for _ in range(3)]
        except BrokenPipeError:
            answers = []
        if answers and answers[-1] == b"commit: ok\n":
            return True
        problem = self._drop("update-ref")
        if "cannot lock ref" in problem or "reference already exists" in problem:
            return False
        raise LineageError(f"{self.path}: git could not update its refs: {problem[-300:]}")

    def diff(self, first: str, second: str, but: Iterable[str]) -> str:
        """A unified diff between two commits, without some files."""
        rest = [f":(exclude){name}" for name in sorted(but)]
        return self._git("diff", "--no-color", "--no-ext-diff", first, second, "--", ".", *rest)

    # -- tags ------------------------------------------------------------------------------------

    def tag(self, name: str, commit: str, message: str, sign: bool = False, force: bool = False) -> None:
        """An annotated tag by the user, as git knows them; signed when asked or when git's settings say so."""
        ref, before = f"refs/tags/{name}", self.ref(f"refs/tags/{name}")
        options = [*(["--sign"] if sign else []), *(["--force"] if force else [])]
        git_as_told = self._repo.git(c="user.useConfigOnly=true")  # no name made up from account and machine
        try:
            git_as_told.tag("--annotate", *options, "--cleanup=verbatim", f"--message={message}", name, commit)
        except git.GitCommandError as error:
            raise ConfigError(_no_tag(str(error.stderr))) from error
        wanted = sign or self._git("config", "--type=bool", "--default=false", "--get", "tag.gpgSign") == "true"
        made = self._git("for-each-ref", "--format=%(objectname) %(contents:signature)", ref)
        if wanted and " " not in made.strip():  # git 2.39 makes a plain tag when an ssh key cannot be read
            self.move([(ref, before or ZERO, made.split()[0])])
            raise ConfigError(_no_tag("no signature was made"))

    def tags(self, prefix: str) -> list[Tag]:
        """The annotated tags below a prefix (which ends in a slash)."""
        fields = ("refname:lstrip=2", "*objectname", "taggername", "taggerdate:iso-strict", "contents:body")
        form = "%00".join(f"%({field})" for field in fields) + "%1e"
        rows = self._git("for-each-ref", f"--format={form}", f"refs/tags/{prefix}").split("\x1e")
        found = [Tag(*row.lstrip("\n").split("\0")) for row in rows if row.strip("\n")]
        return [tag for tag in found if tag.by]

    # -- claims ----------------------------------------------------------------------------------

    def claim(self, name: str) -> bool:
        """Take the right to work on `name` until released or this process dies. False when another has it."""
        if name not in self._held and self._lock(name, fcntl.F_WRLCK):
            self._held.add(name)
        return name in self._held

    def holds(self, name: str) -> bool:
        """Whether this process has the claim."""
        return name in self._held

    def release_all(self) -> None:
        """Give every claim back."""
        for name in tuple(self._held):
            self.release(name)

    def release(self, name: str) -> None:
        """Give a claim back."""
        if name in self._held:
            self._held.remove(name)
            self._lock(name, fcntl.F_UNLCK)

    def _lock(self, name: str, kind: int) -> bool:
        start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
        try:
            # An open-file-description lock: the kernel drops it with the process, however that ends.
            request = struct.pack("hhqqi4x", kind, os.SEEK_SET, start, 1, 0)
            self._open()
            fcntl.fcntl(self._claims, fcntl.F_OFD_SETLK, request)
        except (BlockingIOError, PermissionError):
            return False
        return True

    # -- upkeep ----------------------------------------------------------------------------------

    def maintain(self, force: bool = False) -> None:
        """Pack what is loose, now and then. Unreachable objects stay: another process may be about to use them."""
        if self._written >= (1 if force else _PACK_EVERY):
            self._written = 0
            self._git("pack-refs", "--all")
            self._git("repack", "-d", "-l", "-q")

    def close(self) -> None:
        """End the helper processes and give every claim back."""
        for name in list(self._helpers):
            self._drop(name)
        self._repo.close()
        if self._claims >= 0:
            os.close(self._claims)
            os.close(self._scratch)
            self._claims = self._scratch = -1

    def _open(self) -> None:
        """LineageError when it was closed: the numbers of its files may be other files' by now."""
        if self._claims < 0:
            raise LineageError(f"{self.path} was closed before this was written")

    def _fan_out(self) -> None:
        """Make the folders of loose objects ahead: made one by one as needed, they get ever dearer on ext4."""
        for number in range(256):
            (self.path / "objects" / f"{number:02x}").mkdir(exist_ok=True)

    # -- helpers ---------------------------------------------------------------------------------

    def _hash(self, kind: str, data: bytes) -> str:
        self._open()
        os.ftruncate(self._scratch, 0)
        os.pwrite(self._scratch, data, 0)
        path = f"/proc/{os.getpid()}/fd/{self._scratch}"
        return self._ask(f"hash-object-{kind}", f"{path}\n".encode())

    def _ask(self, name: str, question: bytes) -> str:
        """One question to a helper that answers with an object's id."""
        if not self._written:
            self._fan_out()
        self._written += 1
        arguments = {
            "hash-object-blob": ("hash-object", "-w", "--no-filters", "--stdin-paths"),
            "hash-object-commit": ("hash-object", "-t", "commit", "-w", "--stdin-paths"),
            "mktree": ("mktree", "--batch", "--missing"),  # our own blobs: another may just have packed them
        }[name]
        helper = self._helper(name, *arguments[1:], command=arguments[0])
        with suppress(BrokenPipeError):
            helper.stdin.write(question)
            helper.stdin.flush()
            answer = str(helper.stdout.readline().decode().strip())
            if len(answer) == 40:
                return answer
        raise LineageError(f"{self.path}: git could not write an object: {self._drop(name)[-300:]}")

    def _helper(self, name: str, *arguments: str, command: str | None = None) -> Any:
        if name not in self._helpers:
            self._helpers[name] = self._repo.git._call_process(
                command or name, *arguments, as_process=True, istream=subprocess.PIPE
            )
        return self._helpers[name]

    def _drop(self, name: str) -> str:
        """End one helper; what it had to say."""
        helper = self._helpers.pop(name)  # GitPython ends the process when this goes out of scope
        process = helper.proc
        with suppress(BrokenPipeError):
            process.stdin.close()
        errors = process.stderr.read().decode(errors="replace").strip()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        return str(errors)

    def _git(self, command: str, *arguments: str) -> str:
        try:
            return str(self._repo.git._call_process(command, *arguments))
        except git.GitError as error:
            raise LineageError(f"{self.path}: git {command} failed: {str(error).splitlines()[-1]}") from error


def _no_tag(said: str) -> str:
    lines = [line.strip(" '") for line in said.replace("stderr:", "").splitlines() if line.strip(" '")]
    if "auto-detection is disabled" in said:
        return "git does not know who you are; set it with git config --global user.name NAME, and user.email ADDRESS"
    if "sign" in said:
        return f"the tag could not be signed: {'; '.join(lines)[-300:]}; see git's gpg.format and user.signingKey"
    return f"the tag could not be written: {'; '.join(lines)[-300:]}"


def _open(path: Path, create: bool) -> git.Repo:
    """Open or make the repository, and say plainly why not."""
    try:
        if not (path / "HEAD").exists():
            if not create:
                raise LineageError(f"no lineage at {path}; `python -m ksflow` makes one, lineage.path= names another")
            if path.exists() and any(path.iterdir()):
                raise LineageError(
                    f"{path} is not a lineage: it holds other files; name a new folder with lineage.path="
                )
            _make(path)
        repo = git.Repo(path)
        with repo.config_reader("repository") as config:
            version = config.get_value("ksflow", "version", 0)
        if not version and repo.git.for_each_ref("refs/ksflow/"):  # `git clone --mirror` takes all but the settings
            _configure(repo)
            version = 1
        if version != 1:
            raise LineageError(
                f"{path} is a git repository but not a lineage of this version; name another with lineage.path="
            )
        (path / "ksflow").mkdir(exist_ok=True)
        return repo
    except (OSError, git.GitError) as error:
        reason = str(error).splitlines()[0]
        raise LineageError(
            f"cannot open the lineage {path}: {reason}; name another folder with lineage.path="
        ) from error


def _make(path: Path) -> None:
    """Make it beside its place and move it there whole: two processes that start at once end up with one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".lineage-", dir=path.parent) as folder:
        repo = git.Repo.init(Path(folder) / "new", mkdir=True, bare=True)
        _configure(repo)
        repo.close()
        try:
            (Path(folder) / "new").rename(path)
        except OSError:
            if not (path / "HEAD").exists():  # else another process was first
                raise


def _configure(repo: git.Repo) -> None:
    with repo.config_writer() as config:
        config.set_value("ksflow", "version", 1)
        config.set_value("gc", "auto", 0)
        config.set_value("core", "fsync", "committed,reference")
        config.set_value("core", "logAllRefUpdates", "false")
        config.set_value("receive", "autogc", "false")
