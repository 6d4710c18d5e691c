"""What an export says of licences, and which problems share a split."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import accepted, draft, kernel, plant
from test_dataset import faster, grow, rows

from ksflow.formats.checkout import path_in_checkout, provenance
from ksflow.formats.kernelbench.importer import load as load_kernelbench
from ksflow.kernels.problem.licences import join_licences, of_problem, on_the_hub, parse_licence
from ksflow.kernels.problem.loader import load
from ksflow.lineage import Lineage
from ksflow.records import Call, Evaluation, Experiment, Plan, Trial, Verdict, name_without_precision
from ksflow.training.dataset import dataset
from ksflow.training.dataset.verb import _splits

GPL, MIT, BOTH = "GPL-3.0-only", "MIT", "GPL-2.0-only AND MIT"


@pytest.fixture
def by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lineage]:
    """A run of the problem `toy`, of which nobody knows the reference here."""
    monkeypatch.chdir(tmp_path)
    made = Lineage(tmp_path / "runs/lineage.git", "toy", clock=lambda: 1_700_000_000)
    made.open_session("")
    yield made
    made.close()


def licensed(lineage: Lineage, licence: str, us: float = 100.0) -> Trial:
    """A judged seed that names a licence."""
    seed = plant(lineage, f"// SPDX-License-Identifier: {licence}\nint x;\n" if licence else "int x;\n", us)
    seed = replace(seed, evaluation=replace(accepted(us), judge="j", problem="p"))
    lineage.evaluate(seed)
    return seed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("// SPDX-License-Identifier: MIT\n", "MIT"),
        ("/* SPDX-License-Identifier: GPL-2.0-only AND MIT */", BOTH),
        ("# SPDX-License-Identifier: (Apache-2.0 OR MIT) AND BSD-3-Clause\n", "(Apache-2.0 OR MIT) AND BSD-3-Clause"),
        ("(SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note)", "GPL-2.0-only WITH Linux-syscall-note"),
        ("SPDX-License-Identifier: MIT and whatever else", "MIT"),
        ("no licence at all", ""),
    ],
)
def test_an_expression_is_read_to_its_end(text: str, expected: str) -> None:
    assert parse_licence(text) == expected


def test_licences_together_are_all_of_them_each_once() -> None:
    assert join_licences([BOTH, "MIT", "Apache-2.0"]) == "Apache-2.0 AND GPL-2.0-only AND MIT"
    assert join_licences(["Apache-2.0 OR MIT", "MIT"]) == "(Apache-2.0 OR MIT) AND MIT"
    assert (on_the_hub(GPL), on_the_hub(BOTH), on_the_hub("Own-1.0")) == ("gpl-3.0", "", "")


def test_a_row_has_the_licences_of_its_kernel_and_of_the_reference(by_hand: Lineage, tmp_path: Path) -> None:
    for licence, name in ((GPL, "one"), (BOTH, "two"), ("", "three")):
        base = licensed(by_hand, licence)
        grow(by_hand, base, f"fast {name}", faster(50, base.id), f"answer {name}")
    by_hand.close()
    assert dataset([], [f"out={tmp_path / 'out'}", "stages=writer"]) == 0
    found = {row["completion"][0]["content"]: row["licence"] for row in rows(tmp_path / "out", "rl")}
    assert found == {
        "answer one": "GPL-3.0-only AND unknown",
        "answer two": "GPL-2.0-only AND MIT AND unknown",
        "answer three": "unknown",
    }


def test_the_reference_that_a_writer_read_has_its_say(by_hand: Lineage, tmp_path: Path) -> None:
    base, reference = licensed(by_hand, MIT), licensed(by_hand, GPL, 90.0)
    turn = by_hand.begin_round()
    by_hand.select(by_hand.population().choose(base.id, reference.id, "two of them"), turn.name)
    experiment = Experiment("merge them", "they are merged", (1.0, 5.0), 10.0)
    (trial,) = by_hand.dispatch([draft(base.id, reference.id)], Plan(("a",), (experiment,), (0,)), turn.name)
    messages = ({"role": "user", "content": "Write it."},)
    by_hand.record(Call("writer=rewrite", "some/model", messages, "the answer", about=trial.id))
    trial = replace(trial, kernel=replace(kernel("merged"), report="the answer"), form="merged")
    by_hand.write(trial)
    by_hand.evaluate(replace(trial, evaluation=replace(faster(50, base.id), judge="j", problem="p")))
    grow(by_hand, trial, "faster still", faster(40, trial.id), "its child")
    by_hand.close()
    assert dataset([], [f"out={tmp_path / 'out'}", "stages=writer", "format=rl"]) == 0
    found = {row["completion"][0]["content"]: row["licence"] for row in rows(tmp_path / "out", "rl")}
    assert found == dict.fromkeys(("the answer", "its child"), "GPL-3.0-only AND MIT AND unknown")


def test_a_pair_holds_both_of_its_kernels(by_hand: Lineage, tmp_path: Path) -> None:
    base = licensed(by_hand, MIT)
    grow(by_hand, base, "fast", faster(50, base.id), "good")
    wrong = Evaluation(Verdict.INCORRECT, "off", target="t")
    grow(by_hand, base, f"// SPDX-License-Identifier: {GPL}\n", wrong, "bad")
    by_hand.close()
    assert dataset([], [f"out={tmp_path / 'out'}", "stages=writer", "format=preference"]) == 0
    assert {row["licence"] for row in rows(tmp_path / "out", "preference")} == {"GPL-3.0-only AND MIT AND unknown"}


def test_the_reference_in_a_prompt_is_licensed_too(tmp_path: Path) -> None:
    softmax = load("softmax")
    assert of_problem(softmax) == "Apache-2.0"
    elsewhere = replace(softmax, root=str(tmp_path))
    assert of_problem(elsewhere) == ""
    assert of_problem(replace(elsewhere, origin={"licence": "MIT License"})) == "MIT"
    assert of_problem(replace(elsewhere, reference="# SPDX-License-Identifier: GPL-3.0-only\n")) == GPL


def test_only_a_licence_of_the_checkout_counts(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("Somebody else's terms\n")
    folder = tmp_path / "checkout" / "level1"
    folder.mkdir(parents=True)
    assert provenance(folder) == {}
    (tmp_path / "checkout" / ".git").mkdir()
    assert "licence" not in provenance(folder)
    (tmp_path / "checkout" / "LICENSE").write_text("MIT License\n\nCopyright\n")
    assert provenance(folder)["licence"] == "MIT License"


def test_one_problem_in_several_precisions_is_in_one_split() -> None:
    assert (
        name_without_precision("kernelbench-1-19_ReLU-bf16")
        == name_without_precision("kernelbench-1-19_ReLU")
        == "kernelbench-1-19_ReLU"
    )
    assert name_without_precision("fp8_gemm") == "fp8_gemm"
    names = {f"kernelbench-1-{number}_Op{tail}" for number in range(60) for tail in ("", "-fp16", "-bf16")}
    found = _splits(names, "")
    assert set(found.values()) == {"train", "test"}
    assert all(split == found[name_without_precision(name)] for name, split in found.items())
    told = _splits(names, "kernelbench-1-7_Op-fp16")
    assert sorted(name for name, split in told.items() if split == "test") == [
        "kernelbench-1-7_Op",
        "kernelbench-1-7_Op-bf16",
        "kernelbench-1-7_Op-fp16",
    ]


@pytest.mark.slow
def test_prompts_name_a_problems_place_in_its_checkout_and_not_where_a_user_keeps_it(tmp_path: Path) -> None:
    root = tmp_path / "someones" / "checkout"
    (root / ".git").mkdir(parents=True)
    (root / "level1").mkdir()
    file = root / "level1" / "19_ReLU.py"
    model = "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x.relu()"
    inputs = "def get_inputs():\n    return [torch.randn(8, 4)]\n\n\ndef get_init_inputs():\n    return []"
    file.write_text(f"import torch\n\n\n{model}\n\n\n{inputs}\n")
    found = load_kernelbench(str(file))
    assert found.description == "level1/19_ReLU.py"
    assert found.origin["path"] == str(file)
    assert "someones" not in found.title + found.statement + found.listing + found.called
    assert path_in_checkout(root) == "checkout"
    (root / ".git").rmdir()
    assert path_in_checkout(file) == "19_ReLU.py"
