"""Which regions of a model take its time: modules that compute alike, by torch's profiler, with what they could gain.

A region is all modules of one class that have equal parameters and are called alike, at whatever sizes: 32 layers are
one. Its share of the eager model is what torch.profiler saw its modules take: on a CPU of the wall clock, on a GPU of
the time in which the device worked. Its share of the compiled model is an estimate: its modules compiled by themselves,
less what a call of anything compiled takes, since nothing in a compiled model says which module it was made from.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, record_function
from torch.utils.flop_counter import FlopCounterMode

from ksflow.errors import ConfigError, catch_foreign, error_location, one_line, suggest
from ksflow.evaluation.judge.machine_rates import with_measured_rates
from ksflow.integrate.model.calls import Meta, ModuleCall, Shapes, arguments_for, meta, record_calls, watching
from ksflow.integrate.model.user_file import UserModel, wait
from ksflow.kernels.hardware import roofline, target
from ksflow.kernels.hardware.cost_model import CaseWork
from ksflow.records import Json, amdahl
from ksflow.report.words import format_us

PRECISIONS = {"float64": "fp64", "float32": "tf32", "float16": "fp16", "bfloat16": "bf16"}
"""A type -> the precision of the fastest unit that may compute in it."""
_MARK = "ksflow::"
_LEAST = 0.01
"""Of the time: what takes less is not told."""
_COMPILED = 0.03
"""Of the time: what takes less is not compiled by itself."""
_SECONDS = 0.5
"""So long is a call timed, and the model profiled."""


@dataclass
class Region:
    """Modules that compute alike, and what they take in a call of the model (the mean over the sets of inputs)."""

    kind: str
    """Their class."""
    modules: list[str]
    calls: list[ModuleCall]
    parameters: tuple[Meta, ...]
    us: float = 0.0
    share: float = 0.0
    compiled_share: float | None = None
    flops: float = 0.0
    """Of all its calls, matrix products and convolutions alone."""
    roofline_us: float | None = None
    times: defaultdict[Shapes, float] = field(default_factory=lambda: defaultdict(float))
    """The shapes of a call's inputs -> the recorded time of all such calls, in any unit."""

    @property
    def title(self) -> str:
        """Its class without the module that has it."""
        return self.kind.rpartition(".")[2]

    @property
    def why_unfit(self) -> str:
        """Why no kernel can take its place; empty where one can."""
        return next((call.unfit for call in self.calls if call.unfit), "")

    def traffic(self, sets: int) -> int:
        """Bytes that its calls for the first sets of inputs read and write at least."""
        tensors = (tensor for call in self.calls if call.number < sets for tensor in (*call.inputs, *call.outputs))
        held = sum(tensor.nbytes for tensor in self.parameters) * sum(call.number < sets for call in self.calls)
        return sum(tensor.nbytes for tensor in tensors) + held


@dataclass(frozen=True)
class Profile:
    """A model's times in µs (the mean over the sets of inputs), and its regions, those that take most first."""

    regions: list[Region]
    eager_us: float
    compiled_us: float | None
    failed: str
    """Why it could not be compiled."""
    chip: str
    threads: int

    def table(self, name: str, mode: str) -> Json:
        """A title, remarks, and rows with the heads first, for the terminal and for the page."""
        took = f"{format_us(self.eager_us)} µs eager"
        if self.compiled_us:
            took += (
                f", {format_us(self.compiled_us)} µs compiled (mode {mode}), x{self.eager_us / self.compiled_us:.3g}"
            )
        threads = f"{self.threads} threads" if self.threads > 1 else "1 thread"
        rows = [["", "modules", "µs", "share", "compiled", "of its roofline", "if half", "if nothing"]]
        for at, region in enumerate(self.regions, 1):
            many = f" x{len(region.modules)}" if len(region.modules) > 1 else ""
            about = [f"{region.title}{many}: {region.modules[0]}", *map(str, region.calls[0].inputs)]
            about += [f"no problem: {region.why_unfit}"] if region.why_unfit else []
            near = f"{100 * region.roofline_us / region.us:.3g} %" if region.roofline_us and region.us else ""
            share = "" if region.compiled_share is None else f"{100 * region.compiled_share:.3g} %"
            gains = [f"x{amdahl([(min(region.share, 1 - 1e-9), ratio)]):.3g}" for ratio in (2.0, math.inf)]
            rows.append(
                [str(at), "\n".join(about), format_us(region.us), f"{100 * region.share:.3g} %", share, near, *gains]
            )
        remarks = [f"torch.compile fails: {self.failed}"] if self.failed else []
        return {"title": f"{name} on {self.chip}, {threads}: {took}", "remarks": remarks, "rows": rows}

    def find_region(self, word: str) -> Region:
        """The region with a number, of a class, or with a module of that name. ConfigError where there is none."""
        if word.isdecimal() and 0 < int(word) <= len(self.regions):
            return self.regions[int(word) - 1]
        known = {name: part for part in reversed(self.regions) for name in (*part.modules, part.kind, part.title)}
        if word not in known:
            titles = suggest(word, {region.title for region in self.regions})
            raise ConfigError(f"regions={word}: there are regions 1 to {len(self.regions)}; {titles}")
        return known[word]


