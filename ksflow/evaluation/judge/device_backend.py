"""Timing on a GPU: batches of calls behind gates, whose events are checked against the judge's clock."""

import math
import random
import statistics as plain
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar

import torch

from ksflow.evaluation.judge import statistics
from ksflow.evaluation.judge.buffers import BufferSizes
from ksflow.evaluation.judge.cases import Entry
from ksflow.evaluation.judge.device import Device, DeviceBuffers
from ksflow.evaluation.judge.device_sandbox import DeviceCall, DeviceSandbox
from ksflow.evaluation.judge.failure import Failure
from ksflow.evaluation.judge.host import Host
from ksflow.evaluation.judge.input_pool import CasePool, PoolLimits
from ksflow.evaluation.judge.outcome import CaseResult
from ksflow.evaluation.judge.samples import Samples
from ksflow.evaluation.judge.timing import Backend, CaseBenchmark, TimedKernel
from ksflow.evaluation.processes.device_lock import lock_device
from ksflow.records.base import Json

_SLACK, _SLACK_US = 0.01, 1.25
"""How far a sandbox's own events may be below the judge's clock less a null call: as a share, and in µs."""
_SHORT_SLACK_US, _TAPER = 2.5, 0.04
"""For short calls: µs beside the spread of null calls (dearest tenth less the usual one), less this share of the time.
Honest kernels of 12 to 23 µs read 3.4 to 4 µs less (an H200): switching from a context that has worked takes longer
than from one that has only cleared memory. Claims are checked against the judge's clock."""
_TRUSTED_SLACK, _TRUSTED_SLACK_US = 0.05, 10.0
"""The same if no code of the kernel runs on the host: only device code that finds the driver's memory can lie."""
_FORGED, _FORGED_US = 0.05, 6.0  # events further below than this are forged: only the judge's clock counts
_SLICE_US = 1000.0
"""Delay of the judge's own work from which on a context kept the device for its time slice (1 to 2.2 ms on an H200)."""
_EARLY_US = 6.0  # context switch time that a kernel saves by reporting too early; added if its events are not believed
_LEAST_US = 0.01  # lower limit of a call's time
_NULL = {"language": "null", "files": {}, "artefact": "", "mode": ""}
_PATIENCE_S = 60.0
_LEASE_S = 540.0  # time another judge may hold the device; less than the timeout of a request
_SLOTS = 20  # at most: more than the calls of a batch, few enough to warm up at the addresses of each
_ALL = (0.0, 0.98)  # part of the sorted samples that is ranked if calls differ in cost; the rest are outliers
_UNEQUAL = 0.005
"""Calls differ in cost if the mean of that part exceeds the usual call by more than this share plus its error."""
_WARM_S = 8.0  # a kernel whose calls on all slots would take longer is not warmed up on each of them
_FEWEST_ROUNDS = 4
_FEW = 10
_HOARD = 4  # a sandbox with more than this fraction (1/4) of the device's memory is to blame if the judge has none left


