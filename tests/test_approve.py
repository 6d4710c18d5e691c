"""A person's last word: a tag by the person's own git identity, shown wherever the kernel is."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from test_cli import DRY, ksflow

ME = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "user.name",
    "GIT_CONFIG_VALUE_0": "Ada Lovelace",
    "GIT_CONFIG_KEY_1": "user.email",
    "GIT_CONFIG_VALUE_1": "ada@example.org",
}
RUN = ["problem=softmax", "evaluator=fake", "run=dry"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ran")
    assert ksflow(folder, *DRY, "loop.evaluations=0").returncode == 0
    return folder


@pytest.fixture
def folder(ran: Path, tmp_path: Path) -> Path:
    """Where a dry run has been."""
    shutil.copytree(ran, tmp_path, dirs_exist_ok=True)
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", folder / "runs/lineage.git", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_an_approval_is_a_tag_that_every_table_shows(folder: Path) -> None:
    commit = git(folder, "rev-parse", "softmax/dry/00004").strip()
    done = ksflow(folder, "approve", commit[:10], "note=read it; it is right", **ME)  # a dry run is known as one
    assert done.returncode == 0, done.stderr
    assert "approved by Ada Lovelace: read it; it is right" in done.stdout
    tag = git(folder, "cat-file", "tag", "approved/softmax/dry/00004")
    assert f"object {commit}" in tag
    assert "tagger Ada Lovelace <ada@example.org>" in tag
    for trailer in ("Verdict: accept", "Target: fake", "Judge: fake-1", "Score-us: "):
        assert f"\n{trailer}" in tag
    said = "approved by Ada Lovelace: read it; it is right"
    tree = ksflow(folder, "lineage", *RUN).stdout
    assert said in next(line for line in tree.splitlines() if "00004" in line)
    assert said in ksflow(folder, "lineage", "show", "00004", *RUN).stdout
    assert said not in ksflow(folder, "lineage", "show", "00003", *RUN).stdout
    again = ksflow(folder, *DRY, "loop.evaluations=1", "loop.confirm=false")
    assert said in " ".join(again.stderr.split())
    assert said in " ".join(ksflow(folder, "-m", *DRY, "loop.evaluations=0").stdout.split())  # a sweep's table
    summaries = [json.loads(file.read_text()) for file in (folder / "runs/logs").glob("*/summary.json")]
    assert {"00004": said} in [summary["approved"] for summary in summaries]


@pytest.mark.slow
def test_an_approval_tells_which_commit_it_is_for(folder: Path) -> None:
    assert ksflow(folder, "approve", "softmax/dry/00004", "evaluator=fake", **ME).returncode == 0
    approved = git(folder, "rev-parse", "softmax/dry/00004").strip()
    ksflow(folder, *DRY, "loop.evaluations=0")  # confirms it: the branch has grown
    assert git(folder, "rev-parse", "softmax/dry/00004").strip() != approved
    assert f"(as of commit {approved[:10]})" in ksflow(folder, "lineage", *RUN).stdout


@pytest.mark.slow
def test_an_approval_is_not_replaced_unasked(folder: Path) -> None:
    assert ksflow(folder, "approve", "00004", *RUN, "note=first", **ME).returncode == 0
    twice = ksflow(folder, "approve", "00004", *RUN, "note=second", **ME)
    assert twice.returncode == 2
    assert "approved by Ada Lovelace: first already; force=true" in twice.stderr
    assert ksflow(folder, "approve", "00004", *RUN, "note=second", "force=true", **ME).returncode == 0
    assert "Ada Lovelace: second" in ksflow(folder, "lineage", *RUN).stdout


@pytest.mark.slow
def test_what_is_not_accepted_or_stale_is_not_approved(folder: Path) -> None:
    landscape = folder / "landscape.json"
    rows = [{"values": {"FORM": "scalar"}, "us": {"512x1024": 9.0}}]
    landscape.write_text(json.dumps([*rows, {"values": {"FORM": "vector"}, "verdict": "reject-incorrect"}]))
    other = f"evaluator.landscape={landscape}"
    (folder / "wrong.cpp").write_text(
        "enum { scalar, vector };\nconstexpr int FORM = vector;  // tune: scalar vector\n"
    )
    done = ksflow(folder, *DRY[:1], "problem=softmax", "run=two", other, "seed_kernels=wrong.cpp", "loop.evaluations=0")
    assert done.returncode == 0, done.stderr
    run = ["problem=softmax", "evaluator=fake", "run=two"]
    wrong = ksflow(folder, "approve", "00005", *run, other, **ME)
    assert wrong.returncode == 2
    assert "softmax/two/00005 is not accepted (reject-incorrect)" in wrong.stderr
    stale = ksflow(folder, "approve", "00004", *run, **ME)
    assert stale.returncode == 2
    assert "softmax/two/00004 is stale: target changed since fake-1 accepted it" in stale.stderr
    assert not git(folder, "tag", "--list")


@pytest.mark.slow
def test_without_an_identity_the_remedy_is_named(folder: Path) -> None:
    nobody = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "EMAIL": ""}
    done = ksflow(folder, "approve", "00004", *RUN, **nobody)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "git config --global user.name" in done.stderr


def test_a_branch_that_holds_no_trial_is_named_in_one_line(folder: Path) -> None:
    empty = git(folder, "hash-object", "-t", "tree", "-w", "/dev/null").strip()
    author = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    commit = git(folder, *author, "commit-tree", empty, "-m", "nothing").strip()
    git(folder, "update-ref", "refs/heads/softmax/dry/00099", commit)
    done = ksflow(folder, "approve", "00099", *RUN, **ME)
    assert done.returncode == 2
    assert "softmax/dry/00099 holds no trial that can be read" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_note_cannot_forge_a_trailer(folder: Path) -> None:
    note = "note=fine\nVerdict: reject-cheat\n\nScore-us: 0.001"
    assert ksflow(folder, "approve", "00004", *RUN, note, **ME).returncode == 0
    form = "--format=%(contents:trailers)"
    trailers = git(folder, "for-each-ref", form, "refs/tags/approved/").splitlines()
    assert "Verdict: accept" in trailers
    assert "Verdict: reject-cheat" not in trailers


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["asked", "gpgSign"])
def test_an_approval_is_signed_as_git_is_told(folder: Path, setting: str) -> None:
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    extra = {"gpg.format": "ssh", "user.signingKey": str(key)}
    if setting == "gpgSign":
        extra["tag.gpgSign"] = "true"
    settings = {**ME, "GIT_CONFIG_COUNT": str(2 + len(extra))}
    for number, (name, value) in enumerate(extra.items(), 2):
        settings |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    options = ["sign=true"] if setting == "asked" else []
    done = ksflow(folder, "approve", "00004", *RUN, "note=signed", *options, **settings)
    assert done.returncode == 0, done.stderr
    signers = folder / "signers"
    signers.write_text(f"ada@example.org {key.with_suffix('.pub').read_text()}")
    checked = subprocess.run(
        ["git", "-c", f"gpg.ssh.allowedSignersFile={signers}", "tag", "--verify", "approved/softmax/dry/00004"],
        cwd=folder / "runs/lineage.git",
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert "approved by Ada Lovelace: signed" in ksflow(folder, "lineage", *RUN).stdout


@pytest.mark.slow
def test_a_signature_that_fails_is_one_line(folder: Path) -> None:
    settings = {**ME, "GIT_CONFIG_COUNT": "4", "GIT_CONFIG_KEY_2": "gpg.format", "GIT_CONFIG_VALUE_2": "ssh"}
    settings |= {"GIT_CONFIG_KEY_3": "user.signingKey", "GIT_CONFIG_VALUE_3": "/nowhere/key"}
    done = ksflow(folder, "approve", "00004", *RUN, "sign=true", **settings)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "could not be signed" in done.stderr
    assert not git(folder, "tag", "--list")