def profile(user: UserModel, mode: str, step: Callable[[str], None]) -> Profile:
    """Run a model as it is and compiled (with mode `none` not), and divide its time among regions.

    step: told what is done next.
    """
    count = len(user.inputs)
    chip = target.default_target() if user.gpu else with_measured_rates(target.detect())
    with torch.no_grad():
        step("what modules are called with")
        with catch_foreign() as caught:
            calls = record_calls(user.model, user.inputs)
        if caught:
            message = one_line(f"{type(caught[0]).__name__}: {caught[0]}", 300)
            raise ConfigError(f"{user.file}: {message}{error_location(caught[0])}") from caught[0]
        counted = FlopCounterMode(display=False)
        with catch_foreign() as uncounted, counted:  # some operations, such as grouped attention, are unknown to it
            for args, named in user.inputs:
                user.model(*args, **named)
        flops = {name.partition(".")[2]: sum(ops.values()) for name, ops in counted.get_flop_counts().items()}
        held = record_calls(user.model, user.heldout, first=count)
        step("eager")
        eager_us = sum(time_call(user, user.model, *arguments) for arguments in user.inputs) / count
        step("eager, with torch.profiler")
        spans = _spans(user, max(3, min(int(_SECONDS * 1e6 / eager_us / count), 50)))
        regions = []
        for region in _grouped(user.model, [*calls, *held]):
            took = sum(sum(spans[name]) for name in region.modules)
            region.share = min(took / max(sum(spans[""]), 1e-9), 1.0)
            _add_times(region, calls, spans)
            region.us = region.share * eager_us
            region.flops = sum(flops.get(name, 0) for name in region.modules)
            many = sum(call.number < count for call in region.calls)
            kind = next((PRECISIONS[t.dtype] for t in region.calls[0].inputs if t.dtype in PRECISIONS), "")
            work = CaseWork(region.flops / many, region.traffic(count) / many) if many and not uncounted else None
            limit = work and roofline.bound(work, kind, chip)
            region.roofline_us = limit[0] * many / count if limit else None
            regions += [region] if region.share >= _LEAST else []
        regions.sort(key=lambda region: -region.share)
        compiled_us, failed = None, ""
        if mode != "none":
            with catch_foreign() as caught:
                compiled_us = _compiled(user, mode, [region for region in regions if region.share >= _COMPILED], step)
            failed = one_line(f"{type(caught[0]).__name__}: {caught[0]}", 300) if caught else ""
    return Profile(regions, eager_us, compiled_us, failed, chip.chip, torch.get_num_threads())


