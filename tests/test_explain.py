"""What a kernel is told to do: facts from source and compiler alone, kept on its branch, never a verdict's matter."""

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import accepted, draft, kernel, over, plant, rejected
from test_cli import ksflow

from ksflow.cli.explain import explain
from ksflow.kernels.source import features
from ksflow.kernels.source.flags import TUNABLE_FLAGS
from ksflow.lineage import Lineage
from ksflow.lineage.history import RecordedRun
from ksflow.lineage.rounds import RunReader
from ksflow.records import Call, CompiledKernel, Evaluation, Explanation, Feature, Kernel, Presence, Statement, Trial
from ksflow.report import explanation

WGMMA = """#include <cuda_bf16.h>
// launch: gemm [m / 64] [128] shared STAGES * 4096 (a, b, c)
extern "C" __global__ void gemm(const unsigned char *a, const float *a_scale, float *c) {
  extern __shared__ float tile[];
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%0}, %1, %2, p, 1, 1;" : "+f"(c[0]));
  c[threadIdx.x ^ 3] = tile[0] * a_scale[0];
}
"""


def found(
    text: str, name: str = "k.cu", language: str = "cuda", verdict: Evaluation | None = None
) -> dict[str, Feature]:
    return {one.name: one for one in features.features(Kernel(language, {name: text}), verdict)}


def compiled(*rows: CompiledKernel) -> Evaluation:
    return accepted(1.0).with_evidence(compiler=rows)


def test_inline_assembly_and_code_show_features_with_their_lines() -> None:
    told = found(WGMMA)
    for name in ("matrix cores", "accumulation in fp32", "reduced precision"):
        assert told[name].state is Presence.PRESENT
        assert told[name].evidence[0].startswith("k.cu:5: asm volatile(")
    assert told["swizzle"].evidence == ("k.cu:6: c[threadIdx.x ^ 3] = tile[0] * a_scale[0];",)
    assert told["scaling"].state is Presence.PRESENT
    assert told["tile and block layout"].evidence[0].startswith("k.cu:2: // launch: gemm")
    assert told["clusters"].state is Presence.ABSENT
    assert told["pipelining"] == Feature("pipelining", Presence.UNKNOWN, ("neither source nor compiler tells",))


@pytest.mark.parametrize(
    "line",
    [
        "// wgmma.mma_async",
        "/* wgmma.mma_async\n wgmma.mma_async */",
        'const char *s = "wgmma.mma_async";',
        'const char *s = R"x(wgmma.mma_async)x";',
        'asm volatile("mov.u32 %0, 1; // wgmma.mma_async" : "=r"(x));',
        'asm volatile("mov.u32 %0, 1; /* wgmma.mma_async */" : "=r"(x)); const char *s = "wgmma.mma_async";',
        'f("asm"); g("wgmma.mma_async");',
    ],
)
def test_a_comment_or_a_string_shows_nothing(line: str) -> None:
    assert found(f"__global__ void f() {{\n{line}\n}}\n")["matrix cores"].state is Presence.ABSENT
    python = '"""tl.dot, tl.bfloat16"""\nx = \'tl.dot\'  # tl.dot, tl.bfloat16\n'
    told = found(python, "k.py", "triton")
    assert told["matrix cores"].evidence == ("neither source nor compiler tells",)
    assert told["reduced precision"].state is Presence.UNKNOWN


def test_what_may_not_be_compiled_is_unknown() -> None:
    shared = "__shared__ float tile[64];"
    assert found(shared)["shared memory"].state is Presence.PRESENT
    assert found(f"#ifdef X\n{shared}\n#endif")["shared memory"].state is Presence.UNKNOWN
    form = found(f"constexpr int FORM = 1;  // tune: 0 1 | form: with a tile\nif (FORM) {{ {shared} }}")[
        "shared memory"
    ]
    assert (form.state, form.evidence[-1]) == (Presence.UNKNOWN, "FORM = 1 chooses what is compiled")
    assert found("int x;")["shared memory"].state is Presence.ABSENT
    assert found('#include "other.cuh"\nint x;')["shared memory"].state is Presence.UNKNOWN
    assert found(f"int x; {' ' * 2000} {shared}")["shared memory"].state is Presence.UNKNOWN


