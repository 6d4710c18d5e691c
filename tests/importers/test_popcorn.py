"""`evaluator=popcorn` and `problem=popcorn` against a server that behaves as the real one does."""

import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from importers.popcorn_server import CLI_ID, Fault, PopcornServer, board

from ksflow.config.compose import build, compose
from ksflow.errors import ConfigError
from ksflow.formats.popcorn import importer as popcorn
from ksflow.loop.judging import verdict
from ksflow.records import Evaluation, Experiment, Kernel, Origin, Problem, Trial, Verdict
from ksflow.stages.evaluator.popcorn import PopcornEvaluator

RIGHT = "from task import input_t\n\ndef custom_kernel(data):\n    return data[0] * 2 + 1\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PopcornServer]:
    monkeypatch.setenv("POPCORN_CLI_ID", CLI_ID)
    monkeypatch.setenv("KSFLOW_CACHE", str(tmp_path / "cache"))
    made = PopcornServer()
    yield made
    made.close()


@pytest.fixture
def problem(server: PopcornServer) -> Problem:
    return popcorn.load(server.url, "twice", local=False)


def kernel(text: str = RIGHT) -> Kernel:
    return Kernel("python", {"kernel.py": text})


def judge(server: PopcornServer, folder: Path, **changes: Any) -> PopcornEvaluator:
    quick = {"poll_s": 0.02, "min_interval_s": 0.0, "pause_s": 0.02, "timeout_s": 300.0, "folder": str(folder / "desk")}
    return PopcornEvaluator(server.url, **{"gpu": "H100", **quick, **changes})


def test_a_right_kernel_is_tested_then_timed(server: PopcornServer, problem: Problem, tmp_path: Path) -> None:
    found = judge(server, tmp_path)(problem, kernel(), ())
    assert found.verdict is Verdict.ACCEPT
    assert server.posts == ["/twice/H100/test", "/twice/H100/benchmark"]
    assert [(row.case, row.us) for row in found.timings] == [("rows=64 cols=32", 2.0), ("rows=128 cols=32", 8.0)]
    assert found.score_us == pytest.approx(4.0)
    assert (found.isolation, found.judge) == ("remote", "popcorn")
    assert found.evidence.more["machine"]["gpu"] == "NVIDIA H100"
    assert "report of benchmark" in found.evidence.more["report"]


def test_kernels_are_compared_by_the_service_s_scores(server: PopcornServer, problem: Problem, tmp_path: Path) -> None:
    idea = Experiment("faster", "it is", (1.0, 2.0), 5.0)
    evaluate = judge(server, tmp_path)
    first = verdict(problem, evaluate, kernel(), ())
    old = Trial("00001", Origin.EXPERIMENT, (), idea, kernel=kernel(), evaluation=replace(first, score_us=8.0))
    (row,) = verdict(problem, evaluate, kernel(), (old,)).evidence.against
    assert (row.id, row.speedup, row.clocks) == ("00001", pytest.approx(2.0), ("score",))
    assert row.low < 2.0 < row.high


@pytest.mark.parametrize(
    ("words", "verdict", "reason"),
    [
        ("# syntax error", Verdict.COMPILE, "SyntaxError: invalid syntax"),
        ("# no build", Verdict.COMPILE, "expected a ;"),
        ("# crash", Verdict.CRASH, "illegal memory access"),
        ("# slow", Verdict.TIMEOUT, "time was over"),
        ("# wrong", Verdict.INCORRECT, "cols: 8; rows: 4; seed: 1: mismatch found"),
    ],
)
def test_each_kind_of_failure_has_its_verdict(
    server: PopcornServer, problem: Problem, tmp_path: Path, words: str, verdict: Verdict, reason: str
) -> None:
    found = judge(server, tmp_path)(problem, kernel(RIGHT + words), ())
    assert found.verdict is verdict
    assert reason in found.reason
    assert server.posts == ["/twice/H100/test"]
    assert not list((tmp_path / "desk").glob("*.json"))
    if verdict in (Verdict.COMPILE, Verdict.CRASH):
        assert reason in found.evidence.log


def test_a_test_alone_is_not_timed(server: PopcornServer, problem: Problem, tmp_path: Path) -> None:
    found = judge(server, tmp_path, mode="test")(problem, kernel(), ())
    assert found.verdict is Verdict.UNTIMED
    assert server.posts == ["/twice/H100/test"]


