"""docs/learning.md, run word for word: its programs and its commands, with a server on loopback as the model."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lm.server import Provider, Reply
from test_cli import DRY, ksflow

from ksflow.lm.answers import answer, draw

PAGE = Path(__file__).parents[1] / "docs" / "learning.md"
HINT = "Always end with the PLANTED marker."


def blocks(language: str) -> list[str]:
    """The page's blocks of a language, as they stand."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def programs() -> dict[str, str]:
    """The page's programs, by the names that it gives them; one that has none is `unnamed.py`."""
    found = re.findall(
        r"(?:This is `(\w+\.py)`:\n\n)?^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return {name or "unnamed.py": text for name, text in found}


def commands() -> list[str]:
    """The page's command lines, in their order."""
    return [line for block in blocks("sh") for line in re.sub(r"\\\n +", "", block).splitlines()]


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A model whose designs are cut off, two of three, unless its instruction carries the hint."""
    made = Provider()
    made.reply = lambda prompt: Reply(_said(made.requests[-1], prompt))
    yield made
    made.close()


def _said(request: dict, prompt: str) -> str:
    if "JSON object" in prompt:
        return json.dumps({"new_instruction": HINT})  # DSPy's own way of asking for an instruction
    if "Answer with the sections" not in prompt:
        return f"[[ ## new_instruction ## ]]\n{HINT}\n\n[[ ## completed ## ]]"
    good = answer(prompt)
    if "[[ ## avenues ## ]]" not in prompt:
        return good
    hinted = HINT in request["messages"][0]["content"]
    return good if hinted or draw({"question": prompt}) % 3 == 0 else good.replace("[[ ## completed ## ]]", "")


def test_the_page_has_what_is_run() -> None:
    assert list(programs()) == ["improve.py", "compare.py", "unnamed.py"]
    assert len(programs()["improve.py"].splitlines()) <= 20
    assert len(commands()) == 6


@pytest.mark.slow
@pytest.mark.soak
def test_every_program_and_command_of_the_page_works_as_written(tmp_path: Path, provider: Provider) -> None:
    searched = ksflow(tmp_path, *DRY, "llm=dummy", "digester=none", "loop.evaluations=36", "loop.confirm=false")
    assert searched.returncode == 0, searched.stderr
    for name, text in programs().items():
        (tmp_path / name).write_text(text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    stand_ins = {"LLM_URL": provider.url, "LLM_MODEL": "gpt-5", "DSPY_CACHEDIR": str(tmp_path / "cache")}
    environment = {**os.environ, "PATH": path, "COLUMNS": "160", "KSFLOW_CACHE": str(tmp_path / "cache"), **stand_ins}
    said = []
    for command in [*commands(), "python unnamed.py"]:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        said.append(done.stdout)
    folder = tmp_path / "runs/prompts/designer"
    for name in ("mine", "ours", "again"):
        state = json.loads((folder / f"{name}.json").read_text())
        assert HINT in state["predict"]["signature"]["instructions"]
        assert state["predict"]["lm"] is None
    assert re.search(r"^mine \d+\.\d+$", said[2], re.MULTILINE)
    assert re.search(r"^ours \d+\.\d+$", said[2], re.MULTILINE)
    assert all(f"designer.prompt={name}" in said[3] for name in ("null", "mine", "ours"))
    assert "You design the next experiments" in said[4]
    assert re.search(r"base_code +slow +\d+", said[5])
    recorded = ksflow(tmp_path, "lineage", "problem=softmax", "run=dry").returncode
    refs = subprocess.run(
        ["git", "-C", tmp_path / "runs/lineage.git", "for-each-ref", "--format=%(refname)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert recorded == 0
    assert "refs/ksflow/softmax/optimize-designer/calls" in refs
