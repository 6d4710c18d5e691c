"""The command `probe` through the judge's boxes, and what claims come to."""

from dataclasses import replace
from pathlib import Path

import pytest

from ksflow.cli import probe as verb
from ksflow.cli.probe import ask, settle
from ksflow.errors import ConfigError
from ksflow.evaluation.judge.bench import Bench
from ksflow.kernels.hardware.target import detect, from_data_sheet, label
from ksflow.notes import figures, knowledge, probes
from ksflow.notes.probes import Figure, Probe
from ksflow.records import Evaluation, Kernel, Note, Status, Target, Timing, Verdict
from ksflow.stages.prober.ready import Ready

LOOP = """#include <cstdint>
extern "C" void custom_kernel(const float *x, float *y, int64_t n, int64_t turns, const int64_t *) {
  float sum = 0;
  for (int64_t turn = 0; turn < turns; ++turn) sum += x[0];
  y[0] = sum;
}
"""
VALUES = """#include <cstdint>
extern "C" void custom_kernel(const float *x, int32_t *y, int64_t n, int64_t turns, const int64_t *) {
  y[0] = 30, y[1] = 12;
}
"""


@pytest.fixture(scope="module")
def bench():
    made = Bench(detect())
    yield made
    made.close()


def probe(code: str = LOOP, **changes) -> Probe:
    given = Probe(
        name="adding",
        title="Adding",
        question="How long does an addition take?",
        form="loop",
        kernel=Kernel("cpp", {"adding.cpp": code}),
        cases={"chain": {"n": 1, "turns": 20000}},
        figures={"each": Figure("us * 1000 / turns", "ns")},
        text="An addition takes {each}.",
        keywords=("addition latency",),
    )
    return replace(given, **changes)


def only(answers):
    (answer,) = answers
    return answer


@pytest.mark.slow
def test_an_answer_becomes_a_note_with_its_program_and_is_known_the_next_time(bench, tmp_path):
    answer = only(ask((probe(),), bench, tmp_path))
    assert answer.state == "measured"
    (note,) = (knowledge.read_note(file) for file in tmp_path.glob("*.md") if file.name != "index.md")
    assert note == answer.note
    assert note.status is Status.MEASURED
    assert note.text.startswith("An addition takes ")
    assert note.sources[0].startswith(f"probe adding on {bench.target.chip}")
    assert (tmp_path / note.program).read_text() == LOOP
    assert only(ask((probe(),), bench, tmp_path)).state == "known"
    named = Bench(detect("cpu"))
    assert only(ask((probe(),), named, tmp_path)).state == "known"
    named.close()
    assert only(ask((probe(LOOP + "// new\n"),), bench, tmp_path)).state == "measured"


def test_a_gpu_that_was_found_has_the_name_of_its_data_sheet_in_notes():
    found = from_data_sheet("auto", "NVIDIA H200", "sm_90a", {})
    assert label(found) == "h200"
    assert label(from_data_sheet("auto", "NVIDIA Unheard 5", "sm_89", {})) == "sm_89"
    assert label(replace(found, name="mine")) == "mine"


def test_a_loop_that_the_compiler_left_out_is_no_answer(bench, tmp_path):
    answer = only(ask((probe(LOOP.replace("turn < turns", "turn < 1")),), bench, tmp_path))
    assert answer.state == "failed"
    assert "the loop was not done" in answer.line
    assert not list(tmp_path.iterdir())


def test_values_come_back_as_evidence_without_a_time(bench, tmp_path):
    figures = {"ratio": Figure("y0 / y1", "cycles")}
    asked = probe(
        VALUES, form="values", figures=figures, text="{ratio}.", cases={"one": {"n": 1, "turns": 1, "out": 2}}
    )
    assert only(ask((asked,), bench, tmp_path)).line == "2.5 cycles."


def test_an_output_that_nobody_wrote_is_no_answer(bench, tmp_path):
    asked = probe(VALUES, form="values", figures={"one": Figure("y2", "")}, text="{one}")
    asked = replace(asked, cases={"one": {"n": 1, "turns": 1, "out": 3}})
    assert "was not written" in only(ask((asked,), bench, tmp_path)).line


def test_large_outputs_are_not_shown(bench):
    code = """#include <cstdint>
    extern "C" void custom_kernel(const float *x, int32_t *y, int64_t n, int64_t turns, const int64_t *) {
      for (int i = 0; i < turns; ++i) y[i] = i;
    }"""
    cases = {"few": {"n": 1, "turns": 4096, "out": 4096}, "many": {"n": 1, "turns": 4097, "out": 4097}}
    asked = probe(code, form="places", figures={}, cases=cases)
    shown = figures.outputs(bench(asked.problem, asked.kernel))
    assert shown == {"few": list(range(4096)), "many": []}


@pytest.mark.parametrize("name", ["clock", "store-forward"])
def test_shipped_probes_answer_here(bench, tmp_path, name):
    one = next(one for one in probes.shipped_probes() if one.name == name)
    if one.lacks(bench.target):
        pytest.skip(one.lacks(bench.target))
    found = only(ask((one,), bench, tmp_path))
    assert found.state == "measured", found


