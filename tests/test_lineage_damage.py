"""What killed processes, lost power and other people leave in a lineage: it is healed, passed over, or named."""

import logging
import os
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import accepted, again, draft, kernel, plant, rejected, until

from ksflow.errors import LineageError
from ksflow.lineage import Lineage, locks
from ksflow.lineage.index import Refs
from ksflow.records import Origin, Trial

GIT = shutil.which("git")


def git(path: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(path), *arguments], check=True, capture_output=True, text=True).stdout


def left_behind(lineage: Lineage, name: str, age_s: float = 3600) -> Path:
    """A lock file that a git process left so many seconds ago."""
    lock = lineage.store.path / name
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    os.utime(lock, (time.time() - age_s,) * 2)
    return lock


def push(lineage: Lineage, name: str, **files: bytes) -> None:
    """A branch as a person pushes it: one commit that knows nothing of trials."""
    path = lineage.store.path
    blobs = {
        file.replace("_", "."): subprocess.run(
            ["git", "-C", str(path), "hash-object", "-w", "--stdin"], input=text, check=True, capture_output=True
        ).stdout.decode()
        for file, text in files.items()
    }
    rows = "".join(f"100644 blob {blob.strip()}\t{file}\n" for file, blob in blobs.items())
    tree = subprocess.run(
        ["git", "-C", str(path), "mktree"], input=rows, check=True, capture_output=True, text=True
    ).stdout.strip()
    me = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    commit = git(path, *me, "commit-tree", tree, "-m", "by hand").strip()
    git(path, "update-ref", f"refs/heads/toy/main/{name}", commit)


