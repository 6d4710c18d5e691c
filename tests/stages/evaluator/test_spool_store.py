"""Verdicts through an object store: a folder by its URL, in which nothing is renamed, and a real S3 server."""

import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import accepted, until

from ksflow.errors import ConfigError
from ksflow.hardware import target
from ksflow.home import PACKAGE
from ksflow.judge import VERSION
from ksflow.records import Evaluation, Problem, Verdict
from ksflow.remote import job_locks
from ksflow.remote.job_store import JobStore
from ksflow.remote.object_store import ObjectStore, StoreError
from ksflow.remote.store_claims import StoreClaims
from ksflow.stages.evaluator.spool import SpoolEvaluator

from . import toy

WRONG = toy.cpp("out[0] = 1;")
JOB = f"{'a' * 32}-0"
ASK = f"""
import sys
from pathlib import Path
sys.path[:0] = {[str(PACKAGE.parent / "tests" / "stages"), str(PACKAGE.parent)]!r}
from evaluator import toy
from ksflow.hardware import target
from ksflow.stages.evaluator.spool import SpoolEvaluator
asked = SpoolEvaluator(target.detect(), sys.argv[1])
print(asked(toy.problem(Path.cwd()), toy.cpp("out[0] = 1;"), ()).verdict)
"""


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty store. What belongs to this machine is in `here`."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("KSFLOW_CACHE", str(tmp_path / "cache"))
    return f"file://{tmp_path}/store"


def names(url: str) -> list[str]:
    """The objects, but for the worker's code."""
    return sorted(ObjectStore(url).listed().keys() - {"worker.zip"})


def answer(url: str, tmp_path: Path, name: str, us: float = 5.0) -> None:
    """A worker's verdict on the toy problem, as its bridge would send it."""
    found = accepted(us)
    timings = tuple(replace(found.timings[0], case=case) for case in ("n30000", "n65536"))
    aside = JobStore(tmp_path / "aside")
    aside.make()
    aside.answer(name, replace(found, timings=timings, judge=f"local-{VERSION}"))
    ObjectStore(url).write(f"results/{name}.json", (aside.results / f"{name}.json").read_bytes())


def in_background(evaluator: SpoolEvaluator, problem: Problem) -> list[Evaluation]:
    found: list[Evaluation] = []
    threading.Thread(target=lambda: found.append(evaluator(problem, WRONG, ())), daemon=True).start()
    return found


def out(url: str) -> str:
    """The one job that is in the store."""
    (job,) = until(lambda: [name for name in names(url) if name.startswith("jobs/")])
    return Path(job).stem


# -- the caller's side -----------------------------------------------------------------------------


def test_a_job_goes_up_its_result_comes_down_and_nothing_stays(url: str, tmp_path: Path, problem: Problem) -> None:
    evaluator = SpoolEvaluator(target.detect(), url)
    for us in (5.0, 6.0):  # the same question again is another
        found = in_background(evaluator, problem)
        answer(url, tmp_path, out(url), us)
        assert until(lambda found=found: found)[0].score_us == us
        assert names(url) == []
    with zipfile.ZipFile(tmp_path / "store" / "worker.zip") as code:
        assert "ksflow/remote/worker.py" in code.namelist()


def test_a_damaged_result_is_removed_there_too(url: str, tmp_path: Path, problem: Problem) -> None:
    found = in_background(SpoolEvaluator(target.detect(), url), problem)
    name = out(url)
    ObjectStore(url).write(f"results/{name}.json", b'{"version": 1, "id": "another"}')
    until(lambda: f"results/{name}.json" not in names(url))
    assert not found
    assert f"jobs/{name}.json" in names(url)
    answer(url, tmp_path, name)
    until(lambda: found)


def test_a_result_that_came_while_nobody_waited_is_taken(url: str, tmp_path: Path, problem: Problem) -> None:
    with pytest.raises(ConfigError, match="no sign of a worker"):  # its job is up, and it is gone
        SpoolEvaluator(target.detect(), url, patience_minutes=1e-9)(problem, WRONG, ())
    answer(url, tmp_path, out(url))
    assert SpoolEvaluator(target.detect(), url)(problem, WRONG, ()).score_us == 5.0


