"""Verdicts of a Ray cluster: real clusters on this machine, with a stand-in for the judge where its work is not needed.

The extra `ray` is no part of `dev` (80 MB): without it only what needs none is tested, and the rest says why it is not.
CONTRIBUTING has the command.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from conftest import until

from ksflow.errors import ConfigError
from ksflow.evaluation.judge import VERSION
from ksflow.evaluation.judge.evaluator import LocalJudge
from ksflow.evaluation.remote import ray_task
from ksflow.evaluation.remote.ray_client import ClusterSettings, RayClient
from ksflow.evaluation.sandbox.levels import SandboxSupport
from ksflow.kernels.hardware import target
from ksflow.loop import judging
from ksflow.protocols import as_evaluator
from ksflow.records import Evaluation, Kernel, Problem, Target, Timing, Trial, Verdict
from ksflow.stages.evaluator.ray import RayEvaluator

from . import toy

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray: pip install -e '.[ray]'")
H200 = target.from_data_sheet("h200", "NVIDIA H200 SXM", "sm_90a", {})
pytestmark = pytest.mark.filterwarnings("ignore")


class Stub:
    """What a kernel's text says is done: `sleep 2`, `die FILE` until it is there, `wait FOLDER`, `environment`."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        words = kernel.main.split()
        more: dict[str, Any] = {"pid": os.getpid(), "gpu": os.environ.get("CUDA_VISIBLE_DEVICES")}
        if words[0] == "sleep":
            time.sleep(float(words[1]))
        if words[0] == "die" and (words[1] == "always" or not Path(words[1]).exists()):
            if words[1] != "always":
                Path(words[1]).write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        if words[0] == "wait":
            import ray

            folder = Path(words[1])
            (folder / f"{ray.get_runtime_context().get_node_id()}-{os.getpid()}").touch()
            while not (folder / "go").exists():
                time.sleep(0.02)
        if words[0] == "environment":
            more["environment"] = dict(os.environ)
        timings = tuple(Timing(case.name, 5.0) for case in problem.benchmarks)
        found = Evaluation(Verdict.ACCEPT, "", 5.0, timings, target=self.target.fingerprint, judge=f"local-{VERSION}")
        return found.with_evidence(more=more)

    def prepare(self, problem: Problem, kernel: Kernel) -> None:
        pass

    def close(self) -> None:
        pass


def asks(wanted: Target, **settings: Any) -> RayEvaluator:
    """An evaluator whose workers have the stand-in for a judge."""
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    evaluator = RayEvaluator(wanted, devices=settings.get("devices", 1))
    evaluator.client = RayClient(wanted, ClusterSettings(make=Stub, **settings))
    return evaluator


def says(text: str) -> Kernel:
    return Kernel("cpp", {"kernel.cpp": text})


def verdicts(evaluator: RayEvaluator, problem: Problem, kernels: list[Kernel]) -> list[Evaluation]:
    """All asked at once; where they appear, in the order in which they come."""
    found: list[Evaluation] = []
    for kernel in kernels:
        ask = lambda kernel=kernel: found.append(judging.verdict(problem, evaluator, kernel, ()))  # noqa: E731
        threading.Thread(target=ask, daemon=True).start()
    return found


