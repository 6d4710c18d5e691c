"""`optimize` as typed: prompts compiled from a lineage, with a server on loopback as the model."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from conftest import accepted, draft, kernel, paired, rejected
from lm.scripted import scripted
from lm.server import Provider, Reply
from test_cli import DRY, ksflow

from ksflow.config import compose
from ksflow.errors import BudgetError, ConfigError
from ksflow.kernels.problem.loader import load
from ksflow.lineage import Lineage
from ksflow.lineage.history import RecordedRun
from ksflow.lineage.rounds import RoundSnapshot, RunHistory, read_histories
from ksflow.lm.answers import answer, draw
from ksflow.protocols import as_evaluator
from ksflow.records import (
    Evaluation,
    Experiment,
    Finding,
    Note,
    Origin,
    Plan,
    Review,
    Trial,
    Verdict,
)
from ksflow.stages.digester.llm import LlmDigester
from ksflow.training.dataset import reward
from ksflow.training.optimize import metrics, optimize
from ksflow.training.optimize.examples import Case, ExampleSource
from ksflow.training.optimize.metrics import Judge
from ksflow.training.optimize.teaching import Course
from ksflow.training.optimize.verb import ScoreComparison

HINT = "Always end with the PLANTED marker."
SERVER = [*DRY, "llm=openai_compatible", "model.name=own"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Path:
    """A folder with a run of twelve rounds, made by the dummy model."""
    folder = tmp_path_factory.mktemp("recorded")
    words = ("llm=dummy", "digester=none", "loop.evaluations=36", "loop.confirm=false", "loop.repeats=judge")
    made = ksflow(folder, *DRY, *words, KSFLOW_CACHE=str(shared_cache))  # the machine's rates that the tests find, too
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def place(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(recorded / "runs" / "lineage.git", tmp_path / "runs" / "lineage.git")
    return tmp_path


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A model that answers two questions of three badly, unless its instruction carries the hint."""
    made = Provider()
    made.reply = lambda prompt: Reply(_answer(made.requests[-1], prompt))
    yield made
    made.close()


def _answer(request: dict, prompt: str) -> str:
    if wanted := re.search(r"starting with the field `(.*), and then ending", prompt):  # the teacher's questions
        fields = re.findall(r"\[\[ ## (\w+) ## \]\]", wanted[1])
        told = {"module_advice": json.dumps({"predict": HINT})}
        return (
            "\n\n".join(f"[[ ## {name} ## ]]\n{told.get(name, HINT)}" for name in [*fields])
            + "\n\n[[ ## completed ## ]]"
        )
    good = answer(prompt)
    hinted = HINT in request["messages"][0]["content"]
    return good if hinted or draw({"question": prompt}) % 3 == 0 else good.replace("[[ ## completed ## ]]", "")


def _optimize(folder: Path, provider: Provider, *arguments: str) -> subprocess.CompletedProcess[str]:
    cache = str(folder / "cache")
    return ksflow(
        folder, "optimize", *SERVER, *arguments, LLM_URL=provider.url, KSFLOW_CACHE=cache, DSPY_CACHEDIR=f"{cache}/dspy"
    )


def _held_out(card: Path) -> tuple[float, float]:
    found = re.search(r"\*\*(\d\.\d+) -> (\d\.\d+) on \d+ held-out", card.read_text())
    assert found
    return float(found[1]), float(found[2])


@pytest.mark.slow
def test_gepa_finds_the_hint_and_the_prompt_can_be_used(place: Path, provider: Provider) -> None:
    done = _optimize(place, provider, "stage=selector", "optimizer=gepa", "optimize.rollouts=40")
    assert done.returncode == 0, done.stderr
    path = place / "runs/prompts/selector/gepa_v1.json"
    assert HINT in json.loads(path.read_text())["predict"]["signature"]["instructions"]
    before, after = _held_out(path.with_suffix(".md"))
    assert after > before
    card = path.with_suffix(".md").read_text()
    assert re.search(r"\| questions to the teacher \| [1-9]\d* \|", card)
    assert re.search(r"held-out examples of \d+ rounds, difference \+[01]\.\d+ \[", card)
    assert "| divided | held out by time (from round softmax/dry/" in card