def test_a_store_that_does_not_answer_is_told_once_and_asked_again(
    url: str, tmp_path: Path, problem: Problem, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = in_background(SpoolEvaluator(target.detect(), url), problem)
    name = out(url)
    listed, failed = ObjectStore.listed, []

    def fails(store: ObjectStore) -> None:
        failed.append(store)
        raise StoreError("no route to host")

    monkeypatch.setattr(ObjectStore, "listed", fails)
    until(lambda: len(failed) > 2)
    monkeypatch.setattr(ObjectStore, "listed", listed)
    answer(url, tmp_path, name)
    until(lambda: found)
    assert capfd.readouterr().out.count("no route to host") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("s3://bucket/path", r"pip install fsspec s3fs"),
        ("gs://bucket/path", r"pip install fsspec gcsfs"),
        ("nosuch://bucket/path", r"cannot be opened: ValueError: Protocol not known: nosuch"),
        ("s3://", r"as s3://bucket/path"),
        ("sftp://ada:pass-word@host/path", r"holds a password"),
        ("file:///dev/null/path", r"cannot write file:///dev/null/path: NotADirectoryError.*set evaluator\.folder"),
    ],
)
def test_a_store_that_cannot_be_used_is_told_in_one_line(
    url: str, given: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("s3fs", "gcsfs"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=message) as caught:
        SpoolEvaluator(target.detect(), given).start()
    assert "\n" not in str(caught.value)
    assert "pass-word" not in str(caught.value)


# -- claims ----------------------------------------------------------------------------------------


def test_of_several_machines_one_has_a_claim_and_one_that_died_has_none(url: str, tmp_path: Path) -> None:
    store = ObjectStore(url)
    store.write("worker.zip", b"")
    one, two, three = (StoreClaims(ObjectStore(url), tmp_path / name) for name in ("one", "two", "three"))
    assert one.take(JOB)
    assert not two.take(JOB)
    two.look(store.listed(), [JOB])
    assert not two.take(JOB)
    assert names(url) == [f"claims/{JOB}.0"]
    dead = {**job_locks.identity(), "started": "0"}
    store.write(f"claims/{JOB}.0", json.dumps(dead).encode())
    two.look(store.listed(), [JOB])
    until(lambda: two.take(JOB))
    assert list(two.mine) == [JOB]
    two.release(JOB)
    assert names(url) == []
    assert three.take(JOB)
    one.mine.clear()
    one.look(store.listed(), [])  # nobody asks any more
    assert names(url) == []


# -- both sides ------------------------------------------------------------------------------------


@contextmanager
def running(folder: Path, output: Path, *words: str, **more: str) -> Iterator["subprocess.Popen[bytes]"]:
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=folder, env={**os.environ, **more}, stdout=file, stderr=file
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def through(url: str, tmp_path: Path, *options: str) -> None:
    """A verdict through a store whose both sides are killed on the way, and started again. No key reaches a kernel."""
    here, asked, worked = Path.cwd(), tmp_path / "asked.txt", tmp_path / "worked.txt"
    worker = ["-m", "ksflow", "worker", url, *options]
    with running(here, asked, "-c", ASK, url):
        until(lambda: any(name.startswith("jobs/") for name in names(url)))
    with running(here, worked, *worker, AWS_SECRET_ACCESS_KEY="made-up-key") as killed:
        until(lambda: any(name.startswith("claims/") for name in names(url)))
        children = Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()
        assert children
        assert not any(b"made-up-key" in Path(f"/proc/{child}/environ").read_bytes() for child in children)
    with running(here, worked, *worker) as started, running(here, asked, "-c", ASK, url) as asking:
        assert asking.wait(300) == 0, asked.read_text()
        assert asked.read_text().strip() == Verdict.INCORRECT
        until(lambda: names(url) and all(name.startswith("workers/") for name in names(url)))
        started.send_signal(signal.SIGINT)
        assert started.wait(300) == 0, worked.read_text()
    assert names(url) == []


@pytest.mark.slow
def test_both_sides_may_be_killed_on_the_way(url: str, tmp_path: Path) -> None:
    through(url, tmp_path)


@pytest.fixture
def bucket(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place in an S3 server on loopback, where there is one: pip install s3fs 'moto[server]'."""
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "made-up")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with pytest.raises(ConfigError, match=r"cannot write s3://bucket/path: .*bucket does not exist"):
        SpoolEvaluator(target.detect(), "s3://bucket/path").start()
    ObjectStore("s3://bucket/path")._fs.mkdir("bucket")
    yield "s3://bucket/path"
    server.stop()


@pytest.mark.slow
@pytest.mark.soak
def test_both_sides_may_be_killed_on_the_way_through_s3(bucket: str, tmp_path: Path) -> None:
    through(bucket, tmp_path)


@pytest.mark.slow
@pytest.mark.soak
def test_two_workers_share_the_jobs_in_s3(bucket: str, tmp_path: Path, problem: Problem) -> None:
    """Each kernel is judged once: the store lets one of them create a claim."""
    evaluator = SpoolEvaluator(target.detect(), bucket, devices=8)
    outputs = [tmp_path / "one.txt", tmp_path / "two.txt"]
    with ThreadPoolExecutor(8) as asking, ExitStack() as stack:
        kernels = [toy.cpp(f"out[0] = {number};") for number in range(8)]
        found = [asking.submit(evaluator, problem, kernel, ()) for kernel in kernels]
        until(lambda: len([name for name in names(bucket) if name.startswith("jobs/")]) == 8)
        for output in outputs:
            stack.enter_context(running(Path.cwd(), output, "-m", "ksflow", "worker", bucket))
        assert {one.result().verdict for one in found} == {Verdict.INCORRECT}
        judged = [output.read_text().count("reject-incorrect") for output in outputs]
    assert sum(judged) == 8
    assert all(judged)


@pytest.mark.slow
def test_a_worker_needs_no_more_than_the_stores_zip_file(url: str, tmp_path: Path, problem: Problem) -> None:
    """Nothing of ksflow is installed there: fsspec, and what `python` finds in the archive."""
    in_background(SpoolEvaluator(target.detect(), url), replace(problem, limits=toy.PATIENT))
    name = out(url)
    worked = tmp_path / "worked.txt"
    zipped = str(tmp_path / "store" / "worker.zip")
    with running(tmp_path, worked, "-m", "ksflow", "worker", url, "once=true", PYTHONPATH=zipped) as started:
        assert started.wait(300) == 0, worked.read_text()
    assert f"{name} add (cpp): reject-incorrect" in worked.read_text()
