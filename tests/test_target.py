"""The machine as a target."""

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
    assert target.isolation() in ("none", "rlimits")
    assert all(isinstance(name, str) for name in target.gpus())
    assert all(version for version in target.compilers().values())
