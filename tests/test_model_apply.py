"""Winners of a model's regions as a package that puts them in place, and what that does for the whole model."""

import importlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from test_model_profile import ksflow

from ksflow.lineage import Lineage

pytestmark = pytest.mark.slow
MODEL = Path(__file__).with_name("gated_model")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, one region of it as a problem, and a run in which the kernel was ahead: of made-up times, which no busy
    machine changes."""
    made = tmp_path_factory.mktemp("model")
    shutil.copytree(MODEL, made, dirs_exist_ok=True)
    done = ksflow(made, "problem=gate", "loop.evaluations=0", "evaluator=fake", "evaluator.seed=5")
    assert "winner 00002" in done.stderr, done.stderr
    return made


@pytest.fixture(scope="module")
def package(folder: Path) -> Iterator[ModuleType]:
    """The package, imported as a user's program does."""
    done = ksflow(folder, "model", "apply", "gate")
    assert done.returncode == 0, done.stderr
    assert "gate: module.py: the judge finds that it answers as the reference does" in done.stdout
    assert "import my_model_kernels; my_model_kernels.install(model)" in done.stdout
    sys.path.insert(0, str(folder))
    yield importlib.import_module("my_model_kernels")
    sys.path.remove(str(folder))


def models(folder: Path) -> Any:
    """What the user's own file offers."""
    return importlib.import_module("my_model")


def test_a_package_puts_kernels_in_place_and_takes_them_out(folder: Path, package: ModuleType) -> None:
    mine = models(folder)
    model, (x,) = mine.model(), mine.inputs()
    with torch.no_grad():
        before = model(x)
        package.install(model)
        torch.testing.assert_close(model(x), before)
        assert package.report() == {"gate": {"hits": 4, "fallbacks": {}}}
        package.uninstall(model)
        assert torch.equal(model(x), before)
        assert package.report()["gate"]["hits"] == 4
    with pytest.raises(
        ValueError, match=r"is to be a my_model\.Gate and is .*Linear: the kernels are for another model"
    ):
        package.install(torch.nn.Sequential(torch.nn.ModuleDict({"gate": torch.nn.Linear(2, 2)})))


def test_a_call_that_the_kernel_was_not_judged_for_goes_to_the_original(folder: Path, package: ModuleType) -> None:
    mine = models(folder)
    plain, (x,) = mine.model()[0].gate, mine.inputs()
    model = package.install(mine.model())
    gate = model[0].gate
    calls = {
        "shape": lambda one: one(x[:7], times=2.0),
        "layout": lambda one: one(x.T.contiguous().T, times=2.0),
        "dtype": lambda one: one(x.double(), times=2.0),
        "arguments": lambda one: one(x, 3.0),
    }
    for reason, call in calls.items():
        package.install(model)
        with torch.no_grad():
            assert torch.equal(call(gate), call(plain)), reason
        assert package.report()["gate"] == {"hits": 0, "fallbacks": {reason: 1}}
    package.install(model)
    gate(x, times=2.0).sum().backward()
    assert gate.weight.grad is not None
    with torch.no_grad():
        gate.train()(x, times=2.0)
        gate.eval()
        with torch.autocast("cpu"):
            gate(x, times=2.0)
        gate(x, 2.0)
        gate(x=torch.cat([x[:1], x])[1:], times=2.0)  # other memory, the same case
        unaligned = torch.empty(256 * 512 + 1)[1:].view(256, 512).copy_(x)
        torch.testing.assert_close(gate(unaligned, 2.0), plain(x, 2.0))
    assert package.report()["gate"] == {"hits": 3, "fallbacks": {"grad": 1, "training": 1, "autocast": 1}}


def test_a_model_with_kernels_is_compiled_and_exported(folder: Path, package: ModuleType) -> None:
    mine = models(folder)
    model, (x,) = mine.model(), mine.inputs()
    with torch.no_grad():
        before = model(x)
        package.install(model)
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), before)
        assert package.report()["gate"]["hits"] == 8
        exported = torch.export.export(model, (x,))
        assert "torch.ops.ksflow_" in exported.graph_module.code
        torch.testing.assert_close(exported.module()(x), before)
        assert package.report()["gate"]["hits"] == 12
        package.uninstall(model)
        torch.testing.assert_close(compiled(x), before)
    assert package.report()["gate"] == {"hits": 12, "fallbacks": {}}


def test_what_cannot_be_put_in_place_is_said(folder: Path) -> None:
    exact = ksflow(folder, "model", "apply", "gate", "exact=true", "out=exact_gates")
    assert exact.returncode == 2
    assert "its answer is off by" in exact.stderr
    assert not (folder / "exact_gates").exists()
    (folder / "taken").mkdir()
    taken = ksflow(folder, "model", "apply", "out=taken")
    assert "taken is there and is no such package: name another by out=FOLDER" in taken.stderr
    (folder / "gate" / "region.json").rename(folder / "region.json")
    plain = ksflow(folder, "model", "apply", "gate")
    (folder / "region.json").rename(folder / "gate" / "region.json")
    assert "gate is no region of a model: `model profile` writes such problems" in plain.stderr


def test_what_kernels_do_for_the_whole_model_is_proven_and_on_record(folder: Path, package: ModuleType) -> None:
    done = ksflow(folder, "model", "prove", "my_model_kernels", "replicates=2")
    assert done.returncode == 0, done.stdout + done.stderr
    with closing(Lineage(folder / "runs/lineage.git", "gate", create=False)) as lineage:
        proof, _ = lineage.proof() or pytest.fail("nothing is on record")
    eager, compiled = proof.ways
    assert (eager.name, compiled.name) == ("eager", "compiled")
    for way in proof.ways:
        assert 1 <= len(way.ratio.replicates) <= 2  # one in which most calls were preempted is none
        assert way.with_us == pytest.approx(way.without_us / way.ratio.speedup, rel=0.3)
        assert 0 < way.difference < 1e-5
        assert str(way.ratio) in done.stdout
    (gate,) = proof.kernels
    assert (gate.hits, gate.fallbacks, gate.modules) == ({"eager": 4.0, "compiled": 4.0}, {}, 4)
    assert eager.predicted
    assert eager.predicted[0] == pytest.approx(1 / (0.6 + 0.4 / gate.ratios["eager"][0]))
    assert compiled.predicted is None  # the profile has no share of the compiled model
    assert ksflow(folder, "report", "gate", "out=gate.html").returncode == 0
    page = (folder / "gate.html").read_text()
    assert "my_model.py on a CPU" in page  # the profile
    assert "Gate x4: 0.gate" in page
    assert str(eager.ratio) in page


def test_a_proof_in_which_no_kernel_ran_is_no_result(folder: Path, package: ModuleType) -> None:
    mine = folder / "my_model.py"
    before = mine.read_text()
    mine.write_text(before.replace("randn(256", "randn(128"))
    try:
        done = ksflow(folder, "model", "prove", "my_model_kernels", "replicates=1")
    finally:
        mine.write_text(before)
    assert done.returncode == 1
    assert "eager: no result: no kernel ran in the timed calls (fallbacks: shape" in done.stdout
    assert "compiled: no result" in done.stdout
    assert "speed-up" not in done.stdout
