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

from ksflow.dataset.licences import on_the_hub
from ksflow.dataset.rows import COLUMNS, Row

MARK = "ksflow-lineage"
"""In the card's tags: a folder with it may be replaced by another export."""
SPLITS = ("train", "test")
_BODY = """\
# Kernels and the questions that led to them

Made from the lineage of a kernel search by `ksflow`: every row is a model's answer, or a pair of answers, with what the
judge measured of the kernels that came of it.

{rows}

## Splits

By problem: no problem is in two splits.

{problems}

## Who wrote it

{models}

`none` is a rule or a person. The terms of some providers restrict what their models' answers may be used for, training
other models included: check them for each of these models before you train or publish.

## Who judged it

{judges}

Times hold for their machine (`target`). A judge whose name begins with `fake` made its verdicts up: such rows are for
trying things out.

## Licences

{licences}

Of a row: of its kernels, of all that they were made from (the references that their writers read included), and of the
problem's reference implementation, which prompts show. As their texts name it (`SPDX-License-Identifier: NAME`), as the
licence file of the problem's checkout does, or as the export was told. `AND`: all of them hold.
{unsaid}
## Columns

| configuration | trainer | columns |
|---|---|---|
{columns}

- `about` is a trial of the run, or `round S.N`; `target` and `judge` are what its best kernel was judged on and by.
- `reward`: 0 for an answer that could not be read and for a kernel that cheats, 0.1 where it does not compile or
  crashes, 0.2 where it is wrong, and 0.5 + log2(speed-up) clipped to [0.25, 2.5] where it is right. A kernel's speed-up
  is over the one it was made from. A plan has the best reward of its experiments; selections and digests have the best
  too, with speed-ups over the fastest kernel of that moment, so choosing a slow one gains nothing. Notes that were kept
  in a round without a measurement have 0.
- `label`: faster beyond noise. `margin`: the difference of the rewards.
- `kind` of a pair: `format`, an answer that could not be read and the one that came next; `answers`, two answers to
  the same prompt; `kernels`, two kernels made from one. What is right is better than what is not; of two that are
  right the faster is better where the judge's interval, side by side or beside the same third kernel, says so.
- `base_us`, `baseline_us`, `score_us`: microseconds of the kernel to change, of the fastest seed, and of the kernel on
  record (0 where it was rejected). `base_commit` is in the lineage.
- Left out: verdicts that are stale, unranked, timed out or the harness' own errors; comparisons across problems'
  versions, judges or machines; repeats of a kernel that differ in layout and comments alone.

## To read it

```python
from datasets import load_dataset

data = load_dataset("FOLDER", "{first}")
```

Made with `python -m ksflow export {arguments}`.
"""
SEE_CARD = "see card"
"""In a row whose licence nobody named."""
_UNSAID = """
`see card` means that of some of it nobody said, so these rows may not be published as they are. To settle it, write a
line `SPDX-License-Identifier: NAME` into the seeds that the kernels come from before a run, name the problem where the
export does not know its reference (`problem=...`), or export again with `licence=NAME` (an SPDX name such as
Apache-2.0), which stands for every kernel and every reference that names none. You need the right to give it: that of
the seeds, the problems' references and the kernels inherited from elsewhere.
"""
_TRAINERS = {
    "chat": "SFT",
    "preference": "DPO, reward models",
    "rl": "KTO, any scalar reward",
    "prompts": "GRPO, RLOO: the trainer samples, `ksflow evaluate` judges",
}


class Files:
    """The files of an export, being written. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: Counter[tuple[str, str]] = Counter()
        """(configuration, split) -> rows."""
        self.told: dict[str, Counter[str]] = {name: Counter() for name in ("problem", "model", "judge", "licence")}
        self.splits: dict[str, str] = {}
        """Problem -> split."""
        self._open: dict[tuple[str, str], IO[str]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Files":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def write(self, configuration: str, split: str, row: Row) -> None:
        """Add one row."""
        place = configuration, split
        if place not in self._open:
            path = self.folder / configuration / f"{split}.jsonl"
            path.parent.mkdir(exist_ok=True)
            self._open[place] = self._stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
        self._open[place].write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        self.rows[place] += 1
        self.splits[row["problem"]] = split
        for name, counter in self.told.items():
            counter[row[name]] += 1
        if "rejected_model" in row:
            self.told["model"][row["rejected_model"]] += 1

    def card(self, arguments: str) -> None:
        """Write the card. Its licence is the rows' where they all have the same one."""
        licence = on_the_hub(self.told["licence"])
        made = [name for name in COLUMNS if any(self.rows[name, split] for split in SPLITS)]
        front = {
            **({"license": licence} if licence else {"license": "other", "license_name": "see-card"}),
            "pretty_name": "Kernels and the questions that led to them",
            "task_categories": ["text-generation"],
            "tags": ["code", MARK],
            "configs": [{"config_name": name, "data_files": self._data_files(name)} for name in made],
            "dataset_info": [{"config_name": name, "features": features(name)} for name in made],
        }
        head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
        (self.folder / "README.md").write_text(f"---\n{head}---\n\n{self._body(made, arguments)}", encoding="utf-8")

    def _data_files(self, name: str) -> list[dict[str, str]]:
        return [{"split": split, "path": f"{name}/{split}.jsonl"} for split in SPLITS if self.rows[name, split]]

    def _body(self, made: list[str], arguments: str) -> str:
        problems = self.told["problem"]
        return _BODY.format(
            rows=_table(("configuration", *SPLITS), ((n, *(self.rows[n, s] for s in SPLITS)) for n in made)),
            problems=_table(("problem", "split", "rows"), ((n, self.splits[n], problems[n]) for n in sorted(problems))),
            models=_counted("model", self.told["model"]),
            judges=_counted("judge", self.told["judge"]),
            licences=_counted("licence", self.told["licence"]),
            unsaid=_UNSAID if any(SEE_CARD in name for name in self.told["licence"]) else "",
            columns="\n".join(f"| {name} | {_TRAINERS[name]} | {', '.join(COLUMNS[name])} |" for name in made),
            first=made[0],
            arguments=arguments,
        )


def features(configuration: str) -> list[dict[str, Any]]:
    """A configuration's columns as a card declares them: no reader has to guess from the first rows."""
    return [_feature(name, kind) for name, kind in COLUMNS[configuration].items()]


def _feature(name: str, kind: str) -> dict[str, Any]:
    """Made anew each time: YAML would write a second mention as a reference, which the readers do not follow."""
    if kind != "messages":
        return {"name": name, "dtype": kind}
    return {"name": name, "list": [{"name": part, "dtype": "string"} for part in ("role", "content")]}


def _counted(what: str, counts: Mapping[str, int]) -> str:
    return _table((what, "rows"), ((name or "none", counts[name]) for name in sorted(counts)))


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)
