"""ksflow from Python, as its page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

_PAGE = Path(__file__).parent.parent / "docs" / "python.md"


def python(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
def test_the_pages_example_runs_and_tells_the_winner(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    done = python(tmp_path, example)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert re.match(r"\d{5} [\d.]+ evaluations=6 used up", first)
    assert last.startswith("accept ")
    assert (tmp_path / "runs" / "best" / "softmax" / "dry" / "best.py").exists()


def test_a_run_ends_its_judge(tmp_path: Path) -> None:
    (tmp_path / "conf" / "evaluator").mkdir(parents=True)
    (tmp_path / "conf" / "evaluator" / "mine.yaml").write_text("_target_: mine.Mine\n")
    (tmp_path / "mine.py").write_text(
        """
from ksflow.stages.evaluator.fake import FakeEvaluator

class Mine(FakeEvaluator):
    def close(self):
        print("closed")
"""
    )
    words = ["--config-dir=conf", "problem=softmax", "recipe=dry_run", "evaluator=mine", "loop.evaluations=0"]
    done = python(tmp_path, f"import ksflow; ksflow.run(*{words}); print('over')")
    assert done.stdout.split() == ["closed", "over"], done.stderr


def test_a_users_mistake_is_an_exception_with_one_line_and_importing_is_light(tmp_path: Path) -> None:
    done = python(
        tmp_path,
        """
import ksflow, sys
assert not {"torch", "hydra", "dspy", "numpy"} & sys.modules.keys()
from ksflow.errors import KsflowError
for call in (lambda: ksflow.run("problem=softmx"), lambda: ksflow.evaluate("nothing.cpp", "problem=softmax")):
    try:
        call()
    except KsflowError as error:
        print(error)
""",
    )
    first, second = done.stdout.splitlines()
    assert "no option problem=softmx; did you mean softmax?" in first
    assert "nothing.cpp" in second
