"""Dead ends leave prompts, counted; what was the best once, and seeds, stay. So does the record of predictions."""

from dataclasses import replace

import pytest
from conftest import paired

from ksflow.errors import StageError
from ksflow.lm.prompts.tried import tried_experiments
from ksflow.lm.prompts.views import view
from ksflow.protocols import Context
from ksflow.records import (
    Evaluation,
    Experiment,
    Kernel,
    Note,
    Origin,
    Plan,
    PlannedRound,
    Population,
    RooflineCase,
    Status,
    Timing,
    Trial,
    Verdict,
)
from ksflow.stages.designer.llm import LlmDesigner
from ksflow.stages.selector.llm import LlmSelector
from ksflow.stages.writer.rewrite import Rewrite
from lm.scripted import dummy, scripted

WRONG = Evaluation(Verdict.INCORRECT, "c[3] is off")


def timed(us: float) -> Evaluation:
    return Evaluation(Verdict.ACCEPT, "", us, (Timing("small", us), Timing("large", us)))


def grown(population: Population, *evaluations: Evaluation) -> Population:
    """Experiments on 00002, from 00010 on."""
    base = population.by_id["00002"]
    more = []
    for index, evaluation in enumerate(evaluations, 10):
        experiment = Experiment(f"Idea {index}.", "r", (1.0, 5.0), 10.0)
        more.append(Trial(f"{index:05}", Origin.EXPERIMENT, ("00002",), experiment, base.kernel, evaluation=evaluation))
    return paired((*population.trials, *more))


def closing(*ids: str, status: Status = Status.MEASURED) -> tuple[Note, ...]:
    return (Note("Dead", "never worked", ids[:1], status=status, closes=ids),)


def test_what_a_finding_stands_for_is_counted_and_not_shown(problem, population):
    many = grown(population, WRONG, WRONG, timed(900.0), timed(950.0), WRONG)
    known = many.prune(closing("00010", "00011", "00012"))
    seen, before = view(problem, known, 6000), view(problem, many, 6000)
    assert before.shown - seen.shown == {"00012"}
    assert "Idea 10." not in seen.failures
    assert "(2 failures are left out: dead ends, which the findings stand for)" in seen.failures
    assert "(1 accepted kernels are left out: dead ends, which the findings stand for)" in seen.table
    assert "00014 from 00002" in seen.failures
    text = tried_experiments(known, known.choose("00002", "00001", ""), 4000)
    assert [f"Idea {index}." in text for index in range(10, 15)] == [False, False, False, True, True]
    assert "(3 experiments are left out: dead ends, which the findings stand for)" in text
    assert (
        "left out"
        not in tried_experiments(many, many.choose("00002", "00001", ""), 4000) + before.table + before.failures
    )


def test_a_refuted_finding_stands_for_nothing(problem, population):
    many = grown(population, WRONG)
    known = many.prune(closing("00010", status=Status.REFUTED))
    assert view(problem, known, 6000) == view(problem, many, 6000)


def test_seeds_incumbents_and_the_best_on_a_shape_are_never_left_out(problem, population):
    odd = Evaluation(Verdict.ACCEPT, "", 30.0, (Timing("small", 900.0), Timing("large", 1.0)))
    many = grown(population, timed(10.0), odd, timed(2.0), timed(800.0))
    known = many.prune(closing(*(trial.id for trial in many.trials)))
    seen = view(problem, known, 6000)
    incumbents = {trial.id for trial in many.best_so_far if trial}
    assert "00010" in incumbents
    assert seen.shown == incumbents | {"00001", "00011", "00012"}
    assert "(1 accepted kernels are left out" in seen.table


@pytest.mark.parametrize("tokens", [300, 600, 2000])
def test_views_stay_bounded_with_dead_ends(problem, population, tokens):
    many = grown(population, *[WRONG, timed(500.0), timed(400.0)] * 300)
    known = many.prune(closing(*(trial.id for trial in many.trials[3::2])))
    seen = view(problem, known, tokens)
    assert len(seen.table) + len(seen.failures) <= 4 * tokens
    assert len(tried_experiments(known, known.choose("00002", "00001", ""), tokens)) <= 4 * tokens
    assert not seen.shown & (known.pruned - {trial.id for trial in known.best_so_far if trial})


def test_nothing_but_dead_ends_is_an_answer_too(problem, population):
    known = paired(population.trials[:1]).prune(())
    failed = grown(population, WRONG).trials[-1]
    known = paired((*known.trials, failed), pruned=frozenset([failed.id]))
    assert view(problem, known, 6000).failures.startswith("(1 failures are left out")
    assert "(nothing)\n(1 experiments are left out" in tried_experiments(
        known, known.choose("00001", "00001", ""), 4000
    )


CODE = """constexpr int MR = 8;  // tune: 4 8 16 | tile: rows
extern "C" void custom_kernel(const float *a, float *c, int64_t m, const int64_t *strides) {{ {} }}
"""


