"""The model's notes: what is read, what is refused and why, what becomes of old notes and of failures."""

import json
import re
from dataclasses import replace

import pytest
from conftest import paired

from ksflow.errors import ConfigError, StageError
from ksflow.lm.prompts.brief import count
from ksflow.notes.document_claims import TEXT, claims
from ksflow.notes.documents import Progress, Unread, locate
from ksflow.records import (
    Document,
    Evaluation,
    Material,
    Note,
    Passage,
    ProfilePage,
    Status,
    Target,
    Verdict,
)
from ksflow.stages.digester.llm import LlmDigester
from lm.scripted import dummy, scripted
from lm.server import Reply

CHIP = Target("h100", "gpu", "NVIDIA H100", march="sm_90a")
ISA = Document(
    "isa.md",
    (
        Passage("Waits", "The matrix unit needs five wait states before its result is read by a store."),
        Passage("Waits > Table", "A load from shared memory takes 33 cycles when banks do not conflict."),
    ),
)
WAITS = {
    "title": "Wait five states after the matrix unit",
    "text": "A store of a result waits five states [1].\n\n- Loads take 33 cycles [2].",
    "sources": ["isa.md, Waits", "isa.md, Waits > Table"],
    "quotes": ["needs five wait states", "takes 33 cycles when\nbanks do not conflict"],
    "status": "documented",
}
LESSON = {
    "title": "Unrolling gains on large shapes",
    "text": "Unrolling by 4 doubled the speed [1].",
    "sources": ["00002"],
    "quotes": [""],
    "status": "measured",
}


def answered(*notes):
    return f"[[ ## notes ## ]]\n{json.dumps(list(notes))}\n[[ ## completed ## ]]"


def saying(*notes):
    return scripted(lambda good: answered(*notes))


def digest(problem, model, material, **settings):
    return LlmDigester(model, target=CHIP, **settings)(problem, material)


def test_a_note_keeps_its_claims_their_sources_and_their_words(problem):
    (note,) = digest(problem, saying(WAITS), Material((ISA,)))
    assert note.sources == ("isa.md, Waits", "isa.md, Waits > Table")
    assert note.status is Status.DOCUMENTED
    assert (note.targets, note.problems) == ((), ())
    assert all(locate([ISA], *pair) for pair in zip(note.sources, note.quotes, strict=True))


def test_a_source_is_kept_as_it_was_shown(problem):
    (note,) = digest(problem, saying(WAITS | {"sources": ["isa.md", "isa.md"]}), Material((ISA,)))
    assert note.sources == ("isa.md, Waits", "isa.md, Waits > Table")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sources": ["isa.md, Waits", "the web"]}, "'the web'.* is neither a passage that you were shown nor a trial"),
        ({"sources": ["isa.md, Waits", "00002"]}, "neither a passage"),
        ({"quotes": ["needs six wait states", "takes 33 cycles"]}, "'needs six wait states' does not stand there"),
        ({"quotes": ["takes 33 cycles", "takes 33 cycles"]}, "source 1 .* does not stand there"),
        ({"quotes": ["wait states", "takes 33 cycles"]}, "too short; quote at least 3 words"),
        ({"quotes": ["needs five wait states"]}, "1 quotes for 2 sources"),
        ({"quotes": ["", ""]}, "too short"),
        ({"sources": [], "quotes": []}, "at least one source"),
        ({"text": "A store waits [1]. Loads take 33 cycles."}, "without a source marker .*'Loads take 33 cycles.'"),
        ({"text": "- A store waits [1]\n- Loads take 33 cycles"}, "without a source marker .*'Loads take 33 cycles'"),
        ({"text": "A store waits [1]. Loads take 33 cycles [3]."}, r"marker \[3\] has no source; there are 2"),
        ({"text": "A store waits [1]. " * (TEXT // 18)}, "at most 120 and 1600"),
        ({"text": ""}, "title, text"),
        ({"status": "measured"}, "names the trials"),
        ({"targets": ["h1000"]}, "no target 'h1000'; leave targets empty for all, or: .*h100, .*mi300x"),
        ({"challenge": "why"}, "not yours to set"),
        ({"closes": ["00002"]}, "only a measured note"),
    ],
)
def test_a_note_that_does_not_hold_is_refused_and_the_model_told(problem, calls, change, reason):
    with pytest.raises(StageError, match=reason):
        digest(problem, saying(WAITS | change), Material((ISA,)))
    assert len(calls) == 3
    again = calls[1].messages[-1]["content"]
    assert "Your previous answer was refused: " in again
    assert re.search(reason, again)


def test_an_invented_quote_is_mended_by_asking_again(problem, calls):
    answers = [answered(WAITS | {"quotes": ["needs nine wait states", "takes 33 cycles"]}), answered(WAITS)]
    (note,) = digest(problem, scripted(lambda good: answers.pop(0)), Material((ISA,)))
    assert note.quotes[0] == "needs five wait states"
    assert len(calls) == 2


def test_of_an_answer_that_never_holds_the_notes_that_do_are_kept(problem):
    bad = WAITS | {"title": "Invented", "quotes": ["needs nine wait states", "takes 33 cycles"]}
    assert [note.title for note in digest(problem, saying(WAITS, bad), Material((ISA,)))] == [WAITS["title"]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One [1]. Two is it [2].", []),
        ("It is one. [1] And two. [2]", ["It is one. [1]", "And two. [2]"]),
        ("It takes 3.5 cycles, e.g. Waves do [1]. It ends.", 2),
        ("Use it like this:\n\n```\nint x; // no claim here. None.\n```", []),
        ("# A heading here\n\nA claim is here.", ["A claim is here."]),
        ("| a b | c d |\n|---|---|\n| one two | three [1] |", ["| one two | three [1] |"]),
        ("1. first claim [1]\n2. second claim\n   goes on [2]", ["first claim [1]", "second claim goes on [2]"]),
    ],
)
def test_claims_are_sentences_bullets_and_rows(text, found):
    if isinstance(found, int):
        assert len(claims(text)) == found
    elif found:
        assert claims(text) == found
    else:
        assert all("[" in claim for claim in claims(text))