def test_a_ranked_submission_is_polled(server: PopcornServer, problem: Problem, tmp_path: Path) -> None:
    found = judge(server, tmp_path, mode="leaderboard")(problem, kernel(), ())
    assert server.posts == ["/submission/twice/H100/leaderboard"]
    assert found.score_us == pytest.approx(4.0)
    assert [row.us for row in found.timings] == [2.0, 8.0]
    assert found.evidence.more["submission"] == 1
    assert sum(path.endswith("/submissions/1") for _, path in server.requests) == server.polls + 1


@pytest.mark.parametrize(
    ("words", "verdict", "reason"),
    [
        ("# wrong", Verdict.INCORRECT, "mismatch found"),
        ("# crash", Verdict.CRASH, "shows no output"),
        ("# secret", Verdict.INCORRECT, "secret validation failed"),
        ("# hack", Verdict.CHEAT, "KernelGuard"),
    ],
)
def test_a_ranked_submission_that_succeeded_may_be_wrong(
    server: PopcornServer, problem: Problem, tmp_path: Path, words: str, verdict: Verdict, reason: str
) -> None:
    found = judge(server, tmp_path, mode="leaderboard")(problem, kernel(RIGHT + words), ())
    assert found.verdict is verdict
    assert reason in found.reason


def test_kernels_of_several_files_or_in_c_are_told_so(server: PopcornServer, problem: Problem, tmp_path: Path) -> None:
    ask = judge(server, tmp_path)
    assert "one file" in ask(problem, Kernel("python", {"a.py": RIGHT, "b.py": "x = 1"}), ()).reason
    assert "load_inline" in ask(problem, Kernel("cuda", {"a.cu": "x"}), ()).reason


@pytest.mark.parametrize(
    "fault",
    [
        Fault(429, "Rate limit exceeded: 5/5 test submissions per hour. Try again in 0s."),
        Fault(429, "slow down", {"Retry-After": "0"}),
        Fault(400, "failed to prepare submission request: 500: Rate limit exceeded. Try again in 0s."),
        Fault(503, "KernelGuard pre-check is unavailable right now. Please try again later."),
        Fault(502, "<html>bad gateway</html>"),
        Fault(event={"detail": "Rate limit exceeded: 5/5 per hour. Try again in 0s.", "status_code": 400}),
        Fault(event={"detail": "KernelGuard pre-check is unavailable. Please try again later.", "status_code": 503}),
        Fault(drop="before"),
    ],
)
def test_what_passes_is_waited_for(server: PopcornServer, problem: Problem, tmp_path: Path, fault: Fault) -> None:
    server.faults = [fault]
    found = judge(server, tmp_path)(problem, kernel(), ())
    assert found.accepted
    assert server.posts.count("/twice/H100/test") == 2


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (Fault(event={"detail": "Submission rejected by KernelGuard pre-check (timer).", "status_code": 400}), "cheat"),
        (Fault(413, "Submission file is too large (limit: 1MB)."), "malformed"),
        (Fault(500, "Your code contains work on another stream. This is not allowed."), "malformed"),
    ],
)
def test_what_the_service_holds_against_the_kernel_is_a_verdict(
    server: PopcornServer, problem: Problem, tmp_path: Path, fault: Fault, verdict: str
) -> None:
    server.faults = [fault]
    found = judge(server, tmp_path)(problem, kernel(), ())
    assert verdict in found.verdict
    assert len(server.posts) == 1
    assert not list((tmp_path / "desk").glob("*.json"))


def test_as_long_a_wait_as_the_service_asks_for_is_kept(
    server: PopcornServer, problem: Problem, tmp_path: Path
) -> None:
    server.faults = [Fault(429, "Rate limit exceeded. Try again in 900s.")]
    found = judge(server, tmp_path)(problem, kernel(), ())
    assert found.verdict is Verdict.HARNESS
    assert "Try again in 900s" in found.reason
    assert len(server.posts) == 1


def test_a_service_that_stays_broken_is_not_asked_for_ever(
    server: PopcornServer, problem: Problem, tmp_path: Path
) -> None:
    server.faults = [Fault(502, "bad gateway")] * 50
    found = judge(server, tmp_path, pause_s=0.001)(problem, kernel(), ())
    assert found.verdict is Verdict.HARNESS
    assert len(server.posts) < 10


