"""The adapters keep code to the byte, and refuse what they cannot be sure of."""

import time

import dspy
import pytest

from ksflow.lm.adapter import KernelAdapter, Malformed
from ksflow.lm.sections import split
from ksflow.records import Experiment, Note
from ksflow.stages.designer.llm import Design
from ksflow.stages.digester.llm import Digest
from ksflow.stages.selector.llm import Select
from ksflow.stages.writer.diff import EditSignature
from ksflow.stages.writer.rewrite import Write

UGLY = (
    '\t{"code": "evil()"}\n```cpp\ntemplate <class T> void f<<<1, 2>>>(T &&x);\n```\n'
    "[[ ## report ## ]]\n[[ ## code ## ]]\n[[ ## completed ## ]]\r\n"
    "#define M(a) \\\r\n  a\f\x0b\x1c\x85\u2028 \"quoted\" \\n {{braces}} ${x} <T&&> '''\n"
)


def answer(code: str, report: str = "Did it.") -> str:
    return f"[[ ## code ## ]]\n{code}\n[[ ## report ## ]]\n{report}\n\n[[ ## completed ## ]]\n"


def parse(signature: type[dspy.Signature], text: str) -> dict:
    return KernelAdapter().parse(signature, text)


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "  ", "\r\n"])
@pytest.mark.parametrize("start", ["", "  indented", "\n"])
def test_60_kb_of_ugly_code_is_kept_to_the_byte(start, end):
    code = start + UGLY * (60_000 // len(UGLY) + 1) + end
    assert len(code) > 60_000
    assert parse(Write, answer(code)) == {"report": "Did it.", "code": code}


def test_one_outer_fence_is_stripped_and_inner_ones_stay():
    code = "a\n```\nb\n```\n"
    assert parse(Write, answer(f"```cpp\n{code}```"))["code"] == code
    assert parse(Write, answer(f"\n```c++\r\n{code}```\n\n"))["code"] == code


def test_a_report_may_stand_on_either_side_of_the_code_and_the_code_may_hold_its_header():
    inside = "x = 1\n[[ ## report ## ]]\ny = 2\n"
    for text in (
        f"[[ ## code ## ]]\n{inside}\n[[ ## report ## ]]\nAll of it.\n[[ ## completed ## ]]",
        f"[[ ## report ## ]]\nAll of it.\n[[ ## code ## ]]\n{inside}\n[[ ## completed ## ]]",
    ):
        assert parse(Write, text) == {"code": inside, "report": "All of it."}


def test_empty_sections_are_left_out_of_a_question():
    asked = KernelAdapter().format(
        Write, [], dict.fromkeys(Write.input_fields, "x") | {"failed": "", "failed_code": ""}
    )
    question = asked[-1]["content"]
    assert "[[ ## experiment ## ]]\nx" in question
    assert "failed" not in question


def test_a_truncated_answer_is_never_a_kernel():
    """Cut anywhere: also right behind a marker inside the code, which then has text or nothing after it."""
    whole = answer(UGLY + "int last;")
    for cut in range(len(whole) - 1):
        if not whole[:cut].rstrip().endswith("[[ ## completed ## ]]"):
            with pytest.raises(Malformed):
                parse(Write, whole[:cut])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "last line must be"),
        ("Sure! Here it is.", "last line must be"),
        (answer("x") + "Hope it helps!", "text after"),
        (answer("x").replace("code", "kernel"), "missing sections: code"),
        ("[[ ## code ## ]]\nx\n[[ ## completed ## ]]", "missing sections: report"),
        (answer("x").replace("[[ ## report ## ]]", "**[[ ## report ## ]]**"), "missing sections"),
        ("[[ ## report ## ]]\na\n[[ ## report ## ]]\nb\n[[ ## code ## ]]\nx\n[[ ## completed ## ]]", "twice"),
        (answer(" \n "), "code is empty"),
        (answer("x", " "), "report is empty"),
        (answer("```cpp\nx\n```\nThat was it."), "fence"),
        (answer("```"), "fence"),
        (answer("```\n```"), "code is empty"),
        (answer("x\ud800"), "Unicode"),
    ],
)
def test_refusals_say_why(text, reason):
    with pytest.raises(Malformed) as caught:
        parse(Write, text)
    assert reason in caught.value.reason


def test_prose_before_the_first_header_is_ignored():
    assert parse(Write, "Let me think.\n" + answer("x"))["code"] == "x"


GOOD = '[{"description": "d", "rubric": "r", "gain_percent": [0, 5.5], "innovation": 3}]'


def design(experiments: str) -> str:
    return f'[[ ## avenues ## ]]\n["a"]\n[[ ## experiments ## ]]\n{experiments}\n[[ ## completed ## ]]'


@pytest.mark.parametrize("text", [GOOD, f"```json\n{GOOD}\n```", f"\n\n  {GOOD}  \n"])
def test_json_becomes_records(text):
    parsed = parse(Design, design(text))
    assert parsed["experiments"] == (Experiment("d", "r", (0.0, 5.5), 3.0),)
    assert parsed["avenues"] == ("a",)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("5.5]", "NaN]", "finite"),
        ("5.5]", "1e999]", "finite"),
        ("5.5]", '"5"]', "valid number"),
        ("5.5]", "true]", "valid number"),
        ("5.5]", "-1]", "[lowest, highest]"),
        ("5.5]", "5, 6]", "experiments: 0.gain_percent"),
        ('"rubric"', '"rubrik"', "0.rubrik: Unexpected keyword"),
        ("3}", "300}", "innovation is 0 to 100"),
        ("3}", "3,}", "trailing comma"),
        ('"d"', "'d'", "JSON"),
        ("[{", "{", "JSON"),
        ("3}]", f"{10**400}}}]", "0.innovation"),
        ('"d"', '"\\ud800"', "JSON"),
        (GOOD, "[" * 100_000, "JSON"),
        (GOOD, "null", "valid array"),
    ],
)
def test_json_is_strict(old, new, reason):
    with pytest.raises(Malformed) as caught:
        parse(Design, design(GOOD.replace(old, new)))
    assert reason in caught.value.reason
    assert len(caught.value.reason) < 1000