# -- outcomes ----------------------------------------------------------------------------------------


def test_a_lesson_is_the_runs_own(problem, population):
    (note,) = digest(problem, saying(LESSON), Material((), population))
    assert (note.targets, note.problems, note.sources, note.quotes) == (("h100",), ("toy",), ("00002",), ("",))


def test_the_newest_outcomes_are_told_by_shape_with_counters_and_reasons_and_the_rest_in_a_line(
    problem, population, calls
):
    page = ProfilePage(tool="ncu", page="gemm: 41 us\n  bound by DRAM: 71 % of its peak")
    seed, better, failed = population.trials
    better = replace(better, evaluation=better.evaluation.with_evidence(profile=page))
    known = paired((seed, better, failed))
    digest(problem, saying(), Material((), known))
    shown = calls[-1].messages[-1]["content"]
    assert "| shape | parent 00001 us | this 00002 us | gain |" in shown
    assert "bound by DRAM: 71 %" in shown
    assert f"Attempt 00003 at this experiment: {failed.verdict}" in shown
    many = paired((*known.trials, *(replace(better, id=f"0{n:04}") for n in range(4, 40))))
    digest(problem, saying(), Material((), many), outcomes=4_000)
    shown = calls[-1].messages[-1]["content"].partition("## outcomes ##")[2]
    assert count(shown) < 4_300
    assert all(f"- {trial.id} from" in shown for trial in many.trials[1:])
    assert 1 < shown.count("bound by DRAM") < 37
    assert shown.rindex("bound by DRAM") > shown.index("- 00039 from")


@pytest.fixture
def long(population):
    """Five accepted experiments, each slower than the one before it, and three failures."""
    accepted, failed = population.trials[1], population.trials[2]
    slower = [
        replace(accepted, id=f"0000{n}", evaluation=replace(accepted.evaluation, score_us=15.0 + n)) for n in (4, 5, 6)
    ]
    return paired((*population.trials, *slower, *(replace(failed, id=f"0000{n}") for n in (7, 8))))


def test_a_note_closes_dead_ends_that_it_names(problem, long, calls):
    ends = LESSON | {"text": "It fails [1, 2].", "sources": ["00007", "00008"], "quotes": ["", ""]}
    (note,) = digest(problem, saying(ends | {"closes": ["00007", "00008"]}), Material((), long))
    assert note.closes == ("00007", "00008")
    digest(problem, saying(), Material((), long.prune([note]), (note,)))
    shown = calls[-1].messages[-1]["content"]
    assert "- 00003 from" in shown
    assert "- 00007 from" not in shown


@pytest.mark.parametrize(
    ("closes", "reason"),
    [
        ("00009", "is not the id of an experiment"),
        ("00001", "is not the id of an experiment"),
        ("00002", "is among the fastest"),
        ("00007", "is not among the note's sources"),
    ],
)
def test_what_is_no_dead_end_cannot_be_closed(problem, long, closes, reason):
    with pytest.raises(StageError, match=reason):
        digest(problem, saying(LESSON | {"closes": [closes]}), Material((), long))


