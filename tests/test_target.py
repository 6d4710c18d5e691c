"""The machine as a target."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ksflow.errors import ConfigError
from ksflow.home import shipped_path
from ksflow.kernels.hardware import target


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
  *compute_cap) echo '{name}, GPU-1f2e, {capability}' ;;
  *) echo '{name}' ;;
esac
"""


def figures(option: str) -> tuple[Any, Any]:
    """A data sheet's peaks and sizes."""
    sheet = yaml.safe_load(shipped_path("conf", "target", f"{option}.yaml").read_text())
    return sheet["peaks"], sheet["sizes"]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a program on a path that has no other: name, text."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("ksflow.kernels.hardware.executables._FOLDERS", ())
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)

    def put(name: str, text: str) -> None:
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    return put


def test_nvidia_gpu_is_the_target_with_its_data_sheets_figures(tools: Callable[[str, str], None]) -> None:
    tools("nvidia-smi", NVIDIA.format(name="NVIDIA H200", capability="9.0"))
    found = target.default_target()
    assert (found.kind, found.chip, found.march) == ("gpu", "NVIDIA H200", "sm_90a")
    assert (found.peaks, found.sizes) == figures("h200")
    assert target.gpu_names() == ("NVIDIA H200",)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("AMD_Instinct_MI300X_OAM", "mi300x"),
        ("NVIDIA GH200 480GB", ""),
        ("NVIDIA GB200", ""),
        ("NVIDIA RTX A1000", ""),
        ("NVIDIA L40", ""),
    ],
)
def test_data_sheet_is_that_of_the_chip_and_not_of_one_with_a_like_name(name: str, option: str) -> None:
    assert target.shipped_targets([name]) == ((option,) if option else ())


@pytest.mark.parametrize(
    ("name", "capability", "figures"),
    [
        ("NVIDIA H100 80GB HBM3", "9.0", True),
        ("NVIDIA H100 PCIe", "9.0", False),
        ("NVIDIA H100 NVL", "9.0", False),
        ("NVIDIA A100-SXM4-80GB", "8.0", True),
        ("NVIDIA A100-SXM4-40GB", "8.0", False),
        ("NVIDIA A100 80GB PCIe", "8.0", False),
    ],
)
def test_another_variant_has_none_of_the_data_sheets_figures(
    tools: Callable[[str, str], None], name: str, capability: str, figures: bool
) -> None:
    tools("nvidia-smi", NVIDIA.format(name=name, capability=capability))
    assert bool(target.default_target().peaks) is bool(target.default_target().sizes) is figures
    assert target.is_unlisted_variant(name) is not figures


def test_gpu_that_nobody_has_figures_for_has_no_peaks(tools: Callable[[str, str], None]) -> None:
    tools("nvidia-smi", NVIDIA.format(name="NVIDIA T4", capability="7.5"))
    found = target.default_target()
    assert (found.kind, found.chip, found.march) == ("gpu", "NVIDIA T4", "sm_75")
    assert not found.peaks
    assert not found.sizes


@pytest.mark.parametrize(
    ("shown", "marches"),
    [
        ("1", ["sm_89"]),
        ("2, 0", ["sm_90a", "sm_90a"]),
        ("GPU-22", ["sm_89"]),
        ("GPU-33,GPU-11", ["sm_90a", "sm_90a"]),
        ("1,7,0", ["sm_89"]),
        ("MIG-5c90", ["sm_90a"]),
        ("", []),
        ("-1", []),
        (None, ["sm_90a", "sm_89", "sm_90a"]),
    ],
)
def test_only_the_gpus_that_are_shown_count(
    shown: str | None, marches: list[str], tools: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ["NVIDIA H200, GPU-1111, 9.0", "NVIDIA L40S, GPU-2222, 8.9", "NVIDIA H200, GPU-3333, 9.0"]
    tools("nvidia-smi", "#!/bin/sh\n" + "\n".join(f"echo '{row}'" for row in rows))
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert [gpu.march for gpu in target.visible_gpus()] == marches
    assert target.default_target().march == next(iter(marches), "native")


def test_a_process_for_one_of_the_gpus_sees_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-3333, 1")
    assert target.single_gpu_environment(0)["CUDA_VISIBLE_DEVICES"] == "GPU-3333"
    assert target.single_gpu_environment(1) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1",
        "HIP_VISIBLE_DEVICES": "1",
    }


