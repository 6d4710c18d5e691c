"""Recipes for workers on clusters: the script is run, the manifest is held against Kubernetes' own schema."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ksflow.evaluation.remote import worker, worker_payload
from ksflow.evaluation.remote.job_store import JobStore
from ksflow.home import PACKAGE

RECIPES = PACKAGE.parent / "docs" / "recipes"
SCRIPT, MANIFEST = RECIPES / "slurm_workers.sh", RECIPES / "kubernetes_workers.yaml"


def test_the_script_for_slurm_asks_for_a_gpu_and_a_signal_before_its_end() -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    told = [line.removeprefix("#SBATCH ") for line in SCRIPT.read_text().splitlines() if line.startswith("#SBATCH")]
    assert {"--gpus=1", "--signal=B:INT@300"} <= {*told}  # the worker ends after the job at hand on SIGINT
    refused = subprocess.run(["bash", SCRIPT], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stderr.count("which folder? sbatch slurm_workers.sh FOLDER")) == (1, 1)


@pytest.mark.slow
def test_the_script_for_slurm_starts_a_worker_that_ends_without_work(tmp_path: Path) -> None:
    JobStore(tmp_path).make()
    worker_payload.refresh(tmp_path)
    settings = {**os.environ, "PYTHON": sys.executable, "IDLE_MINUTES": "0.005"}
    done = subprocess.run(["bash", SCRIPT, tmp_path], env=settings, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "waits for jobs" in done.stderr


def test_the_job_for_kubernetes_has_a_gpu_a_folder_and_words_that_a_worker_takes(tmp_path: Path) -> None:
    spec = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    (mount,), (volume,) = container["volumeMounts"], spec["volumes"]
    assert mount["name"] == volume["name"]
    assert container["workingDir"] == f"{mount['mountPath']}/{worker_payload.FOLDER}"
    assert container["command"][:4] == ["python", "-m", "ksflow", "worker"]
    _, options = worker._arguments([str(tmp_path), *container["command"][5:]])
    assert options.idle_s == 20 * 60


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None, reason="needs pip install kubernetes-validate (23 MB)"
)
@pytest.mark.filterwarnings("ignore")
def test_the_job_for_kubernetes_fits_its_schema() -> None:
    import kubernetes_validate

    manifest = yaml.safe_load(MANIFEST.read_text())
    assert kubernetes_validate.validate(manifest, "1.34", strict=True)
    wrong = json.loads(json.dumps(manifest).replace("restartPolicy", "restartPolicies"))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.34", strict=True)
