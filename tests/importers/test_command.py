"""A file of a repository, judged by the repository's own commands: real compilers, real processes, in boxes."""

import io
import os
import shutil
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ksflow.errors import ConfigError
from ksflow.formats.command.importer import load
from ksflow.kernels.hardware.target import detect
from ksflow.lineage.store import Store
from ksflow.records import SELF_TIMED, Kernel, Origin, Population, Problem, Trial, Verdict
from ksflow.report import briefing
from ksflow.report.headline import Headline
from ksflow.stages.evaluator.command import CommandEvaluator

APP = """#include <cstdio>
#include <cstring>
long total(const int *x, long n);
int main(int argc, char **argv) {
  int x[1000]; for (int i = 0; i < 1000; i++) x[i] = i;
  long found = total(x, 1000);
  if (!strcmp(argv[1], "test")) { if (found != 499500) puts("error: wrong sum"); return found != 499500; }
  printf("time: %ld us\\n", COST);
}
"""
LOOK = """import os, socket, sys
assert "OPENAI_API_KEY" not in os.environ
try:
    socket.create_connection(("127.0.0.1", {port}), 5)
except OSError:
    sys.exit(0)
sys.exit("error: connected")
"""
SUM = "long total(const int *x, long n) { long s = 0; for (long i = 0; i < n; i++) s += x[i]; return s; }\n"
SLOW = f"{SUM}long COST = 40;\n"
FAST = f"{SUM}long COST = 10;\n"
COMMANDS = {"file": "src/sum.cpp", "build": "g++ -o app main.cpp src/sum.cpp", "test": "./app test",
            "bench": "./app bench", "metric": "time: ([0-9.]+) us"}  # fmt: skip


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    if not shutil.which("g++"):
        pytest.skip("needs g++")
    folder = tmp_path / "mine"
    (folder / "src").mkdir(parents=True)
    (folder / "main.cpp").write_text(APP.replace("int main", "extern long COST;\nint main"))
    (folder / "src" / "sum.cpp").write_text(SLOW)
    return folder


def given(repo: Path, **more: Any) -> Problem:
    return load(repo=str(repo), **{**COMMANDS, **more})


def judged(problem: Problem, text: str, *versus: Trial) -> Any:
    return CommandEvaluator(detect(), repeats=2)(problem, Kernel("cpp", {"sum.cpp": text}), versus)


@pytest.mark.slow
def test_exit_codes_are_the_verdict_and_the_pattern_is_the_score(repo: Path) -> None:
    problem = given(repo)
    before = judged(problem, SLOW)
    assert (before.verdict, before.score_us) == (Verdict.ACCEPT, 40.0)
    incumbent = Trial("00001", Origin.SEED, kernel=problem.seeds[0].kernel, evaluation=before, name="sum.cpp")
    found = judged(problem, FAST, incumbent)
    assert found.score_us == 10.0
    assert (found.claim.faster, found.claim.ranked, found.claim.speedup) == (True, True, 4.0)
    assert found.evidence.more["time"] == "self-reported by the benchmark"
    assert found.claim.clocks == found.evidence.against[0].clocks == (SELF_TIMED,)
    winner = Trial("00002", Origin.EXPERIMENT, ("00001",), kernel=problem.seeds[0].kernel, evaluation=found)
    claim = Headline(winner, Population((incumbent, winner)), incumbent).claim
    assert claim.endswith("over sum.cpp, by the benchmark's own clock, in one comparison")
    wrong = judged(problem, FAST.replace("return s", "return 1"))
    assert (wrong.verdict, wrong.reason) == (Verdict.INCORRECT, "test: error: wrong sum")
    broken = judged(problem, "no C++")
    assert broken.verdict is Verdict.COMPILE
    assert "error" in broken.reason
    assert (repo / "src" / "sum.cpp").read_text() == SLOW
    assert not (repo / "app").exists()


def test_what_is_shown_says_what_decides_and_no_empty_table(repo: Path) -> None:
    screen = io.StringIO()
    briefing.show_problem(Console(file=screen, width=160), given(repo), detect())
    text = screen.getvalue()
    assert "check: problem.test must exit with 0" in text
    for word in ("bound:", "problem.yaml", "argument", "variant", "defines:"):
        assert word not in text


