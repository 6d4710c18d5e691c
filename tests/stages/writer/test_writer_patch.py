"""Edits are applied exactly, or refused with what is wrong."""

import difflib
import random
import time

import pytest

from ksflow.kernels.source.patch import apply

FILE = "one\n  two\nthree\n\nfour\n  two\nfive\n"


def block(old: str, new: str, length: int = 7) -> str:
    return f"{'<' * length} SEARCH\n{old}\n{'=' * length}\n{new}\n{'>' * length} REPLACE\n"


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        (block("three", "THREE\nthree and a half"), FILE.replace("three", "THREE\nthree and a half")),
        (block("three\n", "3\n"), FILE.replace("three\n\n", "3\n\n")),
        ("<<<<<<< SEARCH\nthree\n=======\n>>>>>>> REPLACE", FILE.replace("three\n", "")),
        (f"{block('one', '1')}\n```\n\n```cpp\n{block('five', '5')}", FILE.replace("one", "1").replace("five", "5")),
        (block("four\n  two", "four\n  2"), FILE.replace("four\n  two", "four\n  2")),
        (block("one", "1").replace("\n", "\r\n"), FILE.replace("one", "1")),
        ("@@ -1,2 +1,2 @@\n-one\n+1\n   two\n", FILE.replace("one", "1")),
        ("--- a/k\n+++ b/k\n@@ -900 +7 @@ where\n-three\n+3\n\n four\n\n", FILE.replace("three", "3")),
        ("```diff\n@@\n one\n+1.5\n```", FILE.replace("one\n", "one\n1.5\n")),
        (block("five", "5") + block("one", "1"), FILE.replace("one", "1").replace("five", "5")),
        (block("one", "1") + block("one", "1"), FILE.replace("one", "1")),
        ("@@\n-five\n+5\n@@\n-one\n+1", FILE.replace("one", "1").replace("five", "5")),
        ("@@\n one\n   two\n-three\n+3\n@@\n three\n \n-four\n+4", FILE.replace("three", "3").replace("four", "4")),
        ("So I change it:\n" + block("one", "1") + "and that is all.", FILE.replace("one", "1")),
        ("so:\n@@ -1 +1 @@\none\n-  two\n+  2", FILE.replace("one\n  two", "one\n  2")),
        ("@@ @@\n-five\n\\ No newline at end of file\n+5\n\\ No newline at end of file", FILE.replace("five", "5")),
    ],
)
def test_edits_that_apply(edits, expected):
    assert apply(FILE, edits) == expected


PYTHON = "def f(x):\n    if x:\n        y = 1\n    return y\n\n\ndef g(x):\n    if x:\n        y = 2\n    return y\n"


