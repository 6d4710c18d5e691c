"""Targets: this machine's chips, their properties, and the settings for building and judging kernels. Read only."""

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from typing import Any

from ksflow.errors import ConfigError
from ksflow.home import shipped_path
from ksflow.kernels.hardware import cpu, executables
from ksflow.kernels.hardware.cost_model import PRECISIONS
from ksflow.records import Target

_GPU_LISTS = (
    ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
    ("rocm-smi", "--showproductname", "--csv"),
)
_NVIDIA_ARCH = ("nvidia-smi", "--query-gpu=name,uuid,compute_cap", "--format=csv,noheader")
_SHOW_NVIDIA = ("CUDA_VISIBLE_DEVICES",)
_SHOW_AMD = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Variables that restrict the visible GPUs; the first that is set counts. AMD's ROCR_VISIBLE_DEVICES applies before."""
_MARKETING = re.compile(r"^ *Name: +gfx\w+ *\n(?:.*\n)??.*Marketing Name: +(.+)$", re.MULTILINE)
_PEAK = re.compile(rf"flops\.({'|'.join(PRECISIONS)})|bytes|bytes\.cache")
_SIZES = ("memory", "cache", "shared")
_VARIANT = re.compile(r"pcie|nvl|\d+gb")
_GPU = re.compile(r"sm_[1-9]\d*[a-z]?|gfx[0-9a-f]+(:\w+[+-])*")


def detect(
    name: str = "auto",
    march: str | None = None,
    environment: Mapping[str, str] | None = None,
    cores: int | None = None,
) -> Target:
    """Return this machine's CPU as a target. name: what records call it. march: the compiler's -march, None for all
    that this CPU has. environment: variables of the kernels' processes. cores: how many a kernel has, None for as many
    as the problem says, or one. Raises ConfigError.

    The peaks are those of the cores with all their features: a kernel can use more than the compiler is told.
    """
    if cores is not None and cores < 1:
        raise ConfigError(f"target.cores={cores}: a kernel has at least one core")
    processor, usable = cpu.read_cpu(), cpu.LIMITED.get(march or "", cpu.FEATURES)
    return Target(
        name=name,
        kind="cpu",
        chip=processor.chip,
        features=tuple(feature for feature in processor.features if feature in usable),
        march=march or "native",
        environment=dict(environment or {}),
        peaks=cpu.peaks(processor.flags, cores or 1),
        cores=cores or 1,
    )


def default_target(name: str = "auto", cores: int | None = None) -> Target:
    """Return the default target: the first visible GPU, else the CPU. A GPU's figures come from its data sheet in
    conf/target; without one, and for another variant, there are no floors. name: what records call it. cores: how many
    of the CPU's a kernel has, None for as many as the problem says, or one.
    """
    return next(iter(visible_gpus(name)), None) or detect(name, cores=cores)


def visible_gpus(name: str = "auto") -> tuple[Target, ...]:
    """Return the GPUs that their vendor's tool lists, in its order, restricted by CUDA_VISIBLE_DEVICES and the like."""
    lines = [line for line in executables.output(*_NVIDIA_ARCH).splitlines() if "," in line]
    if rows := [[word.strip() for word in line.rsplit(",", 2)] for line in lines]:
        # from Hopper on, matrix instructions need the architecture-specific target, sm_90a
        numbers = [capability.replace(".", "") for _, _, capability in rows]
        marches = [f"sm_{one}{'a' if one.isdigit() and int(one) >= 90 else ''}" for one in numbers]
        left = _shown([row[1] for row in rows], *_SHOW_NVIDIA)
        return tuple(_gpu(name, rows[number][0], marches[number]) for number in left)
    listed = executables.output("rocm_agent_enumerator").split()
    arches = [word for word in listed if word.startswith("gfx") and word != "gfx000"]
    chips = gpu_names() if arches else ()
    if len(set(arches)) == 1:
        arches = arches[:1] * (len(chips) or len(arches))
    system = _shown([""] * len(arches), "ROCR_VISIBLE_DEVICES")
    left = [system[number] for number in _shown([""] * len(system), *_SHOW_AMD)]
    return tuple(_gpu(name, chips[number] if number < len(chips) else "AMD GPU", arches[number]) for number in left)


def _shown(names: list[str], *variables: str) -> list[int]:
    """Return the indices of the GPUs left by the first variable that is set; like CUDA, up to an unknown name. A part
    of a GPU (MIG-...), and any name if none is known, means the first one.
    """
    words = next((os.environ[variable] for variable in variables if variable in os.environ), None)
    if words is None:
        return list(range(len(names)))
    left: list[int] = []
    for word in map(str.strip, words.split(",")):
        numbers = [
            number
            for number, name in enumerate(names)
            if (word.isdigit() and int(word) == number)
            or word.startswith("MIG-")
            or (word.startswith("GPU-") and (not name or name.startswith(word)))
        ]
        if not numbers:
            break
        left.append(numbers[0])
    return left


def _gpu(name: str, chip: str, march: str) -> Target:
    sheet = next((sheet for sheet in _sheets(chip) if not _is_other_variant(chip, sheet["chip"])), {})
    return from_data_sheet(name, chip, march, sheet.get("peaks", {}), sheet.get("sizes", {}), sheet.get("units", 0))


def _is_other_variant(chip: str, sheet: str) -> bool:
    of_chip, of_sheet = ({*_VARIANT.findall(name.lower())} for name in (chip, sheet))
    sizes = [{word for word in words if word.endswith("gb")} for words in (of_chip, of_sheet)]
    return bool((of_chip - of_sheet) - sizes[0]) or (all(sizes) and sizes[0] != sizes[1])


