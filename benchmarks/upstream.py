"""A suite's results as the tools of the formats write them: KernelBench's `eval_results.json`, GPU MODE's results.

    python benchmarks/upstream.py runs/suites/NAME

The files are in `runs/suites/NAME/upstream/`, for KernelBench's own analysis among others. KernelBench counts
milliseconds, GPU MODE nanoseconds; the times are the judge's.
"""

import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ksflow import home
from ksflow.formats.checkout import slug
from ksflow.records import Json

_NONE: Json = {"compiled": False, "right": False, "us": None, "target": "", "cases": []}
_NONE |= {"baselines": {}, "speedups": {}, "sure": {}}
"""Figures of a member that left none."""
_NOTHING = {"compiled": False, "correctness": False, "metadata": {}, "runtime": -1.0, "runtime_stats": {}}


def write(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Files for every row whose problem came in one of the two formats, a folder for each variant.

    A row without figures, of a member that failed or was not begun, is there as one that did not compile: were it left
    out, the tools would take their rates over fewer problems.
    """
    levels: dict[Path, list[Mapping[str, Any]]] = {}
    for row in map(_whole, rows):
        origin = row["figures"]["origin"]
        place = folder / "upstream" / str(row.get("folder", ""))
        if origin.get("format") == "kernelbench" and "number" in origin:
            levels.setdefault(place / f"kernelbench_level{origin['level']}", []).append(row)
        elif origin.get("format") == "gpumode":
            _put(place / "gpumode" / f"{row['problem']}.json", _full(row))
    for place, group in levels.items():
        ordered = sorted(group, key=lambda row: int(row["figures"]["origin"]["number"]))
        _put(place / "eval_results.json", {str(row["figures"]["origin"]["number"]): [_sample(row)] for row in ordered})
        level = f"level{ordered[0]['figures']['origin']['level']}"
        _put(place / "baseline.json", {level: {name: stats for row in ordered for name, stats in _eager(row)}})


def _whole(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with figures: of one that has none, with those of nothing at all."""
    if row.get("figures"):
        return row
    settings = dict(word.split("=", 1) for word in row.get("words", ()) if "=" in word)
    origin = {"format": settings.get("problem", ""), "path": settings.get("problem.path", "")}
    level, number = settings.get("problem.level", ""), settings.get("problem.id", "")
    if level.isdecimal() and number.isdecimal():
        origin |= {"level": int(level), "number": int(number)}
        folders = [Path(settings.get("problem.root", "")).expanduser() / place for place in ("KernelBench", ".")]
        files = [file for folder in folders for file in folder.glob(f"level{level}/{number}_*.py")]
        origin["path"] = origin["path"] or str(next(iter(files), ""))
    name = settings.get("problem.name") or Path(origin["path"]).name or str(row.get("member", ""))
    return {"problem": slug(name), "wall_s": 0.0, **row, "figures": {**_NONE, "origin": origin}}


def _put(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    home.write(file, json.dumps(value, indent=4) + "\n")


def _sample(row: Mapping[str, Any]) -> Json:
    figures = row["figures"]
    if not figures["right"]:
        return {"sample_id": 0, **_NOTHING, "compiled": figures["compiled"]}
    stats = _milliseconds(figures["cases"][0], figures["target"])
    metadata = {"hardware": figures["target"], "device": figures["target"], "judge": "ksflow"}
    return {
        "sample_id": 0,
        "compiled": True,
        "correctness": True,
        "metadata": metadata,
        "runtime": figures["us"] / 1000,
        "runtime_stats": stats,
    }


def _eager(row: Mapping[str, Any]) -> Iterable[tuple[str, Json]]:
    """The first baseline by the problem's file name; `mean` is what speed-ups are over, so that the tool's ratio is the
    one that was measured in turns, and not that of two times of different minutes."""
    figures = row["figures"]
    file = Path(figures["origin"]["path"]).name
    first = [(name, base) for name, base in list(figures["baselines"].items())[:1] if base["us"] is not None]
    if not first and file and not figures["right"]:  # the tool leaves out what has no baseline, and counts fewer
        yield file, {"mean": _NOTHING["runtime"]}
    for name, base in first:
        stats = _milliseconds(base["cases"][0], figures["target"])
        ratio = figures["speedups"].get(name)
        mean = figures["us"] * ratio if ratio else base["us"]
        yield file, {**stats, "mean": mean / 1000}


def _milliseconds(case: Mapping[str, Any], target: str) -> Json:
    stats = {name: case[name] / 1000 for name in ("mean", "std", "min", "max")}
    return {**stats, "num_trials": case["runs"], "hardware": target, "device": target}


def _full(row: Mapping[str, Any]) -> Json:
    """One leaderboard run, with the fields that GPU MODE's own results have."""
    figures = row["figures"]
    result: dict[str, str] = {"check": "pass" if figures["right"] else "fail"}
    result["benchmark-count"] = str(len(figures["cases"]))
    for index, case in enumerate(figures["cases"]):
        us = {"mean": case["mean"], "std": case["std"], "err": case["std"] / math.sqrt(case["runs"])}
        us |= {"best": case["min"], "worst": case["max"]}
        values = {"spec": case["case"], "runs": case["runs"]} | {name: value * 1000 for name, value in us.items()}
        result |= {f"benchmark.{index}.{name}": str(value) for name, value in values.items()}
    run = {
        "success": figures["compiled"],
        "passed": figures["right"],
        "command": "ksflow",
        "stdout": "",
        "stderr": "",
        "exit_code": 0 if figures["right"] else 1,
        "duration": row["wall_s"],
        "result": result,
    }
    return {
        "success": True,
        "error": "",
        "runs": {"leaderboard": {"compilation": None, "run": run, "profile": None}},
        "system": {"gpu": figures["target"]},
    }


if __name__ == "__main__":
    suite = Path(sys.argv[1])
    write(suite, json.loads((suite / "report.json").read_text(encoding="utf-8"))["rows"])
    print(f"written to {suite / 'upstream'}")
