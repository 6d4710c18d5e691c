"""Plumbing: a bare git repository as an object store with atomic refs and claims that die with their owner.

Never a checkout, never an index. A blob, a tree or a commit costs one file, and no other process's help: it is there
whole and durable, or not at all. Git reads (`git cat-file`) and packs, off the path of whoever writes; refs change
together with their expected old values (`refs`), so two processes cannot overwrite each other. What it does not do:
know anything about kernels (that is `record`).
"""

import errno
import hashlib
import io
import logging
import os
import re
import secrets
import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import git

from ksflow.errors import ConfigError, LineageError, of_system, system_errors
from ksflow.evaluation.processes import ending
from ksflow.lineage.git_processes import git_said, open_repository, update_refs
from ksflow.lineage.locks import Claims, clear_lock, lock_in
from ksflow.lineage.refs import ZERO, PlainRefs, Ref

THIS = "this"  # as a ref's new end: the commit that is being made
_AUTHOR = "ksflow <ksflow@localhost>"
_MANY = 16  # objects from which on a process of its own reads them faster than question and answer
_PACKED_EVERY = 10_000  # loose objects written before they are packed
_OBJECT_TRIES = 10  # how often git may take the empty folder of an object away, each time that it has packed
_LOCKED_TRIES = 20  # lock files that one change of refs may meet, each of which was waited for
_CHANGED = ("reference already exists", "but expected", "unable to resolve reference")
"""How git says that a ref is not where it was expected."""
_LOG = logging.getLogger("ksflow.lineage")


class Header(NamedTuple):
    """What a commit says beside its files."""

    parents: tuple[str, ...]
    date: int  # seconds since 1970
    text: str  # its message


