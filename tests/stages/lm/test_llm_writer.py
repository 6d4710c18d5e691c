"""`writer=llm`: whole files where they are short, edits where they are long, each the way back of the other."""

from dataclasses import replace

import pytest

from ksflow.errors import StageError
from ksflow.lm import Model
from ksflow.lm.prompts import excerpt
from ksflow.lm.prompts.brief import count
from ksflow.lm.replay import Replay
from ksflow.protocols import override_call
from ksflow.records import Experiment, Kernel, Origin, Population, Trial
from ksflow.stages.writer.diff import Diff
from ksflow.stages.writer.llm import LlmWriter
from lm.scripted import scripted
from lm.test_replay import Tape

TRY = Experiment("Have scale_rows use the reciprocal.", "no division in scale_rows", (0.0, 1.0), 1.0)
ENTRY = """extern "C" void custom_kernel(const float *a, float *c, int64_t m, const int64_t *strides) {
  scale_rows(a);
}
"""


def function(number: int) -> str:
    """Each with another order of operations."""
    name = f"helper_{'abcdefghij'[number % 10] * (1 + number // 10)}"
    body = "".join(f"  x[{i}] = x[{i}] {'+-*/'[(number + 1) * (i + 3) * 7919 % 101 % 4]} y;\n" for i in range(60))
    return f"// Does what number {number} does.\nvoid {name}(float *x, float y) {{\n{body}}}\n"


LONG = "\n".join(
    [
        "constexpr int MR = 8;  // tune: 4 8 | tile: rows\n",
        *(function(number) for number in range(16)),
        "// Rows by their scale.\nvoid scale_rows(const float *a) {\n  float by = a[0] / a[1];\n}\n",
        ENTRY,
    ]
)


@pytest.fixture
def long_choice(selection):
    base = Trial("00001", Origin.SEED, kernel=Kernel("cpp", {"k.cpp": LONG}), evaluation=selection.base.evaluation)
    return Population((base,)).choose("00001", "00001", "it is long")


def answers(*texts: str) -> Model:
    """A model that gives these answers in turn."""
    left = list(texts)
    return scripted(lambda good: f"[[ ## report ## ]]\nr\n{left.pop(0)}\n[[ ## completed ## ]]")


def edits(old: str, new: str) -> str:
    return f"[[ ## edits ## ]]\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"


GOOD = edits("  float by = a[0] / a[1];", "  float by = a[0] * a[1];")


def test_a_short_base_is_written_whole_and_a_long_one_edited(problem, selection, long_choice, calls):
    LlmWriter(scripted(lambda good: good))(problem, selection, TRY, ())
    kernel = LlmWriter(answers(GOOD))(problem, long_choice, TRY, ())
    assert [call.stage for call in calls] == ["writer=rewrite", "writer=diff"]
    assert kernel.main == LONG.replace("a[0] / a[1]", "a[0] * a[1]")


def test_the_limit_of_an_answer_says_what_is_long(problem, selection, calls):
    small = Model("ksflow/small", engine=scripted(lambda good: good).engine, cache=False, max_tokens=5000)
    LlmWriter(small)(problem, selection, TRY, ())
    assert [call.stage for call in calls] == ["writer=diff"]


def test_what_no_edit_could_say_is_written_whole(problem, long_choice, calls):
    wrong = edits("  nowhere = 1;", "  nowhere = 2;")
    whole = LONG.replace("a[0] / a[1]", "a[0] * a[1]")
    model = answers(wrong, wrong, wrong, f"[[ ## code ## ]]\n{whole}")
    assert LlmWriter(model)(problem, long_choice, TRY, ()).main == whole
    assert [call.stage for call in calls] == ["writer=diff"] * 3 + ["writer=rewrite"]
    assert "block 1: the file does not hold these lines. " in calls[1].messages[-1]["content"]
    assert LONG in calls[3].messages[-1]["content"]
    with pytest.raises(StageError, match="after 1 attempts"):
        Diff(answers(wrong), attempts=1)(problem, long_choice, TRY, ())