@pytest.mark.slow
@pytest.mark.soak
def test_a_compiled_prompt_is_used_and_compared_by_its_name(place: Path, provider: Provider) -> None:
    arguments = ["stage=selector", "optimizer=gepa", "optimize.rollouts=40", "optimize.name=bold"]
    assert _optimize(place, provider, *arguments).returncode == 0
    asked = len(provider.requests)
    rest = ["designer=rules", "writer=tune", "digester=none", "loop.evaluations=3", "loop.confirm=false"]
    used = ksflow(place, "-m", *SERVER, *rest, "selector.prompt=null,bold", LLM_URL=provider.url)
    assert used.returncode == 0, used.stderr
    hinted = [HINT in request["messages"][0]["content"] for request in provider.requests[asked:]]
    assert sorted({*hinted}) == [False, True]
    for name in ("selector.prompt=null", "selector.prompt=bold"):
        assert name in used.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "optimizer"),
    [("selector", "mipro"), ("designer", "mipro"), ("designer", "simba"), ("selector", "bootstrap")],
)
@pytest.mark.soak
def test_every_optimizer_runs_to_its_end(place: Path, provider: Provider, optimizer: str, stage: str) -> None:
    done = _optimize(place, provider, f"stage={stage}", f"optimizer={optimizer}", "optimize.rollouts=48")
    assert done.returncode == 0, done.stderr
    path = place / f"runs/prompts/{stage}/{optimizer}_v1.json"
    before, after = _held_out(path.with_suffix(".md"))
    state = json.loads(path.read_text())["predict"]
    assert after >= before
    assert f"| worked examples | {len(state['demos'])} |" in path.with_suffix(".md").read_text()
    if optimizer == "mipro":
        assert HINT in state["signature"]["instructions"]
        assert after > before
    asked = len(provider.requests)
    again = _optimize(place, provider, f"stage={stage}", f"optimizer={optimizer}", "optimize.rollouts=48")
    assert again.returncode == 0, again.stderr
    assert len(provider.requests) == asked  # all of it is drawn from the seed
    assert json.loads((path.parent / f"{optimizer}_v2.json").read_text())["predict"] == state
    if optimizer == "bootstrap":
        outputs = {"selector": {"rationale", "base_id", "reference_id"}, "designer": {"avenues", "experiments"}}[stage]
        assert all(outputs <= set(demo) for demo in state["demos"])


@pytest.mark.slow
@pytest.mark.soak
def test_killed_it_goes_on_and_pays_for_nothing_twice(place: Path, provider: Provider) -> None:
    command = [sys.executable, "-m", "ksflow", "optimize", *SERVER, "stage=designer", "optimize.rollouts=40"]
    victims: list[subprocess.Popen[bytes]] = []
    usual, lost = provider.reply, []

    def reply(prompt: str) -> Reply | tuple[int, str]:
        if len(provider.requests) in (7, 17) and victims:
            lost.append(json.dumps(provider.requests[-1]))
            victims.pop().send_signal(signal.SIGKILL)
        return usual(prompt)

    provider.reply = reply
    cache = str(place / "cache")
    environment = {**os.environ, "LLM_URL": provider.url, "KSFLOW_CACHE": cache, "DSPY_CACHEDIR": f"{cache}/dspy"}
    for _ in range(2):
        victims.append(subprocess.Popen(command, cwd=place, env=environment, stderr=subprocess.DEVNULL))
        assert victims[0].wait(600) == -signal.SIGKILL
    done = _optimize(place, provider, "stage=designer", "optimize.rollouts=40")
    assert done.returncode == 0, done.stderr
    twice = [text for text, times in Counter(map(json.dumps, provider.requests)).items() if times > 1]
    assert set(twice) <= set(lost)  # those whose answers never came
    before, after = _held_out(place / "runs/prompts/designer/gepa_v1.md")
    assert after > before