def time_call(user: UserModel, call: Callable[..., Any], args: Sequence[Any] = (), named: Json | None = None) -> float:
    """The median time of a call, in µs."""
    named = named or {}
    call(*args, **named)
    times: list[float] = []
    until = time.perf_counter() + _SECONDS
    while len(times) < 5 or (time.perf_counter() < until and len(times) < 200):
        wait(user.gpu)
        began = time.perf_counter()
        call(*args, **named)
        wait(user.gpu)
        times.append((time.perf_counter() - began) * 1e6)
    return sorted(times)[len(times) // 2]


def _grouped(model: torch.nn.Module, calls: Iterable[ModuleCall]) -> list[Region]:
    """Regions, in the order in which they are called."""
    regions: dict[str, Region] = {}
    for call in calls:
        module = model.get_submodule(call.module)
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        held = tuple(meta(name, tensor) for name, tensor in state.items())
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        takes = [(tensor.name, tensor.dtype, len(tensor.shape)) for tensor in call.inputs]
        gives = call.returns, call.written, [len(tensor.shape) for tensor in call.outputs]
        key = repr((kind, held, takes, call.constants, call.unfit, gives))
        region = regions.setdefault(key, Region(kind, [], [], held))
        region.calls.append(call)
        region.modules += [call.module] if call.module not in region.modules else []
    return list(regions.values())


def _add_times(region: Region, calls: Iterable[ModuleCall], spans: Mapping[str, Sequence[float]]) -> None:
    """Set a region's times. Every repetition of the model makes the calls in the same order."""
    own = set(map(id, region.calls))
    for name in region.modules:
        met = [call for call in calls if call.module == name]
        for at, call in enumerate(met):
            region.times[call.input_shapes] += sum(spans[name][at :: len(met)]) if id(call) in own else 0.0


def _spans(user: UserModel, times: int) -> Mapping[str, list[float]]:
    """What torch.profiler sees each call of a module take, in order, and "" for those of the whole model."""
    begun: defaultdict[str, list[Any]] = defaultdict(list)

    def begins(name: str, *_: Any) -> None:
        begun[name].append(record_function(f"{_MARK}{name}"))
        begun[name][-1].__enter__()

    def ends(name: str, *_: Any) -> None:
        begun[name].pop().__exit__(None, None, None)

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if user.gpu else [])]
    with (
        watching(user.model.named_modules(), begins, ends),
        torch.profiler.profile(activities=activities, acc_events=True) as profiler,
    ):
        for _ in range(times):
            for args, named in user.inputs:
                user.model(*args, **named)
                wait(user.gpu)
    spans = defaultdict[str, list[float]](list)
    for event in sorted(profiler.events() or (), key=lambda event: event.time_range.start):
        if event.name.startswith(_MARK) and event.device_type == DeviceType.CPU:
            took = event.device_time_total if user.gpu else event.cpu_time_total
            spans[event.name.removeprefix(_MARK)].append(took)
    return spans


def _compiled(user: UserModel, mode: str, regions: Sequence[Region], step: Callable[[str], None]) -> float:
    """The compiled model's time; each region's share of it, where it can be compiled by itself."""
    step(f"torch.compile, mode {mode}")
    fast = torch.compile(user.model, mode=mode, dynamic=False)
    whole = sum(time_call(user, fast, *arguments) for arguments in user.inputs)
    element = next(iter(user.model.parameters()), torch.zeros(1)).detach().flatten()[:1]
    least = torch.compile(torch.neg, dynamic=False)
    overhead = time_call(user, least, (element,))
    calls = record_calls(user.model, user.inputs, keep={region.modules[0] for region in regions})
    for region in regions:
        step(f"torch.compile, {region.title} by itself")
        name, took = region.modules[0], 0.0
        alone = torch.compile(user.model.get_submodule(name), mode=mode, dynamic=False)
        counts = Counter(call.inputs for call in region.calls if call.number < len(user.inputs))
        with catch_foreign() as caught:
            for inputs, count in counts.items():
                arguments = next(call.given for call in calls if call.module == name and call.inputs == inputs)
                args, named = arguments_for(user.model.get_submodule(name), arguments)
                took += count * max(time_call(user, alone, args, named) - overhead, 0.0)
        region.compiled_share = None if caught else min(took / whole, 1.0)
    torch.compiler.reset()
    return whole / len(user.inputs)
