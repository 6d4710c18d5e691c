"""Git's own processes, kept alive: one answers every question of its kind, so that no object costs a process."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import git

from ksflow.errors import LineageError

_COMMANDS = {
    "hash-object-blob": ("hash-object", "-w", "--no-filters", "--stdin-paths"),
    "hash-object-commit": ("hash-object", "-t", "commit", "-w", "--stdin-paths"),
    "mktree": ("mktree", "--batch", "--missing"),  # our own blobs: another may just have packed them
    "update-ref": ("update-ref", "--stdin"),
}


class Git(git.Git):
    """Runs git's processes in sessions of their own: a Ctrl-C at the terminal ends this process alone, not its writes.

    `git tag` stays with the terminal, where a signature's passphrase may be asked for.
    """

    def execute(self, command: Any, *arguments: Any, **options: Any) -> Any:
        """Run a command as `git.Git.execute` does."""
        return super().execute(command, *arguments, start_new_session="tag" not in command, **options)

    def get_object_data(self, ref: str | bytes) -> Any:
        """An object's id, type, size and bytes. The process that answers is not asked again after an interruption."""
        try:
            return super().get_object_data(ref)
        except KeyboardInterrupt:  # half of the answer may be in the pipe
            self.clear_cache()
            raise


class Repository(git.Repo):
    """A repository whose git processes are out of a terminal's reach."""

    GitCommandWrapperType = Git


class GitProcesses:
    """Those of one repository. Each is started when it is first needed, and again when it has died."""

    def __init__(self, path: Path, repo: git.Repo) -> None:
        self._path, self._repo = path, repo
        self._running: dict[str, Any] = {}
        self._scratch = os.memfd_create("ksflow-object")
        self.written = 0
        """Objects written since they were packed."""

    def hashed(self, kind: str, data: bytes) -> str:
        """Write an object, `blob` or `commit`; its id."""
        open_or_raise(self._scratch, self._path)
        os.ftruncate(self._scratch, 0)
        os.pwrite(self._scratch, data, 0)
        path = f"/proc/{os.getpid()}/fd/{self._scratch}"
        return self.ask(f"hash-object-{kind}", f"{path}\n".encode())

    def ask(self, name: str, question: bytes) -> str:
        """One question to a helper that answers with an object's id."""
        if not self.written:
            self._fan_out()
        self.written += 1
        helper = self._helper(name)
        with suppress(BrokenPipeError), self._whole(name):
            helper.stdin.write(question)
            helper.stdin.flush()
            answer = str(helper.stdout.readline().decode().strip())
            if len(answer) == 40:
                return answer
        raise LineageError(f"{self._path}: git could not write an object: {self._end(name)[-300:]}")

    def update(self, lines: str) -> str | None:
        """Move refs in one transaction, as `git update-ref --stdin` has it. None when done, else what git says."""
        helper = self._helper("update-ref")
        answers: list[bytes] = []
        with suppress(BrokenPipeError), self._whole("update-ref"):
            helper.stdin.write(f"start\n{lines}prepare\ncommit\n".encode())
            helper.stdin.flush()
            answers = [helper.stdout.readline() for _ in range(3)]
        return None if answers and answers[-1] == b"commit: ok\n" else self._end("update-ref")

    def close(self) -> None:
        """End all helper processes."""
        for name in list(self._running):
            self._end(name)
        if self._scratch >= 0:
            os.close(self._scratch)
            self._scratch = -1

    @contextmanager
    def _whole(self, name: str) -> Iterator[None]:
        """End the helper where a Ctrl-C comes between question and answer: another thread would take that answer."""
        try:
            yield
        except KeyboardInterrupt:
            self._end(name)
            raise

    def _helper(self, name: str) -> Any:
        if name not in self._running:
            self._running[name] = self._repo.git._call_process(
                *_COMMANDS[name], as_process=True, istream=subprocess.PIPE
            )
        return self._running[name]

    def _end(self, name: str) -> str:
        """End one; what it had to say."""
        helper = self._running.pop(name)  # GitPython ends the process when this goes out of scope
        process = helper.proc
        with suppress(BrokenPipeError):
            process.stdin.close()
        errors = process.stderr.read().decode(errors="replace").strip()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        return str(errors)

    def _fan_out(self) -> None:
        """Make the folders of loose objects ahead: made one by one as needed, they get ever dearer on ext4."""
        for number in range(256):
            (self._path / "objects" / f"{number:02x}").mkdir(exist_ok=True)


def open_or_raise(file: int, path: Path) -> None:
    """LineageError when the repository was closed: the numbers of its files may be other files' by now."""
    if file < 0:
        raise LineageError(f"{path} was closed before this was written")
