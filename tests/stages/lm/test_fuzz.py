"""Whatever is done to an answer, a stage gives a valid record or raises StageError, and the adapter says Malformed."""

import json
import random
import time
from functools import partial
from itertools import cycle, islice

import pytest
from pydantic_core import to_jsonable_python

from ksflow.errors import StageError
from ksflow.lm.adapter import KernelAdapter, Malformed
from ksflow.lm.answers import answer
from ksflow.records import Document, Kernel, Material, Note, Passage, Plan, Selection
from ksflow.stages.designer.llm import Design, LlmDesigner
from ksflow.stages.digester.llm import Digest, LlmDigester
from ksflow.stages.selector.llm import LlmSelector, Select
from ksflow.stages.writer.diff import Diff, EditSignature
from ksflow.stages.writer.rewrite import Rewrite, Write
from lm.scripted import scripted

NASTY = (
    "", "\n", "\r\n", "\r", "\0", "\x1b", "\ud800", "\udfff", "\f", "\u2028", "\ufeff", "```", "```json\n", "\n```\n",
    "[[ ## completed ## ]]\n", "[[ ## ", " ## ]]", "[[ ## base_id ## ]]\n", "[[ ## code ## ]]\n",
    "\n[[ ## edits ## ]]\n",
    "<<<<<<< SEARCH\n", "\n=======\n", "\n>>>>>>> REPLACE\n", "\n@@ -1,3 +1,3 @@\n", "\n-", "\n+", "\n ", '"', "'",
    "\\",     "{", "}", "[", "]", ",", ":", "NaN", "Infinity", "-1e400", "1e-400", "null", "true", "{}", "[]", '""',
    "-0", "\\ud800",     "\\u0000", "\\x", "[" * 5000, '{"a":' * 500, "9" * 5000, "x" * 100_000, "🦀", "%s{0}${x}",
)  # fmt: skip


def mangle(text: str, chance: random.Random) -> str:
    """`text` with one to three things done to it: replaced, cut off, lines doubled, swapped, lost, a part repeated."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice([0, 0, 1, 5, 50, 5000]))
        what = chance.randrange(8)
        lines = text.split("\n")
        one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        if what == 0:
            text = text[:start]
        elif what == 1:
            text = "\n".join([*lines[:one], lines[other], *lines[one:]])
        elif what == 2:
            lines[one], lines[other] = lines[other], lines[one]
            text = "\n".join(lines)
        elif what == 3:
            text = "\n".join(lines[:one] + lines[one + 1 :])
        elif what == 4:
            text = text[:end] + text[start:]
        else:
            text = text[:start] + chance.choice(NASTY) + text[end:]
    return text


@pytest.fixture
def stages(problem, population, selection):
    """Every model stage, by name, with the type of what it gives."""
    material = Material((Document("isa.md", (Passage("", "text"),)),), population)
    tried, failed = population.trials[1].experiment, population.trials[2]
    return {
        "select": (LlmSelector, Selection, lambda stage: stage(problem, population)),
        "design": (LlmDesigner, Plan, lambda stage: stage(problem, population, selection, ())),
        "rewrite": (Rewrite, Kernel, lambda stage: stage(problem, selection, tried, ())),
        "repair": (Rewrite, Kernel, lambda stage: stage(problem, selection, tried, (), failed)),
        "diff": (Diff, Kernel, lambda stage: stage(problem, selection, tried, ())),
        "unified": (partial(Diff, style="unified"), Kernel, lambda stage: stage(problem, selection, tried, ())),
        "digest": (LlmDigester, tuple, lambda stage: stage(problem, material)),
    }


def fuzzed(stages, count: int) -> tuple[int, list[str]]:
    """How many of `count` mangled answers were taken, and why the others were refused."""
    chance = random.Random(3)
    model = scripted(lambda text: mangle(text, chance))
    makers = [(make_stage(model, attempts=1), kind, call) for make_stage, kind, call in stages.values()]
    taken, refused = 0, []
    for stage, kind, call in islice(cycle(makers), count):
        try:
            made = call(stage)
        except StageError as error:
            refused.append(str(error))
            continue
        assert isinstance(made, kind)
        if isinstance(made, Kernel):
            made.main.encode()
            assert "custom_kernel" in made.main
        taken += 1
    return taken, refused


def check(taken: int, refused: list[str]) -> None:
    assert min(taken, len(refused)) > (taken + len(refused)) / 10
    assert all("malformed answer after 1 attempts: " in told for told in refused)
    assert max(map(len, refused)) < 1200


@pytest.mark.slow
def test_three_hundred_malformed_answers_end_as_stage_errors(stages):
    check(*fuzzed(stages, 300))


@pytest.mark.slow
@pytest.mark.soak
def test_five_thousand_malformed_answers_end_as_stage_errors(stages):
    check(*fuzzed(stages, 5_000))


SIGNATURES = (Select, Design, Write, EditSignature, Digest)


def good(signature) -> str:
    """What the dummy answers to a small question."""
    inputs = dict.fromkeys(signature.input_fields, "x") | {
        "population": "| 00001 |\n| 00002 |",
        "wanted": "10 avenues and 5 experiments",
        "documents": "### source: a",
        "base_code": "int a;\nint custom_kernel;\n" * 3,
        "failed": "",
        "edits_apply_to": "base_code",
    }
    inputs = {name: inputs[name] for name in signature.input_fields}
    return answer(KernelAdapter().format(signature, [], inputs)[-1]["content"])


def test_the_adapter_gives_values_or_says_what_is_wrong():
    chance = random.Random(5)
    answers = [(signature, good(signature)) for signature in SIGNATURES]
    for signature, text in answers:
        assert set(KernelAdapter().parse(signature, text)) == set(signature.output_fields)
    taken, reasons = 0, []
    for index in range(10_000):
        signature, text = answers[index % len(answers)]
        try:
            made = KernelAdapter().parse(signature, mangle(text, chance))
        except Malformed as error:
            reasons.append(error.reason)
            continue
        taken += 1
        assert set(made) == set(signature.output_fields)
        json.dumps(to_jsonable_python(made), ensure_ascii=False, allow_nan=False).encode()
    assert min(taken, len(reasons)) > 1000
    assert all(0 < len(reason) <= 1500 for reason in reasons)


@pytest.mark.parametrize("style", ["rewrite", "diff"])
def test_a_megabyte_of_answer_is_refused_in_time(style, stages):
    make_stage, _, call = stages[style]
    for filler in ("[[ ## edits ## ]]\n", "int custom_kernel;\n", "=======\n", "<<<<<<< SEARCH\n", '{"a": 1}', "\\"):
        megabyte = filler * (1_000_000 // len(filler))
        stage = make_stage(scripted(lambda text, more=megabyte: text[:200] + more), attempts=1)
        started = time.process_time()
        with pytest.raises(StageError):
            call(stage)
        assert time.process_time() - started < 30


@pytest.mark.slow
def test_notes_and_plans_that_survive_are_whole(stages):
    """What a mangled answer leaves is not half of it."""
    chance = random.Random(7)
    model = scripted(lambda text: mangle(text, chance))
    for name in ("design", "digest"):
        make_stage, _, call = stages[name]
        stage = make_stage(model, attempts=1)
        for _ in range(150):
            try:
                made = call(stage)
            except StageError:
                continue
            if isinstance(made, Plan):
                assert len(made.avenues) >= 10
                assert len(made.experiments) >= 5
                assert len(made.picked) == 3
            else:
                assert all(isinstance(note, Note) and note.sources and note.text.strip() for note in made)