@pytest.mark.parametrize("name", ["refs/heads/toy/main/00001.lock", "packed-refs.lock", "packed-refs.new"])
def test_a_lock_that_a_dead_process_left_is_removed_and_no_verdict_is_lost(
    lineage: Lineage, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    (seed,) = lineage.add_seeds([Trial("", Origin.SEED, kernel=kernel("int a;"), name="seed.cpp")])
    (opened,) = lineage.dispatch([draft("00001")])
    lock = left_behind(lineage, name, age_s=5)  # younger than any transaction could be, but nobody is at work
    lineage.evaluate(replace(seed, evaluation=accepted(20.0)))
    lineage.write(replace(opened, kernel=kernel("int b;")))  # takes its open id away, for which git packs
    lineage.store.maintain(force=True)
    fresh = again(lineage)
    assert [(t.id, t.verdict) for t in fresh.all_trials()] == [("00001", "accept"), ("00002", "written")]
    fresh.close()
    if lock.name != "packed-refs.new":  # which git makes anew each time
        assert not lock.exists()
        assert f"removed {lock}" in caplog.text


def test_a_chain_whose_lock_was_left_behind_goes_on(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    left_behind(lineage, "refs/ksflow/toy/main/rounds.lock")
    (opened,) = lineage.dispatch([draft("00001")])
    assert opened.id == "00002"


@pytest.mark.slow
def test_a_lock_that_a_living_process_holds_is_waited_for(lineage: Lineage) -> None:
    seed = plant(lineage, "int a;", 20.0)
    head = lineage.commit_of("00001")
    command = ["git", "-C", str(lineage.store.path), "update-ref", "--stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin
        assert holder.stdout
        holder.stdin.write(f"start\nupdate refs/heads/toy/main/00001 {head} {head}\nprepare\n")
        holder.stdin.flush()
        assert [holder.stdout.readline() for _ in range(2)] == ["start: ok\n", "prepare: ok\n"]
        waiting = threading.Thread(target=lineage.evaluate, args=(replace(seed, evaluation=rejected()),))
        waiting.start()
        waiting.join(4.0)  # longer than a lock without a holder is respected
        assert waiting.is_alive()
        holder.stdin.write("abort\n")
        holder.stdin.close()
    waiting.join(60)
    assert lineage.last_population.by_id["00001"].verdict == "reject-incorrect"


def test_a_lock_that_a_living_process_has_open_stays(lineage: Lineage, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = plant(lineage, "int a;", 20.0)
    monkeypatch.setattr(locks, "_UNSEEN_S", 0.0)
    lock = lineage.store.path / "refs/heads/toy/main/00001.lock"
    waiting = threading.Thread(target=lineage.evaluate, args=(replace(seed, evaluation=rejected()),))
    with lock.open("x"):
        waiting.start()
        waiting.join(0.3)
        assert lock.exists()
    waiting.join(60)
    assert not lock.exists()
    assert lineage.last_population.by_id["00001"].verdict == "reject-incorrect"


def test_an_id_stays_open_for_nobody_whose_branch_is_there(lineage: Lineage) -> None:
    """A process was killed when it had written the kernel, before it took the open id away."""
    plant(lineage, "int a;", 20.0)
    (opened,) = lineage.dispatch([draft("00001")])
    name = f"refs/ksflow/toy/main/open/{opened.id}"
    commit = lineage.store.ref(name)
    lineage.write(replace(opened, kernel=kernel("int b;")))
    git(lineage.store.path, "update-ref", name, str(commit))
    fresh = again(lineage)
    fresh.claim_unfinished()
    assert fresh.store.ref(name) is None
    assert [t.id for t in fresh.all_trials()] == ["00001", "00002"]


def test_a_lock_that_cannot_be_removed_is_named(lineage: Lineage) -> None:
    seed = plant(lineage, "int a;", 20.0)
    lock = lineage.store.path / "refs/heads/toy/main/00001.lock"
    lock.mkdir()  # no file that could be removed
    os.utime(lock, (0, 0))
    with pytest.raises(LineageError, match=rf"{lock} was left behind .* remove it$"):
        lineage.evaluate(replace(seed, evaluation=rejected()))


def test_a_verdict_on_a_kernel_that_is_gone_is_left_out_and_said(
    lineage: Lineage, caplog: pytest.LogCaptureFixture
) -> None:
    seed = plant(lineage, "int a;", 20.0)
    push(lineage, "00001", kernel_cpp=b"int mine;")
    lineage.evaluate(replace(seed, evaluation=rejected()))
    assert "the verdict reject-incorrect on toy/main/00001 is left out" in caplog.text
    (pushed,) = lineage.claim_unfinished()
    assert pushed.kernel
    assert pushed.kernel.main == "int mine;"
    git(lineage.store.path, "branch", "-D", "toy/main/00001")
    lineage.evaluate(replace(pushed, evaluation=accepted(1.0)))
    assert lineage.all_trials() == ()


def test_a_branch_that_grew_by_another_verdict_takes_this_one_too(lineage: Lineage) -> None:
    seed = plant(lineage, "int a;", 20.0)
    other = again(lineage)
    other.population()
    other.evaluate(replace(seed, evaluation=accepted(19.0)))
    lineage.evaluate(replace(seed, evaluation=accepted(18.0)))
    other.close()
    assert git(lineage.store.path, "rev-list", "--count", "toy/main/00001").strip() == "4"


def test_an_id_that_a_person_pushed_meanwhile_keeps_both_kernels(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    (opened,) = lineage.dispatch([draft("00001")])
    push(lineage, "00002", kernel_cpp=b"int mine;")
    kept = lineage.write(replace(opened, kernel=kernel("int paid;")))
    assert kept.id == "00003"
    texts = {t.id: t.kernel.main for t in lineage.all_trials() if t.kernel}
    assert texts == {"00001": "int a;", "00002": "int mine;", "00003": "int paid;"}
    assert not git(lineage.store.path, "for-each-ref", "refs/ksflow/toy/main/open/")


def test_branches_that_are_no_kernels_are_passed_over_and_said_once(
    lineage: Lineage, caplog: pytest.LogCaptureFixture
) -> None:
    plant(lineage, "int a;", 20.0)
    push(lineage, "docs", README_md=b"no kernel")
    push(lineage, "00002", trial_json=b"{", kernel_cpp=b"int x;")
    push(lineage, "picture", AUTHORS=b"me", kernel_cpp=b"int p;", plot_png=b"\x89PNG\xff\x00")
    for _ in range(2):
        assert [t.id for t in lineage.population().trials] == ["00001"]
    (picture,) = lineage.claim_unfinished()
    assert picture.kernel
    assert list(picture.kernel.files) == ["kernel.cpp", "AUTHORS"]  # the kernel first
    assert caplog.text.count("toy/main/docs") == 2  # its name, and how to remove it
    assert "no kernel in it" in caplog.text
    assert "toy/main/00002 of" in caplog.text
    assert "trial.json is not valid" in caplog.text
    assert "branch toy/main/picture: left out 'plot.png'" in caplog.text


def test_an_id_is_not_given_twice_though_its_branch_is_damaged(
    lineage: Lineage, caplog: pytest.LogCaptureFixture
) -> None:
    plant(lineage, "int a;", 20.0)
    plant(lineage, "int b;", 10.0)
    blob = git(lineage.store.path, "rev-parse", "toy/main/00002:kernel.cpp").strip()
    (lineage.store.path / "objects" / blob[:2] / blob[2:]).unlink()
    (lineage.store.path / "refs/heads/toy/main/00003").write_text("")  # as after a loss of power
    fresh = again(lineage)
    assert [t.id for t in fresh.population().trials] == ["00001"]
    assert "toy/main/00002 " in caplog.text
    assert "is missing or damaged" in caplog.text
    assert "refs/heads/toy/main/00003 is damaged" in caplog.text
    (opened,) = fresh.dispatch([draft("00001")])
    assert opened.id == "00004"
    fresh.write(replace(opened, kernel=kernel("int c;")))
    fresh.close()


def test_a_damaged_chain_is_named_with_its_remedy(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    lineage.dispatch([draft("00001")])
    (lineage.store.path / "refs/ksflow/toy/main/rounds").write_text("")
    with pytest.raises(LineageError, match=r"ref refs/ksflow/toy/main/rounds is damaged; .*update-ref .*COMMIT"):
        lineage.dispatch([draft("00001")])


def test_a_branch_that_takes_the_runs_place_is_named(lineage: Lineage) -> None:
    push(lineage, "x", kernel_cpp=b"int x;")
    git(lineage.store.path, "branch", "-m", "toy/main/x", "toy/other")
    other = Lineage(lineage.store.path, "toy", "other")
    with pytest.raises(LineageError, match=r"refs/heads/toy/other stands where .* must be; rename it"):
        plant(other, "int a;", 20.0)
    other.close()


def test_what_was_logged_of_a_lineage_is_a_warning(lineage: Lineage, caplog: pytest.LogCaptureFixture) -> None:
    push(lineage, "docs", README_md=b"no kernel")
    lineage.population()
    assert [record.levelno for record in caplog.records if record.name == "ksflow.lineage"] == [logging.WARNING]


def test_what_others_do_to_refs_is_seen_packed_or_not(lineage: Lineage) -> None:
    for number in (1, 2, 3):
        plant(lineage, f"int a = {number};", 20.0)
    path = lineage.store.path
    lineage.store.maintain(force=True)
    assert not (path / "refs/heads/toy/main/00001").exists()
    assert [t.id for t in lineage.population().trials] == ["00001", "00002", "00003"]
    git(path, "branch", "-D", "toy/main/00002")  # git writes what is packed anew
    push(lineage, "idea", kernel_cpp=b"int mine;")
    git(path, "symbolic-ref", "refs/heads/toy/main/also", "refs/heads/toy/main/idea")
    assert [t.id for t in lineage.all_trials()] == ["00001", "00003", "also", "idea"]
    git(path, "pack-refs", "--all")
    push(lineage, "idea", kernel_cpp=b"int other;")
    found = {t.id: t.kernel.main for t in lineage.all_trials() if t.kernel}
    assert found == {"00001": "int a = 1;", "00003": "int a = 3;", "also": "int other;", "idea": "int other;"}
    git(path, "update-ref", "-d", "refs/heads/toy/main/00003")
    assert [t.id for t in lineage.all_trials()] == ["00001", "also", "idea"]


def test_of_many_packed_refs_those_that_differ_are_told(lineage: Lineage) -> None:
    path = lineage.store.path
    old, new = (plant(lineage, text, 20.0) for text in ("int a;", "int b;"))
    first, second = (lineage.commit_of(trial.id) for trial in (old, new))
    names = [f"refs/heads/toy/many/{number:05d}" for number in range(1600)]

    def update(*lines: str) -> None:
        command = ["git", "-C", str(path), "-c", "core.fsync=none", "update-ref", "--stdin"]
        subprocess.run(command, input="".join(lines), text=True, check=True)

    rows = "".join(f"{first} {name}\n" for name in names)
    (path / "packed-refs").write_text(f"# pack-refs with: peeled fully-peeled sorted \n{rows}")
    files = Refs(lineage.store, "refs/heads/toy/many/", "refs/heads/toy/none/")
    assert files.changes() == dict.fromkeys(names, first)
    assert files.changes() == {}
    update(f"update {names[1200]} {second}\n", f"delete {names[1300]}\n", f"create {names[0]}x {second}\n")
    git(path, "pack-refs", "--all")
    assert files.changes() == {f"{names[0]}x": second, names[1200]: second, names[1300]: ""}
    (path / "refs/heads/toy/many").mkdir(parents=True, exist_ok=True)
    for name, commit in ((names[0], first), (names[1599], second), (names[1300], first)):
        (path / name).write_text(f"{commit}\n")
    assert files.changes() == {names[0]: first, names[1300]: first, names[1599]: second}
    for name in (names[0], names[1300], names[1599]):  # what is packed holds again
        (path / name).unlink()
    assert files.changes() == {names[1300]: "", names[1599]: first}


def test_small_packs_become_large_ones_and_nothing_is_lost(lineage: Lineage) -> None:
    packs = []
    for number in range(1, 9):
        plant(lineage, f"int a = {number};", 20.0)
        lineage.store.maintain(force=True)
        packs.append(len(list((lineage.store.path / "objects/pack").glob("*.pack"))))
    assert max(packs) <= 4  # each at least twice the size of the next
    assert [t.kernel and t.kernel.main for t in again(lineage).all_trials()] == [f"int a = {n};" for n in range(1, 9)]
    assert not git(lineage.store.path, "fsck", "--strict", "--no-dangling")


def test_work_that_others_left_is_seen_within_a_second(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    assert lineage.claim_unfinished() == ()
    push(lineage, "00001", kernel_cpp=b"int mine;")
    until(lambda: [t.kernel and t.kernel.main for t in lineage.claim_unfinished()] == ["int mine;"])


def helpers(lineage: Lineage) -> list[int]:
    """The git processes of this lineage that are kept alive."""
    said = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [int(line.split()[0]) for line in said.stdout.splitlines() if " git " in line and "defunct" not in line]


def test_a_git_process_that_died_is_replaced_by_another(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    lineage.store.maintain(force=True)  # so that refs are asked for of git
    head = lineage.commit_of("00001")
    for _ in range(2):
        assert lineage.store.header(head)
        assert lineage.store.ref("refs/heads/toy/main/00001^{commit}") == head
        assert plant(lineage, "int b;", 10.0)
        (process,) = helpers(lineage)  # none moves refs
        os.kill(process, signal.SIGKILL)
    assert lineage.store.header(head)
    assert lineage.store.ref("refs/heads/toy/main/00001^{commit}") == head
    assert plant(lineage, "int c;", 10.0).id == "00004"


def test_git_that_always_dies_is_said_and_is_no_closed_pipe(
    lineage: Lineage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = plant(lineage, "int a;", 20.0).id
    (tmp_path / "bin").mkdir()
    for last_words, said in (
        ("echo 'fatal: it is broken' >&2", "it is broken"),
        ("kill -9 $$", "by signal 9; run again"),
    ):
        script = tmp_path / "bin" / "git"
        script.write_text(f'#!/bin/sh\ncase "$*" in *cat-file*) {last_words}; exit 128;; esac\nexec {GIT} "$@"\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
        fresh = Lineage(lineage.store.path, "toy")
        with pytest.raises(LineageError, match=said):
            fresh.store.read(head)
        with pytest.raises(LineageError, match=said):
            fresh.store.ref("refs/heads/toy/main/none")
        fresh.store.close()