def test_what_the_chip_lacks_is_skipped_with_the_reason(tmp_path):
    bench = Bench(Target("old", "cpu", "Old CPU", features=("sse4_2",)))
    amx = next(one for one in probes.shipped_probes() if one.name == "amx")
    answer = only(ask((amx,), bench, tmp_path))
    assert (answer.state, answer.line) == ("skipped", "Old CPU has no amx_bf16")


@pytest.mark.slow
def test_the_layout_of_mfma_is_right_in_the_emulator_and_waits_for_the_chip(tmp_path):
    bench = Bench(from_data_sheet("mi300x", "AMD Instinct MI300X", "gfx942", {}))
    one = next(one for one in probes.shipped_probes() if one.name == "mfma-layout")
    answer = only(ask((one,), bench, tmp_path))
    assert (answer.state, answer.line) == ("waits", "for the chip; right in the emulator")
    assert not list(tmp_path.iterdir())
    shown = figures.outputs(bench(one.problem, one.kernel))["one wave"]
    assert shown[:5] == [0, 16, 32, 48, 1]


def test_every_shipped_probe_can_be_asked_and_has_words():
    assert {one.kernel.language for one in probes.shipped_probes()} == {"cpp", "cuda", "hip"}
    assert len({one.name for one in probes.shipped_probes()}) == len(probes.shipped_probes())
    for one in probes.shipped_probes():
        assert one.keywords, one.name


def test_a_figure_above_the_data_sheet_is_flagged():
    asked = probe(figures={"rate": Figure("n / us", "TB/s", peak="bytes")}, cases={"one": {"n": 10, "turns": 1}})
    asked = replace(asked, text="It reads {rate}.")
    said = Evaluation(Verdict.ACCEPT, "", 2.0, (Timing("one", 2.0, (2.0, 2.0)),))
    low, high = (figures.note(asked, said, Target("x", "gpu", "X", peaks={"bytes": peak})) for peak in (4e12, 6e12))
    assert low.text == "It reads 5 TB/s. NOTE: 5 TB/s is more than the data sheet's 4: doubt it."
    assert high.text == "It reads 5 TB/s."


def test_a_claim_is_settled_by_a_probe_that_measures_its_figure(bench, tmp_path, monkeypatch):
    bench(probe().problem, probe().kernel)  # has measured the machine, with the shipped probes
    monkeypatch.setattr(probes, "shipped_probes", lambda: (probe(),))
    claim = "The addition latency is 1 ms."
    doubted = Note("Additions", claim, ("a book",), challenge="really?")
    found = settle(doubted, Ready(bench), probe().problem, (), tmp_path)
    assert found is not None
    assert found.status is Status.REFUTED
    assert found.text.startswith(claim)
    assert not found.challenge
    assert found.sources[0] == "a book"
    assert found.sources[1].startswith("probe adding on ")
    for other in ("Cheese is old.", "The addition latency is short.", "An addition is exact. Latency is 3 ns."):
        assert settle(replace(doubted, text=other), Ready(bench), probe().problem, (), tmp_path) is None
    for target, settled in (("h100", False), (label(bench.target), True)):
        told = settle(replace(doubted, targets=(target,)), Ready(bench), probe().problem, (), tmp_path)
        assert bool(told) is settled, "what another chip does is not measured here"


@pytest.mark.parametrize(
    ("claim", "wrong"),
    [
        ("L2 latency 210 ns; main memory 600 ns.", ""),
        ("L2 latency is 210 ns, main memory takes 600 ns.", ""),
        ("Main memory takes 600 ns, 0.21 µs is the latency of L2.", ""),
        ("L2: 210 ns. Main memory: 600 ns.", ""),
        ("L2 latency 600 ns; a launch takes 210 ns.", "600 ns"),
        ("A load takes 600 ns, or 700 ns.", "600 ns"),
        ("L2 latency is 2.1 µs, a clock is 1.7 GHz.", "2.1 µs"),
    ],
)
def test_what_a_note_says_of_other_things_does_not_refute_it(claim, wrong):
    asked = probe(keywords=("l2 latency",))
    assert figures.find_contradiction(claim, "A load from L2 takes 212 ns (208 to 216).", asked, 2) == wrong


def test_a_broken_probe_names_its_file(tmp_path):
    file = Path(tmp_path, "odd.yaml")
    file.write_text("title: x\nquestion: y\nform: loop\ncases: {a: {n: 1}}\ntext: '{no}'\n")
    Path(tmp_path, "odd.cpp").write_text(LOOP)
    with pytest.raises(ConfigError, match=r"odd.yaml is not a probe .*lacks n or turns"):
        probes.read_probe(file)


def test_a_mistyped_again_is_not_ignored():
    with pytest.raises(ConfigError, match="again=yes; valid: true, false"):
        verb.probe(["fma"], ["again=yes"])
