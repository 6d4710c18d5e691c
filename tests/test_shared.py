"""One run on several hosts, through real git: what is shared, what stays apart, and what a dead remote does."""

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from conftest import accepted, draft, kernel, plant, until

from ksflow.errors import ConfigError
from ksflow.lineage import Lineage
from ksflow.lineage.approval import approvals, approve
from ksflow.lineage.history import RunReader
from ksflow.lineage.recorded_run import RecordedRun
from ksflow.lineage.shared import remote as remotes
from ksflow.lineage.shared import sharing
from ksflow.records import Call, Explanation, Note, Origin, Trial

Host = Callable[..., Lineage]


def git(path: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(path), *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """An ordinary bare repository."""
    git(tmp_path, "init", "--quiet", "--bare", "remote.git")
    return tmp_path / "remote.git"


@pytest.fixture
def host(tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Opens the run on a host by its name, with a session; all are closed in the end."""
    monkeypatch.setattr(sharing, "_RETRY_S", (0.1,))
    opened: list[Lineage] = []
    clock = count(1_700_000_000)

    def begin(name: str, url: str | None = str(remote)) -> Lineage:
        lineage = Lineage(tmp_path / name / "lineage.git", "toy", clock=lambda: next(clock), remote=url)
        opened.append(lineage)
        lineage.open_session("")
        return lineage

    yield begin
    for lineage in opened:
        lineage.close()


def judged(lineage: Lineage, text: str, us: float, *parents: str) -> Trial:
    """An experiment from its dispatch to its verdict."""
    (trial,) = lineage.dispatch([draft(*parents)])
    done = replace(lineage.write(replace(trial, kernel=kernel(text))), evaluation=accepted(us))
    lineage.evaluate(done)
    return done


def shared(lineage: Lineage) -> None:
    """Return once what is here was pushed and what is there was fetched."""
    assert lineage._sharing
    lineage._sharing._wait(lineage._sharing.request(), 60)


def heads(path: Path) -> dict[str, str]:
    rows = git(path, "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads/").splitlines()
    return dict(row.split(" ") for row in rows)


def test_what_one_host_tries_the_other_builds_on(host: Host, remote: Path) -> None:
    one, two = host("one"), host("two")
    plant(one, "int seed;", 20.0)
    first = judged(one, "int a;", 10.0, "00001")
    shared(one)
    two.begin_round()
    assert two.population().best == first
    second = judged(two, "int b;", 5.0, first.id)
    assert second.id == "10001"
    shared(two)
    shared(one)
    assert one.population() == two.population()
    assert [trial.id for trial in one.known.ranked] == ["10001", "00002", "00001"]
    assert heads(remote) == heads(one.store.path) == heads(two.store.path)
    written = git(one.store.path, "rev-list", "--first-parent", "toy/main/10001").split()[1]
    assert git(one.store.path, "log", "-1", "--format=%P", written).strip() == heads(remote)["toy/main/00002"]
    for path in (remote, one.store.path, two.store.path):
        git(path, "fsck", "--strict")


def test_nobody_sees_what_another_host_is_at_work_on(host: Host, remote: Path) -> None:
    one, two = host("one"), host("two")
    plant(one, "int seed;", 20.0)
    planned, written = one.dispatch([draft("00001"), draft("00001")])
    one.write(replace(written, kernel=kernel("int a;")))
    shared(one)
    shared(two)
    assert two.unfinished() == ()
    assert [trial.id for trial in two.all_trials()] == ["00001"]
    one.write(replace(planned, failure="writer: no answer"))
    shared(one)
    shared(two)
    assert [trial.verdict for trial in two.all_trials()] == ["accept", "failed"]


def test_seeds_are_committed_by_one_host(host: Host) -> None:
    one, two = host("one"), host("two")
    one.settle_seeds()
    one.add_seeds([Trial("", Origin.SEED, kernel=kernel("int seed;"))])
    one._sharing.request()
    two.settle_seeds()
    (seed,) = two.all_trials()
    assert (seed.id, seed.verdict) == ("00001", "written")
    assert [trial.id for trial in two.unfinished(Origin.SEED)] == ["00001"]


def test_verdicts_of_two_hosts_on_one_kernel_are_both_kept(host: Host, remote: Path) -> None:
    one, two = host("one"), host("two")
    seed = plant(one, "int seed;", 20.0)
    shared(one)
    shared(two)
    explained = Explanation("k", "r", ())
    one.evaluate(replace(seed, evaluation=accepted(19.0)), "confirmed")
    shared(one)
    two.evaluate(replace(seed, evaluation=accepted(18.0)), "confirmed")
    two.explain(seed, explained)
    shared(two)
    shared(one)
    assert heads(remote) == heads(one.store.path) == heads(two.store.path)
    told = git(remote, "log", "--first-parent", "--format=%s", "toy/main/00001").splitlines()
    assert [line.partition(":")[0] for line in told] == [
        "00001 explained",
        "00001 confirmed, accept 18 µs",
        "00001 confirmed, accept 19 µs",
        "00001 accept 20 µs",
        "00001 written",
    ]
    for lineage in (one, two):
        lineage.population()
        assert lineage.known.by_id["00001"].score_us == 18.0
        assert lineage.explanation("00001") == explained
        assert not git(lineage.store.path, "fsck", "--strict", "--unreachable", "--no-dangling").strip()


def test_a_host_without_the_remote_goes_on_with_its_own_ids(host: Host, remote: Path, tmp_path: Path) -> None:
    one, two = host("one"), host("two")
    plant(one, "int seed;", 20.0)
    shared(one)
    shared(two)
    two.close()
    remote.rename(tmp_path / "cut")
    alone = host("two", url=None)
    assert judged(alone, "int b;", 5.0, "00001").id == "10001"
    alone.close()
    assert judged(one, "int a;", 6.0, "00001").id == "00002"
    shared(one)
    (tmp_path / "cut").rename(remote)
    again = host("two")
    shared(again)
    until(lambda: not one._sharing._failures)
    shared(one)
    shared(again)
    assert heads(remote) == heads(one.store.path) == heads(again.store.path)
    assert [name.rpartition("/")[2] for name in heads(remote)] == ["00001", "00002", "10001"]


def test_a_dead_remote_is_told_once_and_joined_again(
    host: Host, remote: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = host("one")
    plant(one, "int seed;", 20.0)
    shared(one)
    remote.rename(tmp_path / "cut")
    for text in ("int a;", "int b;"):
        judged(one, text, 5.0, "00001")
        one.begin_round()
        shared(one)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1
    assert "goes on here" in told[0]
    (tmp_path / "cut").rename(remote)
    until(lambda: len(heads(remote)) == 3)


def test_a_host_without_ids_needs_the_remote(host: Host, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be reached .* begin once while it can be"):
        host("one", url=str(tmp_path / "nowhere.git"))


def test_a_run_that_began_elsewhere_is_another_run(host: Host) -> None:
    one = host("one")
    plant(one, "int seed;", 20.0)
    shared(one)
    other = host("two", url=None)
    plant(other, "int other;", 20.0)
    other.close()
    with pytest.raises(ConfigError, match="began on another host"):
        host("two")


def test_a_run_of_one_host_may_be_shared_later(host: Host, remote: Path) -> None:
    one = host("one", url=None)
    plant(one, "int seed;", 20.0)
    judged(one, "int a;", 10.0, "00001")
    one.close()
    later = host("one")
    assert judged(later, "int b;", 9.0, "00002").id == "00003"
    two = host("two")
    assert {"00001", "00002"} <= {trial.id for trial in two.all_trials()}
    assert judged(two, "int c;", 9.0, "00002").id == "10001"


def test_two_processes_of_one_host_share_its_ids(host: Host, remote: Path) -> None:
    one, same = host("one"), host("one")
    plant(one, "int seed;", 20.0)
    same.population()
    ids = {judged(lineage, f"int k{n};", 9.0 + n, "00001").id for n, lineage in enumerate((one, same, one, same))}
    assert ids == {"00002", "00003", "00004", "00005"}
    shared(same)
    assert len(heads(remote)) == 5
    two = host("two")
    shutil.copytree(one.store.path, one.store.path.parent.parent / "copy" / "lineage.git")
    copy = host("copy")
    assert [judged(lineage, "int z;", 3.0, "00001").id for lineage in (two, copy)] == ["10001", "20001"]


def test_calls_and_notes_are_kept_apart_by_host(host: Host, remote: Path) -> None:
    one, two = host("one"), host("two")
    plant(one, "int seed;", 20.0)
    one.record(Call("writer", "m", ({"role": "user", "content": "of one"},), "answer one"))
    two.record(Call("writer", "m", ({"role": "user", "content": "of two"},), "answer two"))
    two.learn((Note("a lesson", "of two", ("00001",)),))
    shared(one)
    shared(two)
    shared(one)
    chains = git(remote, "for-each-ref", "--format=%(refname)", "refs/hosts/toy/main/").split()
    assert {chain.rpartition("/")[2] for chain in chains} == {"sessions", "calls", "notes"}
    assert len({chain.split("/")[4] for chain in chains}) == 2
    assert one.notes() == ()
    calls = RecordedRun(lambda: Lineage(one.store.path, "toy"), "toy").calls()
    assert [call.answer for call in calls] == ["answer one"]
    kept = git(one.store.path, "for-each-ref", "--format=%(refname)", "refs/remotes/shared/hosts/")
    assert kept.count("/calls") == 2


def test_the_past_of_a_shared_run_has_every_hosts_trials(host: Host) -> None:
    one, two = host("one"), host("two")
    plant(one, "int seed;", 20.0)
    for lineage, text in ((one, "int a;"), (two, "int b;"), (one, "int c;")):
        shared(lineage)
        lineage.begin_round()
        judged(lineage, text, 5.0, "00001")
        shared(lineage)
    shared(two)
    for lineage, rounds in ((one, ["1.1", "1.2"]), (two, ["10001.1"])):
        reader = RunReader(lineage.store, "toy", "main").read()
        assert list(reader.rounds) == rounds
        assert reader.population() == lineage.population()
        last = reader.rounds[rounds[-1]]
        assert "00002" in last.known.by_id


def test_a_persons_word_travels(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ada@example.org")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    for number, (key, value) in enumerate((("user.name", "Ada"), ("user.email", "ada@example.org"))):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    one, two = host("one"), host("two")
    approve(one, plant(one, "int seed;", 20.0), "read it")
    shared(one)
    shared(two)
    found = approvals(two)["00001"]
    assert (found.note, found.current) == ("read it", True)
    assert "Ada" in found.by


def test_a_kernel_under_a_name_that_is_another_elsewhere_stays(
    host: Host, remote: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a hostile or a mended remote may have it."""
    one, two = host("one"), host("two")
    plant(one, "int seed;", 20.0)
    shared(one)
    shared(two)
    mine, theirs = judged(one, "int a;", 5.0, "00001"), judged(two, "int b;", 6.0, "00001")
    shared(two)
    git(remote, "update-ref", f"refs/heads/toy/main/{mine.id}", heads(remote)[f"toy/main/{theirs.id}"])
    git(remote, "update-ref", "refs/heads/toy/main/deep/er", heads(remote)[f"toy/main/{theirs.id}"])
    shared(one)
    assert any("another kernel" in record.getMessage() for record in caplog.records)
    one.population()
    assert one.known.by_id[mine.id].score_us == 5.0
    assert "toy/main/deep/er" not in heads(one.store.path)


def test_what_the_remote_refuses_is_told_with_its_reason(
    host: Host, remote: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = host("one")
    hook = remote / "hooks" / "update"
    hook.write_text("#!/bin/sh\ncase $1 in refs/heads/*2) echo no more than two >&2; exit 1;; esac\n")
    hook.chmod(0o755)
    plant(one, "int seed;", 20.0)
    judged(one, "int a;", 5.0, "00001")
    judged(one, "int b;", 5.0, "00001")
    shared(one)
    assert sorted(name[-1] for name in heads(remote)) == ["1", "3"]
    (told,) = {record.getMessage() for record in caplog.records}
    assert "does not take refs/heads/toy/main/00002 (hook declined)" in told


def test_a_url_with_a_secret_is_refused_and_kept_nowhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ksflow", "recipe=dry_run", "lineage.remote=https://ada:pass-word@host/x.git"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "lineage.remote= holds credentials" in done.stderr
    assert "pass-word" not in done.stdout + done.stderr
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


@pytest.mark.parametrize(
    "url", ["https://pass-word@host/x", "ssh://ada:pass-word@h/x", "ext::pass-word", "--pass-word"]
)
def test_what_is_no_plain_url_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match=r"lineage\.remote=") as caught:
        Lineage(tmp_path / "lineage.git", "toy", remote=url)
    assert "pass-word" not in str(caught.value)


def test_a_secret_in_what_git_says_is_struck_out() -> None:
    made = remotes.Remote("ssh://ada@host/x.git", Path("/nowhere"), [])
    assert made.name == "ssh://host/x.git"
    said = "fatal: unable to access 'https://ada:pass-word@host/x/': refused"
    assert made._plain(said) == "unable to access 'https://host/x/': refused"


def test_a_remote_that_falls_silent_is_given_up(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(remotes, "_SILENT_S", 0.3)
    script = tmp_path / "ssh"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(script))
    with pytest.raises(ConfigError, match="no answer in time"):
        host("one", url="ssh://ada@host/x.git")
