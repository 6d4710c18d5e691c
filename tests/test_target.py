"""The machine as a target."""

import dataclasses

from ksflow import target


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