def test_a_contradicted_lesson_comes_back_refuted_with_both_trials(problem, population):
    old = Note(LESSON["title"], "It helps [1].", ("00002@0123456789",), ("h100",), Status.MEASURED, ("toy",), ("",))
    one = LESSON | {"status": "refuted"}
    with pytest.raises(StageError, match="a trial that showed it and the later one"):
        digest(problem, saying(one), Material((), population, (old,)))
    both = one | {"sources": ["00002@0123456789", "00003"], "quotes": ["", ""], "text": "It fails [1, 2]."}
    (note,) = digest(problem, saying(both), Material((), population, (old,)))
    assert note.status is Status.REFUTED
    assert note.sources == ("00002@0123456789", "00003")


def test_notes_on_something_else_stay_as_they_are_and_are_not_shown(problem, population, calls):
    others = (
        Note(LESSON["title"], "Of softmax [1].", ("00002",), (), Status.MEASURED, ("softmax",)),
        Note("On another chip", "It is so [1].", ("00002",), ("mi300x",), Status.MEASURED),
    )
    with pytest.raises(StageError, match="another problem or target has this title"):
        digest(problem, saying(LESSON), Material((), population, others))
    other = LESSON | {"title": "Mine"}
    found = digest(problem, saying(other), Material((), population, others))
    assert found[:2] == others
    assert found[2].title == "Mine"
    assert "Of softmax" not in calls[-1].messages[-1]["content"]


def test_an_improved_note_keeps_the_sources_it_had(problem):
    old = Note("Vectors", "AVX [1].", ("manual, 3.1",), quotes=("sixteen zmm registers",))
    better = WAITS | {
        "title": "Vectors",
        "sources": ["manual, 3.1", "isa.md, Waits"],
        "quotes": ["", "needs five wait"],
    }
    (note,) = digest(problem, saying(better), Material((ISA,), notes=(old,)))
    assert note.quotes == ("sixteen zmm registers", "needs five wait")


# -- reading -------------------------------------------------------------------------------------------


def book(pages=300, words=400):
    """Pages of which some bear on the task."""
    filler = " ".join(f"clause{n % 37}" for n in range(words))
    text = "The copy unit moves {0} float32 values of a to c, page {0} says."
    first = {n: text.format(n) if n % 50 == 7 else "Legal text is all there is." for n in range(1, pages + 1)}
    passages = (Passage(f"page {n}, {n // 10} Part {n // 10}", f"{line}\n{filler}") for n, line in first.items())
    return Document("book.pdf", tuple(passages))


def test_it_reads_in_pieces_and_keeps_old_notes(problem, calls):
    old = Note("Vectors", "AVX has sixteen registers.", ("manual, 3.1",))
    long = Passage("B", "so it is\n" + "x" * 700)
    documents = tuple(Document(name, (Passage("", "a b c d"), long)) for name in ("p.md", "q.md"))
    notes = LlmDigester(dummy(), piece_kb=1)(problem, Material(documents, notes=(old,)))
    assert len(calls) == 2
    assert notes[0] == old
    assert {note.sources[0] for note in notes[1:]} == {"p.md", "p.md, B", "q.md", "q.md, B"}
    assert LlmDigester(dummy())(problem, Material(notes=(old,))) == (old,)
    assert len(calls) == 2


def test_what_is_too_long_is_chosen_by_the_model_and_by_its_words(problem, calls):
    heard = []

    def change(good):
        return "[[ ## places ## ]]\n[9]\n[[ ## completed ## ]]" if "## places ##" in good else good

    reader = LlmDigester(scripted(change), tokens=30_000, findings=1000)
    reader.watch = heard.append
    reader(problem, Material((book(),)))
    prompts = ["\n".join(message["content"] for message in call.messages) for call in calls]
    assert "9. book.pdf, page 80, 8 Part 8 to page 89, 8 Part 8 (" in prompts[0]
    shown = [int(number) for prompt in prompts[1:] for number in re.findall(r"source: book.pdf, page (\d+)", prompt)]
    assert shown == sorted(shown)
    assert {7, 57, 107, 157, 207, 257} | set(range(80, 90)) <= set(shown)
    assert sum(len(prompt) for prompt in prompts) / 4 < 30_000
    unread = next(what for what in heard if isinstance(what, Unread))
    assert len(unread.sources) + len(shown) == 300
    assert unread.sources[0].startswith("book.pdf, page ")


def test_what_is_asked_again_counts_towards_the_budget(problem, calls):
    heard, answers = [], iter(range(1000))
    model = scripted(lambda good: good if next(answers) % 3 == 2 else "nonsense")
    reader = LlmDigester(model, piece_kb=20, tokens=30_000, findings=1000)
    reader.watch = heard.append
    reader(problem, Material((book(),)))
    prompts = ["".join(message["content"] for message in call.messages) for call in calls]
    assert sum(map(len, prompts)) / 4 < 30_000
    assert "digester.tokens=30000" in [what.why for what in heard if isinstance(what, Unread)]


