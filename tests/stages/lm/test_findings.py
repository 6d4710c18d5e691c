"""What a prompt shows of many notes: what bears on the work in full, the rest by title, never more than its room."""

import random
import re
from dataclasses import replace

import pytest

from ksflow.lm.prompts.findings import findings, more_findings
from ksflow.records import Experiment, Kernel, Note, Population, Status
from ksflow.stages.designer.llm import LlmDesigner
from ksflow.stages.verifier.llm import LlmVerifier
from ksflow.stages.writer.rewrite import Rewrite
from lm.scripted import dummy

MFMA = Note("Lanes of the matrix unit", "v_mfma_f32_16x16x32_fp8_fp8 spreads C over 64 lanes.", ("isa",), ("mi300x",))
WGMMA = Note("Operands of wgmma", "The descriptor of wgmma.mma_async gives B's stride in shared memory.", ("ptx",))
SOFTMAX = Note("Exponentials", "A polynomial of degree 5 replaces expf in a softmax.", ("book",), problems=("softmax",))


def many(count: int) -> list[Note]:
    """As a digestion leaves them: a hundred words each, of several statuses."""
    draw = random.Random(1)
    words = [f"word{index}" for index in range(3000)]
    made = []
    for index in range(count):
        text = " ".join(draw.choices(words, k=100))
        made.append(Note(f"Note number {index}", text, ("manual",), status=list(Status)[index % 4]))
    return made


def test_the_notes_that_share_rare_words_with_the_code_come_first() -> None:
    kernel = Kernel("hip", {"k.hip": "acc = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a, b, acc, 0, 0, 0);"})
    text = findings([SOFTMAX, WGMMA, MFMA], about=f"{kernel.language} {kernel.main}", ranked=True)
    assert text.startswith("### Lanes of the matrix unit (for mi300x)")
    assert "- Operands of wgmma [documented]" in text
    experiment = Experiment("Let wgmma read B through a descriptor with stride 64", "r", (0.0, 1.0), 1.0)
    text = findings([SOFTMAX, WGMMA, MFMA], about=experiment.description, ranked=True)
    assert text.startswith("### Operands of wgmma\n")


def test_of_two_that_bear_on_it_alike_the_trusted_one_comes_first() -> None:
    notes = [replace(WGMMA, title=f"Operands of wgmma {status}", status=status) for status in reversed(Status)]
    text = findings(notes, about="wgmma descriptor stride", ranked=True)
    order = [text.index(words) for words in ("Measured here", "Documented.", "Assumed", "Refuted: do not rely")]
    assert order == sorted(order)


@pytest.mark.parametrize("tokens", [200, 2000, 15_000])
def test_five_hundred_notes_stay_within_the_budget(tokens: int) -> None:
    notes = many(500)
    about = notes[321].text
    text = findings(notes, tokens, about, ranked=True)
    assert len(text) <= 4 * tokens
    assert text == findings(notes, tokens, about, ranked=True)
    first = "### Note number 321\n" if tokens >= 2000 else "Other notes, by their titles:\n- Note number 321 ["
    assert text.startswith(first)
    full = text.count("### Note number ")
    by_line = text.count("\n- Note number ")
    if full + by_line < 500:
        assert text.endswith(f"({500 - full - by_line} more notes have no room here)")
    assert tokens < 2000 or by_line > 20


def test_whatever_their_size_what_has_room_is_shown() -> None:
    notes = [Note(f"n{index}", "word " * (10 * index), ("s",)) for index in range(200)]
    for tokens in (50, 500, 15_000):
        text = findings(notes, tokens)
        assert len(text) <= 4 * tokens
        assert "### n1\n" in text
        assert tokens > 500 or text.endswith("more notes have no room here)")


def test_a_doubt_is_shown_and_what_is_refuted_comes_last_and_short() -> None:
    doubted = replace(WGMMA, challenge="it stalled on our chip")
    wrong = replace(MFMA, status=Status.REFUTED, text="word " * 300)
    text = findings([wrong, doubted, replace(WGMMA, title="Another")], ranked=True)
    assert "Challenged, so doubtful: it stalled on our chip" in text
    assert text.index("### Another") < text.index("### Operands of wgmma")
    last = text.split("\n\n")[-1]
    assert last.startswith("Refuted: do not rely on these:\n- Lanes of the matrix unit: word")
    assert len(last) < 500


def test_what_bears_on_the_round_is_chosen_and_stands_in_the_order_given() -> None:
    notes = many(500)
    text = findings(notes, 2000, notes[321].text)
    shown = [int(number) for number in re.findall(r"^### Note number (\d+)$", text, re.MULTILINE)]
    assert 321 in shown
    assert shown == sorted(shown)
    rest = more_findings(notes, (2000, notes[321].text), 600, notes[78].text)
    assert rest.startswith("### Note number 78\n")
    assert "### Note number 321\n" not in rest
    assert more_findings(notes[:3], (15_000, ""), 600, notes[1].text) == ""


def test_nothing_is_said_of_no_notes() -> None:
    assert findings([]) == ""


def test_designer_and_writer_see_what_bears_on_their_task_and_experiment(problem, selection, population, calls) -> None:
    notes = (*many(200), replace(WGMMA, text="A tile of MR rows, custom_kernel, MR = 8: strides."))
    plan = LlmDesigner(dummy(), findings=600)(problem, population, selection, notes)
    assert "### Operands of wgmma" in calls[-1].messages[-1]["content"]
    about = Experiment(f"Do as is said of {notes[77].text}", "r", (0.0, 1.0), 1.0)
    Rewrite(dummy(), findings=600)(problem, selection, about, notes)
    assert "### Note number 77\n" in calls[-1].messages[-1]["content"]
    assert plan.picked


def test_prompts_from_different_bases_begin_alike_with_the_findings(problem, population, calls) -> None:
    """What providers have cached of a prompt ends where it begins to differ."""
    files = ({"one.cpp": "void custom_kernel(); // wgmma descriptor"}, {"two.cpp": "void custom_kernel(); // softmax"})
    bases = [replace(population.trials[0], kernel=Kernel("cpp", each)) for each in files]
    notes = (*many(200), WGMMA, SOFTMAX)
    tried = Experiment("Unroll.", "Unrolled.", (0.0, 1.0), 1.0)
    shown = []
    for base in bases:
        selection = Population((base, *population.trials[1:])).choose("00001", "00002", "")
        LlmDesigner(dummy(), findings=600)(problem, population, selection, notes)
        Rewrite(dummy(), findings=600)(problem, selection, tried, notes)
        LlmVerifier(dummy(), findings=600)(problem, selection, tried, notes, Kernel("cpp", {"k.cpp": "int x;"}))
        shown.append([call.messages[-1]["content"] for call in calls[-3:]])
    for one, other in zip(*shown, strict=True):
        alike = one[: next(index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])]
        assert alike.index("[[ ## findings ## ]]") < alike.index("### Note number")
        after = one[one.index("[[ ## findings ## ]]") :]
        assert after[: after.index("\n\n[[ ## ")] in alike
