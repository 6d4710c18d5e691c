"""Kernels of several files: read from a folder, written by models and agents, judged whole."""

from pathlib import Path

import pytest
from dspy.lm15 import Message, Request
from lm.scripted import dummy
from test_agents import agent

from ksflow.errors import ConfigError
from ksflow.formats.kernel.importer import load
from ksflow.kernels.hardware.target import detect
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.kernels.source.answer import as_files, as_text, check, replace_main
from ksflow.lm.agents import Agent
from ksflow.protocols import Workspace, override_call
from ksflow.records import Kernel, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator
from ksflow.stages.writer.diff import Diff

MAIN = """#include "scale.h"
extern "C" void custom_kernel(const float *x, const float *s, float *y, int64_t m, int64_t n, const int64_t *) {
  for (int64_t i = 0; i < m; i++) scale_row(x + i * n, s[i], y + i * n, n);
}
"""
HEADER = "#pragma once\n#include <cstdint>\nvoid scale_row(const float *x, float s, float *y, int64_t n);\n"
ROWS = """#include "scale.h"
void scale_row(const float *x, float s, float *y, int64_t n) {
  for (int64_t j = 0; j < n; j++) y[j] = x[j] * s;
}
"""
REFERENCE = '''"""Scale every row of x."""
import torch

CASES = [{"m": 8, "n": 16}]


def generate_input(m, n, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(m, n, generator=generator), torch.randn(m, generator=generator)


def ref_kernel(data):
    return data[0] * data[1][:, None]
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "scale"
    made.mkdir()
    for name, text in {"a_rows.cpp": ROWS, "scale.h": HEADER, "scale.cpp": MAIN, "README.md": "Mine.\n"}.items():
        (made / name).write_text(text)
    (tmp_path / "my_ref.py").write_text(REFERENCE)
    return made


def test_a_folder_is_a_kernel_whose_main_file_is_first(folder: Path) -> None:
    found = kernel_file(str(folder))
    assert (found.language, list(found.files)) == ("cpp", ["scale.cpp", "a_rows.cpp", "scale.h"])
    (folder / "again.cpp").write_text(MAIN)
    with pytest.raises(ConfigError, match=r"defines custom_kernel; here again.cpp and scale.cpp do"):
        kernel_file(str(folder))
    (folder / "again.cpp").unlink()
    (folder / "inner").mkdir()
    with pytest.raises(ConfigError, match=r"inner: the files of a kernel lie in one folder"):
        kernel_file(str(folder))


def test_a_package_of_python_does_not_hold_its_reference(tmp_path: Path) -> None:
    made = tmp_path / "mine"
    made.mkdir()
    (made / "entry.py").write_text("from rows import scaled\n\n\ndef custom_kernel(data):\n    return scaled(*data)\n")
    (made / "rows.py").write_text("def scaled(x, s):\n    return x * s[:, None]\n")
    assert list(kernel_file(str(made)).files) == ["entry.py", "rows.py"]
    (made / "my_ref.py").write_text(REFERENCE)
    with pytest.raises(ConfigError, match="is in the kernel's folder, where a kernel could call it"):
        load(str(made), str(made / "my_ref.py"), target=detect())


@pytest.mark.slow
def test_all_of_it_is_compiled_and_judged(folder: Path) -> None:
    problem = load(str(folder), str(folder.parent / "my_ref.py"), target=detect())
    evaluator = LocalEvaluator(detect())
    try:
        assert evaluator(problem, problem.seeds[-1].kernel, ()).verdict is Verdict.ACCEPT
    finally:
        evaluator.close()


START = Kernel("cpp", {"scale.cpp": MAIN, "a_rows.cpp": ROWS, "scale.h": HEADER})


def test_an_answer_adds_changes_and_removes_files() -> None:
    fast = ROWS.replace("y[j] = x[j] * s", "y[j] = s * x[j]")
    answer = f"{MAIN}===== a_rows.cpp ===== removed\n===== b.cpp =====\n{fast}"
    answer += f"===== scale.h =====\n```cpp\n{HEADER}// more\n```\n"
    made = replace_main(START, as_files(answer), ("cpp",), "")
    assert made.files == {"scale.cpp": MAIN, "scale.h": f"{HEADER}// more\n", "b.cpp": fast}
    check(made, [START], 200)
    again = replace_main(START, as_files(as_text(START.files)), ("cpp",), "")
    assert again.files == START.files
    with pytest.raises(ValueError, match="the code that was given, unchanged"):
        check(again, [START], 200)
    with pytest.raises(ValueError, match=r"gone.h ===== removed` is of no other file"):
        replace_main(START, f"{MAIN}===== gone.h ===== removed\n", ("cpp",), "")
    with pytest.raises(ValueError, match=r"not a kernel's file name: '\.\./up\.h'"):
        replace_main(START, f"{MAIN}===== ../up.h =====\nint x;\n", ("cpp",), "")


def test_edits_reach_every_file_and_new_ones_come_below_them() -> None:
    old, new = "  for (int64_t j = 0; j < n; j++) y[j] = x[j] * s;\n", "  twice(x, s, y, n);\n"
    edits = f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"
    told = {"edits": f"{edits}===== twice.h =====\n#pragma once\n"}
    made = replace_main(START, Diff(dummy()).main(told, START), ("cpp",), "")
    assert made.files == {
        "scale.cpp": MAIN,
        "a_rows.cpp": ROWS.replace(old, new),
        "scale.h": HEADER,
        "twice.h": "#pragma once\n",
    }
    alone = replace_main(
        START, Diff(dummy()).main({"edits": "===== scale.h =====\n#pragma once\n"}, START), ("cpp",), ""
    )
    assert alone.files == {**START.files, "scale.h": "#pragma once\n"}


def test_an_agent_leaves_what_the_kernel_includes_and_no_scratch(tmp_path: Path) -> None:
    script = (
        "rm a_rows.cpp; echo '#include \"new.h\"' >> scale.h; echo 'int z;' > new.h; echo 'int main() {}' > try.cpp"
    )
    engine = Agent([str(agent(tmp_path, script))])
    request = Request(model="agent", messages=(Message.user("Make it faster."),))
    with override_call(stage="writer=agent", workspace=Workspace({}, START, None)):
        said = "".join(part.text for part in engine.complete(request).message.parts)
    code = said.partition("[[ ## code ## ]]\n")[2].partition("\n[[ ##")[0]
    assert replace_main(START, as_files(code), ("cpp",), "").files == {
        "scale.cpp": MAIN,
        "scale.h": f'{HEADER}#include "new.h"\n',
        "new.h": "int z;\n",
    }
