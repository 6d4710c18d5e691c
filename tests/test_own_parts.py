"""A user's own stage, module or reference that fails: one line with the place, and the whole traceback in the log."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import ksflow

from ksflow import log
from ksflow.errors import ConfigError, StageError, error_location, stage_boundary
from ksflow.home import shipped_path

MINE = """class Mine:
    def __call__(self, problem, population, selection, notes):
        hidden = "a value that no log may hold"
        return self._plan(population)

    def _plan(self, population):
        return ww
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a designer that fails, and a module that cannot be imported."""
    (tmp_path / "my_parts.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("import os\n\nos.no_such_thing\n")
    (tmp_path / "conf" / "designer").mkdir(parents=True)
    for name, target in (("mine", "my_parts.Mine"), ("bad", "broken.Mine")):
        (tmp_path / "conf" / "designer" / f"{name}.yaml").write_text(f"_target_: {target}\n")
    return tmp_path


def test_a_stage_that_fails_names_its_line_and_the_log_has_the_rest(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(own)
    import my_parts  # type: ignore[import-not-found]

    log.setup(own / "logs")
    with pytest.raises(StageError) as caught, stage_boundary("designer"):
        my_parts.Mine()(None, None, None, None)
    assert str(caught.value) == "designer: NameError: name 'ww' is not defined (my_parts.py, line 7)"
    (event,) = map(json.loads, (own / "logs" / "events.jsonl").read_text().splitlines())
    frames = event["exception"][0]["frames"]
    assert [(Path(f["filename"]).name, f["lineno"]) for f in frames][-2:] == [("my_parts.py", 4), ("my_parts.py", 7)]
    assert "a value that no log may hold" not in json.dumps(event)


def test_a_stage_that_exits_has_failed() -> None:
    with (
        pytest.raises(StageError, match=r"^writer: SystemExit: 3 \(test_own_parts\.py, line \d+\)$"),
        stage_boundary("writer"),
    ):
        raise SystemExit(3)


def test_a_place_is_nobodys_where_python_or_a_package_failed() -> None:
    with pytest.raises(ConfigError) as caught:
        shipped_part()
    assert error_location(caught.value) == f" (test_own_parts.py, line {shipped_part.__code__.co_firstlineno + 1})"
    assert error_location(ValueError("never raised")) == ""


def shipped_part() -> None:
    raise ConfigError("x")


def test_a_module_that_cannot_be_imported_names_its_line(own: Path) -> None:
    done = ksflow(own, "--config-dir=conf", "designer=bad", "evaluator=fake", "problem=softmax")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "designer._target_=broken.Mine cannot be imported: " in done.stderr
    assert done.stderr.endswith("(broken.py, line 3)\n")


@pytest.mark.slow
def test_a_run_with_a_stage_of_ones_own_that_fails_has_the_traceback_in_its_log(own: Path) -> None:
    done = ksflow(own, "--config-dir=conf", "designer=mine", "evaluator=fake", "problem=softmax")
    assert "no plan: designer: NameError: name 'ww' is not defined (my_parts.py, line 7)" in done.stderr
    (events,) = own.glob("runs/logs/**/events.jsonl")
    assert '"lineno": 7' in events.read_text()


LEAVES = """import threading
import time

from ksflow.records import Kernel


def forever():
    while True:
        time.sleep(0.1)


def write(problem, selection, experiment, notes, failed=None):
    threading.Thread(target=forever, name="my-thread", daemon=False).start()
    return Kernel(selection.base.kernel.language, {"kernel.cpp": f"// {experiment.description}"})
"""


@pytest.mark.slow
def test_a_thread_that_a_stage_leaves_behind_does_not_keep_the_program_from_ending(own: Path) -> None:
    (own / "conf" / "writer").mkdir()
    (own / "conf" / "writer" / "leaves.yaml").write_text("_target_: leaving.write\n_partial_: true\n")
    (own / "leaving.py").write_text(LEAVES)
    words = ("--config-dir=conf", "writer=leaves", "recipe=dry_run", "problem=softmax", "loop.evaluations=1")
    command = [sys.executable, "-m", "ksflow", *words]
    done = subprocess.run(command, cwd=own, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 experiment" in done.stderr + done.stdout
    last = "ksflow: left behind at the end: a thread of a stage that does not end by itself (my-thread)"
    assert done.stderr.splitlines()[-1] == last


@pytest.mark.parametrize("stub", [True, False])
def test_a_search_that_nothing_can_begin_is_refused_before_a_seed_is_judged(tmp_path: Path, stub: bool) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(shipped_path("examples", "own_problem", "column_sums"), folder)
    shutil.rmtree(folder / "seeds" / "cpu")
    start = "write one in C++ (its signature: `problem show`) and pass seed_kernels=FILE"
    if stub:
        (folder / "kernel.cpp").write_text("// to be filled in\n")
        start = "fill in mine/kernel.cpp and pass seed_kernels=mine/kernel.cpp"
    done = ksflow(tmp_path, "problem=mine", "evaluator=fake")
    assert done.returncode == 2
    assert "has no kernel to start from, and no stage asks a model: " in done.stderr
    assert done.stderr.endswith(f": {start}, or have a model write (llm=NAME)\n")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.soak
def test_a_reference_that_fails_names_its_line(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(shipped_path("problems", "softmax"), folder)
    shutil.copytree(shipped_path("seeds", "softmax"), folder / "seeds")
    file = folder / "reference.py"
    text = re.sub(r"(def ref_kernel.*\n)", r"\1    zz\n", file.read_text())
    file.write_text(text)
    line = text.splitlines().index("    zz") + 1
    done = ksflow(tmp_path, "problem.path=mine", "loop.evaluations=1")
    assert done.returncode == 2
    assert f"NameError: name 'zz' is not defined (reference.py, line {line})" in done.stderr
    (events,) = tmp_path.glob("runs/logs/**/events.jsonl")
    assert "Traceback (most recent call last)" in events.read_text()
