"""What a Ray worker does with a job: it tells that its lease has begun, and gives the verdict of `JobJudge`.

Everything that comes and goes is text, JSON as in the job store. The process that Ray started keeps its judge from task
to task; judge and kernels run in children of it, which see an explicit environment. Standard library and Ray only.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator

from ksflow.errors import ConfigError
from ksflow.evaluation.judge.evaluator import LocalJudge, require_isolation
from ksflow.evaluation.processes import scratch
from ksflow.evaluation.remote.job_judge import JobJudge
from ksflow.evaluation.remote.job_store import JudgeJob
from ksflow.evaluation.sandbox.levels import LOWEST_FLOOR, probe
from ksflow.protocols import Evaluator
from ksflow.records import Json, Target, as_json, parse

_kept: dict[tuple[str, str], JobJudge] = {}
"""The judge of this process, by its kind and the GPU that it has."""


def judge(
    body: str, make: Callable[[Target], Evaluator] = LocalJudge, isolation_floor: str = LOWEST_FLOOR
) -> Iterator[str]:
    """Two answers: who has the lease, as soon as it begins; then `result`, or `refused`: why there is none here."""
    import ray

    context = ray.get_runtime_context()
    gpu = ",".join(context.get_accelerator_ids().get("GPU", ()))
    yield json.dumps({"node": context.get_node_id(), "host": socket.gethostname(), "gpu": gpu})
    yield json.dumps(_verdict(body, make, gpu, isolation_floor), allow_nan=False)


def _verdict(body: str, make: Callable[[Target], Evaluator], gpu: str, isolation_floor: str) -> Json:
    try:
        require_isolation(isolation_floor, probe().level, "evaluator.")
        job = parse(JudgeJob, json.loads(body))
        judge = _judge(make, gpu)
        if why := judge.refusal(job):
            return {"refused": why}
        return {"result": as_json(judge(job))}
    except ConfigError as error:
        for kept in _kept.values():
            kept.look_again()
        return {"refused": str(error)}


def _judge(make: Callable[[Target], Evaluator], gpu: str) -> JobJudge:
    """The one that is kept, unless this lease is of another GPU. What it starts sees that GPU alone."""
    of = getattr(make, "__qualname__", ""), gpu
    if of not in _kept:
        while _kept:
            _kept.popitem()[1].close()
        if gpu:
            os.environ.update(CUDA_VISIBLE_DEVICES=gpu, HIP_VISIBLE_DEVICES=gpu, CUDA_DEVICE_ORDER="PCI_BUS_ID")
        _kept[of] = JobJudge(scratch.make_folder(), make)
    return _kept[of]
