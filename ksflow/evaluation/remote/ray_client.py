"""The asking side of a Ray cluster: a task for each job, on a worker that has the target and one GPU of its own.

A kernel is never blamed for what a cluster does. Ray retries nothing here (`max_retries=0`): a kernel that crashes has
its verdict already, and a task that was lost with its worker or its node is asked for again, on any other. A machine
that gives no verdict is left out for that job. Clocks start with the lease of a worker, which the task tells.
Not covered: the machines of a Ray cluster trust each other. Whoever may use it can run code on this machine, too.
"""

import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ksflow import home
from ksflow.errors import ConfigError, need_package, one_line
from ksflow.evaluation.judge.client import EMULATED, gpus, platform
from ksflow.evaluation.judge.evaluator import LocalJudge, longest_s
from ksflow.evaluation.remote import ray_task, worker_payload
from ksflow.evaluation.remote.job_client import check_verdict, tell
from ksflow.evaluation.remote.job_store import JudgeJob
from ksflow.evaluation.remote.ray_head import RayHead
from ksflow.evaluation.sandbox.levels import LOWEST_FLOOR
from ksflow.kernels.hardware.target import label, single_gpu_environment
from ksflow.protocols import Evaluator
from ksflow.records import Evaluation, Json, Problem, Target, Verdict, as_json, parse

_LOOK_S = 1.0
_QUIET_S = 15.0  # after which a person is told what to start
_ATTEMPTS = 4  # of a job whose workers are lost
_WHY = 300  # letters of a reason


@dataclass(frozen=True)
class ClusterSettings:
    """How a cluster is asked. The evaluator's docstring has all but `make`."""

    address: str | None = None
    devices: int = 1
    patience_minutes: float | None = None
    lease_minutes: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    isolation_floor: str = LOWEST_FLOOR
    make: Callable[[Target], Evaluator] = LocalJudge
    """A target's judge, on a worker."""


class _Lost(Exception):
    """A worker, its machine, or what it said is gone: nobody's fault."""