def test_a_whole_file_is_taken_for_edits(problem, long_choice):
    whole = LONG.replace("a[0] / a[1]", "a[0] * a[1]")
    assert LlmWriter(answers(f"[[ ## edits ## ]]\n{whole}"))(problem, long_choice, TRY, ()).main == whole


def test_of_a_long_base_is_shown_what_bears_on_the_experiment_and_the_rest_on_demand(problem, long_choice, calls):
    first = LONG[: LONG.index("void helper_dd")].count("\n") + 2
    model = answers(f"[[ ## edits ## ]]\nSHOW {first}-{first + 9}", GOOD)
    assert LlmWriter(model, attempts=1, code=3000)(problem, long_choice, TRY, ()).main
    shown, again = (call.messages[-1]["content"] for call in calls)
    assert "void scale_rows(const float *a) {\n  float by = a[0] / a[1];\n}" in shown
    assert "constexpr int MR = 8;  // tune: 4 8" in shown
    assert "void helper_dd(float *x, float y) {\n// ... lines " in shown
    assert count(shown) < 0.6 * count(LONG)
    assert "SHOW 120-180" in shown
    lines = "\n".join(LONG.split("\n")[first - 1 : first + 9])
    assert lines not in shown
    assert f"asked to see more. Here are the lines that you asked for:\n\nlines {first}-{first + 9}:\n{lines}" in again
    assert "refused" not in again


def test_lines_are_shown_a_few_times_and_stay_in_sight(problem, long_choice, calls):
    """What was shown is still there when an answer is refused later; asking for ever costs attempts at last."""
    first, second = (f"[[ ## edits ## ]]\nSHOW {first}-{first + 1}" for first in (70, 90))
    wrong = edits("  nowhere = 1;", "  nowhere = 2;")
    assert Diff(answers(first, second, wrong, GOOD), code=3000, attempts=2)(problem, long_choice, TRY, ()).main
    last = calls[-1].messages[-1]["content"]
    assert "lines 70-71:" in last
    assert "lines 90-91:" in last
    assert "Your previous answer was refused: block 1:" in last
    with pytest.raises(StageError, match=r"after 2 attempts: you have been shown more 3 times"):
        Diff(answers(*[first] * 5), code=3000, attempts=2)(problem, long_choice, TRY, ())


def test_parts_that_differ_in_numbers_alone_are_folded():
    same = "\n".join(
        f"void add_{n}(float *x) {{\n  asm({', '.join(map(str, range(n)))});\n  x[0] = {n};\n  x[1] = 0;\n}}\n"
        for n in range(8, 80, 8)
    )
    text = excerpt.shorten_file(f"{same}\n{LONG}", 3000, "scale_rows")
    assert "void add_8(float *x) {\n  asm(" in text
    assert "are 8 more like lines 1-6, with other numbers: from void add_16(float *x) to void add_72(float *x)" in text
    for line in text.split("\n"):
        assert line in f"{same}\n{LONG}".split("\n") or line.startswith("// ... lines ")


def test_short_code_is_shown_to_the_letter():
    assert excerpt.shorten_file(LONG, count(LONG), "anything") == LONG


def test_a_replay_goes_the_way_of_the_record(problem, long_choice, calls):
    LlmWriter(answers(GOOD))(problem, long_choice, TRY, ())
    whole = LlmWriter(scripted(lambda good: good), edit_above=10**9)(problem, long_choice, TRY, ())
    for call, written in zip(list(calls), (None, whole), strict=True):
        past = Model("replay", "ksflow", engine=Replay(Tape([replace(call, about="00007")], session=1)))
        with override_call(about="00007"):
            again = LlmWriter(past)(problem, long_choice, TRY, ())
        assert again == (written or again)
        assert calls[-1].stage == call.stage
