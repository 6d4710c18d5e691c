"""Tunables in every language, from text that may be hostile."""

import time
from pathlib import Path

import pytest

import ksflow
from ksflow.errors import ConfigError
from ksflow.kernels.hardware.cpu import FEATURES
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.kernels.source.families import FamilyMember, space
from ksflow.kernels.source.tunables import (
    assign,
    constants,
    dispatches,
    effective_values,
    for_cores,
    mistake,
    needs,
    requires,
    ruled_out,
    tunables,
    values,
)
from ksflow.records import Evaluation, Evidence, Kernel, Origin, Trial, Verdict

SEEDS = Path(ksflow.__file__).parent / "seeds"
TEXT = """int x = 3;
constexpr int MR = 8;         // tune: 4 6 8 12 | tile: rows of the register tile
  #define STAGES 2            // tune: 1 2 3
BLOCK_M: tl.constexpr = 64    # tune: 32, 64, 128
constexpr Form FORM = naive;  // tune: naive ikj | form
FAST = 7  # not a tune line
"""


def test_what_is_declared_is_found() -> None:
    found = {t.name: t for t in tunables(TEXT)}
    assert values(TEXT) == {"MR": "8", "STAGES": "2", "BLOCK_M": "64", "FORM": "naive"}
    assert found["MR"].options == ("4", "6", "8", "12")
    assert (found["MR"].kind, found["MR"].doc) == ("tile", "rows of the register tile")
    assert found["BLOCK_M"].options == ("32", "64", "128")
    assert (found["FORM"].kind, found["STAGES"].kind) == ("form", "")


FORMS = """enum { naive, dot, amx };
constexpr int FORM = amx;  // tune: naive dot amx | form: of the loops
constexpr int PACK = 0;    // tune: 0 1 | pack: vectors | if FORM != naive
#define MT 2               // tune: 1 2 3 | if FORM == amx
constexpr int GROUP = 1;   // tune: 1 2 | if PACK == 1 and FORM == dot
"""


@pytest.mark.parametrize(
    ("form", "pack", "counts"),
    [("naive", "1", {"FORM"}), ("dot", "1", {"FORM", "PACK", "GROUP"}), ("amx", "1", {"FORM", "PACK", "MT"})],
)
def test_a_tunable_counts_where_its_condition_says_so(form: str, pack: str, counts: set[str]) -> None:
    declared = tunables(FORMS)
    assert {t.name: t.doc for t in declared} == {"FORM": "of the loops", "PACK": "vectors", "MT": "", "GROUP": ""}
    config = {**values(FORMS), "FORM": form, "PACK": pack}
    assert effective_values(declared, config) == {name: config[name] for name in counts}
    assert values(assign(FORMS, {"MT": "3"})) == {**values(FORMS), "MT": "3"}
    assert mistake(FORMS) is None


NEEDS = f"""{FORMS}// needs: amx_bf16 if FORM == amx
// needs: avx512f if PACK == 1 and FORM == dot
// needs: sve if FORM == lacking
"""


def test_values_that_need_an_instruction_set_are_left_to_the_cpus_that_have_it() -> None:
    dot, packed = {"FORM": "dot", "PACK": "0"}, {"FORM": "dot", "PACK": "1", "GROUP": "1"}
    kernel = Kernel("cpp", {"k.cpp": assign(NEEDS, {"FORM": "naive"})})
    for features, out in (
        ((), []),
        (("fma",), ["amx", packed]),
        (("avx512f",), ["amx"]),
        (("avx512f", "amx_bf16"), []),
    ):
        judged = Evaluation(Verdict.UNTIMED, "", None, (), Evidence(features=features))
        seed = Trial("00001", Origin.SEED, kernel=kernel, evaluation=judged)
        around = space(kernel, (FamilyMember(seed, kernel, values(NEEDS), {}, 1.0),))
        assert around.ruled_out({"FORM": "amx", "PACK": "0", "MT": "1"}) is ("amx" in out)
        assert around.ruled_out(packed) is (packed in out)
        assert not around.ruled_out(dot)
    assert [feature for feature, _ in needs(NEEDS)] == ["amx_bf16", "avx512f"]
    assert mistake(NEEDS) == (8, "// needs: sve if FORM == lacking", "FORM is never lacking; its values: naive dot amx")