class Store:
    """One bare repository. Not for use by two threads at once; any number of processes may share the repository."""

    def __init__(self, path: Path, create: bool = True) -> None:
        self.path = path
        self._repo = open_repository(path, create)
        self._objects = f"{path}/objects"
        self._unpacked = 0
        self._closed = False
        self._refs = PlainRefs(path)
        self._packing: threading.Thread | None = None
        self._claims = (path / "ksflow" / "claims").open("a+b")
        self._ahead: dict[str, bytes] = {}
        self.damaged: set[str] = set()  # refs whose files are damaged, as far as they were met

    # -- objects ---------------------------------------------------------------------------------

    def commit(
        self, files: Mapping[str, bytes | str], parents: Iterable[str], text: str, when: int, refs: Sequence[Ref] = ()
    ) -> str:
        """Write a commit (`when`: seconds since 1970, UTC) and its tree, and move refs to it (`THIS`); its id.

        A file is bytes, or a blob's id. Empty where a ref was not as expected: then none has moved.
        """
        blobs = {name: data if isinstance(data, str) else self.write("blob", data) for name, data in files.items()}
        rows = sorted((name.encode(), bytes.fromhex(blob)) for name, blob in blobs.items())
        tree = self.write("tree", b"".join(b"100644 %b\0%b" % row for row in rows))
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
        lines += [f"author {_AUTHOR} {when} +0000", f"committer {_AUTHOR} {when} +0000"]
        commit = self.write("commit", "\n".join([*lines, "", text]).encode())
        moved = not refs or self.move((name, commit if new == THIS else new, old) for name, new, old in refs)
        return commit if moved else ""

    def write(self, kind: str, data: bytes) -> str:
        """Write an object (`blob`, `tree`, `commit`); its id. LineageError where the disk does not take it."""
        if self._closed:
            raise LineageError(f"{self.path} was closed before this was written")
        whole = b"%b %d\0%b" % (kind.encode(), len(data), data)
        name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        folder = f"{self._objects}/{name[:2]}"
        path = f"{folder}/{name[2:]}"
        if os.path.exists(path):
            return name
        self._unpacked += 1
        packed = zlib.compress(whole, 1)
        trouble = f"{self.path}: an object could not be written"
        with system_errors(lambda error: LineageError(f"{trouble}: {of_system(error)}")):
            for _ in range(_OBJECT_TRIES):
                with suppress(FileNotFoundError):
                    # All are made in one folder and renamed into theirs: ext4 takes twice as long to make them in 256.
                    _write_durably(packed, f"{self._objects}/tmp_obj_{secrets.token_hex(8)}", path)
                    return name
                for number in range(256):  # made one by one as needed, they get ever dearer on ext4
                    with suppress(FileExistsError):
                        os.mkdir(f"{self._objects}/{number:02x}")
            raise FileNotFoundError(errno.ENOENT, f"{folder} is taken away again and again")

    def read(self, name: str) -> bytes:
        """The content of an object (`sha`, or `sha:path`)."""
        if name in self._ahead:
            return self._ahead[name]
        if found := self._object(name):
            return bytes(found[3])
        raise self._unread(f"object {name} is missing or damaged")

    def _object(self, name: str) -> Any:
        """What git's `get_object_data` gives for an object or a ref; None where there is none. LineageError."""
        try:
            return self._repo.git.get_object_data(name)
        except ValueError:
            return None
        except (git.GitError, OSError) as error:
            status = error.status if isinstance(error, git.GitCommandError) else 0
            if isinstance(status, int) and status < 0:
                ended = f"{self.path}: git was ended twice over {name}, by signal {-status}; run again"
                raise LineageError(ended) from error
            words = git_said(error) if isinstance(error, git.GitCommandError) else ""
            what = f"git cannot read {name}: {words}" if words else f"object {name} is missing or damaged"
            raise self._unread(what) from error

    def _unread(self, what: str) -> LineageError:
        return LineageError(f"{self.path}: {what}; restore it from a clone, or see `git fsck`")

    @contextmanager
    def read_ahead(self, names: Sequence[str]) -> Iterator[None]:
        """Meanwhile `read` has these objects at hand: git was asked for all of them in one go."""
        contents = self._batch(names) if len(names) >= _MANY else {}
        self._ahead |= contents
        try:
            yield
        finally:
            for name in contents:
                self._ahead.pop(name, None)

    def _batch(self, names: Sequence[str]) -> dict[str, bytes]:
        """Name -> content, of those that can be read."""
        with tempfile.TemporaryFile() as asked:
            asked.write("".join(f"{name}\n" for name in names).encode())
            asked.seek(0)
            raw = {"stdout_as_string": False, "strip_newline_in_stdout": False, "with_exceptions": False}
            answer = io.BytesIO(self._repo.git.cat_file("--batch", istream=asked, **raw))
        contents = {}
        for name in names:
            head = answer.readline().split()
            if len(head) != 3:  # missing, or the end
                continue
            data = answer.read(int(head[2]))
            if answer.read(1) != b"\n":  # git met a damaged object and gave up
                break
            contents[name] = data
        return contents

    def entries(self, commit: str) -> dict[str, str]:
        """The files of a commit's tree: name -> blob id."""
        data, entries = self.read(f"{commit}^{{tree}}"), {}
        while data:
            head, _, rest = data.partition(b"\0")
            mode, _, name = head.partition(b" ")
            if mode.startswith(b"100"):
                entries[name.decode(errors="replace")] = rest[:20].hex()
            data = rest[20:]
        return entries

    def header(self, commit: str) -> Header:
        """A commit's parents, date and message."""
        head, _, message = self.read(commit).decode(errors="replace").partition("\n\n")
        date = re.search(r"^committer .* (\d+) [+-]\d{4}$", head, re.MULTILINE)
        return Header(tuple(re.findall(r"^parent (\w+)$", head, re.MULTILINE)), int(date[1]) if date else 0, message)

    def line(self, commit: str) -> Iterator[str]:
        """A commit, its first parent, that one's, and so on; none where there is no commit."""
        while commit:
            yield commit
            commit = next(iter(self.header(commit).parents), "")

    def trailer(self, commit: str, key: str) -> str:
        """The last such line of a commit's message; empty when there is none."""
        return trailer(self.header(commit).text, key)

    def history(self, *prefixes: str) -> list[str]:
        """Every commit below refs that start so (each prefix ends in a slash)."""
        with tempfile.TemporaryFile() as tips:
            tips.write("".join(f"{tip}\n" for tip in set(self.refs(*prefixes).values())).encode())
            tips.seek(0)
            return str(self._repo.git.rev_list("--stdin", istream=tips)).split()

    def list_ancestors(self, head: str, before: str = "") -> list[str]:
        """A commit and its ancestors, the newest first; without those of `before`, where that is given."""
        return self._git("rev-list", head, *([f"^{before}"] if before else [])).split()

    def commits(self, prefix: str) -> list[str]:
        """The commits whose ids start so (four hexadecimal digits or more)."""
        if not re.fullmatch(r"[0-9a-f]{4,40}", prefix):
            return []
        names = self._git("rev-parse", f"--disambiguate={prefix}").split()
        return [name for name in names if self._git("cat-file", "-t", name) == "commit"]

    # -- refs ------------------------------------------------------------------------------------

    def refs(self, *prefixes: str) -> dict[str, str]:
        """Every ref below the prefixes (which end in a slash): full name -> commit.

        Refs whose files are damaged are left out; `damaged` names those that were met.
        """
        out, warnings = self._run_git("for-each-ref", "--format=%(objectname) %(refname)", *prefixes)
        for name in re.findall(r"^warning: ignoring broken ref (\S+)$", warnings, re.MULTILINE):
            self._leave_out(name)
        pairs = (line.split(" ", 1) for line in out.splitlines())
        return {name: commit for commit, name in pairs}

    def runs(self) -> list[tuple[str, str]]:
        """(problem, run) of everything that is here, sorted."""
        parts = (name.split("/") for name in self.refs("refs/heads/"))
        return sorted({(part[2], part[3]) for part in parts if len(part) == 5})

    def newest_commit_time(self, prefix: str) -> int:
        """When the newest commit of the refs below a prefix was made, in seconds since 1970; 0 where there is none."""
        when = self._git("for-each-ref", "--sort=-committerdate", "--count=1", "--format=%(committerdate:unix)", prefix)
        return int(when.strip() or 0)

    def odd_ref(self, name: str) -> str | None:
        """The commit of a ref whose file names none; a damaged one is left out, which is logged once."""
        if (commit := self._resolved(name)) is None:
            self._leave_out(name)
        return commit

    def _leave_out(self, name: str) -> None:
        if name not in self.damaged:
            self.damaged.add(name)
            _LOG.warning("%s: ref %s is damaged and left out; %s", self.path, name, self._remedy(name))

    def containing(self, commit: str) -> list[str]:
        """The branches that have this commit in their history, without `refs/heads/`."""
        return self._git("for-each-ref", "--format=%(refname:lstrip=2)", f"--contains={commit}", "refs/heads/").split()

    def ref(self, name: str) -> str | None:
        """The commit a ref points to."""
        try:
            text = (self.path / name).read_text(errors="replace", encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            text = ""
        return text[:40] if re.fullmatch("[0-9a-f]{40}\n", text) else self._resolved(name)

    def _resolved(self, name: str) -> str | None:
        """The same for any kind of ref, by git: a packed one, a symbolic one."""
        commit = found[0] if (found := self._object(name)) else None
        return commit.decode() if isinstance(commit, bytes) else commit

    def move(self, changes: Iterable[Ref]) -> bool:
        """All changes at once, or none: False when a ref was not at its expected value.

        A ref that another process has locked is waited for; a lock file whose process is dead is removed. Raises
        LineageError, which names what stands in the way and the remedy.
        """
        changes = tuple(changes)
        for _ in range(_LOCKED_TRIES):
            moved = self._refs.move(changes)
            problem = update_refs(self._repo, changes) if moved is None else ""
            if moved is False:
                return False
            if not problem:
                self.maintain()
                return True
            lock = lock_in(problem)
            if lock is None:
                return self._refused(problem)
            clear_lock(lock, self.path)
        raise LineageError(f"{lock} is made again and again by other processes; end them, and remove it if it stays")

    def _refused(self, problem: str) -> bool:
        """False where a ref was not at its expected value; LineageError where it cannot be moved at all."""
        if broken := re.search(r"unable to resolve reference '(\S+)': reference broken", problem):
            raise LineageError(f"{self.path}: ref {broken[1]} is damaged; {self._remedy(broken[1])}")
        if other := re.search(r"'(refs/\S+)' exists; cannot create '(\S+)'", problem):
            raise LineageError(
                f"{self.path}: {other[1]} stands where the folder of {other[2]} must be; rename it, for example with "
                f"`git -C {self.path} branch -m NEW`, or give this run another name with run="
            )
        if any(words in problem for words in _CHANGED):
            return False
        raise LineageError(f"{self.path}: git could not update its refs: {problem[-300:]}")

    def _remedy(self, ref: str) -> str:
        """How a person mends a ref whose file is damaged."""
        return (
            f"put it back with `rm {self.path / ref}; git -C {self.path} update-ref {ref} COMMIT` "
            f"(`git -C {self.path} fsck --lost-found` lists commits that no ref holds), or remove the file alone"
        )

    def point_head(self, branch: str) -> None:
        """Have a `git clone` of the repository check this branch out."""
        self._git("symbolic-ref", "HEAD", f"refs/heads/{branch}")

    def diff(self, first: str, second: str, but: Iterable[str]) -> str:
        """A unified diff between two commits, without some files."""
        rest = [f":(exclude){name}" for name in sorted(but)]
        return self._git("diff", "--no-color", "--no-ext-diff", first, second, "--", ".", *rest)

    # -- tags ------------------------------------------------------------------------------------

    def tag(self, name: str, commit: str, message: str, sign: bool = False, force: bool = False) -> None:
        """An annotated tag by the user, as git knows them; signed when asked or when git's settings say so."""
        ref, before = f"refs/tags/{name}", self.ref(f"refs/tags/{name}")
        options = [*(["--sign"] if sign else []), *(["--force"] if force else [])]
        strict = self._repo.git(c="user.useConfigOnly=true")  # no name made up from account and machine
        try:
            strict.tag("--annotate", *options, "--cleanup=verbatim", f"--message={message}", name, commit)
        except git.GitCommandError as error:
            raise ConfigError(_no_tag(str(error.stderr))) from error
        wanted = sign or self._git("config", "--type=bool", "--default=false", "--get", "tag.gpgSign") == "true"
        signature = self._git("for-each-ref", "--format=%(objectname) %(contents:signature)", ref)
        if wanted and " " not in signature.strip():  # git 2.39 makes a plain tag when an ssh key cannot be read
            self.move([(ref, before or ZERO, signature.split()[0])])
            raise ConfigError(_no_tag("no signature was made"))

    def tags(self, prefix: str) -> list[tuple[str, ...]]:
        """(name, commit, by, date, body) of the annotated tags below a prefix, which ends in a slash."""
        fields = ("refname:lstrip=2", "*objectname", "taggername", "taggerdate:iso-strict", "contents:body")
        form = "%00".join(f"%({field})" for field in fields) + "%1e"
        rows = self._git("for-each-ref", f"--format={form}", f"refs/tags/{prefix}").split("\x1e")
        tags = [tuple(row.lstrip("\n").split("\0")) for row in rows if row.strip("\n")]
        return [tag for tag in tags if tag[2]]

    def bundle(self, file: Path, refs: Iterable[str]) -> None:
        """Write refs and their history to a git bundle. Raises LineageError."""
        with tempfile.TemporaryFile() as names:
            names.write("".join(f"{name}\n" for name in refs).encode())
            names.seek(0)
            try:
                self._repo.git.bundle("create", str(file.absolute()), "--stdin", istream=names)
            except git.GitError as error:
                raise LineageError(f"{file}: git bundle failed: {git_said(error)}") from error

    def claims(self, prefix: str) -> Claims:
        """The claims on names that begin with it, which are held until the store is closed at the latest."""
        return Claims(self._claims, prefix)

    # -- upkeep ----------------------------------------------------------------------------------

    def maintain(self, force: bool = False) -> None:
        """Pack what is loose, now and then, beside what goes on; with `force` now, and wait for it."""
        running = self._packing
        if force and running:
            running.join()
        if self._unpacked >= (1 if force else _PACKED_EVERY) and not (running and running.is_alive()):
            self._unpacked = 0
            self._packing = threading.Thread(target=self._pack, daemon=True)
            self._packing.start()
            if force:
                self._packing.join()

    def _pack(self) -> None:
        """Pack refs, loose objects and small packs as git does it; each pack has twice the objects of the next one.

        Unreachable objects stay: another process may be about to use them. Packing is a comfort: where it fails, that
        is logged and the repository stays as it is.
        """
        try:
            clear_lock(self.path / "packed-refs.lock", self.path)
            self._git("pack-refs", "--all")
            self._git("repack", "--geometric=2", "-d", "-l", "-n", "-q", "--threads=1")
        except LineageError as error:
            _LOG.info("packing failed (%s); nothing is lost, the repository is larger than it need be", error)

    def close(self) -> None:
        """End the helper processes and give every claim back."""
        self._closed = True
        self._repo.close()
        self._claims.close()

    def _git(self, command: str, *arguments: str) -> str:
        return self._run_git(command, *arguments)[0]

    def _run_git(self, command: str, *arguments: str) -> tuple[str, str]:
        """What a git command wrote to its output, and what it warned of. Raises LineageError when it fails.

        A signal to the whole process group that hits it while it is only being started, before it has a group of its
        own, has it started once more: it has done nothing yet.
        """
        call = partial(self._repo.git._call_process, command, *arguments, with_extended_output=True)
        try:
            try:
                result: Any = call()
            except git.GitCommandError as error:
                if error.status not in {-number for number in ending.SIGNALS}:
                    raise
                result = call()
            return str(result[1]), str(result[2])
        except (git.GitError, OSError) as error:
            words = git_said(error) if isinstance(error, git.GitError) else error
            raise LineageError(f"{self.path}: git {command} failed: {words}") from error


def trailer(text: str, key: str) -> str:
    """The last line `key: value` of a message; empty where there is none. What models wrote is indented, so none."""
    values = re.findall(rf"^{key}: (\S+)$", text, re.MULTILINE)
    return str(values[-1]) if values else ""


def _no_tag(words: str) -> str:
    lines = [line.strip(" '") for line in words.replace("stderr:", "").splitlines() if line.strip(" '")]
    if "auto-detection is disabled" in words:
        return "git does not know who you are; set it with git config --global user.name NAME, and user.email ADDRESS"
    if "sign" in words:
        return f"the tag could not be signed: {'; '.join(lines)[-300:]}; see git's gpg.format and user.signingKey"
    return f"the tag could not be written: {'; '.join(lines)[-300:]}"


def _write_durably(data: bytes, draft: str, path: str) -> None:
    """Write a file under another name, flush it to the disk, and give it its name."""
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444), "wb") as out:
        try:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
            os.rename(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