def searched() -> Population:
    """A baseline, a seed, a change of code that won, and another value of a tunable that won after it."""

    def trial(number: int, us: float, *parents: str, code: str = "", **more) -> Trial:
        kernel = Kernel("cpp", {"k.cpp": more.pop("text", CODE.format(code))})
        origin = Origin.EXPERIMENT if parents else Origin.SEED
        return Trial(f"{number:05}", origin, parents, kernel=kernel, evaluation=timed(us), **more)

    packed = Experiment("Pack a.", "it is packed", (0.0, 50.0), 10.0, avenue=2)
    larger = Experiment("MR = 16", "MR is 16", (0.0, 5.0), 1.0, {"MR": "16"})
    trials = [
        trial(1, 800.0, code="naive();", name="00_numpy.py", baseline=True),
        trial(2, 400.0, code="loop();", name="01_loop.cpp"),
        trial(3, 200.0, "00002", code="packed();", experiment=packed),
        trial(4, 160.0, "00003", text=CODE.format("packed();").replace("MR = 8", "MR = 16"), experiment=larger),
        trial(5, 300.0, "00002", code="other();", experiment=packed),
    ]
    plan = Plan(("Bound by bandwidth: unroll.", "Bound by latency: pack."), (packed,), (0,))
    return paired(trials, plans=(PlannedRound("00002", "00001", "why", plan, ("00003", "00005")),))


STANDING = (
    "Best so far: 00004, 160 us.\nBaseline 00_numpy.py (00001), 800 us; the best so far is x5 [4.91, 5.09] as fast."
)


def test_designer_and_selector_are_told_the_line_to_beat_and_what_is_left(problem, calls):
    population, left = searched(), {"evaluations": 12.0, "rounds": 3.0, "minutes": 31.4, "stages.writer.usd": 5.0}
    LlmSelector(dummy())(problem, population, context=Context(left=left))
    LlmDesigner(dummy())(problem, population, population.choose("00003", "00002", ""), (), context=Context(left=left))
    amounts = "Left of the budget: 12 evaluations, 3 rounds after this one, 31 minutes."
    for call in calls:
        assert f"[[ ## standing ## ]]\n{STANDING}\n{amounts}\n" in call.messages[1]["content"]


def test_the_designer_is_told_the_last_win_and_what_single_tunables_gained(problem, calls):
    population = searched()
    LlmDesigner(dummy())(problem, population, population.choose("00003", "00002", ""), ())
    prompt = calls[0].messages[1]["content"]
    win = prompt.partition("[[ ## last_win ## ]]\n")[2].partition("\n\n")[0]
    assert win.startswith("00003 from 00002, +100.0 %:\n@@ ")
    assert '{ loop(); }\n+extern "C"' in win
    assert "[[ ## effects ## ]]\nMR 8→16: +25.0 %\n" in prompt


def test_the_writer_is_told_the_avenue_the_bound_of_each_shape_and_the_line_to_beat(problem, calls):
    population = searched()
    trial = population.by_id["00005"]
    chosen = population.selection_for(trial)
    near = RooflineCase(case="small", bound="memory", bound_us=100.0, share=0.25)
    judged = chosen.base.evaluation.with_evidence(roofline=(near,))
    chosen = replace(chosen, base=replace(chosen.base, evaluation=judged))
    Rewrite(dummy())(problem, chosen, trial.experiment, ())
    prompt = calls[0].messages[1]["content"]
    assert "\nThe avenue that it follows: Bound by latency: pack." in prompt
    assert "| small | - | 400 |  | 100 | 25 % | memory |" in prompt
    assert "[[ ## standing ## ]]\nBest so far: 00002, 400 us.\nBaseline 00_numpy.py" in prompt  # as the round began
    far = replace(trial.experiment, avenue=3)
    assert population.plans[0].plan.avenue_of(far) == ""
    assert population.plans[0].plan.avenue_of(replace(far, avenue=0)) == ""


def test_an_avenue_that_is_not_there_is_refused(problem, population, selection):
    model = scripted(lambda good: good.replace('"innovation"', '"avenue": 11, "innovation"', 1))
    with pytest.raises(StageError, match=r"experiments\.0\.avenue: 11 is the number of no avenue"):
        LlmDesigner(model, attempts=1)(problem, population, selection, ())


def test_the_designer_reads_its_record(problem, population, selection, calls):
    designer = LlmDesigner(dummy())
    assert sorted(designer(problem, population, selection, ()).picked) != []
    assert "[[ ## predictions ## ]]" not in calls[0].messages[1]["content"]
    many = grown(population, *[timed(10.0), timed(12.0), WRONG] * 5)
    mine = paired(tuple(replace(t, by=designer.program.answered_by) if t.id >= "00010" else t for t in many.trials))
    plan = designer(problem, mine, selection, ())
    assert len(set(plan.picked)) == 3
    prompt = calls[-1].messages[1]["content"]
    assert "Of 15 experiments that you predicted, 10 were right and timed, 5 failed." in prompt
    assert "- 00024: predicted 1 to 5 %, failed: Idea 24." in prompt
