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
    first, *_, mine, mine_too, ended, last = done.stdout.splitlines()
    assert re.match(r"\d{5} [\d.]+ evaluations=6 used up", first)
    assert re.match(r"\d{5} accept [\d.]+", mine)
    assert re.match(r"\d{5} accept [\d.]+", mine_too)
    assert ended == "evaluations=2 used up"
    assert not done.stderr
    assert last.startswith("accept ")
    assert (tmp_path / "runs" / "best" / "softmax" / "dry" / "best.py").exists()


MINE = """
import os, signal
from pathlib import Path
from ksflow.stages.evaluator.fake import FakeEvaluator

class Mine(FakeEvaluator):
    def __call__(self, *given):
        if Path("interrupt").exists():
            Path("interrupt").unlink()
            os.kill(os.getpid(), signal.SIGINT)
        return super().__call__(*given)

    def close(self):
        print("closed")
"""
WORDS = ["--config-dir=conf", "problem=softmax", "recipe=dry_run", "evaluator=mine", "loop.evaluations=0"]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder with an evaluator of its own."""
    (tmp_path / "conf" / "evaluator").mkdir(parents=True)
    (tmp_path / "conf" / "evaluator" / "mine.yaml").write_text("_target_: mine.Mine\n")
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("given", [(), ("run=..",), ("problem.path=nowhere",)], ids=["", "no run", "no problem"])
def test_a_run_ends_its_judge_also_where_the_set_up_fails(mine: Path, given: tuple[str, ...]) -> None:
    calls = f"""
import ksflow
from ksflow.errors import KsflowError
try:
    ksflow.run(*{[*WORDS, *given]})
    print("over")
except KsflowError:
    print("failed")
"""
    done = python(mine, calls)
    assert done.stdout.split() == ["closed", "failed" if given else "over"], done.stderr


@pytest.mark.slow
def test_a_process_runs_again_after_an_interrupted_sweep(mine: Path) -> None:
    (mine / "interrupt").touch()
    calls = f"""
import ksflow
for words in (["-m", "random_seed=1,2"], []):
    print(ksflow.run(*words, *{WORDS}).best.id)
"""
    done = python(mine, calls)
    assert "interrupted: the sweep's variants that follow are not begun" in done.stderr
    assert len([line for line in done.stdout.splitlines() if line.isdigit()]) == 2, done.stderr


@pytest.mark.slow
def test_a_run_that_tries_nothing_is_an_exception_as_the_command_ends_with_4(tmp_path: Path) -> None:
    designer = "def design(*given, **more):\n    raise ValueError('out of ideas')\n"
    (tmp_path / "mine.py").write_text(designer)
    words = ["problem=softmax", "recipe=dry_run", "designer._target_=mine.design", "designer._partial_=true"]
    done = python(
        tmp_path,
        f"""
import ksflow
from ksflow.errors import NothingTried
try:
    ksflow.run(*{words})
except NothingTried as error:
    print(error)
""",
    )
    assert "out of ideas" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_study_keeps_its_own_words_and_says_in_one_line_what_it_cannot_do(mine: Path) -> None:
    calls = f"""
import ksflow
from ksflow.errors import ConfigError, KsflowError
ksflow.run("-m", "random_seed=1,2", *{WORDS}, quiet=True)
kernel = ksflow.Kernel("cpp", {{"kernel.cpp": "int x;"}})
with ksflow.Study("softmax", "--config-dir=conf", "recipe=dry_run", "evaluator=mine", budget=1) as study:
    print(study.run.lineage.run, *study.run.lineage.made_with["arguments"])
    idea = ksflow.Experiment("an idea", "", (0.0, 5.0), 10.0)
    (planned,) = study.plan([idea])
    print(planned.parents[0] == study.best.id, study.waiting() == [planned.id])
    for wrong in (
        lambda: study.plan([]),
        lambda: study.plan([idea], "99"),
        lambda: study.submit(kernel, "99"),
        lambda: study.submit(ksflow.Kernel("cobol", kernel.files)),
        lambda: study.result("99"),
        lambda: study.profile("1"),
        lambda: study.result(study.submit(kernel, planned.id)) and study.submit(kernel),
    ):
        try:
            wrong()
        except ConfigError as error:
            print(error)
try:
    ksflow.Study("softmx")
except KsflowError as error:
    print(error)
"""
    done = python(mine, calls)
    assert not done.stderr
    opened, waits, *errors = [line for line in done.stdout.splitlines() if line != "closed"]
    words = "problem=softmax --config-dir=conf recipe=dry_run evaluator=mine loop.evaluations=1"
    assert opened == f"dry {words}"
    assert waits == "True True"
    expected = [
        "a plan needs an experiment",
        "no trial '99'",
        "no experiment '99' waits",
        "language 'cobol'",
        "no ticket '99'",
        "nothing can be profiled",
    ]
    expected += ["evaluations=1 used up", "no option problem=softmx; did you mean softmax?"]
    assert [wanted for wanted, line in zip(expected, errors, strict=True) if wanted not in line] == []


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
