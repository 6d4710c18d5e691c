"""Every command line of README.md, problems/README.md and the pages in docs/, run through bash word for word.

What a line needs beside ksflow is stood in for: keys, a model's server on the loopback interface, small checkouts in a
home folder of its own, `pip` and `make` that change nothing. `python` and `ksflow` are real; where the environment
variable MORE has words they are added to a line, which is how long searches are cut short.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import warm
from conftest import until
from lm.server import Provider

from ksflow.home import PACKAGE, shipped_path
from ksflow.lm.answers import answer

ROOT = PACKAGE.parent
_TESTED_APART = ("function.md", "kernel_in_a_model.md", "tutorial.md")
DOCUMENTS = (
    "README.md",
    "problems/README.md",
    *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md") if page.name not in _TESTED_APART),
)
_STARTS = ("python ", "pip ", "make ", "cd ", "git ", "source ", "ksflow ", "LLM_URL=")

_PIP = """#!/bin/bash
for word; do
    case "$word" in .\\[*) grep -q "^${{word:2:-1}} = \\[" {root}/pyproject.toml || exit 1 ;; esac
done
"""
_AGENT = """#!/bin/sh
cat > prompt.txt
for file in *.cpp; do echo "// by an agent" >> $file; done
echo '{"type": "result", "subtype": "success", "is_error": false, "result": "Larger tiles.", "total_cost_usd": 0.25}'
"""
_MODEL = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Keeps what is positive."""

    def forward(self, values):
        return torch.relu(values)


rows = 32


def get_inputs():
    return [torch.rand(rows, 64)]


def get_init_inputs():
    return []