@pytest.mark.parametrize(
    ("file", "edits", "expected"),
    [
        (PYTHON, block("  if x:\n    y = 1", "  if x:\n    y = 3"), ("y = 1", "y = 3")),
        (PYTHON, block("  if x:\n    y = 1", "  if x:\n   z = 3\n    y = 1"), None),  # how deep is z?
        (PYTHON, block("if x:\n    y = 1", "if x:\n    z = 3\n    y = z"), ("y = 1", "z = 3\n        y = z")),
        (PYTHON, block("    y = 1", "    y = 3"), ("y = 1", "y = 3")),
        (PYTHON, block("    y = 1  \n", "    y = 3\n"), None),  # there is no blank line behind it
        (PYTHON, block("if x:", "if not x:"), None),  # there are two
        (PYTHON, block("    return y", "    return 2 * y"), None),
        (
            PYTHON,
            "@@ -30,3 +30,3 @@ def f(x):\n-    return y\n+    return 2 * y",
            None,
        ),  # a hunk's heading decides nothing
        (
            PYTHON,
            block("        y = 2   \n    return y", "        y = 2\n    return -y"),
            ("2\n    return y", "2\n    return -y"),
        ),
        (PYTHON, block("```python\n        y = 1\n```", "```python\n        y = 3\n```"), ("y = 1", "y = 3")),
        (PYTHON, block("  3 |         y = 1", "  3 |         y = 3"), ("y = 1", "y = 3")),
        (PYTHON, block("   3|         y = 1\n   4|     return y", "        y = 3\n    return y"), ("y = 1", "y = 3")),
        ("{\n\tint a;\n\t\tb = 1;\n}\n", block("    int a;", "    int c;"), ("int a;", "int c;")),
        ("{\n\tint a;\n}\n", block("\tint  a;", "\tint c;\n\tint d;"), ("int a;", "int c;\n\tint d;")),
        ("{\n\tint a;\n}\n", block("    int a;", "    if (b)\n        int c;"), None),  # tabs of which width?
        ("a = 1;\r\nb = 2;\r\n", block("b  =  2;", "b = 3;\nc = 4;"), ("b = 2;", "b = 3;\r\nc = 4;")),
    ],
)
def test_what_models_get_wrong_is_applied_where_it_can_mean_one_place_alone(file, edits, expected):
    if expected:
        assert apply(file, edits) == file.replace(*expected, 1)
        return
    with pytest.raises(ValueError, match=r"quote more lines|does not hold|indents"):
        apply(file, edits)


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ("", "there is no edit"),
        ("Change three to 3.", "there is no edit"),
        (block("six", "6"), "block 1: the file does not hold these lines. Nothing in it is like them"),
        (block("two", "2"), r"block 1: the file holds these lines 2 times \(at lines 2, 6\)"),
        (block("three \n\nfor", "3"), r"'three ', line 3 of the file is 'three' \(.*(?s:.)*3\| three\n.*\n +5\| four"),
        (block("five\nsix", "6"), "Quoted line 2 is beyond the file's end"),
        (block("  two", "2"), r"block 1: the file holds these lines 2 times \(at lines 2, 6\)"),
        (block("three", "three"), "block 1: it changes nothing"),
        (block("one\n  two", "1") + block("  two\nthree", "2"), "block 2: it changes what block 1 changes too"),
        (block("one", "1") + block("one", "2"), "block 2: it changes what block 1 changes too"),
        (block("one", "1") + "<<<<<< SEARCH\nfive", "line 6 of the edits is outside every block"),
        ("+0\n@@ -1 +1 @@\n-one\n+1", "line 1 of the edits is outside every hunk"),
        (
            block("six", "6") + block("one", "1") + block("two", "2"),
            r"block 1: .*\n.*(?s:.)*block 3: .*\nThe other 1 edits",
        ),
        (block("", "1"), "quotes no line"),
        ("<<<<<<< SEARCH\none\n=======\n1\n", "not closed by a line >>>>>>> REPLACE"),
        ("<<<<<<< SEARCH\none\n>>>>>>> REPLACE\n", "no line ======="),
        ("<<<<<<< SEARCH\none\n" + block("one", "1"), "another block opens inside it"),
        ("@@ -1 +1 @@\n-six\n+6", "hunk 1: the file does not hold"),
        ("@@ -2 +2 @@\n-  two\n+2", "2 times"),
        ("@@ -9,0 +9 @@\n+9", "quotes no line"),
        ("@@ -1 +1 @@\n-one\n+one", "changes nothing"),
        ("@@ -1 +1 @@\n one\n", "changes nothing"),
        (block("one", "1") * 201, "more than 200 edits"),
    ],
)
def test_edits_that_do_not_apply_say_why(edits, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        apply(FILE, edits)
    assert len(str(caught.value)) < 3000


MARKED = "a\n=======\nb\n<<<<<<< SEARCH\n>>>>>>> REPLACE\nc\n"


def test_code_that_looks_like_markers():
    """Longer markers make it plain; nothing is guessed."""
    longer = block("=======\nb\n<<<<<<< SEARCH\n>>>>>>> REPLACE", "=======", 9)
    assert apply(MARKED, longer) == "a\n=======\nc\n"
    for old, new, lines in (("b", "=======\n=======", 3), ("a\n=======\nb", "B", 2)):
        with pytest.raises(ValueError, match=f"it has {lines} lines =======; where they are code, write all .* longer"):
            apply(MARKED, block(old, new))
    assert apply(MARKED, block("a\n=======\nb", "B", 8)) == MARKED.replace("a\n=======\nb", "B")
    assert apply(MARKED, "@@ @@\n-=======\n b\n-<<<<<<< SEARCH\n") == MARKED.replace("=======\n", "").replace(
        "<<<<<<< SEARCH\n", ""
    )


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n", "  \n", "\f\n", "\u2028"])
@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_ends_of_lines_and_of_the_file_survive(line, end):
    text = line.join(["a\x0b", "b \u2028 b", "c\f", "d"]) + end
    assert apply(text, block("c\f", "x\ny")) == text.replace("c\f", f"x{line}y")
    last = text.removesuffix("\n").removesuffix("\r").split("\n")[-1]
    if last.strip():
        changed = apply(text, block(last, f"{last}!\nmore"))
        ending = text[text.rindex(last) + len(last) :]
        assert changed == text[: text.rindex(last)] + f"{last}!{ending or line}more{ending}"


def random_file(chance: random.Random) -> list[str]:
    words = [
        "",
        "}",
        "  return x;",
        "=======",
        "```",
        "a\tb",
        "// \u2028",
        "@@ -1 +1 @@",
        "+ y",
        "- z",
        "\\",
        "for (;;) {",
    ]
    return [chance.choice([*words, f"int v{chance.randrange(40)};", "\f"]) for _ in range(chance.randint(1, 60))]


def edited(lines: list[str], chance: random.Random) -> list[str]:
    made = list(lines)
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(made) + 1)
        made[at : at + chance.choice([0, 0, 1, 2, 7])] = random_file(chance)[: chance.randint(0, 4)]
    return made


