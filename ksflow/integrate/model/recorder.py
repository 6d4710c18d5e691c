"""Records the calls of one function while a person's own command runs.

`isolate` writes `look` and this file as one `sitecustomize.py` to the front of the command's PYTHONPATH. Each Python
process of the command imports it first, whatever its environment: it needs the standard library, and of NumPy and torch
what that program has imported itself. Each process writes PID.json and a file for each sampled call into the folder
that KSFLOW_ISOLATE names. Only the outermost call in each thread counts; time is that in which any thread is inside.
Once a function was called `_FULL` times, only each `_STRIDE`th call is timed and looked at, and counts as so many.
"""

import atexit
import contextlib
import functools
import importlib.machinery
import importlib.util
import inspect
import itertools
import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ksflow.integrate.model.look import PLAIN, Look, copied, is_module, same, unwatchable, versions

_FULL, _STRIDE = 20_000, 64
_SIGNATURES = 200  # shapes, types and constants that are told apart; further ones are counted together
_SAMPLED = (1, 2, 10, 100, 1000)  # calls with one signature whose contents are kept
_TIMES = 255  # calls with one signature of which the time is kept
_LARGEST, _MOST = 256 << 20, 1 << 30  # bytes of a call, and of all calls, whose contents are kept


class Recorder:
    """What one process sees of a function. target: `module:name.of.it`."""

    def __init__(self, target: str, folder: str) -> None:
        self.module, _, self.name = target.partition(":")
        self.folder = folder
        self.facts: dict[str, Any] = {"target": target, "unfit": "", "file": "", "module": False, "names": []}
        self.reset()

    def reset(self) -> None:
        """Begin anew, as a forked process does."""
        self.lock, self.local = threading.Lock(), threading.local()
        self.began, self.numbers = time.time(), itertools.count()
        self.active, self.since, self.busy_s, self.overhead_s = 0, 0.0, 0.0, 0.0
        self.counted, self.raised, self.kept = 0, 0, 0
        self.threads: set[int] = set()
        self.groups, self.modules = dict[Any, dict[str, Any]](), dict[Any, Any]()

    def install(self, space: Any) -> bool:
        """Put a watching function in the place of the target in a module; whether there is one now."""
        *path, last = self.name.split(".")
        owner: Any = space
        for part in path:
            owner = getattr(owner, part, None)
        raw = inspect.getattr_static(owner, last, None)
        self.facts["names"] = [name for name in dir(owner or space) if not name.startswith("__")]
        if owner is None or raw is None:
            return False
        if reached := [one for one in (owner, raw) if _is_object(one) and (one is owner or is_module(one))]:
            kind = type(reached[0])
            name = kind.__name__ if is_module(reached[0]) else f"{kind.__name__}.{last}"
            why = f'belongs to an object: isolate its class, ksflow isolate {kind.__module__}:{name} --run "COMMAND"'
            self.facts |= {"unfit": why, "file": kind.__module__}
            return True
        if inspect.isclass(raw):
            self.facts["module"] = is_module(raw)
            owner, last = raw, "forward" if self.facts["module"] else "__call__"
            raw = inspect.getattr_static(owner, last, None)
        function = raw.__func__ if isinstance(raw, staticmethod) else raw
        if getattr(function, "_ksflow", False):
            return True
        self.facts["method"] = inspect.isclass(owner) and not isinstance(raw, staticmethod)
        self.facts["callee"] = self.name if last == self.name.rpartition(".")[2] else f"{self.name}.{last}"
        self.facts["unfit"] = unwatchable(function)
        file = getattr(inspect.getmodule(function), "__file__", "") or getattr(space, "__file__", "")
        self.facts["file"] = os.path.abspath(file)
        self.facts["program"] = space is sys.modules.get("__main__")
        if not self.facts["unfit"]:
            usual = {name: one.default for name, one in inspect.signature(function).parameters.items()}
            self.facts["defaults"] = {name: repr(value) for name, value in usual.items() if type(value) in PLAIN}
            watched = self.watching(function)
            setattr(owner, last, staticmethod(watched) if isinstance(raw, staticmethod) else watched)
        return True

    def watching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, watched."""
        signature = inspect.signature(function)

        @functools.wraps(function)
        def watched(*args: Any, **named: Any) -> Any:
            local = self.local
            if getattr(local, "inside", False):
                return function(*args, **named)
            local.inside = True
            try:
                number = next(self.numbers)
                if number >= _FULL and number % _STRIDE:
                    return function(*args, **named)
                return self.call(function, signature, args, named, 1 if number < _FULL else _STRIDE)
            finally:
                local.inside = False

        watched._ksflow = True  # type: ignore[attr-defined]
        return watched

    def call(self, function: Any, signature: Any, args: Any, named: Any, weight: int) -> Any:
        """One call that counts as `weight` calls, looked at before and after."""
        begun, look = time.perf_counter(), Look()
        try:
            bound = signature.bind(*args, **named)
            nodes = look.bound(bound, signature, self.facts)
        except Exception:  # noqa: BLE001 - a wrong call, which the function itself complains of, or an odd object
            bound, nodes = None, ()
        key: Any = (nodes, tuple(look.metas))
        size = sum(leaf.nbytes for leaf in look.leaves)
        with self.lock:
            if key not in self.groups and len(self.groups) >= _SIGNATURES:
                key = None
            group = self.groups.setdefault(
                key, {"calls": 0, "times": [], "samples": [], "written": [], "why": "", "seen": 0}
            )
            group["seen"] += 1
            wanted = bound is not None and key is not None and group["seen"] in _SAMPLED
            if wanted and look.module is not None:  # of all modules of a kind one is recorded, whose weights are kept
                wanted = self.modules.setdefault(nodes[0], look.module) is look.module
                group["seen"] -= not wanted  # else no call of that one would be the first
            if wanted and (size > _LARGEST or self.kept + size > _MOST):
                wanted, group["why"] = False, f"takes {size >> 20} MB, and calls of {_LARGEST >> 20} MB are recorded"
            self.kept += size if wanted else 0
            self.threads.add(threading.get_ident())
        before: list[Any] = []
        if wanted:
            with contextlib.suppress(Exception):
                before = [copied(leaf) for leaf in look.leaves]
            wanted = len(before) == len(look.leaves)
        before_call = versions(look.leaves)
        on_gpu = any(meta[5] == "cuda" for meta in look.metas)
        wait = sys.modules["torch"].cuda.synchronize if on_gpu else lambda: None
        wait()
        with self.lock:
            self.overhead_s += time.perf_counter() - begun
        result = self.timed(lambda: function(*args, **named), weight, group, wait)
        ended = time.perf_counter()
        pairs = zip(look.metas, before_call, versions(look.leaves), strict=False)
        group["written"] += [meta[0] for meta, first, other in pairs if first != other]
        if wanted:
            try:
                again = Look()
                if again.bound(bound, signature, self.facts) != nodes or again.metas != look.metas:
                    group["why"] = "changes the attributes of its object, or its arguments' structure"
                copies = zip(look.metas, before, look.leaves, strict=False)
                group["written"] += [meta[0] for meta, first, other in copies if not same(first, other)]
                self.keep(group, look, before, result)
            except Exception as error:  # noqa: BLE001 - nothing of a recording may end the person's program
                group["why"] = f"cannot be recorded ({type(error).__name__}: {error})"
        with self.lock:
            self.overhead_s += time.perf_counter() - ended
        return result

    def timed(self, function: Callable[[], Any], weight: int, group: dict[str, Any], wait: Callable[[], Any]) -> Any:
        """What the function returns or raises; its time is counted."""
        start = time.perf_counter()
        with self.lock:
            self.active += 1
            self.since = start if self.active == 1 else self.since
        failed = weight
        try:
            result = function()
            wait()
            failed = 0
            return result
        finally:
            end = time.perf_counter()
            with self.lock:
                self.active -= 1
                self.busy_s += (end - start) * (weight - 1) + (0.0 if self.active else end - self.since)
                self.counted += weight
                self.raised += failed
                group["calls"] += weight
                if len(group["times"]) < _TIMES:
                    group["times"].append(end - start)

    def keep(self, group: dict[str, Any], look: Look, before: list[Any], result: Any) -> None:
        """Write a call's arguments, as they were before it, and its results to a file."""
        out = Look(scalars=True)
        given = {id(leaf): meta[0] for leaf, meta in zip(look.leaves, look.metas, strict=True)}
        node = out.node(result, "y")
        group["returns"] = [node, out.metas, [given.get(id(leaf), "") for leaf in out.leaves]]
        first, leaves = not group["samples"], [copied(leaf) for leaf in out.leaves]
        group["samples"].append(f"{os.getpid()}_{id(group)}_{len(group['samples'])}.pickle")
        with open(os.path.join(self.folder, group["samples"][-1]), "wb") as stream:
            after = {
                meta[0]: copied(leaf)
                for meta, leaf in zip(look.metas, look.leaves, strict=True)
                if meta[0] in group["written"]
            }
            module = look.module if first else None
            pickle.dump({"in": before, "after": after, "out": leaves, "module": module}, stream)

    def dump(self) -> None:
        """Write what was seen."""
        scale = 1.0
        number = next(self.numbers)
        if number > _FULL and self.counted:  # each call is known, though not each was timed
            scale = number / self.counted
        rows = [
            {**group, "nodes": key[0] if key else None, "leaves": key[1] if key else None}
            for key, group in self.groups.items()
        ]
        facts = {
            **self.facts,
            "calls": number,
            "sampled": number > _FULL,
            "raised": self.raised,
            "threads": len(self.threads),
            "busy_s": self.busy_s * scale,
            "overhead_s": self.overhead_s,
            "began": self.began,
            "ended": time.time(),
            "path": [os.path.abspath(folder) for folder in sys.path if folder != os.path.dirname(__file__)],
            "groups": rows,
        }
        # the command may have ended before this process, and its folder with it
        file = os.path.join(self.folder, f"{os.getpid()}.json")
        with contextlib.suppress(OSError), open(file, "w", encoding="utf-8") as stream:
            json.dump(facts, stream, default=repr)