@pytest.mark.parametrize("drop", ["after", "middle"])
def test_a_lost_answer_is_looked_for_not_submitted_again(
    server: PopcornServer, problem: Problem, tmp_path: Path, drop: str
) -> None:
    server.faults = [Fault(drop=drop)]
    found = judge(server, tmp_path)(problem, kernel(), ())
    assert found.accepted
    assert server.posts == ["/twice/H100/test", "/twice/H100/benchmark"]
    assert ("GET", "/user/submissions") in server.requests


def test_a_service_that_breaks_between_polls_is_asked_again(
    server: PopcornServer, problem: Problem, tmp_path: Path
) -> None:
    faults = [Fault(503, "restarting"), Fault(drop="before"), Fault(429, "later", {"Retry-After": "0"})]
    server.afterwards = lambda: server.faults.extend(faults)
    found = judge(server, tmp_path, mode="leaderboard")(problem, kernel(), ())
    assert found.accepted
    assert len(server.posts) == 1
    assert not server.faults


@pytest.mark.parametrize("mode", ["leaderboard", "benchmark"])
def test_a_restart_goes_on_with_the_submission_under_way(
    server: PopcornServer, problem: Problem, tmp_path: Path, mode: str
) -> None:
    server.polls = 3

    class Stopped(BaseException):
        """As Ctrl-C does."""

    ask = judge(server, tmp_path, mode=mode)
    service = ask._submit.service
    if mode == "leaderboard":
        service.submission = _raising(Stopped)  # type: ignore[method-assign]
    else:
        server.faults = [Fault(drop="middle")]
        service.find = _raising(Stopped)  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        ask(problem, kernel(), ())
    posted = len(server.posts)
    kept = [json.loads(file.read_text()) for file in (tmp_path / "desk").glob("*.json")]
    assert [row["id"] for row in kept] == [1 if mode == "leaderboard" else None]

    again = judge(server, tmp_path, mode=mode)(problem, kernel(), ())
    assert again.accepted
    assert len(server.posts) - posted == (0 if mode == "leaderboard" else 1)
    assert not list((tmp_path / "desk").glob("*.json"))


def _raising(kind: type[BaseException]) -> Any:
    def stop(*_: object) -> None:
        raise kind

    return stop


def test_a_kernel_that_is_judged_again_is_submitted_again(
    server: PopcornServer, problem: Problem, tmp_path: Path
) -> None:
    ask = judge(server, tmp_path, mode="test")
    ask(problem, kernel(), ())
    ask(problem, kernel(), ())
    assert len(server.posts) == 2
    names = [row["file_name"] for row in server.submissions.values()]
    assert len(set(names)) == 2


