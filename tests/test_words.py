"""Words of a command line are taken as they are typed, whatever letters and signs their paths hold."""

import shutil
from pathlib import Path

import pytest
from test_cli import ksflow

from ksflow.home import shipped_path

ODD = ("dé a[b]", "c=d g'h $HOME", 'i{j} m"n o(p)')
DRY = ("recipe=dry_run", "loop.evaluations=1")


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD)
def test_a_path_is_taken_as_it_is_typed(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    shutil.copytree(shipped_path("problems", "softmax"), place / "mine")
    shutil.copytree(shipped_path("seeds", "softmax"), place / "mine/seeds")
    done = ksflow(place, f"problem={place}/mine", *DRY, f"lineage.path={place}/kept/{name}.git")
    assert done.returncode == 0, done.stderr
    assert (place / "kept" / f"{name}.git/HEAD").is_file()
    done = ksflow(place, f"problem=../{name}/mine", *DRY)
    assert done.returncode == 0, done.stderr
    assert (place / "runs/lineage.git/HEAD").is_file()


@pytest.mark.parametrize("name", ODD)
def test_a_kernel_is_found_where_it_lies(tmp_path: Path, name: str) -> None:
    kernel = tmp_path / f"{name}.py"
    kernel.write_text("import torch\n\n\ndef kernel(x: torch.Tensor) -> torch.Tensor:\n    return x * 2\n")
    done = ksflow(tmp_path, "problem", "show", "problem=kernel", f"problem.kernel={kernel}")
    assert "mismatched" not in done.stderr
    assert "no viable" not in done.stderr
    assert "token recognition" not in done.stderr


def test_a_folder_that_cannot_name_a_branch_is_to_be_renamed(tmp_path: Path) -> None:
    shutil.copytree(shipped_path("problems", "softmax"), tmp_path / "dé")
    shutil.copytree(shipped_path("seeds", "softmax"), tmp_path / "dé/seeds")
    done = ksflow(tmp_path, "problem=./dé", *DRY)
    assert done.returncode == 2
    assert "rename the problem's folder" in done.stderr