@pytest.fixture(scope="module")
def two_workers() -> Iterator[RayEvaluator]:
    """A cluster of this machine with room for two, started while a key lies in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_API_KEY", "sk-not-to-be-seen")
        evaluator = asks(target.detect(), devices=2, environment={"KSFLOW_TOLD": "yes"})
        evaluator.start()
        yield evaluator
        evaluator.client.close()


# -- without Ray -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"devices": 0}, "evaluator.devices must be at least 1"),
        ({"lease_minutes": 0}, "limits in minutes positive or null"),
        ({"address": "ray://head:10001"}, "give host:port or auto, on a machine of the cluster"),
        ({"isolation_floor": "high"}, "isolation_floor=high; valid: none, rlimits, landlock, userns, full"),
    ],
)
def test_settings_that_cannot_be_are_said_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RayEvaluator(target.detect(), **settings)


def test_a_worker_below_the_floor_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_task, "probe", lambda: SandboxSupport("landlock", {}))
    refused = ray_task._verdict("", LocalJudge, "", "userns")["refused"]
    assert refused == "evaluator.isolation_floor=userns, but sandboxes reach only landlock here; lower it"


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ksflow.errors.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"evaluator=ray needs the ray package: pip install 'ksflow\[ray\]'"):
        RayEvaluator(target.detect()).start()


def test_an_evaluator_with_a_queue_counts_its_own_seconds(problem: Problem) -> None:
    def queued(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        return Evaluation(Verdict.COMPILE, "no", wall_s=1234.5, judge="toy-1")

    assert judging.verdict(problem, as_evaluator(queued), toy.RIGHT_CPP, ()).wall_s == 1234.5


# -- a cluster of this machine ---------------------------------------------------------------------


@needs_ray
@pytest.mark.slow
def test_no_key_reaches_a_worker(two_workers: RayEvaluator, problem: Problem) -> None:
    seen = two_workers(problem, says("environment"), ()).evidence.more["environment"]
    assert "sk-not-to-be-seen" not in str(seen)
    assert "HOME" not in seen
    assert seen["KSFLOW_TOLD"] == "yes"


@needs_ray
@pytest.mark.slow
def test_the_clock_starts_with_the_lease(two_workers: RayEvaluator, problem: Problem) -> None:
    began = time.monotonic()
    found = verdicts(two_workers, problem, [says(f"sleep 1 {number}") for number in range(6)])
    until(lambda: len(found) == 6)
    assert time.monotonic() - began > 3
    assert all(1 <= one.wall_s < 2.5 for one in found)
    assert len({one.evidence.more["pid"] for one in found}) == 2


@needs_ray
@pytest.mark.slow
def test_a_worker_that_dies_costs_a_question_and_no_kernel(
    two_workers: RayEvaluator, problem: Problem, tmp_path: Path
) -> None:
    once = two_workers(problem, says(f"die {tmp_path / 'died'}"), ())
    assert once.accepted
    assert len(once.evidence.more["lost"]) == 1
    always = two_workers(problem, says("die always"), ())
    assert always.verdict is Verdict.HARNESS  # judged again when the run goes on
    assert always.reason.startswith("4 workers in a row were lost: ")
    assert two_workers(problem, says("fine"), ()).accepted


@needs_ray
@pytest.mark.slow
def test_a_lease_that_is_too_long_is_given_up_and_what_is_finished_is_kept(
    two_workers: RayEvaluator, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = two_workers.client
    monkeypatch.setattr("ksflow.evaluation.remote.ray_client._ATTEMPTS", 1)
    monkeypatch.setattr(client, "settings", replace(client.settings, lease_minutes=4 / 60))
    found = verdicts(two_workers, problem, [says("sleep 1000"), *(says(f"sleep 1 {number}") for number in range(3))])
    until(lambda: len(found) == 4)
    (late,) = (one for one in found if not one.accepted)
    assert late.verdict is Verdict.HARNESS
    assert "gave no verdict within" in late.reason


@needs_ray
@pytest.mark.slow
def test_the_judge_of_a_worker_is_that_of_this_machine(problem: Problem, two_workers: RayEvaluator) -> None:
    real = RayEvaluator(two_workers.target)
    real.client._task, real.client._head = two_workers.client._task, two_workers.client._head
    found = judging.verdict(problem, real, toy.RIGHT_CPP, (toy.trial(toy.slow(8)),))
    assert found.verdict is Verdict.ACCEPT, found.reason
    assert found.claim is not None
    assert found.target == real.fingerprint
    assert real(problem, toy.cpp("syntax error"), ()).verdict is Verdict.COMPILE


@needs_ray
def test_a_gpu_that_is_not_here_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(ConfigError, match=r"target=h200 \(sm_90a\) is not in this machine"):
        RayEvaluator(H200).start()


# -- a cluster of several machines: raylets of their own ---------------------------------------------


@pytest.fixture
def cluster(two_workers: RayEvaluator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A head that judges nothing; `two_workers` has ended by then: a process has one cluster at a time."""
    from ray.cluster_utils import Cluster

    two_workers.client.close()
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    yield made
    import ray

    ray.shutdown()
    made.shutdown()


@needs_ray
@pytest.mark.slow
def test_a_machine_that_is_lost_in_mid_task_loses_no_verdict(cluster: Any, problem: Problem, tmp_path: Path) -> None:
    _, lost = (cluster.add_node(num_cpus=2, resources={"cpu": 2}) for _ in range(2))
    evaluator = asks(target.detect(), address=cluster.address, devices=6)
    found = verdicts(evaluator, problem, [says(f"wait {tmp_path} {number}") for number in range(6)])
    begun = until(lambda: len(list(tmp_path.iterdir())) == 4 and list(tmp_path.glob(f"{lost.node_id}-*")))
    cluster.remove_node(lost, allow_graceful=False)
    until(lambda: not any(Path("/proc", file.name.partition("-")[2]).exists() for file in begun))
    (tmp_path / "go").touch()
    until(lambda: len(found) == 6)
    assert all(one.accepted for one in found)
    assert sum("lost" in one.evidence.more for one in found) == len(begun) == 2


@needs_ray
@pytest.mark.slow
def test_each_task_has_a_gpu_of_its_own_and_one_that_is_not_there_is_said(
    cluster: Any, problem: Problem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.add_node(num_cpus=2, num_gpus=2, resources={"h200": 2})  # it says so, and has none
    evaluator = asks(H200, address=cluster.address, devices=2, patience_minutes=3 / 60)
    with pytest.raises(
        ConfigError, match=r"no machine .* for h200 .* ray start --address=.*jobs want a gpu NVIDIA H200"
    ):
        evaluator(problem, says("environment"), ())
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf 'NVIDIA H200, GPU-11, 9.0\\nNVIDIA H200, GPU-12, 9.0\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    cluster.add_node(num_cpus=2, num_gpus=2, resources={"h200": 2})
    found = verdicts(evaluator, problem, [says(f"sleep 3 {number}") for number in range(2)])
    until(lambda: len(found) == 2)
    assert {one.evidence.more["gpu"] for one in found} == {"0", "1"}


@needs_ray
@pytest.mark.slow
def test_a_cluster_of_another_version_is_one_sentence(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.__version__", "2.49.0")
    with pytest.raises(ConfigError, match=r"is no Ray cluster to join: .*[Vv]ersion mismatch") as caught:
        asks(target.detect(), address=cluster.address).start()
    assert "\n" not in str(caught.value)