def test_one_submission_is_in_flight_at_a_time(server: PopcornServer, problem: Problem) -> None:
    pause = threading.Event()
    server.during = lambda: pause.wait(0.05) and None
    found: list[Evaluation] = []

    def ask(number: int) -> None:
        one = PopcornEvaluator(server.url, "H100", mode="test", min_interval_s=0.0)  # wherever it was started
        found.append(one(problem, kernel(f"{RIGHT}# {number}\n"), ()))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row.verdict for row in found] == [Verdict.UNTIMED] * 3
    assert server.busiest == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"leaderboard": "nothing"}, "does not exist"),
        ({"gpu": "B300"}, "GPU type 'B300' is not supported"),
    ],
)
def test_a_wrong_set_up_is_said(
    server: PopcornServer, problem: Problem, tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        judge(server, tmp_path, **changes)(problem, kernel(), ())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu": None}, "evaluator.gpu"),
        ({"mode": "rank"}, "valid: test, benchmark, leaderboard"),
        ({"poll_s": 0}, "positive"),
    ],
)
def test_a_wrong_word_is_answered_before_anything_is_sent(
    server: PopcornServer, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        judge(server, tmp_path, **changes)


def test_an_open_line_is_refused() -> None:
    with pytest.raises(ConfigError, match="not https"):
        PopcornEvaluator("http://example.org", gpu="H100")


def test_the_cli_id_comes_from_the_users_file_and_appears_nowhere(
    server: PopcornServer,
    problem: Problem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("POPCORN_CLI_ID")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="popcorn register"):
        judge(server, tmp_path).start()
    other = CLI_ID.replace("1", "9")
    caplog.set_level(logging.DEBUG)
    (tmp_path / ".popcorn.yaml").write_text(f"cli_id: {other}\n")
    with pytest.raises(ConfigError) as caught:
        judge(server, tmp_path)(problem, kernel(), ())
    assert "unauthorized X-Popcorn-Cli-Id ***" in str(caught.value)
    (tmp_path / ".popcorn.yaml").write_text(f"cli_id: {CLI_ID}\n")
    server.faults = [Fault(429, f"{CLI_ID}: try again in 0s")]
    found = judge(server, tmp_path)(problem, kernel(), ())
    assert found.accepted
    assert server.ids[-1] == CLI_ID
    out = "".join(capfd.readouterr())
    kept = [file.read_text() for file in (tmp_path / "desk").glob("*") if file.is_file()]
    for text in (str(caught.value), repr(found), caplog.text, out, *kept):
        assert CLI_ID not in text
        assert other not in text


def test_cases_the_service_did_not_time_are_no_times(server: PopcornServer, problem: Problem, tmp_path: Path) -> None:
    first = problem.benchmarks[0]
    changed = replace(problem, benchmarks=(replace(first, params={**first.params, "rows": 65}),))
    found = judge(server, tmp_path)(changed, kernel(), ())
    assert found.verdict is Verdict.HARNESS
    assert "did not time" in found.reason


@pytest.mark.parametrize("mean", [0.0, -5.0, float("nan")])
def test_a_time_that_is_none_is_not_believed(
    server: PopcornServer, problem: Problem, tmp_path: Path, mean: float
) -> None:
    server.means_ns = (mean, 1.0)
    assert judge(server, tmp_path)(problem, kernel(), ()).verdict is Verdict.HARNESS


# -- the problem ---------------------------------------------------------------------------------


def test_the_task_is_the_services_and_is_kept(server: PopcornServer, tmp_path: Path) -> None:
    found = popcorn.load(server.url, "twice", local=False)
    assert [dict(case.params) for case in found.benchmarks] == [{"rows": 64, "cols": 32}, {"rows": 128, "cols": 32}]
    assert [case.seed for case in found.tests] == [1, 2]
    assert found.score == "geomean"
    assert found.origin["gpus"] == "H100, A100"
    assert set(found.files) == {"task.py"}
    assert "def ref_kernel" in found.reference_text
    server.close()
    assert popcorn.load(server.url, "twice", local=False).digest == found.digest
    texts = [file.read_text() for file in (tmp_path / "cache").rglob("*.json")]
    assert texts
    assert not any("424242" in text for text in texts)


@pytest.mark.slow
def test_with_its_reference_run_here_the_arguments_are_known(server: PopcornServer) -> None:
    found = popcorn.load(server.url, "twice")
    assert [(arg.dtype, arg.role) for arg in found.args] == [("float32", "in"), ("float32", "out")]
    assert [dict(case.params) for case in found.benchmarks] == [{"rows": 64, "cols": 32}, {"rows": 128, "cols": 32}]
    assert found.digest == popcorn.load(server.url, "twice", local=False).digest


@pytest.mark.slow
def test_a_reference_that_does_not_run_here_is_no_obstacle(server: PopcornServer) -> None:
    files = {**server.boards[0]["task"]["files"], "task.py": "import a_module_for_other_machines\n"}
    server.boards = [board(files=files)]
    found = popcorn.load(server.url, "twice")
    assert found.args == ()
    assert "a_module_for_other_machines" in found.origin["inferred"][-1]
    assert len(found.benchmarks) == 2


def test_only_the_last_benchmark_counts_where_nothing_else_is_said(server: PopcornServer) -> None:
    server.boards = [board(ranking_by="last")]
    found = popcorn.load(server.url, "twice", local=False)
    assert [case.name for case in found.benchmarks] == ["rows=128 cols=32"]
    assert "last of 2 benchmarks" in found.statement


def test_a_board_that_is_not_there_is_answered_with_those_that_are(server: PopcornServer) -> None:
    with pytest.raises(ConfigError, match=r"no leaderboard 'twic'; did you mean twice"):
        popcorn.load(server.url, "twic")
    with pytest.raises(ConfigError, match=r"problem\.leaderboard=NAME"):
        popcorn.load(server.url)


def test_the_command_line_reaches_both(server: PopcornServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPCORN_API_URL", server.url)
    monkeypatch.chdir(tmp_path)
    words = ["problem=popcorn", "problem.leaderboard=twice", "problem.local=false", "evaluator=popcorn"]
    cfg = compose([*words, "evaluator.gpu=A100", "evaluator.min_interval_s=0", "evaluator.mode=test"])
    found = build(cfg.evaluator)(build(cfg.problem), kernel(), ())
    assert found.verdict is Verdict.UNTIMED
    assert server.posts == ["/twice/A100/test"]
