"""Where sandboxes are started, and with which parameters."""

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from ksflow.evaluation.sandbox.levels import PRIVATE
from ksflow.records.base import Json

_MODES = {"": "null", "torch": "null torch", "host": "native", "strong": "launch"}
"""How a GPU kernel's artefact was made -> how the kernel is called."""
_DRIVER_MB = 12 << 10  # host memory of a GPU's driver and libraries


@dataclass(frozen=True)
class SandboxSpec:
    """Parameters of a new sandbox."""

    zygote: socket.socket
    language: str
    files: dict[str, str] = field(default_factory=dict)
    artefact: str = ""
    digest: str = ""  # SHA-256 of the artefact; a file with another digest is not loaded. Empty if unknown.
    loop: str = ""  # path of the library that calls a native kernel (`runners/loop.cpp`); empty: Python calls it
    memory_mb: int = 4096
    cpu_s: int = 600
    cores: tuple[int, ...] = ()  # of its own; empty if there is none to spare
    level: str = "rlimits"
    supervisor_s: float = 60.0
    """Time limit for an answer of the supervisor, after which the failure is the machine's, not the kernel's."""
    extra: dict[str, object] = field(default_factory=dict)  # further options of the runner
    device: dict[str, str] = field(default_factory=dict)
    """On a GPU: its `platform`, and the `mode` in which the kernel is called: launch, native or torch."""
    devices: tuple[str, ...] = ()  # paths of the GPU's device files
    resting: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    """Entered while a late answer is awaited; stops the process that keeps the judge's core awake."""


@dataclass(frozen=True)
class Host:
    """Where sandboxes are started and run."""

    light: socket.socket
    torch: socket.socket
    cores: tuple[int, ...]  # the sandboxes'
    level: str
    device: Json = field(default_factory=dict)  # on a GPU: platform, device files, further paths that its runtime reads
    loop: str = ""  # path of the library that calls native kernels on a CPU
    resting: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext  # as in `SandboxSpec`

    def start(self, kernel: Json, limits: Json) -> SandboxSpec:
        """Return the parameters of a sandbox for this kernel."""
        native = kernel["language"] in ("cpp", "null") or bool(kernel.get("artefact"))
        mode = _MODES[kernel.get("mode", "")] if native else "torch"
        on_device = {"mode": mode, **{key: self.device[key] for key in ("platform", "visible")}} if self.device else {}
        interpret = kernel.get("interpret", {})
        cache = kernel.get("compile_cache", {}) if self.level in PRIVATE else {}
        return SandboxSpec(
            zygote=self.light if native and not mode.endswith("torch") else self.torch,
            language=kernel["language"],
            files={} if native else kernel["files"],
            artefact=kernel.get("artefact", ""),
            digest=kernel.get("digest", ""),
            loop="" if self.device or not native else self.loop,
            memory_mb=limits["memory_mb"] + (_DRIVER_MB if self.device else 0),
            cpu_s=(int(limits["check_s"] + limits["time_s"]) + 10) * max(len(self.cores), 1),
            cores=self.cores,
            level=self.level,
            extra={**interpret, **cache, "extra": [*self.device.get("folders", ()), *interpret.get("extra", ())]},
            device=on_device,
            devices=tuple(self.device.get("files", ())),
            resting=self.resting,
        )