THREADS = """constexpr int THREADS = NUM_THREADS;  // tune: NUM_THREADS 1 2 4 8 | threads: of a team
constexpr int CHUNK = 0;  // tune: 0 4 16 | threads: rows of a turn | if THREADS != 1
constexpr int T = 8;      // tune: 8 16 | block: threads of a block
"""


@pytest.mark.parametrize(
    ("cores", "threads", "chunk"),
    [(1, "NUM_THREADS", "0"), (2, "NUM_THREADS 1", "0 4 16"), (8, "NUM_THREADS 1 2 4", "0 4 16")],
)
def test_threads_have_the_options_that_fit_the_cores(cores: int, threads: str, chunk: str) -> None:
    found = {t.name: " ".join(t.options) for t in for_cores(tunables(THREADS), cores)}
    assert found == {"THREADS": threads, "CHUNK": chunk, "T": "8 16"}
    assert for_cores(tunables(FORMS), cores) == tunables(FORMS)


@pytest.mark.parametrize("file", sorted(SEEDS.rglob("*.*")), ids=lambda file: str(file.relative_to(SEEDS)))
def test_no_shipped_seed_has_a_line_that_cannot_be_read(file: Path) -> None:
    assert mistake(text := file.read_text(encoding="utf-8")) is None
    assert {feature for feature, _ in needs(text)} <= {*FEATURES}
    assert text.count("// needs: ") == len(needs(text))


def test_only_the_values_change() -> None:
    changed = assign(TEXT, {"MR": "12", "STAGES": "3", "BLOCK_M": "128", "FORM": "ikj"})
    expected = TEXT.replace("MR = 8", "MR = 12").replace("STAGES 2", "STAGES 3")
    assert changed == expected.replace("= 64 ", "= 128 ").replace("= naive", "= ikj")
    assert assign(TEXT, {}) == TEXT
    assert assign(TEXT.replace("\n", "\r\n"), {"MR": "4"}) == TEXT.replace("MR = 8", "MR = 4").replace("\n", "\r\n")


def test_a_wrong_name_or_value_is_refused() -> None:
    with pytest.raises(ValueError, match="no tunable NR; declared: MR, STAGES, BLOCK_M, FORM"):
        assign(TEXT, {"NR": "4"})
    with pytest.raises(ValueError, match="MR can be 4 6 8 12, not 5"):
        assign(TEXT, {"MR": "5"})


def test_a_value_outside_its_list_is_an_option() -> None:
    assert tunables("A = 7  # tune: 1 2")[0].options == ("7", "1", "2")


@pytest.mark.parametrize(
    "line", [" " * 60_000 + "tune:", " = a" * 20_000 + " // tune: 1", "# define " * 9_000 + "A 1 // tune: 1"]
)
def test_hostile_text_costs_no_time(line: str) -> None:
    started = time.process_time()
    assert values(line + "\n" + TEXT)["MR"] == "8"
    assert time.process_time() - started < 5


LAUNCHED = """# require: STAGES * BM <= 256
# require: BM <= m
# launch: gemm [cdiv(m, BM)] warps 4 stages STAGES (a, m, BM=BM)
BM = 64  # tune: 32 64 128
STAGES = 2  # tune: 2 3 4
WIDTH: tl.constexpr = 0x10
"""


