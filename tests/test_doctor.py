"""What `doctor` finds of devices and their tools."""

import os
from pathlib import Path

import pytest
from rich.console import Console

from ksflow.cli import doctor
from ksflow.evaluation.processes import quota
from ksflow.kernels.hardware import executables, target


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where programs are found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("ksflow.kernels.hardware.executables._FOLDERS", ())
    return tmp_path


def install(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def shown() -> str:
    console = Console(width=200)
    with pytest.MonkeyPatch.context() as patch, console.capture() as capture:
        patch.setattr(doctor.report, "console", lambda: console)
        doctor.doctor([], [])
    return capture.get()


def test_gpus_and_tools_are_named_with_their_versions(folder: Path) -> None:
    install(
        folder,
        "nvidia-smi",
        'case "$1" in *driver*) echo "NVIDIA H200, 580.95.05, 143771 MiB";; *) echo "NVIDIA H200";; esac',
    )
    install(folder, "nvcc", 'case "$1" in --list*) echo sm_90; echo sm_100;; *) echo "release 13.0, V13.0.88";; esac')
    install(folder, "ncu", "echo 'Nsight Compute Command Line Profiler'; echo 'Version 2025.3.1.0 (build 1)'")
    install(folder, "rocprofv3", "exit 1")
    text = shown()
    assert "NVIDIA H200, driver 580.95.05, 143771 MiB" in text
    assert "known as target=h200" in text
    assert "Version 2025.3.1.0 (build 1)" in text
    assert "cuda (nvcc): b200 h100 h200" in text
    assert "not found: rocprofiler-sdk" in text


def test_a_variant_without_figures_is_said(folder: Path) -> None:
    install(folder, "nvidia-smi", 'case "$1" in *driver*) ;; *) echo "NVIDIA H100 PCIe";; esac')
    assert "NVIDIA H100 PCIe (the target's figures are another variant's" in shown()


def test_a_sandbox_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PATIENCE_S", 0.001)
    assert doctor.isolation() == ("none", {"sandboxes": "no answer in 0.001 s"})


def test_reports_are_plain() -> None:
    level, layers = doctor.isolation()
    assert level in ("none", "rlimits", "landlock", "userns", "full")
    assert all(isinstance(what, str) for what in layers.values())
    assert all(isinstance(name, str) for name in target.gpu_names())
    assert all(version for version in executables.compilers().values())


def test_without_any_gpu_it_says_what_to_install(folder: Path) -> None:
    text = shown()
    assert "none: kernels run on the CPU" in text
    assert "cuda (nvcc)" not in text


def test_whether_counters_are_allowed_is_read_from_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = tmp_path / "params"
    assert doctor.counters(parameters) == ""
    parameters.write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in doctor.counters(parameters)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert doctor.counters(parameters).startswith("allowed")
    parameters.write_text("RmProfilingAdminOnly: 0\n")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert doctor.counters(parameters).startswith("allowed")


def test_ways_to_compile_need_their_compilers(folder: Path) -> None:
    hip = next((line for line in doctor.static({"zig": "0.17.1"}) if line.startswith("hip")), "")
    assert hip == "hip (zig): mi300x mi325x mi350x mi355x"
    assert not [line for line in doctor.static({}) if line.startswith(("hip", "cuda"))]


def test_a_program_that_is_missing_or_broken_has_no_version(folder: Path) -> None:
    install(folder, "broken", "echo 'version 3.1'; exit 1")
    install(folder, "quiet", "exit 0")
    assert [executables.version(name) for name in ("missing", "broken", "quiet")] == [""] * 3
    assert target.gpu_names() == ()


QUOTAS = {
    "version 2": {
        "cpu.max": "150000 100000",
        "cpu.stat": "usage_usec 1\nnr_periods 9\nnr_throttled 4\nthrottled_usec 7",
    },
    "version 1": {
        "cpu.cfs_quota_us": "150000",
        "cpu.cfs_period_us": "100000",
        "cpu.stat": "nr_periods 9\nnr_throttled 4\nthrottled_time 7",
    },
}


@pytest.mark.parametrize("version", QUOTAS)
def test_a_quota_is_named(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {**QUOTAS[version], "memory.high": str(3 << 30)}.items():
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "cpu.max").write_text("max 100000\n")
    groups = (tmp_path / "none", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert (quota.cores(groups), quota.stops(groups)) == (1.5, 4)
    for word in ("1.5 cores' CPU time (cpu.max)", "2 of 64 cores", "3 GiB before it is slowed down (memory.high)"):
        assert word in quota.limits(groups)
    assert quota.cores(groups[:1]) is None
    monkeypatch.setattr(quota, "folders", lambda: groups)
    assert "1.5 cores' CPU time" in shown()
