"""The data set as files: JSON Lines for each configuration and split, and the card that says what they are.

The card's front matter is what Hugging Face's readers go by. Nothing in it tells of the machine or the day, so the
same lineage makes the same files.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import yaml

from ksflow import home
from ksflow.dataset.rows import COLUMNS, Row
from ksflow.problem.licences import on_the_hub

MARK = "ksflow-lineage"
"""In the card's tags: a folder with it may be replaced by another data set."""
SPLITS = ("train", "test")
_TEMPLATE = Path(__file__).with_name("card.md")
SEE_CARD = "see card"
"""In a row whose licence nobody named."""
_UNNAMED = """
`see card` means that of some of it nobody said, so these rows may not be published as they are. To settle it, write a
line `SPDX-License-Identifier: NAME` into the seeds that the kernels come from before a run, name the problem where the
command does not know its reference (`problem=...`), or write it again with `licence=NAME` (an SPDX name such as
Apache-2.0), which stands for every kernel and every reference that names none. You need the right to give it: that of
the seeds, the problems' references and the kernels inherited from elsewhere.
"""
_TRAINERS = {
    "chat": "SFT",
    "preference": "DPO, reward models",
    "rl": "KTO, any scalar reward",
    "prompts": "GRPO, RLOO: the trainer samples, `ksflow evaluate` judges",
}


class Files(ExitStack):
    """The files of a data set, being written. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.rows: Counter[tuple[str, str]] = Counter()
        """(configuration, split) -> rows."""
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in ("problem", "model", "judge", "licence")}
        self.splits: dict[str, str] = {}
        """Problem -> the split that its rows are in."""
        self._open: dict[tuple[str, str], IO[str]] = {}

    def write(self, configuration: str, split: str, row: Row) -> None:
        """Add one row to the file of its configuration and split, and count it for the card."""
        place = configuration, split
        if place not in self._open:
            path = self.folder / configuration / f"{split}.jsonl"
            path.parent.mkdir(exist_ok=True)
            self._open[place] = self.enter_context(path.open("w", encoding="utf-8", newline="\n"))
        self._open[place].write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        self.rows[place] += 1
        self.splits[row["problem"]] = split
        for name, counter in self.counts.items():
            counter[row[name]] += 1
        if "rejected_model" in row:
            self.counts["model"][row["rejected_model"]] += 1

    def card(self, arguments: str) -> None:
        """Write the card. Its licence is the rows' where they all have the same one."""
        licence = on_the_hub(self.counts["licence"])
        names = [name for name in COLUMNS if any(self.rows[name, split] for split in SPLITS)]
        files = {
            name: [{"split": split, "path": f"{name}/{split}.jsonl"} for split in SPLITS if self.rows[name, split]]
            for name in names
        }
        front = {
            **({"license": licence} if licence else {"license": "other", "license_name": "see-card"}),
            "pretty_name": "Kernels and the questions that led to them",
            "task_categories": ["text-generation"],
            "tags": ["code", MARK],
            "configs": [{"config_name": name, "data_files": files[name]} for name in names],
            "dataset_info": [{"config_name": name, "features": features(name)} for name in names],
        }
        head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
        problems = self.counts["problem"]
        body = _TEMPLATE.read_text(encoding="utf-8").format(
            rows=_table(("configuration", *SPLITS), ((n, *(self.rows[n, s] for s in SPLITS)) for n in names)),
            problems=_table(("problem", "split", "rows"), ((n, self.splits[n], problems[n]) for n in sorted(problems))),
            models=_counted("model", self.counts["model"]),
            judges=_counted("judge", self.counts["judge"]),
            licences=_counted("licence", self.counts["licence"]),
            unsaid=_UNNAMED if any(SEE_CARD in name for name in self.counts["licence"]) else "",
            columns="\n".join(f"| {name} | {_TRAINERS[name]} | {', '.join(COLUMNS[name])} |" for name in names),
            first=names[0],
            arguments=arguments,
        )
        home.write(self.folder / "README.md", f"---\n{head}---\n\n{body}")


def features(configuration: str) -> list[dict[str, Any]]:
    """A configuration's columns as a card declares them: no reader has to guess from the first rows.

    Every part is an object of its own: YAML would write a second mention as a reference, which readers do not follow.
    """
    return [
        {"name": name, "list": [{"name": part, "dtype": "string"} for part in ("role", "content")]}
        if kind == "messages"
        else {"name": name, "dtype": kind}
        for name, kind in COLUMNS[configuration].items()
    ]


def _counted(what: str, counts: Mapping[str, int]) -> str:
    return _table((what, "rows"), ((name or "none", counts[name]) for name in sorted(counts)))


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)