class DeviceTimedKernel(TimedKernel):
    sandbox: DeviceSandbox
    nulls: dict[str, list[DeviceCall]] | None = None
    """Calls of the null kernel, by the libraries loaded in its process."""
    _calls: list[DeviceCall]
    _warming = False

    def begin(self, case: CasePool, null: Any) -> None:
        super().begin(case, null)
        self.sandbox.pause()

    def warm_up(self, entries: list[Entry], case: CasePool) -> None:
        """Make ungated calls, because a first call may compile, allocate and wait; then one call per slot address.
        Contents used here are never timed."""
        self.sandbox.gated, self._warming = False, True
        super().warm_up(entries, case)
        if not case.large and self.once_s[case.name] * case.slots < _WARM_S:
            self.begin(case, None)
            self.run_batch([entries[slot % len(entries)] for slot in range(case.slots)])
            self.once_s[case.name] = self.run_batch(entries)
            self.end()
        self.sandbox.gated, self._warming = True, False

    def run_batch(self, entries: list[Entry]) -> float:
        slots = self.caller.fill(entries)
        sampled = range(len(slots)) if self._warming else random.sample(range(len(slots)), len(slots) > 1)
        with self.budget.charge_wait() as left_s:
            calls = self.sandbox.run_batch(slots, left_s, sampled)
        self.caller.take(slots, entries)
        self._calls += calls
        reported_us = [call.reported_us for call in calls]
        self.samples.us += reported_us
        return max(plain.median(reported_us) * 1e-6, 1e-8)

    def forget(self) -> None:
        self._calls = []
        self.samples = Samples(window=statistics.MIDDLE)

    def end(self) -> None:
        """Check the reported times against the judge's clock; compare the outputs not yet compared. Raises Rejected."""
        if self.nulls and self._calls:
            self._conclude(self.nulls.get(self.sandbox.loaded) or next(iter(self.nulls.values())))
        super().end()

    def _conclude(self, null: list[DeviceCall]) -> None:
        """Choose the samples: the reported times if the measured ones confirm them, else the measured ones.

        A call's measured time is its bracket less the overhead of a null call, plus the delay of the judge's own work
        compared with null calls. Both kinds are compared by the ranked statistic, so that forging some calls gains no
        more than forging all, and by the mean over all calls. Measured time beyond the tolerance, which covers the
        spread of null calls, is added to the reported times. If calls differ in cost, their mean is ranked. A call
        before which the sandbox's context kept the device for a time slice counts as one of the others, unless most are
        such.
        """
        switching_us = [call.bracket_us - call.reported_us for call in null]
        self.samples.window = ranked_window(self.samples.us)
        overhead_us = statistics.low_mean(switching_us, self.samples.window)
        own_work_us = _dearest_tenth([call.own_work_us for call in null])
        delays_us = [max(call.own_work_us - own_work_us, 0.0) for call in self._calls]
        measured = [
            max(call.bracket_us - overhead_us + delay_us, _LEAST_US)
            for call, delay_us in zip(self._calls, delays_us, strict=True)
        ]
        prompt = [us for us, delay_us in zip(measured, delays_us, strict=True) if delay_us < _SLICE_US]
        if 2 * len(prompt) > len(measured):
            pairs = zip(measured, delays_us, strict=True)
            measured = [us if delay_us < _SLICE_US else random.choice(prompt) for us, delay_us in pairs]
        reported_us, measured_us = (
            statistics.low_mean(each, self.samples.window) for each in (self.samples.us, measured)
        )
        spread_us = max(_dearest_tenth(switching_us) - overhead_us, 0.0)
        short_us = min(_SHORT_SLACK_US + spread_us, _FORGED_US) - _TAPER * reported_us
        trusted = self.sandbox.trusted
        share, slack_us = (_TRUSTED_SLACK, _TRUSTED_SLACK_US) if trusted else (_SLACK, max(_SLACK_US, short_us))
        forged_us = reported_us * (1 + _FORGED) + max(_FORGED_US, slack_us)
        mean_us = statistics.low_mean(measured, _ALL) + overhead_us - statistics.low_mean(switching_us, _ALL)
        sure_us = 2 * math.hypot(_error(measured), _error(switching_us))
        believed = measured_us <= forged_us and mean_us <= forged_us + sure_us
        excess_us = max(measured_us - reported_us * (1 + share) - slack_us, 0.0)
        self.samples.wall = measured
        if believed:
            self.samples.us = [us + excess_us for us in self.samples.us]
        else:
            self.samples.us = [us + _EARLY_US for us in measured]
            self.samples.window = ranked_window(measured)
        clocks = "device events and what the judge's clock saw beyond them" if excess_us else "device events"
        self.samples.notes = {
            "clock": clocks if believed else "the judge's clock: the device events do not agree with it",
            "trusted": trusted,
            "events_us": round(reported_us, 3),
            "bracket_us": round(measured_us, 3),
            "added_us": round(statistics.low_mean(self.samples.us, self.samples.window) - reported_us, 3),
            "gated": all(call.gated for call in self._calls),
        }


def ranked_window(samples_us: list[float]) -> tuple[float, float]:
    """Return the part of the sorted samples that is ranked: the middle, or nearly all if the mean exceeds the usual
    call, because a kernel may do in some calls the work that it saves in others."""
    if len(samples_us) < 2:
        return statistics.MIDDLE
    usual, mean = (statistics.low_mean(samples_us, window) for window in (statistics.MIDDLE, _ALL))
    return _ALL if mean > usual * (1 + _UNEQUAL) + _error(samples_us) else statistics.MIDDLE


def _error(samples_us: list[float]) -> float:
    """Return the standard error of the mean of the part that is ranked if calls differ in cost."""
    kept = sorted(samples_us)[: max(math.ceil(_ALL[1] * len(samples_us)), 2)]
    return plain.stdev(kept) / math.sqrt(len(kept)) if len(kept) > 1 else 0.0


def _dearest_tenth(values: list[float]) -> float:
    return max(values) if len(values) < _FEW else plain.quantiles(values, n=10)[-1]


