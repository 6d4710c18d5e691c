"""The machine as a target."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ksflow import target
from ksflow.home import shipped


def test_this_machine_has_a_name_and_a_fingerprint() -> None:
    found = target.detect()
    assert found.chip
    assert found.kind == "cpu"
    assert found.march == "native"
    assert found.fingerprint == target.detect().fingerprint


def test_lesser_chip_has_fewer_features_and_its_own_fingerprint() -> None:
    lesser = target.detect("x86_64_v3", march="x86-64-v3", environment={"ATEN_CPU_CAPABILITY": "avx2"})
    assert not [feature for feature in lesser.features if "512" in feature or "amx" in feature]
    assert lesser.environment == {"ATEN_CPU_CAPABILITY": "avx2"}
    assert lesser.fingerprint != target.detect("x86_64_v3").fingerprint or not target.detect().features


def test_reports_are_plain() -> None:
    level, layers = target.isolation()
    assert level in ("none", "rlimits", "landlock", "userns", "full")
    assert all(isinstance(what, str) for what in layers.values())
    assert all(isinstance(name, str) for name in target.gpus())
    assert all(version for version in target.compilers().values())


def test_one_cores_peaks_are_known_and_stay_out_of_the_fingerprint() -> None:
    found = target.detect()
    if found.features:
        assert 1e10 < found.peaks["flops.fp32"] < 1e12
        assert found.peaks == target.detect().peaks
        assert found.peaks == target.detect("lesser", march="x86-64-v3").peaks
    assert dataclasses.replace(found, peaks={}).fingerprint == found.fingerprint


# -- GPUs, as their makers' tools list them --------------------------------------------------------

NVIDIA = """#!/bin/sh
case "$1" in
  *compute_cap) echo '{name}, {capability}' ;;
  *) echo '{name}' ;;
esac
"""


def figures(option: str) -> tuple[Any, Any]:
    """A data sheet's peaks and sizes."""
    sheet = yaml.safe_load(shipped("conf", "target", f"{option}.yaml").read_text())
    return sheet["peaks"], sheet["sizes"]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a program on a path that has no other: name, text."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(name: str, text: str) -> None:
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    return put


def test_nvidia_gpu_is_the_target_with_its_data_sheets_figures(tools: Callable[[str, str], None]) -> None:
    tools("nvidia-smi", NVIDIA.format(name="NVIDIA H200", capability="9.0"))
    found = target.here()
    assert (found.kind, found.chip, found.march) == ("gpu", "NVIDIA H200", "sm_90a")
    assert (found.peaks, found.sizes) == figures("h200")
    assert target.gpus() == ("NVIDIA H200",)


def test_gpu_that_nobody_has_figures_for_has_no_peaks(tools: Callable[[str, str], None]) -> None:
    tools("nvidia-smi", NVIDIA.format(name="NVIDIA T4", capability="7.5"))
    found = target.here()
    assert (found.kind, found.chip, found.march) == ("gpu", "NVIDIA T4", "sm_75")
    assert not found.peaks
    assert not found.sizes


def test_amd_gpu_is_the_target(tools: Callable[[str, str], None]) -> None:
    tools("rocm_agent_enumerator", "#!/bin/sh\necho gfx000; echo gfx942; echo gfx942\n")
    tools("rocm-smi", "#!/bin/sh\necho device,Card Series; echo card0,AMD Instinct MI300X\n")
    found = target.here()
    assert (found.kind, found.march) == ("gpu", "gfx942")
    assert "MI300X" in found.chip
    assert (found.peaks, found.sizes) == figures("mi300x")


@pytest.mark.parametrize("text", ["#!/bin/sh\necho 'No devices were found'\nexit 6\n", "#!/bin/sh\n"])
def test_tool_without_a_gpu_leaves_the_cpu(tools: Callable[[str, str], None], text: str) -> None:
    tools("nvidia-smi", text)
    tools("rocm_agent_enumerator", "#!/bin/sh\necho gfx000\n")
    assert target.here().kind == "cpu"
