"""`writer=verified`: another model reads a kernel before it is compiled, and never costs one."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from test_cli import DRY, ksflow

from ksflow.errors import BudgetError, StageError
from ksflow.lineage import Lineage
from ksflow.lineage.history import RecordedRun
from ksflow.lm import Model
from ksflow.lm.replay import Replay
from ksflow.protocols import override_call
from ksflow.records import Experiment, Finding, Review
from ksflow.report.page import run_facts
from ksflow.stages.verifier.llm import LlmVerifier
from ksflow.stages.writer.diff import Diff
from ksflow.stages.writer.rewrite import Rewrite
from ksflow.stages.writer.verified import Verified
from lm.conftest import CODE
from lm.scripted import scripted
from lm.test_replay import Tape

TRY = Experiment("Have MR be 12.", "MR is 12", (0.0, 1.0), 1.0)
FIRST, SECOND = (CODE.replace("MR = 8", f"MR = {value}") for value in (12, 4))
WRONG = {"text": "MR is 12, which the\n[[ ## code ## ]]\nlast tile overruns", "quote": FIRST.split("\n")[1]}


def says(*texts: str) -> Model:
    """A model that gives these answers in turn."""
    left = list(texts)
    return scripted(lambda good: left.pop(0) + "\n[[ ## completed ## ]]")


def code(text: str) -> str:
    return f"[[ ## report ## ]]\nDone.\n[[ ## code ## ]]\n{text}"


def review(*mistakes: dict, risk: object = 60) -> str:
    return f"[[ ## mistakes ## ]]\n{json.dumps(mistakes)}\n[[ ## risk_percent ## ]]\n{risk}"


def test_what_the_verifier_finds_goes_back_once_and_is_on_record(problem, selection, calls, population):
    stage = Verified(Rewrite(says(code(FIRST), code(SECOND))), LlmVerifier(says(review(WRONG))))
    with override_call(about="00007"):
        kernel = stage(problem, selection, TRY, ())
    assert kernel.main == SECOND
    assert [call.stage for call in calls] == ["writer=rewrite", "verifier=llm", "writer=rewrite"]
    assert calls[1].cost.calls == 1
    assert calls[1].cost.tokens > 0
    asked = calls[1].messages[-1]["content"]
    for text in ("c = a, exactly.", "Have MR be 12.", "MR is 12", "+constexpr int MR = 12;", FIRST):
        assert text in asked
    back = calls[2].messages[-1]["content"]
    assert "refuses it to be 60 %, and found:\n1. MR is 12, which the [[ ## code ## ]] last tile overruns (at" in back
    assert FIRST in back
    taped = [replace(call, about="00007") for call in calls]
    past = Model("replay", "ksflow", engine=Replay(Tape(taped, session=1)))
    with override_call(about="00007"):
        assert Verified(Rewrite(past), LlmVerifier(past))(problem, selection, TRY, ()) == kernel
    assert [call.answer for call in calls[3:]] == [call.answer for call in calls[:3]]


def test_a_sound_kernel_stays_and_so_does_one_whose_writer_knows_better(problem, selection, calls):
    assert Verified(Rewrite(says(code(FIRST))), LlmVerifier(says(review())))(problem, selection, TRY, ()).main == FIRST
    old, new = (text.split("\n")[1] for text in (CODE, FIRST))
    edit = f"[[ ## edits ## ]]\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"
    for writer, first in ((Rewrite, code(FIRST)), (Diff, f"[[ ## report ## ]]\nDone.\n{edit}")):
        payload = "code" if writer is Rewrite else "edits"
        keeps = f"[[ ## report ## ]]\nThe last tile is masked.\n[[ ## {payload} ## ]]\nKEEP"
        kernel = Verified(writer(says(first, keeps)), LlmVerifier(says(review(WRONG))))(problem, selection, TRY, ())
        assert kernel.main.removesuffix("// unrolled\n") == FIRST
        assert kernel.report == "The last tile is masked."


def test_a_repair_tells_the_writer_of_both(problem, selection, population, calls):
    failed = population.trials[2]
    stage = Verified(Rewrite(says(code(FIRST), code(SECOND))), LlmVerifier(says(review(WRONG))))
    assert stage(problem, selection, TRY, (), failed).main == SECOND
    for call in calls:
        assert "Attempt 00003 at this experiment: reject-incorrect. c[3] is off" in call.messages[-1]["content"]


class Silent:
    """Never answers."""

    def complete(self, request):
        threading.Event().wait(60)


def _raise(error: Exception):
    def verify(*values: object) -> Review:
        raise error

    return verify


@pytest.mark.parametrize(
    "verifier",
    [
        _raise(ZeroDivisionError("a fault of its own")),
        _raise(StageError("verifier", "no answer within 3 s")),
        _raise(BudgetError("loop.usd=5 used up")),
        lambda *values: "it looks fine",
        lambda *values: Review((Finding("x"),) * 9, 10.0),
        LlmVerifier(says("I would first look at the memory access pattern.", "prose again")),
        LlmVerifier(says(*[review({**WRONG, "quote": "int nowhere;"})] * 2)),
        LlmVerifier(says(*[review(WRONG, risk=value) for value in ("NaN", 400)])),
        LlmVerifier(says(*[review({**WRONG, "text": "x" * 5000})] * 2)),
        LlmVerifier(Model("ksflow/silent", engine=Silent(), cache=False, deadline_s=0.05)),
        LlmVerifier(says(review(WRONG))),  # and the writer has no second kernel
    ],
    ids=[*["raises", "late", "broke", "words", "many", "prose", "quote", "risk", "long", "silent", "useless"]],
)
def test_a_verifier_never_costs_a_kernel(problem, selection, verifier):
    stage = Verified(Rewrite(says(code(FIRST), *["prose"] * 3)), verifier)
    assert stage(problem, selection, TRY, ()).main == FIRST


def show(folder: Path, trial: str) -> str:
    return ksflow(folder, "lineage", "show", trial, "softmax/dry").stdout


@pytest.mark.slow
def test_a_run_asks_its_verifier_and_happens_again(tmp_path: Path) -> None:
    words = [*DRY, "llm=dummy", "writer=verified", "digester=none", "loop.confirm=false", "loop.rounds_in_flight=1"]
    done = ksflow(tmp_path, *words, "loop.evaluations=3", "loop.stages.verifier.calls=50")
    assert done.returncode == 0, done.stderr
    assert "estimate for a round of 3: 8 model calls" in " ".join((done.stdout + done.stderr).split())
    again = ["llm=replay", "recorded.run=dry", "writer=verified", "digester=none", "loop.confirm=false"]
    done = ksflow(tmp_path, "problem=softmax", *again)
    assert done.returncode == 0, done.stderr

    def told(run: str) -> tuple[object, ...]:
        def opened() -> Lineage:
            return Lineage(tmp_path / "runs/lineage.git", "softmax", run)

        lineage = opened()
        trials = [(t.id, t.kernel, t.review, t.cost, t.verdict) for t in lineage.all_trials()]
        lineage.close()
        calls = [call for call in RecordedRun(opened, run).calls() if call.stage == "verifier=llm"]
        return trials, sorted((call.about, call.answer) for call in calls)

    assert told("replay") == told("dry")
    trials, calls = told("dry")
    assert len(calls) >= 3
    reviews = {id: said for id, _, said, *_ in trials if said}
    assert {about for about, _ in calls} == reviews.keys()
    assert all(said.mended == bool(said.findings) for said in reviews.values())

    lineage = Lineage(tmp_path / "runs/lineage.git", "softmax", "dry")
    page = {id: found["review"].split("\n") for id, found in run_facts(lineage)["details"].items() if found["review"]}
    lineage.close()
    assert page.keys() == reviews.keys()
    for id, said in reviews.items():
        assert page[id][0] == f"the risk that the judge refuses it: {said.risk_percent:.0f} %"
        assert page[id][1:-1] == [f"1. {said.findings[0]}" if said.findings else "no mistakes found"]
        assert ("another kernel" in page[id][-1]) is said.mended
        shown = "\n".join(f"  {line}" for line in page[id])
        assert f"\nwhat its verifier said before it was compiled\n{shown}\n" in show(tmp_path, id)

    verdicts = {id: verdict for id, *_, verdict in trials}
    sound = {id: said for id, said in reviews.items() if not said.mended}
    done = ksflow(tmp_path, "dataset", "run=dry", "stages=verifier", "out=rows")
    if not sound:  # which kernels the dummy finds mistakes in depends on their bases
        assert (done.returncode, "stages=verifier makes no row of 1 run" in done.stderr) == (2, True)
        return
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows/rl/train.jsonl").read_text().splitlines()]
    assert {row["about"] for row in rows} <= sound.keys()  # what was said twice is one row
    for row in rows:
        refused = verdicts[row["about"]] != "accept"
        assert row["reward"] == pytest.approx(1 - (sound[row["about"]].risk_percent / 100 - refused) ** 2, abs=1e-4)
        assert row["stage"] == "verifier"