def test_the_compilers_report_decides_where_there_is_one() -> None:
    row = CompiledKernel(kernel="gemm", instructions={"QGMMA": 32, "LDGSTS": 2}, shared_bytes=1024, spill_bytes=0)
    told = found("tl.dot(a, b)", "k.py", "triton", compiled(row))
    assert told["matrix cores"].evidence[0] == "compiler: gemm: 32 QGMMA"
    assert [told[name].state.value for name in ("matrix cores", "shared memory", "register spills")] == [
        *("present", "present", "absent")
    ]
    plain = CompiledKernel(kernel="gemm", instructions={"LDGSTS": 2}, shared_bytes=0, spill_bytes=8)
    told = found("tl.dot(a, b)", "k.py", "triton", compiled(plain))
    assert [told[name].state.value for name in ("matrix cores", "shared memory", "register spills")] == [
        *("absent", "absent", "present")
    ]
    bulk = found('asm("cp.async.bulk.shared [%0], [%1];");', verdict=compiled(replace(plain, instructions={"STL": 1})))
    assert bulk["asynchronous copies"].state is Presence.PRESENT  # the report does not count these
    assert found(WGMMA, verdict=compiled(plain))["shared memory"].state is Presence.PRESENT  # it is launched with some
    assert found("tl.dot(a, b)", "k.py", "triton", compiled(row, plain))["matrix cores"].state is Presence.PRESENT


def test_other_languages_have_features_of_their_own() -> None:
    simd = found("#include <immintrin.h>\n__m512 v = _mm512_loadu_ps(x);\n#pragma omp parallel for\n", "k.cpp", "cpp")
    assert [simd[name].state.value for name in ("SIMD", "vector accesses", "threads", "library calls")] == [
        *("present", "present", "present", "absent")
    ]
    assert "warp shuffles" not in simd
    hip = found("auto c = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a, b, c, 0, 0, 0);", "k.hip", "hip")
    assert hip["matrix cores"].state is hip["accumulation in fp32"].state is Presence.PRESENT
    library = found("import torch\ny = torch.matmul(a, b)\n", "k.py", "python")
    assert library["library calls"].state is Presence.PRESENT
    assert library["matrix cores"].evidence[-1] == "what compiles it decides"
    tile = found("a = tl.load(p)\nacc = tl.zeros((64, 64), dtype=tl.float32)\n", "k.py", "triton")
    assert tile["accumulation in fp32"].state is Presence.PRESENT


