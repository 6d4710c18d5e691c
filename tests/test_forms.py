"""Repeats are noticed whatever their layout, and different code is never taken for the same."""

import time

import pytest

from ksflow.kernels.source.fingerprint import source_fingerprint
from ksflow.records import Kernel


def of(text: str, language: str = "cpp") -> str:
    return source_fingerprint(Kernel(language, {"kernel": text}))


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("cpp", "int x = 1;\n", "int  x = 1; // a note\n\n"),
        ("cpp", "/* a\n note */ int x;", "int x;"),
        ("cpp", "int x;\r\nint y;\r\n", "int x;\nint y;\n"),
        ("hip", "int x; // /* not a comment\nint y;", "int x;\nint y;"),
        ("cpp", "int B = 1;  // tune: 1 2 | tile: rows", "int B = 1;  // tune: 2 1 | tile: of rows"),
        ("python", "# head\nx = 1  # a note\n\n\ny=2\n", "x = 1\ny=2\n"),
        ("python", "if a:  # a note\n\n  # another\n  x = 1\n", "if a:\n  x  =  1"),
    ],
)
def test_layout_and_comments_make_no_difference(language: str, one: str, other: str) -> None:
    assert of(one, language) == of(other, language)


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("cpp", 'f("a  b");', 'f("a b");'),
        ("cpp", 'f("//x");', 'f("//y");'),
        ("cpp", 'f(R"(a  b)");', 'f(R"(a b)");'),
        ("cpp", "#define A 1\nint x;", "#define A 1 int x;"),
        ("cpp", "int x = 1;", "int x = 2;"),
        ("cpp", "int ab;", "int a b;"),
        ("cpp", "// one", "// two"),
        ("cpp", "constexpr int B = 1;", "constexpr int B = 1;  // tune: 1 2"),
        ("cpp", "constexpr int B = 1;  // tune: 1 2 4", "constexpr int B = 1;  // tune: 1 2"),
        ("python", "A = 1\nB = 1  # tune: 1 2\n", "A = 1  # tune: 1 2\nB = 1  # tune: 1 2 | if A == 2\n"),
        ("cpp", "// flags: -funroll-loops\nint x;", "// flags: -fno-math-errno\nint x;"),
        ("python", "if a:\n  x = 1\ny = 1\n", "if a:\n  x = 1\n  y = 1\n"),
        ("python", "x = '# a'\n", "x = '# b'\n"),
        ("python", "x = '''\n# a\n'''", "x = '''\n# b\n'''"),
        ("python", "x = '''a  b'''", "x = '''a b'''"),
        ("python", "def f(:\n", "def g(:\n"),
    ],
)
def test_code_that_differs_differs(language: str, one: str, other: str) -> None:
    assert of(one, language) != of(other, language)


def test_names_and_language_count() -> None:
    assert source_fingerprint(Kernel("cpp", {"a": "int x;"})) != source_fingerprint(Kernel("cpp", {"b": "int x;"}))
    assert source_fingerprint(Kernel("cpp", {"a": "int x;"})) != source_fingerprint(Kernel("hip", {"a": "int x;"}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["/*", '"', "//\\\n", 'R"(', "'\\", 'R"', "//", " \\", "(", "  \n", "f'{", "'''", "#\n ", " #"]
)
def test_hostile_text_takes_no_longer_than_other(text: str) -> None:
    def took(count: int, language: str) -> float:
        started = time.process_time()
        of(text * (count // len(text)) + "x", language)
        return time.process_time() - started

    for language in ("cpp", "python"):
        assert took(400_000, language) < 2 + 40 * took(20_000, language)


def test_the_lines_of_a_recipe_are_comments_that_count() -> None:
    source = "// launch: f [1] [32] (a)\n// a remark\nconstexpr int B = 1;  // tune: 1 2\n"
    plain = source_fingerprint(Kernel("cuda", {"k.cu": source}))
    assert plain == source_fingerprint(Kernel("cuda", {"k.cu": source.replace("// a remark\n", "")}))
    assert plain != source_fingerprint(Kernel("cuda", {"k.cu": f"// dispatch: if m <= 8: B=2\n{source}"}))