def test_a_rate_is_better_when_it_is_higher(repo: Path) -> None:
    problem = given(repo, better="higher")
    assert judged(problem, SLOW).score_us == 25000.0
    assert "a rate of 10, higher is better" in judged(problem, FAST).evidence.more["said"]
    assert judged(given(repo, unit="ms"), SLOW).score_us == 40000.0


def test_what_takes_too_long_or_says_nothing_is_no_time(repo: Path) -> None:
    late = judged(given(repo, bench="sleep 30", bench_s=0.5), SLOW)
    assert (late.verdict, "longer than 0.5 s" in late.reason) == (Verdict.TIMEOUT, True)
    assert "prints nothing like" in judged(given(repo, bench="echo time: fast"), SLOW).reason


def test_commands_see_neither_keys_nor_the_network(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    with socket.create_server(("127.0.0.1", 0)) as server:
        (repo / "look.py").write_text(LOOK.format(port=server.getsockname()[1]))
        found = judged(given(repo, test=f"{sys.executable} look.py"), SLOW)
    assert found.accepted, found.reason


def test_admission_sees_that_the_test_looks_at_the_file(repo: Path) -> None:
    evaluator = CommandEvaluator(detect(), repeats=1)
    assert [ok for _, ok, _ in evaluator.admit(given(repo))] == [True, True]
    blind = given(repo, build="", test="true", bench="echo time: 3 us")
    assert [ok for _, ok, _ in evaluator.admit(blind)] == [True, False]


def test_the_digest_is_of_all_but_the_file(repo: Path) -> None:
    before = given(repo).digest
    (repo / "src" / "sum.cpp").write_text(FAST)
    assert given(repo).digest == before
    (repo / "main.cpp").write_text(APP + "// another\n")
    assert given(repo).digest != before


@pytest.mark.parametrize("named", ["link", "far/sum.cpp", "{repo}/src/sum.cpp"])
def test_a_file_of_the_repository_itself_is_never_written_to(repo: Path, named: str) -> None:
    """Whether it is named by a link, below one, or from the root: candidates are tried in a copy."""
    (repo / "link").symlink_to(repo / "src" / "sum.cpp")
    (repo / "far").symlink_to(repo / "src")
    problem = given(repo, file=named.format(repo=repo), test="false")
    assert judged(problem, FAST).verdict is Verdict.INCORRECT
    outside = replace(problem, origin={**problem.origin, "file": str(repo / "src" / "sum.cpp")})
    with pytest.raises(ConfigError, match="is a link out of"):
        judged(outside, FAST)
    assert (repo / "src" / "sum.cpp").read_text() == SLOW


def test_pipes_are_not_copied(repo: Path) -> None:
    os.mkfifo(repo / "pipe")
    (repo / "nowhere").symlink_to("not-there")
    assert judged(given(repo, test="false"), SLOW).verdict is Verdict.INCORRECT


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_runs_write_into_a_repository_is_no_part_of_it(
    repo: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    """`problem.repo=.`: a run's lineage and logs change while the repository is copied."""
    (repo / "data" / "runs").mkdir(parents=True)
    (repo / "data" / "runs" / "mine").write_text("data")
    monkeypatch.chdir(repo.parent if elsewhere else repo)
    before = given(repo)
    for path in (repo / "runs" / "lineage.git", repo / "other.git"):
        Store(path).close()
    (repo / "runs" / "logs").mkdir()
    (repo / "runs" / "logs" / "run.log").write_text("so far")
    (repo / ".git").write_text("gitdir: /another/place")
    assert given(repo).digest == before.digest
    look = "test ! -e runs && test ! -e other.git && test ! -e .git && cat data/runs/mine && false"
    found = judged(given(repo, test=look), SLOW)
    assert (found.verdict, found.reason) == (Verdict.INCORRECT, "test: data")
    (repo / "data" / "runs" / "mine").write_text("other data")
    assert given(repo).digest != before.digest


def test_true_is_a_command(repo: Path) -> None:
    assert given(repo, test=True).origin["test"] == "true"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"metric": "time"}, "has 0 groups"),
        ({"metric": "("}, "is no regular expression"),
        ({"unit": "hours"}, "valid: ms, ns, s, us"),
        ({"better": "hihger"}, "did you mean higher"),
        ({"file": "../x.cpp"}, "no file ../x.cpp"),
        ({"bench": ""}, "needs problem.repo, .file"),
    ],
)
def test_mistakes_are_answered_in_one_line(repo: Path, more: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        given(repo, **more)