def test_tunables_say_what_a_kernel_does() -> None:
    text = "constexpr int F = {}; // tune: scalar vector | form\nconstexpr int VL = {}; // tune: 1 64 | vector\n"
    unrolled = "constexpr int U = {}; // tune: 1 4 | unroll: rows\n"
    for form, width, state in (
        ("vector", 64, "present"),
        ("scalar", 64, "absent"),
        ("1", 64, "present"),
        ("1", 1, "absent"),
    ):
        assert found(text.format(form, width), "k.cpp", "cpp")["SIMD"].state.value == state
    for times, state in ((4, "present"), (1, "absent")):
        told = found(unrolled.format(times), "k.cpp", "cpp")["unrolling"]
        assert (told.state.value, told.evidence[0]) == (state, f"U = {times} (rows)")
    for asked, state in (("1", "present"), ("0", "unknown")):
        flagged = (TUNABLE_FLAGS + "int x;\n").replace("FLAG_UNROLL = 0", f"FLAG_UNROLL = {asked}")
        told = found(flagged, "k.cpp", "cpp")
        assert told["unrolling"].state.value == state
        assert ("compiled with -funroll-loops" in told["unrolling"].evidence) is (asked == "1")
        assert told["SIMD"].state is Presence.UNKNOWN  # FLAG_LOOPS = 1: where the compiler expects a gain


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["[", "((a^", "scale*", "launch: ", "asm(", "/*", '"', "__shared__[", "float2*("])
def test_hostile_text_is_read_in_no_time(piece: str) -> None:
    start = time.monotonic()
    text = f"{piece * 100}\n" * (50_000 // len(piece) // 100)
    for language in ("cuda", "triton", "cpp"):
        found(text, language=language)
    assert time.monotonic() - start < 60


def facts(trial: Trial) -> Explanation:
    assert trial.kernel
    return Explanation(trial.kernel.digest, features.reader(), features.features(trial.kernel, trial.evaluation))


def test_an_explanation_is_kept_and_says_nothing_of_the_verdict(lineage: Lineage) -> None:
    first, second = plant(lineage, "int x;\n", 5.0), plant(lineage, "int y;\n", 4.0)
    before, key = lineage.population(), RunReader(lineage.store, "toy", "main").read().trials(None)
    assert lineage.explanation(first.id) is None
    lineage.explain(first, facts(first))
    assert lineage.explanation(first.id) == facts(first)
    assert lineage.explanation(second.id) is None
    reopened = Lineage(lineage.store.path, "toy", clock=lambda: 1_700_000_999)
    assert reopened.population() == before
    assert RunReader(reopened.store, "toy", "main").read().trials(None) == key
    reopened.explain(first, facts(first))
    reopened.evaluate(replace(first, evaluation=rejected()))
    verdict = reopened.commit_of(first.id)
    reopened.explain(first, replace(facts(first), reader="another"))
    assert reopened.commit_of(first.id) == verdict  # which others cite, and are made from
    reopened.evaluate(replace(first, evaluation=rejected()))
    assert reopened.explanation(first.id) == replace(
        facts(first), reader="another"
    )  # a later verdict leaves it where it is
    assert reopened.population().by_id[first.id].verdict == "reject-incorrect"
    child = replace(draft(first.id), kernel=kernel("int z;\n"))
    (child,) = reopened.dispatch([child])
    reopened.write(child)
    assert reopened.store.header(reopened.commit_of(child.id)).parents == (reopened.commit_of(first.id),)
    reopened.close()


def test_an_approved_kernel_stays_approved(lineage: Lineage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A Person")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "person@example.org")
    trial = plant(lineage, "int x;\n", 5.0)
    lineage.explain(trial, facts(trial))
    lineage.approve(trial, "read it")
    lineage.explain(trial, replace(facts(trial), reader="another"))
    assert lineage.approvals()[trial.id].current


def test_an_old_machines_explained_trial_does_not_become_the_newest_verdict(lineage: Lineage) -> None:
    old, new = plant(lineage, "int x;\n", 5.0), plant(lineage, "int y;\n", 4.0)
    lineage.evaluate(replace(new, evaluation=replace(accepted(4.0), target="new machine")))
    later = Lineage(lineage.store.path, "toy", clock=lambda: 1_800_000_000)
    later.explain(old, facts(old))
    later.expect_as_recorded()
    assert [trial.id for trial in later.population().trials] == [new.id]
    later.close()


def test_a_replay_finds_what_a_command_asked_a_model_and_no_step_is_an_explanation(lineage: Lineage) -> None:
    lineage.open_session("arguments: []")
    trial = plant(lineage, "int x;\n", 5.0)
    later = Lineage(lineage.store.path, "toy", clock=lambda: 1_700_000_999)
    later.record(Call("explainer=llm", "a model", ({"role": "user", "content": "?"},), "It adds."))
    later.population()
    later.explain(trial, facts(trial))
    later.close()
    past = RecordedRun(lambda: Lineage(lineage.store.path, "toy", create=False), "main")
    assert [call.answer for call in past.calls()] == ["It adds."]
    assert len(past.evaluations()) == 1
    past.open(1)
    assert past.calls() == ()


def test_words_that_contradict_the_facts_are_marked_and_steer_no_terminal() -> None:
    said = Statement("It uses \x1b[31mtensor\ncores", ("k.cu:5-6",), "matrix cores", Presence.PRESENT)
    fact = Feature("matrix cores", Presence.ABSENT, ("nothing in the source asks for it",))
    text = explanation.explanation_lines(Explanation("d", "r", (fact,), "a model", "Fast.", (said,)))
    assert text[-1] == "- It uses �[31mtensor cores [k.cu:5-6] CONTRADICTS THE FACTS: matrix cores is absent."


def test_features_of_which_nothing_is_seen_are_one_line_with_the_reason() -> None:
    why = "neither source nor compiler tells"
    unseen = [Feature(name, Presence.UNKNOWN, (why,)) for name in ("swizzle", "reduced precision")]
    seen = Feature("packing", Presence.UNKNOWN, ("k.cpp:7: pack(x);", "that alone is no proof"))
    lines = explanation.explanation_lines(Explanation("d", "r", (unseen[0], seen, unseen[1])))
    assert lines == [
        "packing                  unknown  k.cpp:7: pack(x);; that alone is no proof",
        f"unknown whether it has swizzle, reduced precision: {why}",
    ]


@pytest.mark.slow
def test_the_command_explains_the_winner_and_shows_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str) -> str:
        assert explain([*words], ["problem=softmax", *more]) == 0
        return capsys.readouterr().out

    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    lineage = Lineage(tmp_path / "runs/lineage.git", "softmax")
    plant(lineage, "int x;\n", 5.0)
    best = plant(lineage, "#include <immintrin.h>\nauto v = _mm256_loadu_ps(x);\n", 1.0)
    lineage.evaluate(replace(best, evaluation=over("00001", 5.0, 1.0)))
    commit = lineage.commit_of(best.id)
    more: tuple[str, ...] = ()
    plain = told()
    assert plain.startswith(f"softmax/main/{best.id}, cpp, accept\n")
    assert "vector accesses          present  kernel.cpp:2: auto v = _mm256_loadu_ps(x);\n" in plain
    more = ("llm=dummy",)
    described = told("best")
    assert re.match(rf"softmax/main/{best.id}, cpp, accept; \d+ tokens\n", described)
    assert "- Dummy: the kernel begins here. [kernel.cpp:1]\n" in described
    more = ()
    again = told(best.id)  # what was paid for, whoever asks
    assert again.split("\n", 1)[0].endswith("as kept before")
    assert again.split("\n")[1:] == described.split("\n")[1:]
    lineage.population()
    first, second = lineage.store.list_ancestors(lineage.store.ref(f"refs/heads/softmax/main/{best.id}") or "", commit)[
        ::-1
    ]
    assert lineage.store.header(first).parents == (commit,)
    assert lineage.store.header(second).text.startswith(f"{best.id} explained: ")
    assert (lineage.total_cost().calls, lineage.commit_of(best.id)) == (1, commit)
    lineage.close()


@pytest.mark.slow
def test_what_a_model_may_cost_is_the_runs_budget_and_a_mistake_is_one_line(tmp_path: Path) -> None:
    lineage = Lineage(tmp_path / "runs/lineage.git", "softmax")
    seed = plant(lineage, "int x;\n", 5.0)
    lineage.close()
    refused = ksflow(tmp_path, "explain", "problem=softmax", "llm=dummy", "loop.tokens=10")
    assert refused.returncode == 2
    assert "matrix cores             absent" in refused.stdout  # facts cost nothing
    assert refused.stderr == "ksflow: tokens=10 used up; the facts are kept, a model's words take a higher limit\n"
    shown = ksflow(tmp_path, "lineage", "show", seed.id, "problem=softmax").stdout
    assert "\nexplanation\n  matrix cores             absent" in shown
    wrong = ksflow(tmp_path, "explain", "99", "problem=softmax")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
