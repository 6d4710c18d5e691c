"""`writer=tune` rewrites assignments and nothing else."""

from dataclasses import replace

import pytest

from ksflow.errors import StageError
from ksflow.records import Experiment, Kernel, Origin, Population, Problem, Selection, Trial
from ksflow.stages.writer.tune import Tune

PROBLEM = Problem("toy", "", "", "", "", "", ("cpp",), (), (), (), (), ())
TEXT = "// a kernel\nconstexpr int MR = 8;  // tune: 4 6 8 | tile: rows\nint x = MR;\r\n"
KERNEL = Kernel("cpp", {"kernel.cpp": TEXT, "more.h": "int MR = 8;  // tune: 4 8\n"}, "by hand")


def selection(kernel: Kernel | None = KERNEL) -> Selection:
    return Population((Trial("00000", Origin.SEED, kernel=kernel),)).choose("00000", "00000", "")


def experiment(**changes: str) -> Experiment:
    return Experiment("smaller tile", "", (0.0, 1.0), 0.0, changes)


def test_only_the_assigned_value_of_the_main_file_changes() -> None:
    written = Tune()(PROBLEM, selection(), experiment(MR="4"), ())
    assert written.main == TEXT.replace("MR = 8", "MR = 4")
    assert written.files["more.h"] == KERNEL.files["more.h"]
    assert list(written.files) == list(KERNEL.files)
    assert written.report == "MR: 8 -> 4"
    assert written.language == "cpp"


def test_an_experiment_without_assignments_needs_another_writer() -> None:
    with pytest.raises(StageError, match=r"assigns no tunables.*writer=llm"):
        Tune()(PROBLEM, selection(), experiment(), ())


@pytest.mark.parametrize(
    ("changes", "reason"), [({"NR": "4"}, "no tunable NR; declared: MR"), ({"MR": "7"}, "MR can be 4 6 8, not 7")]
)
def test_undeclared_values_are_refused(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(StageError, match=reason):
        Tune()(PROBLEM, selection(), experiment(**changes), ())


def test_there_is_nothing_to_repair_by_rule() -> None:
    failed = replace(selection().base, id="00007")
    with pytest.raises(StageError, match="00007 cannot be repaired by rule"):
        Tune()(PROBLEM, selection(), experiment(MR="4"), (), failed)


def test_a_base_without_a_kernel_is_refused() -> None:
    with pytest.raises(StageError, match="00000 has no kernel"):
        Tune()(PROBLEM, selection(None), experiment(MR="4"), ())


def test_values_for_some_cases_are_lines_of_the_source() -> None:
    launched = replace(KERNEL, files={"kernel.cu": "// launch: f [1] [32] (a)\n" + TEXT})
    written = Tune()(PROBLEM, selection(launched), experiment(**{"dispatch: if m <= 64": "MR=4"}), ())
    assert written.main == "// dispatch: if m <= 64: MR=4\n" + launched.main
    assert written.report == "dispatch: if m <= 64: MR=4"
    again = Tune()(PROBLEM, selection(written), experiment(**{"dispatch: if m <= 64": "", "MR": "6"}), ())
    assert again.main == launched.main.replace("MR = 8", "MR = 6")
    assert again.report == "no dispatch: if m <= 64; MR: 8 -> 6"


def test_a_value_that_is_not_read_stays() -> None:
    text = "int FORM = a;  // tune: a b\nint MT = 1;  // tune: 1 2 | if FORM == b\n"
    base = selection(Kernel("cpp", {"kernel.cpp": text}))
    written = Tune()(PROBLEM, base, experiment(FORM="b", MT="2"), ())
    assert written.main == text.replace("= a;", "= b;").replace("MT = 1", "MT = 2")
    base = selection(written)
    back = Tune()(PROBLEM, base, experiment(FORM="a", MT="1"), ())
    assert back.main == written.main.replace("= b;", "= a;")
    assert back.report == "MT: not read here, left at 2; FORM: b -> a"
    with pytest.raises(StageError, match="does not read MT with its other values"):
        Tune()(PROBLEM, selection(back), experiment(MT="1"), ())
