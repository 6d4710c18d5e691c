"""What a Ray worker does with a job: it tells that its lease has begun, and gives the verdict of `JobJudge`.

Everything that comes and goes is text, JSON as in the job store. The process that Ray started keeps its judge from task
to task; judge and kernels run in children of it, which see an explicit environment. Standard library and Ray only.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ksflow.errors import ConfigError
from ksflow.judge.evaluator import LocalJudge
from ksflow.processes import scratch
from ksflow.records import Json, Target, parse, plain
from ksflow.remote import job_locks
from ksflow.remote.job_judge import JobJudge, Judge
from ksflow.remote.job_store import Job


@dataclass
class _Current:
    """The judge of this process, which kind it is of, and the GPU that it has."""

    judge: JobJudge | None = None
    of: tuple[str, str] = ("", "")


_current = _Current()


def judge(body: str, make: Callable[[Target], Judge] = LocalJudge) -> Iterator[str]:
    """Two answers: who has the lease, as soon as it begins; then `result`, or `refused`: why there is none here."""
    import ray

    context = ray.get_runtime_context()
    gpu = ",".join(context.get_accelerator_ids().get("GPU", ()))
    yield json.dumps({"node": context.get_node_id(), "host": job_locks.identity()["host"], "gpu": gpu})
    yield json.dumps(_verdict(body, make, gpu), allow_nan=False)


def _verdict(body: str, make: Callable[[Target], Judge], gpu: str) -> Json:
    try:
        job = parse(Job, json.loads(body))
        judge = _judge(make, gpu)
        if why := judge.refusal(job):
            return {"refused": why}
        return {"result": plain(judge(job))}
    except ConfigError as error:
        if _current.judge:
            _current.judge.look_again()
        return {"refused": str(error)}


def _judge(make: Callable[[Target], Judge], gpu: str) -> JobJudge:
    """The one that is kept, unless this lease is of another GPU. What it starts sees that GPU alone."""
    of = getattr(make, "__qualname__", ""), gpu
    if _current.judge is None or _current.of != of:
        if _current.judge:
            _current.judge.close()
        if gpu:
            os.environ.update(CUDA_VISIBLE_DEVICES=gpu, HIP_VISIBLE_DEVICES=gpu, CUDA_DEVICE_ORDER="PCI_BUS_ID")
        _current.judge, _current.of = JobJudge(scratch.make_folder(), make), of
    return _current.judge