@pytest.mark.parametrize(
    ("shown", "march"),
    [
        ({"HIP_VISIBLE_DEVICES": "1"}, "gfx950"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "gfx950"),
        ({"ROCR_VISIBLE_DEVICES": "2,1"}, "gfx90a"),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, "gfx950"),
        ({"HIP_VISIBLE_DEVICES": ""}, "native"),
        ({}, "gfx942"),
    ],
)
def test_amd_gpus_that_are_shown(
    shown: dict[str, str], march: str, tools: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    tools("rocm_agent_enumerator", "#!/bin/sh\necho gfx000; echo gfx942; echo gfx950; echo gfx90a\n")
    for variable, words in shown.items():
        monkeypatch.setenv(variable, words)
    assert target.default_target().march == march


def test_amd_gpu_is_the_target(tools: Callable[[str, str], None]) -> None:
    tools("rocm_agent_enumerator", "#!/bin/sh\necho gfx000; echo gfx942; echo gfx942\n")
    tools("rocm-smi", "#!/bin/sh\necho device,Card Series; echo card0,AMD Instinct MI300X\n")
    found = target.default_target()
    assert (found.kind, found.march) == ("gpu", "gfx942")
    assert "MI300X" in found.chip
    assert (found.peaks, found.sizes) == figures("mi300x")


def test_amd_gpu_is_known_by_rocminfo_alone(tools: Callable[[str, str], None]) -> None:
    tools("rocm_agent_enumerator", "#!/bin/sh\necho gfx000; echo gfx942\n")
    agent = "  Name:          {}\n  Uuid:          {}\n  Marketing Name:     {}\n  Vendor Name:  AMD\n"
    words = agent.format("AMD EPYC", "CPU-1", "AMD EPYC 9534") + agent.format("gfx942", "GPU-2", "AMD Instinct MI300X")
    tools("rocminfo", f"#!/bin/sh\ncat <<END\n{words}END\n".replace("cat", "/bin/cat"))
    assert target.gpu_names() == ("AMD Instinct MI300X",)
    assert target.fits(target.from_data_sheet("mi300x", "AMD Instinct MI300X", "gfx942", {}), target.default_target())


@pytest.mark.parametrize(
    ("version", "march", "index"),
    [
        ("2.13.0+cpu", "sm_90a", "cu128"),
        ("2.13.0+cpu", "gfx942", "rocm6.4"),
        ("2.13.0+cu130", "gfx942", "rocm6.4"),
        ("2.13.0+rocm7.1", "sm_90a", "cu128"),
        ("2.13.0+cu130", "sm_90a", ""),
        ("2.13.0", "sm_90a", ""),
        ("2.13.0+rocm7.1", "gfx942", ""),
    ],
)
def test_torch_that_cannot_use_the_gpu_is_told(
    version: str, march: str, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "torch-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    said = target.torch_mismatch(march)
    assert (
        (f"torch {version} is not a build for this GPU: pip install" in said and index in said) if index else not said
    )


@pytest.mark.parametrize("march", ["banana", "", "sm_", "h200", "sm_90a; rm"])
def test_what_is_no_gpus_architecture_is_a_sentence(march: str) -> None:
    with pytest.raises(ConfigError, match=r"^target.march=.* is no GPU's architecture; examples: sm_90a, gfx942"):
        target.from_data_sheet("h200", "NVIDIA H200", march, {})
    assert target.from_data_sheet("mi300x", "AMD", "gfx942:sramecc+:xnack-", {}).march == "gfx942:sramecc+:xnack-"


@pytest.mark.parametrize("text", ["#!/bin/sh\necho 'No devices were found'\nexit 6\n", "#!/bin/sh\n"])
def test_tool_without_a_gpu_leaves_the_cpu(tools: Callable[[str, str], None], text: str) -> None:
    tools("nvidia-smi", text)
    tools("rocm_agent_enumerator", "#!/bin/sh\necho gfx000\n")
    assert target.default_target().kind == "cpu"