'''
_TASK = """import torch
from task import input_t, output_t


def generate_input(size: int, seed: int) -> input_t:
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    return torch.randn(size, device="cuda", generator=generator)


def ref_kernel(data: input_t) -> output_t:
    return torch.sort(data)[0]


def check_implementation(data, output):
    return "" if torch.equal(output, ref_kernel(data)) else "not sorted"
"""
_TASK_YML = """description: Sort.
lang: py
config: {main: eval.py}
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: task.py, source: task.py}
  - {name: reference.py, source: reference.py}
tests: [{size: 8, seed: 1}, {size: 16, seed: 2}]
benchmarks: [{size: 64, seed: 4}]
"""
_GEMM = {
    "name": "gemm_n4096_k4096",
    "op_type": "gemm",
    "description": "A @ B.T",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 16}, "K": {"type": "const", "value": 16}},
    "inputs": {"A": {"shape": ["M", "K"], "dtype": "float32"}, "B": {"shape": ["N", "K"], "dtype": "float32"}},
    "outputs": {"C": {"shape": ["M", "N"], "dtype": "float32"}},
    "reference": "import torch\n\ndef run(A, B):\n    return torch.matmul(A, B.T)\n",
}
_TRITONBENCH = f"""import torch

def relu(x):
    return torch.relu(x)

{"#" * 146}

import torch

def test_relu():
    return {{"one": relu(torch.randn(4, 4, device="cuda"))}}

test_results = test_relu()
"""
_PARTS = """from ksflow.stages.designer.random import RandomDesigner


class Mine(RandomDesigner):
    def __init__(self, lower: int = 1) -> None:
        super().__init__()
        assert lower == 4
"""


@dataclass(frozen=True)
class Expected:
    """How a line ends here."""

    pattern: str = ""
    """What it prints."""
    status: int = 0
    more: str = ""
    """Words that are added to it."""


_CUT = "evaluator=fake loop.evaluations=2"
_ASKED = f"{_CUT} model.api_base=ROOT"
_ENDS = r"\n(no winner: |winner \d{5}: |\d{5}(, \d{5})* and \d{5}: a tie)"
_LINES = {
    "make demo": Expected(r"\.ci/install \.venv\n.*-m ksflow problem=fp8_gemm"),
    "make test": Expected("-m pytest"),
    "pip install ksflow-*.whl && ksflow demo": Expected(_ENDS, more=_CUT),
    "ksflow --help": Expected("searches for a faster version of a compute kernel"),
    "python -m ksflow problem=softmax": Expected(_ENDS, more=_CUT),
    "python -m ksflow problem=my_folder": Expected(_ENDS, more=_CUT),
    "python -m ksflow problem=my_filter": Expected(_ENDS, more=_CUT),
    "python -m ksflow problem=my_filter llm=gemini": Expected(_ENDS, more=_ASKED),
    "python -m ksflow seed_kernels=": Expected(r"my_kernel\.cpp", more=_CUT),
    "python -m ksflow llm=gemini": Expected(_ENDS, more=_ASKED),
    "python -m ksflow problem=fp8_gemm llm=gemini": Expected(_ENDS, more=_ASKED),
    "python -m ksflow writer=agent": Expected(_ENDS, more=_CUT),
    "python -m ksflow mcp": Expected(),
    "ksflow mcp install claude": Expected(r"written: .*\.mcp\.json"),
    "ksflow skill install claude": Expected(r"written: .*SKILL\.md"),
    "python -m ksflow llm=inbox": Expected(_ENDS, more=_CUT),
    "python -m ksflow llm=replay": Expected(_ENDS),
    "python -m ksflow recipe=tune_triton": Expected("ksflow: .*h200.* is not in this machine", 2),
    "python -m ksflow evaluate k.hip": Expected("verdict untimed"),
    "python -m ksflow -m designer=": Expected("designer=tune", more=_CUT),
    "python -m ksflow recipe=dry_run": Expected(_ENDS, more="loop.evaluations=2"),
    "python -m ksflow problem check": Expected("ok   rejects zeros"),
    "python -m ksflow evaluate my_kernel.cpp": Expected("verdict accept"),
    "python -m ksflow verify": Expected("holds", more="evaluator=fake"),
    "python -m ksflow approve": Expected(r"approved by Ada( <.*>)?: read it", more="evaluator=fake"),
    "python -m ksflow lineage": Expected("."),
    "python -m ksflow tune": Expected(
        r"96x512x512: .*\n.*best\.py, table\.json", more="evaluator=fake loop.evaluations=1"
    ),
    "python -m ksflow runs": Expected(r"fp8_gemm/\w+ +\d+ "),
    "python -m ksflow init": Expected("it runs as it is:"),
    "python -m ksflow llm check": Expected("form: right", more="model.api_base=ROOT"),
    "python -m ksflow digest": Expected("notes?", more="model.api_base=URL model.name=gpt-5"),
    "python -m ksflow probe": Expected("measured"),
    "python -m ksflow knowledge": Expected("cited"),
    "python -m ksflow optimize": Expected(
        ".", more="model.api_base=ROOT optimizer=bootstrap optimize.rollouts=4 optimize.examples=9"
    ),
    "python -m ksflow dataset": Expected("runs/dataset"),
    "python -m ksflow doctor": Expected("isolation"),
    "python -m ksflow --config-dir": Expected(_ENDS, more=_CUT),
    "python -m ksflow problem=gpumode": Expected(_ENDS, more=_ASKED),
    "python -m ksflow problem=kernelbench": Expected(_ENDS, more=_ASKED),
    "python -m ksflow problem=flashinfer": Expected(_ENDS, more=_ASKED),
    "python -m ksflow problem=tritonbench": Expected(_ENDS, more=_ASKED),
    "python -m ksflow problem=kernel ": Expected(_ENDS, more=_ASKED),
    "python -m ksflow problem=kernel problem.kernel=my.cpp problem.ref": Expected(_ENDS, more=_CUT),
    "python -m ksflow problem=command": Expected(_ENDS, more="loop.evaluations=1 model.api_base=ROOT"),
    "python -m ksflow problem=popcorn": Expected(r"ksflow: .*127\.0\.0\.1:9", 2, "model.api_base=ROOT"),
    "python -m ksflow suite": Expected("all problems", more=f"{_ASKED} problem.id=19"),
    "python -m ksflow suite suite=bakeoff": Expected("went on", more=_ASKED),
    "python -m ksflow -m problem=kernelbench": Expected("all problems", more=f"{_ASKED} problem.id=19"),
    "python -m ksflow -m hydra/sweeper": Expected("is not installed: pip install -e", 2),
    "python -m ksflow -m hydra/launcher": Expected(r"is not installed: pip install -e '\.\[launchers\]'", 2),
    "python -m ksflow target=h200 evaluator=ray": Expected(
        "ksflow: .*(needs the ray package|no Ray cluster to join)", 2
    ),
    "python -m ksflow problem show": Expected("custom_kernel"),
    "LLM_URL=http://host:8000/v1": Expected("ksflow: nothing was tried: openai/name cannot be reached", 4),
    "cd ~/spool/worker": Expected(".", more="once=true"),
}
"""The beginning of a line -> how it ends; the longest beginning counts. A line of none ends with 0."""
_SERVING = "ksflow watch"
_ELSEWHERE = {"ada:work/runs/lineage.git": "../../ada.git", " URL": " ../../mirror.git"}
"""What the lines name of other machines -> what stands for it, as git sees it from within a lineage."""
_WAITING = re.compile("evaluator=spool")


def lines(documents: Sequence[str] = ()) -> Iterator[str]:
    """Every command line of the documents: in bash blocks, and between backticks where it begins as one."""
    for name in documents or DOCUMENTS:
        text = (ROOT / name).read_text()
        blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for block in blocks:
            yield from re.sub(r"\\\n +", "\\\n", block).replace("\\\n", "\0").strip().split("\n")
        rest = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        for span in re.findall(r"`([^`]+)`", rest):
            if span.startswith(_STARTS) and " " in span:
                yield " ".join(span.split())


LINES = [line.replace("\0", "\\\n") for line in dict.fromkeys(re.sub(r" +#.*$", "", line) for line in lines())]
"""Each command once, whatever is said of it."""


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with small checkouts, and programs that come first in PATH."""
    made = tmp_path_factory.mktemp("home")
    files = {
        "KernelBench/KernelBench/level1/19_ReLU.py": _MODEL,
        "reference-kernels/problems/pmpp_v2/sort_py/reference.py": _TASK,
        "reference-kernels/problems/pmpp_v2/sort_py/task.py": "input_t = output_t = object\n",
        "reference-kernels/problems/pmpp_v2/sort_py/task.yml": _TASK_YML,
        "flashinfer-trace/definitions/gemm/gemm_n4096_k4096.json": json.dumps(_GEMM),
        "TritonBench/data/TritonBench_T_v1/relu.py": _TRITONBENCH,
        ".gitconfig": "[user]\n\tname = Ada\n\temail = ada@example.org\n",
        "bin/pip": _PIP.format(root=ROOT),
        ".local/bin/claude": _AGENT,
    }
    given = {"A": {"type": "random"}, "B": {"type": "random"}}
    row = {"definition": _GEMM["name"], "solution": None, "evaluation": None}
    work = {**row, "workload": {"uuid": "one", "axes": {"M": 8}, "inputs": given}}
    files["flashinfer-trace/workloads/gemm/gemm_n4096_k4096.jsonl"] = f"{json.dumps(work)}\n"
    for name, text in files.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    warm.shims(made / "bin")
    for program in (*(made / "bin").iterdir(), made / ".local" / "bin" / "claude"):
        program.chmod(0o755)
    return made


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `runs` of a search with a model, in which nothing was compiled."""
    folder = tmp_path_factory.mktemp("searched")
    words = ["evaluator=fake", "llm=dummy", "loop.evaluations=24"]
    assert warm.run(folder, words, dict(os.environ)).returncode == 0
    return folder / "runs"


@pytest.fixture
def place(tmp_path: Path, searched: Path) -> Path:
    """A folder with the files that the lines name, and with runs."""
    shutil.copytree(searched, tmp_path / "runs")
    shutil.copytree(shipped_path("problems", "softmax"), tmp_path / "my_folder")
    shutil.copytree(shipped_path("seeds", "softmax"), tmp_path / "my_folder" / "seeds")
    shutil.copy(shipped_path("seeds", "fp8_gemm", "cpu", "01_naive.cpp"), tmp_path / "my_kernel.cpp")
    shutil.copy(shipped_path("seeds", "fp8_gemm", "gpu", "01_naive.hip"), tmp_path / "k.hip")
    files = {
        "my_model.py": _MODEL,
        **{name: _of_readme(name) for name in ("my.cpp", "my_ref.py", "filters.py")},
        "my_parts.py": _PARTS + _of_readme("my_parts.py"),
        "conf/designer/mine.yaml": "_target_: my_parts.Mine\nlower: 3\n",
        "conf/selector/mine.yaml": f"{_of_readme('conf/selector/mine.yaml')}\n",
        "blog.html": "<h1>Rows</h1><p>Rows of 64 bytes are read in one go.</p>",
        "src/k.cpp": 'extern "C" long twice(long x) { return x + x; }\n',
        "src/main.cpp": '#include <cstdio>\nextern "C" long twice(long);\n'
        'int main() { printf("%ld us\\n", twice(20)); return twice(2) != 4; }\n',
        "Makefile": "bench: src/k.cpp src/main.cpp\n\tg++ -o bench src/k.cpp src/main.cpp\ncheck: bench\n\t./bench\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    _pdf(tmp_path / "isa.pdf")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").write_text("")
    return tmp_path


def _of_readme(name: str) -> str:
    """What README.md says that a file has in it: the block after `name`:, or the words behind `name` has."""
    text = (ROOT / "README.md").read_text()
    found = re.search(rf"`{name}`[^`\n]*:\n\n```\w+\n(.*?)^```$|`{name}` has `([^`]+)`", text, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[1] or found[2]


def _pdf(file: Path) -> None:
    fpdf = pytest.importorskip("fpdf")
    made = fpdf.FPDF()
    made.add_page()
    made.set_font("helvetica", size=12)
    made.cell(text="Waves have 64 lanes.")
    made.output(str(file))


def expected(line: str) -> Expected:
    """By the longest beginning that is known."""
    known = [start for start in _LINES if line.startswith(start)]
    return _LINES[max(known, key=len)] if known else Expected()


def environment(home: Path, provider: Provider, line: str) -> dict[str, str]:
    more = expected(line).more
    return {
        **os.environ,
        "HOME": str(home),
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "PATH": f"{home / 'bin'}:{home / '.local' / 'bin'}:{os.environ['PATH']}",
        "MORE": more.replace("ROOT", provider.root).replace("URL", provider.url),
        **({"MAKEFLAGS": "n"} if line.startswith("make ") else {}),
        **({"COLD": "1"} if _WAITING.search(line) or _SERVING in line else {}),
        "COLUMNS": "160",
        "GEMINI_API_KEY": "a-key-for-gemini",
        "OPENAI_API_KEY": "a-key-for-openai",
        "POPCORN_CLI_ID": "somebody",
        "POPCORN_API_URL": "http://127.0.0.1:9",
        "PYTHONPATH": str(ROOT),
    }


def _marked(tried: Iterable[str]) -> list[Any]:
    """The README's lines are tried each time; of the other documents' every third, and all of them by `make soak`."""
    first = set(LINES[: len(dict.fromkeys(lines(DOCUMENTS[:1])))])
    return [
        pytest.param(line, marks=[pytest.mark.soak] * (line not in first and at % 3 > 0))
        for at, line in enumerate(tried)
    ]


def test_there_are_command_lines_in_the_documents() -> None:
    assert len(LINES) > 50
    for start in _LINES:
        assert any(line.startswith(start) for line in LINES), f"{start}: no line begins so any more"


@pytest.mark.slow
@pytest.mark.parametrize("line", _marked(line for line in LINES if not _WAITING.search(line) and _SERVING not in line))
def test_a_line_of_the_documents_does_what_it_says(line: str, place: Path, home: Path, provider: Provider) -> None:
    (home / "spool" / "worker").mkdir(parents=True, exist_ok=True)
    inbox = threading.Event()
    if "problem=my_filter" in line:  # which the command above it in the document makes
        (place / "my_folder").rename(place / "my_filter")
    if "llm=inbox" in line:
        threading.Thread(target=_answering, args=(place / "runs" / "inbox", inbox), daemon=True).start()
    if line.startswith("git"):
        subprocess.run(["git", "clone", "-q", "--mirror", place / "runs/lineage.git", place / "ada.git"], check=True)
        subprocess.run(["git", "init", "-q", "--bare", place / "mirror.git"], check=True)
    command = reduce(lambda text, name: text.replace(name, _ELSEWHERE[name]), _ELSEWHERE, line)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT if line.startswith("make ") else place,
        env=environment(home, provider, line),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    inbox.set()
    said, wanted = done.stdout + done.stderr, expected(line)
    assert done.returncode == wanted.status, f"{line}\n{said[-3000:]}"
    assert re.search(wanted.pattern, said), f"{line}\n{said[-3000:]}"
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_line_that_serves_a_page_names_its_address_and_ends_with_ctrl_c(
    place: Path, home: Path, provider: Provider
) -> None:
    (line,) = (line for line in LINES if _SERVING in line)
    settings = environment(home, provider, line)
    with subprocess.Popen(["bash", "-c", f"exec {line}"], cwd=place, env=settings, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert b"http://127.0.0.1:" in server.stdout.readline()
        server.send_signal(signal.SIGINT)
        assert server.wait(300) == 0


@pytest.mark.slow
@pytest.mark.parametrize("line", list(filter(_WAITING.search, LINES)))
def test_a_line_that_waits_for_a_worker_puts_jobs_into_the_folder(
    line: str, place: Path, home: Path, provider: Provider
) -> None:
    process = subprocess.Popen(
        ["bash", "-c", f"exec {line}"],
        cwd=place,
        env=environment(home, provider, line),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    folders = (place / "runs" / "spool", home / "spool")
    until(lambda: process.poll() is not None or any(list(folder.glob("jobs/*")) for folder in folders))
    assert process.poll() is None, process.stderr and process.stderr.read()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _answering(folder: Path, over: threading.Event) -> None:
    """A person who answers whatever is asked."""
    while not over.wait(0.05):
        for question in folder.glob("*.md"):
            reply = question.with_name(question.name.removesuffix(".md") + ".answer.md")
            if not question.name.endswith(".answer.md") and not reply.exists():
                with contextlib.suppress(FileNotFoundError):  # answered and taken since the folder was listed
                    reply.write_text(answer(question.read_text()))