def as_blocks(old: list[str], new: list[str]) -> str:
    """Every change with as many lines around it as make it unique."""
    groups = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3)
    text = []
    for group in groups:
        (_, i, _, j, _), (_, _, k, _, m) = group[0], group[-1]
        text.append(block("\n".join(old[i:k]), "\n".join(new[j:m]), 12) if new[j:m] else "")
    return "\n".join(text)


def as_unified(old: list[str], new: list[str]) -> str:
    return "\n".join(difflib.unified_diff(old, new, "a", "b", lineterm=""))


@pytest.mark.parametrize("write", [as_blocks, as_unified])
def test_random_edits_give_the_intended_file_or_are_refused(write):
    """What applies gives exactly what was meant; what cannot be told apart is refused, and is the smaller part."""
    chance = random.Random(11)
    applied = refused = 0
    for _ in range(1500):
        old = random_file(chance)
        new = edited(old, chance)
        end = chance.choice(["\n", "\r\n"])
        last = chance.choice([end, end, ""])
        # a file's last line can only be lost or empty when a line break ends it
        if old == new or len(old) < 2 or not new or not (old[-1] and new[-1]):
            continue
        try:
            made = apply(end.join(old) + last, write(old, new))
        except ValueError:
            refused += 1
            continue
        applied += 1
        assert made == end.join(new) + last
    assert applied > 500
    assert refused < applied / 2


def test_large_answers_take_no_quadratic_time():
    file = "\n".join(f"int v{index % 50};" for index in range(3000)) + "\nextern custom_kernel\n"
    hostile = [
        "<<<<<<< SEARCH\n" + "int v1;\n" * 120_000,
        "<<<<<<< SEARCH\n" + "=======\n" * 120_000 + ">>>>>>> REPLACE",
        block("int v1;\n" * 60_000, "int v1;\n" * 60_000),
        "@@ @@\n" * 160_000,
        "@@ @@\n" + "-int v1;\n" * 110_000,
        "<" * 1_000_000,
        block("x" * 1_000_000, "y"),
        block("int v1;\nint v2;\nint v3;", "z") * 30_000,
    ]
    for edits in hostile:
        started = time.process_time()
        with pytest.raises(ValueError, match=r".") as caught:
            apply(file, edits)
        assert time.process_time() - started < 20
        assert len(str(caught.value)) < 5000