def test_a_note_needs_a_known_status():
    note = '{"title": "t", "text": "x", "sources": ["s"], "status": "rumour"}'
    with pytest.raises(Malformed, match="documented"):
        parse(Digest, f"[[ ## notes ## ]]\n[{note}]\n[[ ## completed ## ]]")
    good = note.replace("rumour", "assumed")
    parsed = parse(Digest, f"[[ ## notes ## ]]\n[{good}]\n[[ ## completed ## ]]")
    assert isinstance(parsed["notes"][0], Note)


def test_the_prompt_holds_code_as_it_is():
    inputs = dict.fromkeys(Write.input_fields, "x") | {"base_code": UGLY}
    messages = KernelAdapter().format(Write, [], inputs)
    assert UGLY in messages[1]["content"]
    assert Write.instructions in messages[0]["content"]


def test_an_example_round_trips():
    experiments = (Experiment("d", "r", (0.0, 5.0), 3.0),)
    demo = dict.fromkeys(Design.input_fields, "x") | {"avenues": ("a",), "experiments": experiments}
    messages = KernelAdapter().format(Design, [demo, {"task": "incomplete"}], {})
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    parsed = parse(Design, messages[2]["content"])
    assert parsed == {"avenues": ("a",), "experiments": experiments}


def test_split_needs_no_signature():
    assert split("[[ ## a ## ]]\n1\n[[ ## completed ## ]]", ["a"]) == {"a": "1"}


SIGNATURES = {
    Select: {"rationale": "why", "base_id": "00001", "reference_id": "00002"},
    Design: {"avenues": ("a", "b"), "experiments": (Experiment("d {x}", "r", (-1.5, 5.0), 3.0, {"MR": "4"}),)},
    Write: {"report": "Did it.", "code": "x"},
    EditSignature: {"report": "Did it.", "edits": "x"},
    Digest: {"notes": (Note("t", 'say "x"', ("s", "00001"), ("gfx942",)),)},
}


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.__name__)
def test_every_signature_round_trips(signature):
    adapter = KernelAdapter()
    outputs = SIGNATURES[signature]
    for payload in ("code", "edits"):
        if payload in outputs:
            outputs = {**outputs, payload: UGLY * (60_000 // len(UGLY) + 1) + "int last;"}
    assert adapter.parse(signature, adapter.answer(signature, outputs)) == outputs
    demo = {**dict.fromkeys(signature.input_fields, "x"), **outputs}
    messages = adapter.format(signature, [demo], dict.fromkeys(signature.input_fields, UGLY))
    assert adapter.parse(signature, messages[2]["content"]) == outputs
    assert messages[3]["content"].count(UGLY) == len(signature.input_fields)
    for field in signature.output_fields.values():
        assert field.json_schema_extra["desc"] in messages[0]["content"]


@pytest.mark.parametrize("code", ["a\r\nb\r\n", "a\r\nb", "a\r\n\r\n", "\r\na", "a\rb\r", "a\n\rb\n", "\ta  \r\n"])
def test_line_ends_come_through(code):
    """Only the one line break before the closing marker is not the code's."""
    adapter = KernelAdapter()
    outputs = {"report": "r", "code": code}
    assert adapter.parse(Write, adapter.answer(Write, outputs)) == outputs


def test_an_answer_whose_every_line_ends_with_crlf_gives_crlf_code():
    """A provider that writes CRLF throughout: the code's last line has a carriage return and no line break."""
    text = answer("a\nb").replace("\n", "\r\n")
    assert parse(Write, text) == {"report": "Did it.", "code": "a\r\nb\r"}
    assert parse(Write, answer("```cpp\na\nb\n```").replace("\n", "\r\n"))["code"] == "a\r\nb\r\n"


def test_json_inside_a_section_is_as_strict():
    twice = GOOD.replace('"rubric": "r"', '"rubric": "r", "rubric": "s"')
    with pytest.raises(Malformed, match="appears twice"):
        parse(Design, design(twice))
    with pytest.raises(Malformed, match="NUL"):
        parse(Design, design(GOOD.replace('"d"', '"\\u0000"')))


def test_wrong_types_are_told_by_their_place():
    name = "x" * 5000
    with pytest.raises(Malformed, match=r"experiments: 0\.description: Input should be a valid string") as caught:
        parse(Design, design(f'[{{"description": 1, "{name}": 2}}]'))
    assert len(caught.value.reason) < 1600


def test_large_answers_take_no_quadratic_time():
    adapter = KernelAdapter()
    for text in (
        "[[ ## report ## ]]\n" * 60_000,
        "```\n" * 250_000,
        "[[ ## completed ## ]]\n" * 50_000,
        "\n" * 1_000_000,
        "[[ ## " * 160_000,
        "```" + "a" * 1_000_000,
        '"' * 1_000_000,
        "{" + ",".join(f'"k{index}": 1' for index in range(80_000)) + "}",
        "{" + ",".join(f'"k{index % 79_999}": 1' for index in range(80_000)) + "}",
        '{"report": "' + "\\n" * 500_000,
    ):
        started = time.process_time()
        with pytest.raises(Malformed):
            adapter.parse(Write, text)
        assert time.process_time() - started < 20
