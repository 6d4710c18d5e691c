"""Code comes out of whatever a model puts around it, or is refused by name before it costs an evaluation."""

import pytest

from ksflow.errors import StageError
from ksflow.kernels.source.answer import as_code
from ksflow.stages.writer.rewrite import Rewrite
from lm.conftest import CODE
from lm.server import Reply

NEW = CODE.replace("MR = 8", "MR = 12") + "// ```cpp in a comment\n"
HEADERS = "[[ ## report ## ]]\nDid it.\n\n[[ ## code ## ]]\n"
REHEARSED = f"<think>\nI write {HEADERS}nothing yet\n[[ ## completed ## ]]\n"


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


ENVELOPES = {
    "none": NEW,
    "fence": f"```cpp\n{NEW}```",
    "four backticks": f"````cpp\n{NEW}````",
    "tildes": f"~~~cpp\n{NEW}~~~",
    "indented": indented(f"```cpp\n{NEW}```"),
    "annotated": f'```cpp title="kernel.cpp" {{1,3}}\n{NEW}```',
    "prose before": f"Here is the complete kernel, with MR = 12:\n\n```cpp\n{NEW}```",
    "prose around": f"It's done:\n\n~~~~c++\n{NEW}~~~~\n\nThat was it.",
    "a lone closing one": f"{NEW}```",
}
REFUSED = {
    "prose": ("I would first look at custom_kernel and its memory accesses.", "it is prose"),
    "apology": ("I'm sorry, but I can't write custom_kernel for you.", "it is prose"),
    "git's diff": (f"diff --git a/kernel.cpp b/kernel.cpp\n--- a/kernel.cpp\n+++ b/kernel.cpp\n{NEW}", "it is a diff"),
    "a diff": (f"```diff\n@@ -1,3 +1,3 @@ custom_kernel\n-int a;\n+int b;\n{NEW}```", "it is a diff"),
    "blocks of edits": (f"<<<<<<< SEARCH\n{CODE}=======\n{NEW}>>>>>>> REPLACE", "it is a diff"),
    "two blocks": (f"First:\n```cpp\n{NEW}```\nor:\n```cpp\n{CODE}```\nas you like", "not one file"),
    "not closed": (f"Here it is:\n```cpp\n{NEW}", "not one file"),
    "closed too short": (f"````cpp\n{NEW}```", "not closed"),
    "empty": ("```cpp\n\n```", "code is empty"),
}


@pytest.fixture
def write(provider, problem, selection, population):
    """What becomes of an answer whose code is this, with something before its sections."""

    def ask(code: str, before: str = "") -> str:
        provider.reply = lambda prompt: Reply(f"{before}{HEADERS}{code}\n[[ ## completed ## ]]\n")
        return Rewrite(provider.model(cache=False), attempts=1)(
            problem, selection, population.trials[1].experiment, ()
        ).main

    return ask


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_code_is_the_same_out_of_every_envelope(envelope, write):
    assert write(ENVELOPES[envelope]) == NEW


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_code_is_refused_by_name(kind, write):
    code, reason = REFUSED[kind]
    with pytest.raises(StageError, match=reason):
        write(code)


@pytest.mark.parametrize("before", [f"{REHEARSED}</think>\n", f"{REHEARSED.removeprefix('<think>')}</think>\n"])
def test_thoughts_that_rehearse_the_sections_are_no_answer(before, write):
    assert write(NEW, before) == NEW
    with pytest.raises(StageError, match="ends within its thoughts"):
        write(NEW, REHEARSED)


def test_a_docstring_with_a_fence_stays():
    code = 'def custom_kernel(a):\n    """Example:\n\n    ```python\n    f(a)\n    ```\n    """\n    return a\n'
    assert as_code(code) == code