def _sheets(chip: str) -> list[dict[str, Any]]:
    try:
        import yaml
    except ImportError:
        return []
    files = (shipped_path("conf", "target", f"{option}.yaml") for option in shipped_targets([chip]))
    return [sheet for file in files if (sheet := yaml.safe_load(file.read_text(encoding="utf-8")))]


def from_data_sheet(
    name: str,
    chip: str,
    march: str,
    peaks: Mapping[str, float],
    sizes: Mapping[str, int] | None = None,
    units: int = 0,
) -> Target:
    """Return a GPU by its data sheet, present or not. Raises ConfigError.

    name: what records call it. chip: the product's name. march: the architecture, as its compiler spells it: sm_90a.
    peaks: operations and bytes a second, by precision. sizes: bytes of memory, cache and a block's shared memory.
    units: its multiprocessors or compute units.
    """
    for key, value in {**peaks, **(sizes or {})}.items():
        if not (_PEAK.fullmatch(key) if key in peaks else key in _SIZES):
            valid = f"bytes, bytes.cache, flops.<{', '.join(PRECISIONS)}>; sizes: {', '.join(_SIZES)}"
            raise ConfigError(f"target {name}: unknown figure {key!r}; peaks: {valid}")
        if not (isinstance(value, int | float) and value > 0):
            raise ConfigError(f"target {name}: {key}={value!r} is not a positive number")
    if not _GPU.fullmatch(march):
        raise ConfigError(f"target.march={march} is no GPU's architecture; examples: sm_90a, gfx942")
    rates = {key: float(value) for key, value in peaks.items()}
    return Target(name, "gpu", chip, march=march, peaks=rates, sizes=dict(sizes or {}), units=units)


def single_gpu_environment(index: int) -> dict[str, str]:
    """Return the environment in which a process sees only one of this process' visible GPUs."""
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    for variables in (_SHOW_NVIDIA, _SHOW_AMD):
        words = next((os.environ[name] for name in variables if name in os.environ), "").split(",")
        seen = [word.strip() for word in words if word.strip()]
        environment[variables[0]] = seen[index] if index < len(seen) else str(index)
    return environment


def fits(wanted: Target, present: Target) -> bool:
    """Return whether verdicts for `wanted` can be given on `present`. Any CPU fits a CPU."""
    if wanted.kind != "gpu" or present.kind != "gpu":
        return wanted.kind == present.kind
    sheet, chip = ({*re.findall(r"[a-z0-9]+", name.lower())} for name in (wanted.chip, present.chip))
    return wanted.march == present.march and (wanted.name.lower() in chip or sheet <= chip or chip <= sheet)


def means(word: str, target: Target) -> bool:
    """Return whether a word matches the target: its name, `cpu` or `gpu`, its architecture or that of a chip with the
    same, an instruction set that it has, its fingerprint.
    """
    word = word.lower()
    if word in {target.name.lower(), target.kind, target.chip.lower(), target.march.lower(), *target.features}:
        return True
    if word.startswith(target.fingerprint.lower()):  # a judge adds its compilers
        return True
    architecture = word if word.startswith(("sm_", "gfx")) else _shipped_architecture(word)
    return bool(architecture) and target.march.startswith(architecture)


@cache
def _shipped_architecture(name: str) -> str:
    sheet = shipped_path("conf", "target", f"{name}.yaml")
    if not re.fullmatch(r"[a-z0-9_]+", name) or not sheet.is_file():
        return ""
    match = re.search(r"^march: ((?:sm_|gfx)\w+)$", sheet.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


def is_unlisted_variant(chip: str) -> bool:
    """Return whether a GPU is a variant of a shipped target, with other figures."""
    return any(_is_other_variant(chip, sheet["chip"]) for sheet in _sheets(chip))


def shipped_targets(names: Iterable[str]) -> tuple[str, ...]:
    """Return the shipped targets that match these GPU names: `NVIDIA H200` -> `h200`."""
    patterns = []
    for option in sorted((file.stem for file in shipped_path("conf", "target").glob("*.yaml")), key=len, reverse=True):
        words = r"[\W_]*".join(re.findall(r"[a-z]+|\d+", option))
        patterns.append((option, re.compile(rf"(?<![a-z0-9]){words}(?![a-z0-9])")))  # `gh200` is no `h200`
    matches = (next((option for option, words in patterns if words.search(name.lower())), "") for name in names)
    return tuple(dict.fromkeys(option for option in matches if option))


def gpu_names() -> tuple[str, ...]:
    """Return the names of the GPUs that the vendors' tools list."""
    names: list[str] = []
    for command in _GPU_LISTS:
        lines = [line.strip() for line in executables.output(*command).splitlines() if line.strip()]
        names += [line.split(",")[1].strip() for line in lines[1:] if "," in line] if "rocm" in command[0] else lines
    return tuple(names) or tuple(map(str.strip, _MARKETING.findall(executables.output("rocminfo"))))


def label(target: Target) -> str:
    """Return a target's name in notes and their folders; for a detected target the matching shipped one."""
    if target.name != "auto":
        return target.name
    return "cpu" if target.kind == "cpu" else next(iter(shipped_targets([target.chip])), target.march)


def torch_mismatch(march: str) -> str:
    """Return why the installed torch cannot use such a GPU, with the remedy; "" if it can."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "torch is not installed: pip install torch"
    amd = march.startswith("gfx")
    if "+cpu" in version or f"+{'cu' if amd else 'rocm'}" in version:
        kind = "rocm6.4" if amd else "cu128"
        index = f"https://download.pytorch.org/whl/{kind}"
        return f"torch {version} is not a build for this GPU: pip install --force-reinstall torch --index-url {index}"
    return ""
