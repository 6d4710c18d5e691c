"""Git's own environment and settings, as hooks, worktrees and agents' harnesses leave them, reach no lineage."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import warm

from ksflow.errors import LineageError
from ksflow.lineage import Lineage
from ksflow.lineage.git_processes import forget_other_repositories

DRY = ("recipe=dry_run", "problem=softmax", "loop.evaluations=2")


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def ksflow(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One command in a process of its own, which begins with this environment."""
    return warm.run(folder, [*words], {**os.environ, **environment})


def contents(folder: Path) -> Mapping[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_run_in_a_hook_leaves_the_repository_of_the_hook_alone(tmp_path: Path) -> None:
    own = tmp_path / "own"
    git(tmp_path, "init", "-q", str(own))
    (own / "a.txt").write_text("mine\n")
    git(own, "add", "a.txt")
    before = contents(own / ".git")
    hook = {
        "GIT_DIR": f"{own}/.git",
        "GIT_COMMON_DIR": f"{own}/.git",
        "GIT_WORK_TREE": str(own),
        "GIT_INDEX_FILE": f"{own}/.git/index",
        "GIT_OBJECT_DIRECTORY": f"{own}/.git/objects",
        "GIT_NAMESPACE": "hook",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_EXTERNAL_DIFF": "false",
    }
    done = ksflow(tmp_path, *DRY, **hook)
    assert done.returncode == 0, done.stderr
    assert contents(own / ".git") == before
    assert "softmax/dry/00001" in git(tmp_path / "runs/lineage.git", "branch", "--list")


def test_what_agents_and_others_are_given_leads_to_no_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = {"GIT_DIR", "GIT_INDEX_FILE", "GIT_CONFIG_PARAMETERS", "GIT_PREFIX", "GIT_EXEC_PATH", "GIT_NEW"}
    for name in dropped:
        monkeypatch.setenv(name, "x")
    kept = {"GIT_AUTHOR_NAME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_SSH_COMMAND"}
    for name in kept:
        monkeypatch.setenv(name, "x")
    forget_other_repositories()
    assert kept <= os.environ.keys()
    assert os.environ.keys().isdisjoint(dropped)


def test_repositories_need_not_be_found_where_a_harness_forbids_it(tmp_path: Path) -> None:
    settings = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.bareRepository",
        "GIT_CONFIG_VALUE_0": "explicit",
    }
    done = ksflow(tmp_path, *DRY, **settings)
    assert done.returncode == 0, done.stderr
    assert ksflow(tmp_path, "lineage", "show", "1", "problem=softmax", "run=dry", **settings).returncode == 0


def test_a_damaged_lineage_is_not_taken_for_the_repository_around_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    Lineage(tmp_path / "runs/lineage.git", "softmax", "main").close()
    shutil.rmtree(tmp_path / "runs/lineage.git/objects")
    before = contents(tmp_path / ".git")
    with pytest.raises(LineageError, match="not a git repository"):
        Lineage(tmp_path / "runs/lineage.git", "softmax", "main")
    assert contents(tmp_path / ".git") == before


def test_broken_settings_of_git_are_named_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "settings").write_text("[user\n")
    broken = {"GIT_CONFIG_GLOBAL": str(tmp_path / "settings")}
    command = [sys.executable, "-m", "ksflow", *DRY]  # git starts when it is imported, too
    cold = subprocess.run(command, cwd=tmp_path, env=os.environ | broken, check=False, capture_output=True, text=True)
    for done in (ksflow(tmp_path, *DRY, **broken), cold):
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert f"bad config line 1 in file {tmp_path}/settings" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, who can give a folder to another user")
def test_a_lineage_of_another_user_ends_with_gits_own_remedy(tmp_path: Path) -> None:
    assert ksflow(tmp_path, *DRY).returncode == 0
    path = tmp_path / "runs/lineage.git"
    for file in (path, *path.rglob("*")):
        os.chown(file, 12345, 12345)
    for words in ([*DRY], ["lineage"], ["report", "problem=softmax", "run=dry"]):
        done = ksflow(tmp_path, *words)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert f"git config --global --add safe.directory {path}" in done.stderr
    settings = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": str(path)}
    assert ksflow(tmp_path, "lineage", "problem=softmax", "run=dry", **settings).returncode == 0


def test_a_folder_is_named_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("$HOME", "~nobody", "50%PATH%"):
        lineage = Lineage(Path(name) / "lineage.git", "softmax", "main")
        lineage.learn((), 0)
        lineage.close()
        assert (tmp_path / name / "lineage.git/HEAD").is_file()


def test_a_disk_that_takes_no_more_is_told_in_lines_for_a_person(tmp_path: Path) -> None:
    """Here no file may be longer than six blocks, which the system says as it does that a disk is full."""
    command = ["bash", "-c", 'ulimit -f 6; exec "$@"', "-", sys.executable, "-m", "ksflow", *DRY]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    *lines, last = done.stderr.splitlines()
    assert done.returncode == 2
    assert last.startswith("ksflow: ")
    assert last.endswith("[Errno 27] File too large; the file would be larger than is allowed: raise `ulimit -f`")
    assert not [line for line in lines if line.startswith(("event=", "Traceback", "---"))]