class RayClient:
    """Verdicts of a cluster's workers. `fingerprint` is that of the target."""

    def __init__(self, target: Target, settings: ClusterSettings) -> None:
        self.target, self.settings = target, settings
        self.resource = label(target)
        self._gpu = platform(target) not in ("", EMULATED)
        self._connecting = threading.Lock()
        self._task: Any = None
        self._head: RayHead | None = None
        self._tell = partial(tell, set(), "ksflow.ray")

    def connect(self) -> None:
        """Have the cluster: that of `address`, or one of this machine's, which ends with this process. ConfigError."""
        with self._connecting:
            if self._task is not None:
                return
            need_package("evaluator=ray", "ray", "ray", "ray")
            environment = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
            os.environ.update(environment)
            if self.settings.address is None:
                os.environ.setdefault("RAY_AUTH_MODE", "token")
                os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))
            import ray

            with contextlib.suppress(ImportError, AttributeError):  # it has read the environment when it was imported
                ray._raylet.Config.initialize("")
            if not ray.is_initialized():
                address = self.settings.address or self._start()
                try:
                    ray.init(address, log_to_driver=False, configure_logging=False, runtime_env=self._runtime())
                except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
                    why = one_line(str(error), _WHY)
                    raise ConfigError(f"evaluator.address={address} is no Ray cluster to join: {why}") from error
            wants = {"num_cpus": 1, "resources": {self.resource: 1}, **({"num_gpus": 1} if self._gpu else {})}
            self._task = ray.remote(max_retries=0, num_returns="streaming", **wants)(ray_task.judge)

    def ask(self, job: JudgeJob, problem: Problem) -> Evaluation:
        """A worker's verdict, however long it takes. ConfigError: no cluster, patience at its end."""
        self.connect()
        body = json.dumps(as_json(job), allow_nan=False)
        refused: dict[str, str] = {}
        lost: list[str] = []
        minutes = self.settings.lease_minutes
        limit_s = longest_s(problem, len(job.against)) if minutes is None else minutes * 60
        while len(lost) < _ATTEMPTS:
            if self._head and not self._head.alive:  # Ray itself would end this process, in a minute
                raise ConfigError("Ray on this machine has ended; the same command starts it again, and goes on")
            try:
                lease, answer = self._attempt(body, refused, limit_s)
            except _Lost as error:
                lost.append(str(error))
                self._tell("a worker was lost, its kernel is judged by another", why=str(error))
                continue
            why = str(answer.get("refused", ""))
            if not why:
                try:
                    verdict = check_verdict(
                        parse(Evaluation, answer["result"]), problem, job.judge, self.target.fingerprint
                    )
                except (ValueError, TypeError, KeyError) as error:
                    why = f"its answer cannot be a verdict: {error}"
                else:
                    extra = {**verdict.evidence.more, **({"lost": lost} if lost else {})}
                    worker = extra.get("worker")
                    took = float(worker.get("judged_s", 0.0)) if isinstance(worker, dict) else 0.0
                    return replace(verdict.with_evidence(more=extra), wall_s=took)
            refused[lease["node"]] = f"{lease['host']}: {why}"
            self._tell("a machine gives no verdict", why=refused[lease["node"]])
        reason = f"{len(lost)} workers in a row were lost: {lost[-1]}"[:500]
        return Evaluation(Verdict.HARNESS, reason, target=self.target.fingerprint, judge=job.judge)

    def close(self) -> None:
        """Leave the cluster; one of this machine's ends."""
        import ray

        with self._connecting:
            self._task = None
            ray.shutdown()
            if self._head:
                self._head.close()
            self._head = None

    def _attempt(self, body: str, refused: Mapping[str, str], limit_s: float) -> tuple[Json, Json]:
        """The lease and the answer of one task. _Lost; ConfigError: no machine for it, or none can run it."""
        import ray

        but = {"label_selector": {"ray.io/node-id": f"!in({','.join(refused)})"}} if refused else {}
        since = time.monotonic()
        stream = self._task.options(**but).remote(body, self.settings.make, self.settings.isolation_floor)
        try:
            while not ray.wait([stream], timeout=_LOOK_S)[0]:
                since = self._watch(since, refused)
            lease = json.loads(ray.get(next(stream)))
            if ray.wait([stream], timeout=limit_s)[0]:
                return lease, json.loads(ray.get(next(stream)))
            ray.cancel(stream, force=True)
        except StopIteration as error:
            raise _Lost("a worker ended without a verdict") from error
        except (ray.exceptions.RayTaskError, ray.exceptions.RuntimeEnvSetupError) as error:
            last = one_line(str(error).strip().rpartition("\n")[2], _WHY)  # of a worker's traceback
            raise ConfigError(f"Ray's workers cannot run the judge: {last}") from error
        except ray.exceptions.RayError as error:
            why = one_line(str(error), _WHY).partition(". ")[0]
            raise _Lost(f"{type(error).__name__}: {why}") from error
        except ConfigError:
            ray.cancel(stream, force=True)
            raise
        raise _Lost(f"{lease['host']} gave no verdict within {limit_s / 60:.3g} minutes of its lease")

    def _watch(self, since: float, refused: Mapping[str, str]) -> float:
        """Since when there has been no machine for a task; now, where there is one. ConfigError: patience ends."""
        if any(node not in refused for node in self._there()):
            return time.monotonic()
        alone_s, patience = time.monotonic() - since, self.settings.patience_minutes
        words = f"no machine of the Ray cluster gives verdicts for {self.resource}"
        why = "".join(f"; {why}" for why in refused.values())
        if self._head and refused:
            raise ConfigError(f"{words}{why}")
        if alone_s > _QUIET_S:
            self._tell("waiting for a machine", run=self._remedy(), why=why.removeprefix("; ") or words)
        if patience is not None and alone_s > patience * 60:
            raise ConfigError(f"{words} for {patience:g} minutes: {self._remedy()}{why}")
        return since

    def _there(self) -> set[str]:
        """The ids of the machines that are alive and have what a task wants, whether or not it is free."""
        import ray

        wants = {"CPU", self.resource, *(["GPU"] if self._gpu else [])}
        alive = (node for node in ray.nodes() if node["Alive"])
        return {node["NodeID"] for node in alive if all(node["Resources"].get(name, 0.0) >= 1 for name in wants)}

    def _start(self) -> str:
        """A cluster of this machine, and its address: one worker for each of its GPUs, or as many as `devices` says."""
        count, environment = self.settings.devices, {}
        if self._gpu:
            numbers = [number for number in gpus(self.target) if number is not None]
            shown = [single_gpu_environment(number) for number in numbers]
            count = len(numbers)
            environment = {name: ",".join(variables[name] for variables in shown) for name in shown[0]}
            environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        options = {"num_cpus": count, "num_gpus": count if self._gpu else 0, "resources": {self.resource: count}}
        ours = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
        self._head = RayHead(options, {**ours, **environment, **self.settings.environment})
        return self._head.address

    def _runtime(self) -> Json:
        """What the workers of a cluster are told: this package's judge, and the variables that they are to see."""
        if self._head:
            return {}
        root = home.cache("ray")
        root.mkdir(parents=True, exist_ok=True)
        worker_payload.refresh(root)
        module = root / worker_payload.FOLDER / "ksflow"
        return {"py_modules": [str(module)], "env_vars": dict(self.settings.environment)}

    def _remedy(self) -> str:
        offered = f"""--resources='{{"{self.resource}": 1}}'{" --num-gpus=1" if self._gpu else ""}"""
        return f"on a machine that has it, ray start --address={self.settings.address} {offered}"