def test_some_cases_get_other_values_in_lines_of_their_own() -> None:
    small = assign(LAUNCHED, {"dispatch: if m <= 64": "BM=32 STAGES=4", "STAGES": "3"})
    assert "# dispatch: if m <= 64: BM=32 STAGES=4\n# launch:" in small
    assert dispatches(small) == {"m <= 64": {"BM": "32", "STAGES": "4"}}
    assert values(small) == {"BM": "64", "STAGES": "3"}
    assert "dispatch: if m <= 64: BM=32" in assign(small, {"BM": "128"})
    both = assign(small, {"dispatch: if m <= 64": "BM=128", "dispatch: if m > 64 and k > 512": "STAGES=4"})
    assert list(dispatches(both).items()) == [("m <= 64", {"BM": "128"}), ("m > 64 and k > 512", {"STAGES": "4"})]
    assert assign(both, dict.fromkeys(("dispatch: if m <= 64", "dispatch: if m > 64 and k > 512"), "")) == assign(
        LAUNCHED, {"STAGES": "3"}
    )


@pytest.mark.parametrize(
    ("text", "line", "pairs", "reason"),
    [
        (LAUNCHED, "m <= 64", "BN=32", "no tunable BN; declared: BM, STAGES"),
        (LAUNCHED, "m <= 64", "BM=33", "BM can be 32 64 128, not 33"),
        (LAUNCHED, "m <= 64", "BM", "'BM' is not NAME=VALUE"),
        (LAUNCHED, "open(m)", "BM=32", "not allowed"),
        (TEXT, "m <= 64", "MR=4", "dispatch lines need launch lines"),
    ],
)
def test_a_line_that_says_nothing_is_refused(text: str, line: str, pairs: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        assign(text, {f"dispatch: if {line}": pairs})


def test_lines_that_cannot_be_read_are_none() -> None:
    assert dispatches(LAUNCHED + "# dispatch: if m: BM\n# dispatch: BM=1\n") == {}


def test_a_require_line_rules_values_out_unless_it_depends_on_the_case() -> None:
    rules, known = requires(LAUNCHED), constants(LAUNCHED)
    assert known == {"BM": 64, "STAGES": 2, "WIDTH": 16}
    assert not ruled_out(rules, known, {"BM": "128", "STAGES": "2"})
    assert ruled_out(rules, known, {"BM": "128", "STAGES": "3"})


@pytest.mark.parametrize("line", ["# launch:" + " " * 60_000 + "x", "# dispatch: if" + " m" * 30_000, "# " * 30_000])
def test_hostile_lines_cost_no_time(line: str) -> None:
    started = time.process_time()
    assert dispatches(line + "\n" + LAUNCHED) == {}
    assert constants(line + "\n" + LAUNCHED)["BM"] == 64
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("FORM == amx", "no tunable FORM is declared above; those are: B"),
        ("B == 7", "B is never 7; its values: 1 2"),
        ("B = 1", "`if B = 1` is no condition: write"),
        ("B == 1 or B == 2 and B != 1", "is no condition: write"),
        ("", "is no condition: write"),
    ],
)
def test_a_condition_on_nothing_is_an_error_with_its_place(tmp_path: Path, condition: str, reason: str) -> None:
    file = tmp_path / "mine.cpp"
    text = f"int B = 1;  // tune: 1 2\nint A = 3;  // tune: 3 4 | tile: rows | if {condition}\n"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        kernel_file(str(file))
    assert str(caught.value).startswith(f"{file}:2: `int A")
    assert reason in str(caught.value)
    assert effective_values(tunables(text), values(text)) == {"B": "1", "A": "3"}  # from a model: it counts always


@pytest.mark.parametrize(
    "line",
    [
        "int A = 3;  // tune 16 32 64",
        "#define A 3  // tune:",
        "int A = f(x);  // tune: 1 2",
        "int A = 3, B = 4;  // tune: 3 4 |",
        "int A = 3;  // tune a b |",
        "constexpr Form FORM = naive;  // tune naive ikj",
        "#define FORM naive  // tune ikj naive | form: how often a value is loaded",
    ],
)
def test_a_tune_line_that_declares_nothing_is_an_error_with_its_place(tmp_path: Path, line: str) -> None:
    file = tmp_path / "mine.cpp"
    file.write_text(
        f"int B = 1;  // tune: 1 2\n// tune this later\nint C = 2;  // tune the loop later\n{line}\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=r"mine\.cpp:4: .*declares no values: write"):
        kernel_file(str(file))
