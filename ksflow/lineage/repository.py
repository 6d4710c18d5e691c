"""A lineage's repository on disk: found, made whole, told from other folders, set up as the store needs it."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import git

from ksflow.errors import LineageError
from ksflow.lineage.git_processes import Repository, forget_other_repositories, git_said


def opened(path: Path, create: bool) -> git.Repo:
    """The repository; made where there is none and `create` says so. LineageError says plainly why not."""
    if not shutil.which("git"):
        raise LineageError("git is not installed, and a lineage is a git repository: apt install git")
    forget_other_repositories()
    try:
        if not (path / "HEAD").exists():
            if not create:
                raise LineageError(f"no lineage at {path}; `python -m ksflow` makes one, lineage.path= names another")
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
