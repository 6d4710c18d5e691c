"""Git's own processes, each with a deadline, and the repository they work in.

One that reads is kept alive. A lineage's repository is found here, made whole, told from
other folders, and set up as the store needs it.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import git

from ksflow.errors import LineageError, one_line, strip_controls
from ksflow.evaluation.processes.deadline import killed_after
from ksflow.lineage.refs import Ref

_UPKEEP = {"repack", "pack-refs", "pack-objects"}  # Git commands that leave the processor to whoever wants it
_UPKEEP_S = 7200.0
_KEEPS_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_TOP_PAD_": str(1 << 24)}
"""For glibc: what packs does not give its memory back after each object, which cost a quarter of its CPU."""

_PASSED_ON = re.compile(
    r"GIT_(PYTHON_\w+|(AUTHOR|COMMITTER)_(NAME|EMAIL)|CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+)"
    r"|(SSH|SSL|HTTP|PROXY)_?\w*|ASKPASS|TERMINAL_PROMPT)"
)
"""Of git's variables: who a person is, which settings they have, how they reach a server."""


def forget_other_repositories() -> None:
    """Take out of this process' environment what would lead git, and agents that call it, to another repository.

    Git itself sets such variables for its hooks.
    """
    for name in [name for name in os.environ if name.startswith("GIT_") and not _PASSED_ON.fullmatch(name)]:
        del os.environ[name]


def git_said(error: git.GitError) -> str:
    """Why a git command failed, in its own words and on one line."""
    words = str(getattr(error, "stderr", "") or error).strip()
    return one_line(strip_controls(words.removeprefix("stderr: '").removesuffix("'")).replace("fatal: ", ""), 500)


class Git(git.Git):
    """Runs git's processes in sessions of their own: a Ctrl-C at the terminal ends this process alone, not its writes.

    Each is told which repository is meant, so it never finds one around it. `git tag` stays with the terminal, where a
    signature's passphrase may be asked for, and for as long as that takes.
    """

    patience_s = 600.0  # for a command, and for each answer of the one that is kept alive; upkeep has two hours

    def __init__(self, working_dir: Any = None) -> None:
        super().__init__(working_dir)
        self._working_dir = working_dir  # a name that has a dollar sign is one

    def execute(self, command: Any, *arguments: Any, **options: Any) -> Any:
        """Run a command as `git.Git.execute` does."""
        options["env"] = {"GIT_DIR": str(self.working_dir), **(options.get("env") or {})}
        if _UPKEEP.intersection(command):
            command = ["nice", *command]
            options["env"] |= _KEEPS_MEMORY
            options.setdefault("kill_after_timeout", _UPKEEP_S)
        alone = "tag" not in command
        if alone and not options.get("as_process"):
            options.setdefault("kill_after_timeout", self.patience_s)
        return super().execute(command, *arguments, start_new_session=alone, **options)

    def clear_cache(self) -> Any:
        """End the process that is kept alive, whatever state it is in: it only reads."""
        if self.cat_file_all and self.cat_file_all.proc is not None:
            self.cat_file_all.proc.kill()
        return super().clear_cache()

    def get_object_data(self, ref: str | bytes) -> Any:
        """An object's id, type, size and bytes, of a process that is kept alive; where it has died, a new one is asked.

        One that was interrupted is not asked again: half of the answer may be in the pipe. GitCommandError where the
        process dies twice, LineageError after `patience_s`.
        """
        for _ in range(2):
            process: Any = self._get_persistent_cmd("cat_file_all", "cat_file", batch=True).proc
            try:
                with killed_after(process, self.patience_s) as watch:
                    answer = super().get_object_data(ref)
                if len(answer[3]) == answer[2]:  # all bytes are there
                    return answer
            except KeyboardInterrupt:
                self.clear_cache()
                raise
            except BrokenPipeError:
                pass
            error = self._ended(process)
            if watch.expired:
                raise LineageError(
                    f"git cat-file (process {process.pid}) gave no answer in {watch.seconds:g} s and was ended; "
                    "look whether the disk of the lineage answers, and run the command again"
                ) from error
        raise error

    def _ended(self, process: Any) -> git.GitCommandError:
        """What is to be said of a process that died over a question; the next question starts another."""
        process.kill()  # what its end of a pipe is closed for; it may have been stopped
        error = git.GitCommandError(["git", "cat-file"], process.wait(), process.stderr.read())
        with suppress(BrokenPipeError):
            process.stdin.close()
        self.cat_file_all = None  # which closes the other pipes
        return error

    def _parse_object_header(self, header_line: Any) -> Any:
        if not header_line:
            raise BrokenPipeError
        return super()._parse_object_header(header_line)


class Repository(git.Repo):
    """A repository whose git processes are out of a terminal's reach, in a folder that is named as it is written."""

    GitCommandWrapperType = Git

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(os.path.abspath(path), **{**options, "expand_vars": False})


def update_refs(repo: git.Repo, changes: Iterable[Ref]) -> str:
    """Move refs in one transaction of `git update-ref`. Empty when done, else what git says."""
    lines = (f"update {name} {new} {old}\n" if new else f"verify {name} {old}\n" for name, new, old in changes)
    with tempfile.TemporaryFile() as asked:
        asked.write("".join(lines).encode())
        asked.seek(0)
        try:
            # else it looks for a ref of the name of each commit, in a dozen places
            repo.git(c="core.warnAmbiguousRefs=false").update_ref("--stdin", istream=asked)
        except git.GitCommandError as error:
            return str(error.stderr).strip() or f"its process ended with {error.status}"
    return ""


def open_repository(path: Path, create: bool) -> git.Repo:
    """The repository; made where there is none and `create` says so. LineageError says plainly why not."""
    if not shutil.which("git"):
        raise LineageError("git is not installed, and a lineage is a git repository: apt install git")
    forget_other_repositories()
    try:
        if not (path / "HEAD").exists():
            if not create:
                raise LineageError(
                    f"no lineage at {path}; a search, `ksflow problem=NAME`, makes one; lineage.path= names another"
                )
            if path.exists() and any(path.iterdir()):
                raise LineageError(
                    f"{path} is not a lineage: it holds other files; name a new folder with lineage.path="
                )
            _make(path)
        _check_owner(path)
        repo = Repository(path)
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
        reason = git_said(error) if isinstance(error, git.GitError) else error
        raise LineageError(
            f"cannot open the lineage {path}: {reason}; mend that, or name another folder with lineage.path="
        ) from error


def _check_owner(path: Path) -> None:
    """Raise GitCommandError where git would not take part in it unasked, such as where it is another user's.

    Git looks at that only where it finds a repository by itself.
    """
    command = ["git", "-c", "safe.bareRepository=all", "rev-parse", "--git-dir"]
    environment = {**os.environ, "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": str(path.resolve().parent)}
    done = subprocess.run(command, cwd=path, env=environment, capture_output=True, check=False)
    if done.returncode:
        raise git.GitCommandError(command, done.returncode, done.stderr)


def _make(path: Path) -> None:
    """Make it beside its place and move it there whole: two processes that start at once end up with one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".lineage-", dir=path.parent) as folder:
        repo = Repository.init(Path(folder) / "new", bare=True, object_format="sha1", expand_vars=False)
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