class DeviceBenchmark(CaseBenchmark):
    case_s = 0.4
    rounds_of: ClassVar[dict[int, int]] = {1: 8, 2: 6, 3: 4}
    batch_us = 1e3
    most_calls = 16
    _backend: "DeviceBackend"

    def run(self) -> CaseResult:
        self._nulls: dict[str, list[DeviceCall]] = {}
        for kernel in self.kernels:
            assert isinstance(kernel, DeviceTimedKernel)
            kernel.nulls = self._nulls
        return super().run()

    def _null_timings(self) -> None:
        """Return None: null batches are measured from the first round on."""

    def _contents(self, count: int) -> list[Entry]:
        """Return contents; for a large case give the memory of temporaries back to the sandboxes."""
        entries = super()._contents(count)
        if self.case.large:
            self._backend.release()
        return entries

    def _null_batch(self, null: object, entries: list[Entry]) -> None:
        """Run a null batch for each set of loaded libraries among the sandboxes."""
        sandboxes = [kernel.sandbox for kernel in self.kernels if isinstance(kernel.sandbox, DeviceSandbox)]
        for loaded in {sandbox.loaded: None for sandbox in sandboxes}:
            calls = self._nulls.setdefault(loaded, [])
            calls += self._backend.null_batch(self.case, entries, loaded)
            turns_s = [call.turn_s for call in calls if call.turn_s]
            for sandbox in sandboxes if turns_s else ():
                if sandbox.loaded == loaded:
                    sandbox.turn_s = plain.median(turns_s)

    def _calls_per_batch(self, fastest_s: float) -> int:
        calls = max(min(math.ceil(self.batch_us * 1e-6 / fastest_s), self.most_calls, self.case.slots - 1), 1)
        self.wanted_rounds = max(self.wanted_rounds * self.most_calls // max(calls, self.most_calls), _FEWEST_ROUNDS)
        return calls


class DeviceBackend(Backend):
    sandbox = DeviceSandbox
    timed_kernel = DeviceTimedKernel
    benchmark = DeviceBenchmark
    starts_together = True
    spread = statistics.SPREAD_ON_DEVICE

    def __init__(self, host: Host, platform: str) -> None:
        gpu = self.device = Device(platform)
        on_device = {"platform": platform, "files": gpu.files, "folders": gpu.folders, "visible": gpu.visible}
        self.host = replace(host, device=on_device, resting=nullcontext)  # answers of a device are fast
        self.device_uuid = gpu.uuid
        slot_bytes, contents_bytes = min(4 << 30, gpu.memory_bytes // 32), min(48 << 30, gpu.memory_bytes // 3)
        self.memory = PoolLimits(self.device.where, contents_bytes, slot_bytes, _SLOTS, large_bytes=slot_bytes)
        self.latest_null_us = 0.0
        self._null_sandboxes: dict[str, DeviceSandbox] = {}
        """By the libraries that the process has loaded: a context made by torch takes longer to switch to."""

    def buffers(self, wanted: BufferSizes) -> DeviceBuffers:
        return DeviceBuffers(self.device, wanted)

    def evidence(self) -> Json:
        return {
            "device": self.device.name,
            "clocks": self.device.state.read(),
            "transfer": {
                "how": "device memory shared with the sandbox; the judge writes inputs and takes outputs on the "
                "device, outside the timed window; cache flushed before every batch, inputs rotated within it",
                "null_turn_us": self.latest_null_us,
            },
        }

    def lease(self) -> AbstractContextManager[None]:
        return lock_device(self.device_uuid, _LEASE_S)

    def release(self) -> None:
        self.device.release()

    def close_hoarding(self, close: Callable[[], None]) -> bool:
        before = self.device.free()
        close()
        self.device.release()
        return self.device.free() - before > self.device.memory_bytes // _HOARD

    def probe(self) -> None:
        self.device.probe()

    def null_batch(self, case: CasePool, entries: list[Entry], loaded: str) -> list[DeviceCall]:
        """Call the null kernel on these contents, in a process with the same libraries loaded. Raises Failure of
        kind harness; torch.OutOfMemoryError if too little of the device's memory is left."""
        try:
            sandbox = self._null_sandbox(case, loaded)
            for slot, entry in enumerate(entries):
                sandbox.fill(slot, entry.packed, 0)
            calls = sandbox.run_batch(bytes(range(len(entries))), _PATIENCE_S, ())
        except Failure as failure:  # the next batch gets a new sandbox
            self._end_null(loaded)
            if isinstance(failure.__cause__, torch.OutOfMemoryError):
                raise failure.__cause__ from None
            raise Failure("harness", f"the null kernel's sandbox: {failure.text}") from failure
        self.latest_null_us = round(plain.median(call.bracket_us - call.reported_us for call in calls), 1)
        if case.large:
            sandbox.forget()
        return calls

    def _null_sandbox(self, case: CasePool, loaded: str) -> DeviceSandbox:
        """Return the null kernel's sandbox, staged for a case; a new one if the old one is too small."""
        wanted = BufferSizes(case.layout.input_bytes * case.slots, case.layout.output_bytes * case.slots)
        sandbox = self._null_sandboxes.get(loaded)
        if sandbox is None or not sandbox.buffers.fits(wanted):
            self._end_null(loaded)
            limits = {"memory_mb": 1024, "check_s": 86400.0, "time_s": 0.0}
            start = self.host.start(_NULL | {"mode": loaded}, limits)
            sandbox = DeviceSandbox(start, DeviceBuffers(self.device, wanted))
            sandbox.wait_ready(_PATIENCE_S)
            sandbox.gated = True
            self._null_sandboxes[loaded] = sandbox
        if sandbox.layout is not case.layout:
            sandbox.stage("", case.layout, case.dims, case.slots)
        return sandbox

    def _end_null(self, loaded: str) -> None:
        if sandbox := self._null_sandboxes.pop(loaded, None):
            sandbox.close()