def test_without_a_good_choice_the_words_decide(problem):
    heard = []
    model = scripted(lambda good: good.replace("## places ##", "## plaice ##"))
    reader = LlmDigester(model, tokens=30_000, findings=1000)
    reader.watch = heard.append
    reader(problem, Material((book(),)))
    assert heard[0].why.startswith("no places named")
    assert any("page 57," in source for what in heard if isinstance(what, Progress) for source in what.sources)


def test_the_same_documents_give_the_same_prompts(problem, calls):
    for _ in range(2):
        LlmDigester(dummy(), tokens=30_000, findings=1000)(problem, Material((book(),)))
    half = len(calls) // 2
    assert [call.messages for call in calls[:half]] == [call.messages for call in calls[half:]]


def test_too_small_a_budget_names_the_key(problem):
    with pytest.raises(ConfigError, match=r"digester\.tokens=3000 leaves no room"):
        LlmDigester(dummy(), tokens=3000)(problem, Material((book(),)))
    with pytest.raises(ConfigError, match=r"digester\.minutes=0 must be above 0"):
        LlmDigester(dummy(), minutes=0)


@pytest.mark.slow
def test_after_its_time_it_keeps_what_it_has(problem, provider):
    heard = []
    provider.reply = lambda prompt: Reply(fault="stall") if len(provider.requests) > 2 else Reply(quoting(prompt))
    model = provider.model()
    LlmDigester(model)(problem, Material((book(1),)))  # what is imported, is imported before the clock runs
    provider.requests.clear()
    reader = LlmDigester(model, piece_kb=20, tokens=10**6, minutes=0.15)
    reader.watch = heard.append
    notes = reader(problem, Material((book(60),)))
    assert len(notes) == len(provider.requests) - 1
    assert [what.failed for what in heard if getattr(what, "failed", "")] == ["no answer within 9 s"]
    assert heard[-1].why == "digester.minutes=0.15"
    assert len(heard[-1].sources) > 10


def test_a_piece_that_fails_costs_the_others_nothing(problem):
    heard = []
    model = scripted(lambda good: good if "page 7," not in good else "nonsense")
    pages = tuple(Passage(f"page {n}, X", "The copy unit moves values.\n" + "x " * 400) for n in range(1, 12))
    reader = LlmDigester(model, piece_kb=1)
    reader.watch = heard.append
    notes = reader(problem, Material((Document("b.pdf", pages),)))
    assert len(notes) == 10
    assert [what.piece for what in heard if what.failed] == [7]


def test_two_failures_in_a_row_end_the_reading(problem, calls):
    heard = []
    reader = LlmDigester(scripted(lambda good: "nonsense"), piece_kb=1, attempts=1, tokens=10**6)
    reader.watch = heard.append
    reader(problem, Material((book(20),)))
    assert len(calls) == 2
    assert heard[-1].why == "2 pieces in a row gave no notes"
    assert len(heard[-1].sources) == 18


def test_pieces_that_are_done_are_not_read_again(problem, calls):
    heard = []
    reader = LlmDigester(dummy(), piece_kb=20)
    reader.watch = heard.append
    reader(problem, Material((book(20),)))
    before = len(calls)
    reader.done = {what.key for what in heard[:1]}
    reader(problem, Material((book(20),)))
    assert len(calls) == 2 * before - 1
    assert heard[before].skipped


def test_the_prompt_names_the_hardware_and_the_fastest(problem, population, calls):
    digest(problem, dummy(), Material((ISA,), population))
    prompt = calls[0].messages[-1]["content"]
    assert "h100: NVIDIA H100 (gpu, sm_90a)" in prompt
    assert "### source: isa.md, Waits > Table\nA load from" in prompt
    assert "The fastest, which are never closed: 00002, 00001" in prompt


def test_a_stale_or_unknown_trial_is_no_source(problem, population):
    stale = replace(population.trials[1], stale="judge", evaluation=Evaluation(Verdict.CRASH))
    less = paired((population.trials[0], population.trials[2]), (stale,))
    with pytest.raises(StageError, match="neither a passage"):
        digest(problem, saying(LESSON), Material((), less))


def quoting(prompt):
    """What a model that reads says: a note on the first passage it is shown."""
    source, line = re.search(r"^### source: (.+)\n(.+)", prompt, re.MULTILINE).groups()
    note = WAITS | {"title": f"On {source}", "text": "So it is [1].", "sources": [source], "quotes": [line[:200]]}
    return answered(note)