@pytest.mark.slow
def test_a_budget_ends_it_cleanly(place: Path, provider: Provider) -> None:
    done = _optimize(place, provider, "stage=selector", "optimize.rollouts=40", "loop.stages.selector.calls=16")
    said = " ".join(done.stderr.split())
    assert len(provider.requests) <= 16
    assert done.returncode == 0, said
    card = (place / "runs/prompts/selector/gepa_v1.md").read_text()
    assert re.search(
        r"\| optimizer \| gepa, .*: stopped early, \S*calls=\S* .*used up.*; the best prompt until then", card
    )
    assert "| divided | held out by time (from round softmax/dry/" in card
    kept = subprocess.run(
        ["git", "-C", place / "runs/lineage.git", "rev-list", "--count", "refs/ksflow/softmax/optimize-selector/calls"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(kept.stdout) >= len(provider.requests)  # answers out of the cache are kept too


@pytest.mark.slow
def test_minutes_end_it_and_it_can_be_gone_on_with(place: Path, provider: Provider) -> None:
    usual, late = provider.reply, [3.1]

    def reply(prompt: str) -> Reply | tuple[int, str]:
        if len(provider.requests) == 3 and late:
            time.sleep(late.pop())
        return usual(prompt)

    provider.reply = reply
    done = _optimize(place, provider, "stage=selector", "optimize.rollouts=40", "loop.minutes=0.05")
    assert done.returncode == 2
    assert "minutes=0.05 used up before the result was measured; the answers are kept" in " ".join(done.stderr.split())
    assert len(provider.requests) <= 3
    early = {json.dumps(request) for request in provider.requests[:-1]}  # the last was in flight
    more = _optimize(place, provider, "stage=selector", "optimize.rollouts=40", "loop.stages.selector.calls=8")
    said = {0: "written to runs/prompts/selector/gepa_v1.json", 2: "used up before the result was measured"}
    assert said[more.returncode] in " ".join((more.stdout + more.stderr).split())
    assert len(provider.requests) > 3
    assert not early & {json.dumps(request) for request in provider.requests[3:]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["llm=dummy", "loop.evaluations=5"],
            "loop.evaluations=5 is for a search; optimize keeps loop.usd, loop.tokens",
        ),
        (["llm=dummy", "loop.stages.evaluator.minutes=5"], "loop.stages.evaluator.minutes=5 is for a search"),
        (["stage=painter"], "stage=painter is not one of: selector, designer, writer, verifier, digester"),
        (["stage=verifier", "llm=dummy"], "nobody asks the verifier: add writer=verified"),
        (["stage=designer"], "has no prompt: choose a model with llm=... or designer=llm"),
        (["llm=dummy", "optimize.runs=[other]"], "softmax has no run other; runs: dry"),
        (["llm=dummy", "optimize.name=taken"], "runs/prompts/designer/taken.json is another prompt; choose another"),
        (["llm=dummy", "optimize.folder=/proc/prompts"], "optimize.folder=/proc/prompts cannot be written"),
        (["llm=dummy", "stage=digester"], "3 rounds to learn from for digester, and at least 6 are needed"),
    ],
)
def test_a_mistake_is_one_line(
    place: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    (place / "runs/prompts/designer").mkdir(parents=True)
    (place / "runs/prompts/designer/taken.json").write_text("{}")
    with pytest.raises(ConfigError, match=re.escape(message)):
        optimize([], [*DRY, *arguments])


def test_what_a_stage_saw_is_rebuilt_to_the_letter(recorded: Path) -> None:
    """Every question that is rebuilt from git is one that the transcript has, and none is missing. What was left of the
    budget is not on record.
    """
    cfg = compose.compose([*DRY, "llm=dummy"])
    problem, notes = compose.build(cfg.problem), compose.build(cfg.knowledge)(target=compose.build(cfg.target))
    open_ = partial(Lineage, recorded / "runs/lineage.git")
    (history,) = read_histories(open_, problem)
    calls = RecordedRun(lambda: open_(problem="softmax", run="dry"), "dry").calls()
    judge = Judge(as_evaluator(lambda problem, kernel, versus: Evaluation(Verdict.MALFORMED)))
    for name in ("selector", "designer", "writer"):
        stage = compose.build(cfg[name].llm if name == "writer" else cfg[name])
        source = ExampleSource(name, stage, notes, judge)
        cases = [inquiry for moment in history.rounds for inquiry, _ in source.questions(history, moment)]
        asked = [call.messages[-1]["content"] for call in calls if call.stage.startswith(name)]
        said = {re.sub(r"\nLeft of the budget: .*", "", text) for text in asked}
        rebuilt = {stage.program.messages(inquiry.inputs)[-1]["content"] for inquiry in cases}
        assert len(cases) >= 12  # two questions may be the same
        assert rebuilt == said, name


def test_a_verifier_is_graded_by_its_bets_and_not_by_its_words(recorded: Path) -> None:
    cfg = compose.compose([*DRY, "llm=dummy", "writer=verified"])
    stage, problem = compose.build(cfg.verifier), compose.build(cfg.problem)
    (history,) = read_histories(partial(Lineage, recorded / "runs/lineage.git"), problem)
    asked = [each for moment in history.rounds for each in ExampleSource("verifier", stage).questions(history, moment)]
    assert len(asked) >= 12
    with Course(stage.program, [[Case(inquiry, make(history)) for inquiry, make in asked], [], []]).open() as course:
        assert all(0 <= score <= 1 for score in course.examine(course.program, course.train))
    good, bad = metrics.verifier(accepted(4.0)), metrics.verifier(rejected())

    def bet(grade: metrics.Grader, risk: float, *words: str) -> float:
        return grade(Review(tuple(map(Finding, words)), risk))[0]

    assert bet(good, 0) == bet(bad, 100, "it is off") == 1.0
    assert bet(bad, 70, "it is off") == bet(bad, 70, "Line 3 will be rejected as wrong, for sure.")
    for share in (0.2, 0.5, 0.8):  # of kernels that are refused: nothing beats saying so

        def mean(risk: float, share: float = share) -> float:
            return share * bet(bad, risk) + (1 - share) * bet(good, risk)

        assert max(range(0, 101, 10), key=mean) == round(100 * share)


def test_questions_of_one_round_are_no_evidence_of_their_own() -> None:
    """Six rounds of ten questions each, whose answers stand and fall together, are six things that were seen."""
    before, after, rounds = [], [], []
    for number, change in enumerate((0.3, -0.1, 0.2, -0.2, 0.3, 0.1)):
        before += [0.5] * 10
        after += [0.5 + change] * 10
        rounds += [f"softmax/main/1.{number}"] * 10
    alone = ScoreComparison(tuple(before), tuple(after))
    together = ScoreComparison(tuple(before), tuple(after), 0, tuple(rounds))
    assert alone.verdict == "better"
    assert together.verdict == "not better: the interval holds 0"
    assert "on 60 held-out examples of 6 rounds" in str(together)
    few = ScoreComparison(tuple(before[:20]), (0.9,) * 20, 0, tuple(rounds[:20]))
    assert few.verdict == "undecided: 2 rounds, and at least 6 are needed to tell"


def test_not_better_is_said() -> None:
    assert ScoreComparison((0.1, 0.2, 0.1, 0.3, 0.2, 0.2), (0.8, 0.9, 0.7, 0.9, 0.8, 0.9)).verdict == "better"
    assert ScoreComparison((0.1, 0.9, 0.1), (0.9, 0.1, 0.2)).verdict == "not better: the interval holds 0"
    assert ScoreComparison((0.8, 0.9, 0.8, 0.7, 0.8, 0.9), (0.1, 0.2, 0.1, 0.2, 0.1, 0.1)).verdict == "worse"
    assert ScoreComparison((0.1, 0.2), (0.8, 0.9)).verdict == "undecided: 2 rounds, and at least 6 are needed to tell"


def _moment(*judged: Trial) -> tuple[RunHistory, RoundSnapshot]:
    """A run whose last trial is what became of an experiment on the first."""
    problem, population = _PROBLEM, paired(judged)
    moment = RoundSnapshot(
        problem.name, "dry", "1.1", paired(judged[:-1]), selection=population.choose("00001", "00001", "")
    )
    return RunHistory(problem, "dry", (moment,), population), moment


_PROBLEM = load("softmax")
_SEED = Trial("00001", Origin.SEED, kernel=kernel("base"), evaluation=accepted(100.0))
_OTHER = Trial("00002", Origin.SEED, kernel=kernel("other"), evaluation=accepted(110.0))


def _child(us: float, base: str = "00001", idea: str = "unroll the inner loop by four") -> Trial:
    return replace(draft(base, idea=idea), id="00003", kernel=kernel("child"), evaluation=accepted(us))


def test_a_writer_is_graded_by_how_far_its_kernel_came() -> None:
    _, moment = _moment(_SEED, _child(50.0))
    assert moment.selection
    verdicts = [
        Evaluation(Verdict.MALFORMED, "no entry"),
        Evaluation(Verdict.COMPILE, "line 3"),
        Evaluation(Verdict.INCORRECT, "c[3] is off"),
        *(accepted(us) for us in (150.0, 100.0, 50.0)),
    ]
    scores = [0.0]
    for index, verdict in enumerate(verdicts):
        judge = Judge(
            as_evaluator(lambda problem, made, versus, v=verdict: accepted(100.0) if made.main == "base" else v)
        )
        score, feedback = metrics.writer(_PROBLEM, moment.selection, judge)(kernel(f"kernel {index}"))
        assert verdict.reason in feedback
        scores.append(score)
    assert scores == sorted(scores)
    assert scores[2:] == pytest.approx([0.1 / 2.5, 0.2 / 2.5, 0.25 / 2.5, 0.5 / 2.5, 1.5 / 2.5])


def test_who_cheats_gets_less_than_who_does_not_compile_and_every_verdict_has_its_grade() -> None:
    rated = {**reward.REJECTED, **metrics.UNRATED}
    assert set(rated) | {Verdict.ACCEPT, Verdict.HARNESS} == set(Verdict)
    _, moment = _moment(_SEED, _child(50.0))
    assert moment.selection
    grades = {}
    for verdict in rated:
        judge = Judge(as_evaluator(lambda problem, made, versus, v=verdict: Evaluation(v, "why")))
        grades[verdict] = metrics.writer(_PROBLEM, moment.selection, judge)(kernel(verdict.value))[0]
    assert grades[Verdict.IMPOSSIBLE] == grades[Verdict.CHEAT] == grades[Verdict.MALFORMED] == 0
    assert 0 < grades[Verdict.COMPILE] == grades[Verdict.CRASH] < grades[Verdict.INCORRECT] < grades[Verdict.UNTIMED]


def test_a_kernel_is_judged_once_and_no_more_than_allowed() -> None:
    asked = []
    judge = Judge(as_evaluator(lambda problem, made, versus: asked.append(made) or rejected()), most=1)
    assert judge(_PROBLEM, kernel("a"), _SEED) is judge(_PROBLEM, kernel("a"), _SEED)
    assert len(asked) == 1
    with pytest.raises(BudgetError, match=r"optimize\.evaluations=1 used up"):
        judge(_PROBLEM, kernel("b"), _SEED)


def test_a_selector_is_graded_by_what_was_made_from_its_base() -> None:
    worse = replace(_child(90.0, base="00002"), id="00004")
    history, moment = _moment(_SEED, _OTHER, _child(50.0), worse)
    history = replace(history, final=paired((_SEED, _OTHER, _child(50.0), worse)))
    grade, population = metrics.selector(history, moment), history.final
    best, second = (grade(population.choose(base, base, "")) for base in ("00001", "00002"))
    assert best[0] == 1.0
    assert second[0] == pytest.approx(50 / 90)
    assert "That one was made from 00001" in second[1]
    unknown = grade(population.choose("00003", "00003", ""))
    assert unknown[0] == pytest.approx((1 + 50 / 90) / 2)
    assert "unknown" in unknown[1]


def test_a_designer_is_graded_by_what_is_on_record() -> None:
    history, moment = _moment(_SEED, _child(50.0))

    def plan(low: float, high: float, *ideas: str) -> Plan:
        made = tuple(Experiment(idea, "r", (low, high), 10.0) for idea in ideas)
        return Plan(("a",), made, (0,))

    grade = metrics.designer(moment, metrics.recorded_attempt(history))
    ideas = ("Unroll the inner loop by four.", "pack b in panels", "use another layout of c")
    right, said = grade(plan(90, 110, *ideas))
    wrong, _ = grade(plan(-10, 0, *ideas))
    nobody, untried = grade(plan(90, 110, *ideas[1:]))
    assert "as recorded in 00003, accept: +100.0 %" in said
    assert "nobody has judged this, so it earns nothing" in untried
    assert right > wrong > nobody == 0


def test_words_alone_move_no_grade_of_a_designer() -> None:
    """What is said otherwise is worth what it was judged to be, and where nothing was judged nothing."""
    history, moment = _moment(_SEED, _child(90.0, idea="unroll the inner loop by four"))
    grade = metrics.designer(moment, metrics.recorded_attempt(history))

    def worth(*ideas: str) -> float:
        made = tuple(Experiment(idea, "r", (5.0, 15.0), 10.0) for idea in ideas)
        return grade(Plan(("a",), made, tuple(range(len(made)))))[0]

    honest = worth("Unroll the inner loop by four.")
    assert worth("Boldly unroll the inner loop by four!") == honest > 0
    paraphrased = ("Replicate the body of the hot block.", "Amortise branches over several elements of a row.")
    assert worth(*paraphrased) == worth(paraphrased[0]) == 0
    assert worth("Unroll the inner loop by four.", *paraphrased) < honest


def test_a_digester_is_graded_by_what_can_be_looked_up() -> None:
    read = "### source: isa.md\nA wave has 64 lanes. Loads are 128 bits wide."
    grade = metrics.digester(read)
    good = Note("Lanes", "A wave has 64 lanes.", ("isa.md",), quotes=("has 64 lanes",))
    made_up = Note("Wrong lanes", "A wave has 48 lanes.", ("isa.md",), quotes=("has 48 lanes",))
    long = replace(good, text=good.text + " It is so." * 200)
    answers = ((good,), (long,), (good, made_up), (made_up,), ())
    scores = [grade({note.title: note for note in notes})[0] for notes in answers]
    assert scores == sorted(scores, reverse=True)
    assert "'has 48 lanes'" in grade({made_up.title: made_up})[1]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It gained 50 %.", False),
        ("It gained 25 %.", True),
        ("It took 12.5 us.", True),
        ("It took 12 us.", False),
        ("It took 2.5 us.", False),
        ("See 00050.", True),
    ],
)
def test_a_figure_is_looked_up_as_a_word_and_not_within_another(text: str, found: bool) -> None:
    grade = metrics.digester("00050 from 00012: unroll -> 12.5 us, +25 %.")
    said = grade({"a": Note("a", text, ("00050",))})[1]
    assert said.startswith("1 of 1 figures" if found else "0 of 1 figures")


def test_a_digester_is_graded_by_the_notes_that_it_makes() -> None:
    population = paired((_SEED, replace(_child(60.0), by="designer=llm")))
    moment = RoundSnapshot(_PROBLEM.name, "dry", "1.1", population, learnt=True)
    digester = LlmDigester(scripted(lambda text: text.replace("says so [1]", "took 60 us [1]")))
    history = RunHistory(_PROBLEM, "dry", (moment,), population)
    asked = list(ExampleSource("digester", digester).questions(history, moment))
    cases = [Case(inquiry, make(history)) for inquiry, make in asked]
    assert len(cases) == 1
    with Course(digester.program, [cases, [], []]).open() as course:
        assert course.examine(course.program, course.train)[0] > 0.1
