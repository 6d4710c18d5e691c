"""Answers the judge's requests in order, and keeps contents and sandboxes for the next one."""

import os
import socket
import traceback
from functools import partial

import torch

from ksflow.errors import catch_foreign, error_location
from ksflow.evaluation.judge.host import Host
from ksflow.evaluation.judge.input_pool import InputPool, PoolLimits, problem_key
from ksflow.evaluation.judge.overhead import Overhead
from ksflow.evaluation.judge.probes import probe
from ksflow.evaluation.judge.session import Judgement
from ksflow.evaluation.judge.spinner import IdleSpinner
from ksflow.evaluation.judge.timing import Backend
from ksflow.evaluation.processes import core_choice, core_pinning
from ksflow.evaluation.sandbox import levels
from ksflow.records.base import Json

_TOO_SMALL = (
    "the device's memory is too small to judge such cases: use smaller ones (problem.cap=N, problem.cases=...). "
)
_NULL_LIMITS = {"memory_mb": 256, "check_s": 86400.0, "time_s": 0.0}


class CorePinning:
    """Cores of this judge and of its sandboxes: some that no other judge here has reserved, if there are any. count:
    how many a sandbox gets. shared: the judge takes one of these, for tests on a small machine."""

    def __init__(self, cores: set[int], count: int = 1, shared: bool = False) -> None:
        self._held: list[socket.socket] = []
        self.sandbox: tuple[int, ...] = ()
        self.judge = cores
        ordered = sorted(cores)
        if shared:
            self.sandbox, self.judge = tuple(ordered[:count]), {ordered[0]}
        elif count > 1:
            free = core_choice.read(sorted(core_pinning.unreserved_cores()))
            choice = core_choice.choose(free, count) or core_choice.choose(core_choice.read(ordered), count)
            if choice is None:
                raise RuntimeError(f"the judge may use too few cores: {len(cores)}, for {count} and its own")
            self.sandbox, self.judge = choice.box, {choice.judge}
            for core in (choice.judge, *choice.box):
                self._reserve(core)
        elif len(cores) > 1:
            self.sandbox = (next(filter(self._reserve, reversed(ordered[1:])), ordered[-1]),)
            self.judge = {next(filter(self._reserve, ordered[:-1]), ordered[0])}

    def _reserve(self, core: int) -> bool:
        held = core_pinning.reserve_core(core)
        self._held += [held] if held else []
        return held is not None


class RequestHandler:
    """Handles requests: `prepare` makes contents, `evaluate` judges, `probe` checks whether a problem can be judged.
    gpu: the platform of the GPU to judge on, as for `open_driver`; "" is the CPU. loop: as in `Host`."""

    def __init__(
        self, light: socket.socket, heavy: socket.socket, spinner: IdleSpinner, gpu: str, loop: str, cores: CorePinning
    ) -> None:
        self.spinner = spinner
        self.all_cores = os.sched_getaffinity(0)
        self.cores = cores
        self.host = Host(
            light, heavy, cores.sandbox, levels.probe().level, loop=loop, resting=partial(spinner.keep_awake, False)
        )
        spinner.pin(cores.sandbox)
        overhead = Overhead(self.host.start({"language": "cpp"}, _NULL_LIMITS))
        self.backend = Backend(overhead, PoolLimits(lasts=self.host.level in levels.PRIVATE))
        if gpu:
            from ksflow.evaluation.judge.device_backend import DeviceBackend

            self.backend = DeviceBackend(self.host, gpu)
            self.host = self.backend.host
        self.pools: dict[str, InputPool] = {}
        self.latest: InputPool | None = None

    def prepare(self) -> bool:
        """Make some contents for the next request; return whether there is more to make."""
        with catch_foreign():  # the problem's code; a request reports the same fault
            return self.latest is not None and self.latest.step()
        self.latest = None
        return False

    def answer(self, request: Json) -> Json | None:
        """Return the answer, None for `prepare`. An exception in the judge becomes a `harness-error`."""
        with catch_foreign() as caught:
            self.latest = self._pool(request["problem"])
            if request["op"] == "prepare":
                return None
            work = {"probe": _probe, "contents": _contents}.get(request["op"], self._judge)
            return {**work(self.latest, request), "id": request["id"]}
        return None if request["op"] == "prepare" else {**_fault(caught[0]), "id": request["id"]}

    def _judge(self, pool: InputPool, request: Json) -> Json:
        core_pinning.pin(self.cores.judge)
        try:
            with self.spinner.keep_awake(), self.backend.lease():
                self.backend.release()
                return Judgement(self.host, pool, self.backend, request).run()
        finally:
            pool.settle()
            core_pinning.pin(self.all_cores)

    def _pool(self, problem: Json) -> InputPool:
        name = problem_key(problem)
        if name not in self.pools:
            self.pools, self.latest = {}, None  # a pool is large, and requests rarely alternate between problems
            self.backend.release()
            self.pools = {name: InputPool(problem, self.backend.memory, self.backend.buffers)}
            self.backend.release()
        return self.pools[name]


def _probe(pool: InputPool, request: Json) -> Json:
    return {"rows": probe(pool.reference)}


def _contents(pool: InputPool, request: Json) -> Json:
    """Write a case's public inputs to the file `into`, and return their layout and dims."""
    known = {case["name"]: case for case in (*pool.problem["benchmarks"], *pool.problem["tests"])}
    case = known[request["case"]]
    layout, entry = pool.reference.entry(case, case["seed"])
    entry.packed.numpy().tofile(request["into"])
    dims = [int(case["params"][name]) for name in pool.problem["dims"]]
    return {"pieces": [piece.message() for piece in layout.before()], "dims": dims}


def _fault(error: BaseException) -> Json:
    text = "".join(traceback.format_exception(error))[-4000:]
    reason = f"{type(error).__name__}: {error}".splitlines()[0] + error_location(error)
    if isinstance(error, torch.OutOfMemoryError):
        reason = _TOO_SMALL + ". ".join(reason.split(". ")[1:3])
    return {"verdict": "harness-error", "reason": reason, "timings": [], "evidence": {"log": text}}