def _is_object(value: Any) -> bool:
    return not (inspect.isclass(value) or inspect.ismodule(value))


class _Finder:
    """Finds the target's module as it would be found, and watches its function once it was imported."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.busy = recorder, False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self.recorder.module or self.busy:
            return None
        self.busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy = False
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self.recorder.install(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _watch_program(recorder: Recorder) -> None:
    """Watch a function of the program itself (`python FILE`, `python -m MODULE`) from the line on that defines it."""

    def begins(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_name != "<module>" or frame.f_globals.get("__name__") != "__main__":
            return None
        own = getattr(frame.f_globals.get("__spec__"), "name", "")
        stem = os.path.splitext(os.path.basename(frame.f_code.co_filename))[0]
        if recorder.module in (own, stem):
            return goes_on
        sys.settrace(None)
        return None

    def goes_on(frame: Any, event: str, _: Any) -> Any:
        if recorder.name.partition(".")[0] in frame.f_globals and recorder.install(sys.modules["__main__"]):
            sys.settrace(None)
            frame.f_trace = None
            return None
        return goes_on

    sys.settrace(begins)


def _begin(target: str, folder: str) -> None:
    """Watch a function, after the sitecustomize has run that this file stands in front of."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec and spec.loader:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    recorder = Recorder(target, folder)
    sys.meta_path.insert(0, _Finder(recorder))
    _watch_program(recorder)
    atexit.register(recorder.dump)
    os.register_at_fork(after_in_child=recorder.reset)
    from multiprocessing import util

    util.register_after_fork(recorder, lambda one: util.Finalize(None, one.dump, exitpriority=0))


if __name__ == "sitecustomize" and "KSFLOW_ISOLATE" in os.environ:
    _begin(*json.loads(os.environ["KSFLOW_ISOLATE"]))
