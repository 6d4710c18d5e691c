"""`writer=diff`: edits of the base, or of the failed attempt, checked like a whole file."""

import pytest

from ksflow.errors import ConfigError, StageError
from ksflow.kernels.source.tunables import values
from ksflow.records import Experiment, Kernel, Origin, Population, Trial
from ksflow.stages.writer.diff import Diff
from ksflow.stages.writer.rewrite import Rewrite
from lm.scripted import dummy, scripted

ENTRY = 'extern "C" void custom_kernel(const float *a, float *c, int64_t m, const int64_t *strides) {}'
TRY = Experiment("Do it.", "done", (0.0, 1.0), 1.0)


def edits(text: str):
    """A model whose edits are these."""
    return scripted(lambda good: f"[[ ## report ## ]]\nr\n[[ ## edits ## ]]\n{text}\n[[ ## completed ## ]]")


def replace(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"


def test_edits_change_what_they_say_and_nothing_else(problem, selection):
    base = selection.base.kernel
    kernel = Diff(edits(replace("// A kernel.", "// Another.\nint more;")))(problem, selection, TRY, ())
    assert kernel.main == base.main.replace("// A kernel.", "// Another.\nint more;")
    assert kernel.report == "r"
    unified = edits("@@ -1 +1,2 @@\n // A kernel.\n+int more;")
    assert Diff(unified)(problem, selection, TRY, ()).main == base.main.replace("l.\n", "l.\nint more;\n", 1)


def test_edits_that_do_not_apply_are_asked_for_again_with_the_nearest_lines(problem, selection, calls):
    turns = []

    def first_wrong(good: str) -> str:
        turns.append(good)
        return good.replace("SEARCH\n", "SEARCH\n// A kernal.\n") if len(turns) == 1 else good

    assert Diff(scripted(first_wrong))(problem, selection, TRY, ()).main
    again = calls[1].messages[-1]["content"]
    assert "Your previous answer was refused: block 1: the file does not hold these lines." in again
    assert "'// A kernal.'" in again
    assert "| // unrolled" in again


def test_a_repair_edits_the_failed_attempt(problem, population, selection, calls):
    failed = population.trials[2]
    model = edits(replace("// wrong", "int right;"))
    assert Diff(model)(problem, selection, TRY, (), failed).main == failed.kernel.main.replace("// wrong", "int right;")
    prompt = calls[0].messages[-1]["content"]
    assert "[[ ## edits_apply_to ## ]]\nfailed_code\n" in prompt
    assert f"[[ ## failed_code ## ]]\n{failed.kernel.main}\n" in prompt
    assert f"[[ ## base_code ## ]]\n{selection.base.kernel.main}\n" in prompt
    with pytest.raises(StageError, match="does not hold these lines"):
        Diff(model, attempts=1)(problem, selection, TRY, ())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (replace("// A kernel.", "// A  kernel."), "unchanged"),
        (replace("// A kernel.", "// A kernel."), "changes nothing"),
        (replace(ENTRY, "int x;"), "does not define custom_kernel"),
        (replace("// A kernel.", "int x;\n" * 40_000), "more than 200 kB"),
    ],
)  # fmt: skip
def test_the_outcome_is_checked_like_a_whole_file(problem, selection, text, reason):
    with pytest.raises(StageError, match=reason):
        Diff(edits(text), attempts=1)(problem, selection, TRY, ())


@pytest.mark.parametrize("style", ["blocks", "unified"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_dummy_edits_every_kind_of_file(problem, style, end, calls):
    lines = [
        "int a;",
        "}",
        "}",
        "",
        "=======",
        "constexpr int MR = 8;  // tune: 4 8",
        "}",
        "}",
        "// custom_kernel",
        "}",
        "",
    ]
    for text in (end.join(lines), end.join(lines[:-1])):
        base = Trial("00001", Origin.SEED, kernel=Kernel("cpp", {"main.cpp": text, "more.h": "int x;\n"}))
        chosen = Population((base,)).choose("00001", "00001", "alone")
        write = Diff(dummy(), style=style)
        tuned = write(problem, chosen, Experiment("MR", "MR", (0.0, 1.0), 1.0, {"MR": "4"}), ())
        assert tuned.files == {"main.cpp": text.replace("MR = 8", "MR = 4"), "more.h": "int x;\n"}
        marked = write(problem, chosen, TRY, ())
        assert marked.main.startswith(text.rstrip())
        assert "static const unsigned dummy_" in marked.main
    asked = calls[0].messages[-1]["content"]
    assert ("A unified diff" in asked) == (style == "unified")


def test_the_dummys_mark_replaces_the_one_before(problem, population):
    for language, name in (("cpp", "k.cpp"), ("python", "k.py")):
        kernel = Kernel(language, {name: "custom_kernel = 1\n"})
        for step in range(4):
            base = Trial("00001", Origin.SEED, kernel=kernel)
            tried = Experiment(f"Step {step}", "done", (0.0, 1.0), 1.0)
            after = Rewrite(dummy())(problem, Population((base,)).choose("00001", "00001", ""), tried, ())
            assert after.main != kernel.main
            assert len(after.main.splitlines()) == 2
            kernel = after
        assert ("DUMMY_" in kernel.main) == (language == "python")
    compile(kernel.main, "k.py", "exec")
    assert values(kernel.main) == {}


def test_unknown_words_are_answered_with_the_valid_ones():
    with pytest.raises(ConfigError, match=r"writer.style=patch; valid: blocks, unified"):
        Diff(dummy(), style="patch")
