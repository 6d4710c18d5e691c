"""ksflow beside OpenEvolve and ShinkaEvolve: what each adds to the model's and the evaluator's time.

    python benchmarks/peers.py [--iterations 100] [--seconds-model 0] [--seconds-evaluation 0] [--json FILE]

All run here, one after the other, on the same program, with the same stub model (a server on loopback) and the same
stub evaluator. The peers are installed from the package index, once, into environments of their own below --folder.
An iteration is one candidate: proposed, written, evaluated, kept. What this does not measure: how good the search is.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from peers import measure, tools
from peers.measure import Ended, Meter
from peers.model import StubModel
from peers.tools import Job, Tool

from ksflow.home import cache

_COLUMNS = {
    "evaluated": ("candidates evaluated", "d"),
    "calls": ("model calls", "d"),
    "wall_ms": ("wall ms per iteration", ".0f"),
    "waited_ms": ("of which the stubs' seconds, taken one after the other", ".0f"),
    "cpu_ms": ("CPU ms per iteration, whole process tree", ".0f"),
    "evaluator_ms": ("of which processes of the stub evaluator", ".0f"),
    "growth_cpu": ("CPU growth, last tenth / first tenth", ".2f"),
    "growth_wall": ("wall growth, last tenth / first tenth", ".2f"),
    "peak_mb": ("peak memory of the process tree, MB", ".0f"),
    "disk_kb": ("disk for results, kB per iteration", ".1f"),
    "start_s": ("start to first model call, s", ".2f"),
    "start_cpu_s": ("CPU until then, s", ".2f"),
    "end_s": ("last evaluation to the end, s", ".2f"),
    "total_cpu_s": ("CPU of the whole run, s", ".1f"),
}


@dataclass(frozen=True)
class Row:
    """One tool's figures; `failure` says why there are none."""

    tool: str
    version: str
    settings: str
    failure: str = ""
    evaluated: int = 0
    calls: int = 0
    wall_ms: float = 0.0
    """From the first model call to the last evaluation, over the candidates evaluated between."""
    waited_ms: float = 0.0
    """What model calls and evaluations would take in a row. A tool that overlaps them needs less wall time."""
    cpu_ms: float = 0.0
    """The same for CPU time."""
    evaluator_ms: float = 0.0
    """CPU of one bare process of the stub evaluator, where the tool starts one for each candidate."""
    growth_cpu: float = 0.0
    growth_wall: float = 0.0
    peak_mb: float = 0.0
    disk_kb: float = 0.0
    start_s: float = 0.0
    start_cpu_s: float = 0.0
    end_s: float = 0.0
    total_cpu_s: float = 0.0


def compared(tool: Tool, options: argparse.Namespace) -> Row:
    """Run one tool."""
    row = Row(tool.name, tool.version, tool.settings)
    try:
        python = tool.install(options.folder)
    except (RuntimeError, OSError) as error:
        return replace(row, failure=str(error))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        inputs, results = root / "inputs", root / "results"
        inputs.mkdir()
        results.mkdir()
        meter = Meter(root / "done")
        with meter, StubModel(options.seconds_model, meter.called) as model:
            job = Job(options.iterations, options.seconds_evaluation, model.url, inputs, results, tuple(options.ksflow))
            command, environment = tool.command(job, python), tool.environment(job, root / "done")
            log = root / "log"
            ended = measure.run(command, results, environment, log, options.limit)
        said = tools.last_line(log.read_text(errors="replace"))
        if not meter.evaluations or ended.code:
            return replace(row, failure=model.refused or _why(ended, said, options.limit))
        waited_s = job.seconds + options.seconds_model * model.calls / len(meter.evaluations)
        row = replace(row, calls=model.calls, waited_ms=1e3 * waited_s)
        row = replace(row, evaluator_ms=_evaluator_ms(tool, job, python, environment))
        return _figures(row, meter, ended, measure.room(results))


def _evaluator_ms(tool: Tool, job: Job, python: str, environment: dict[str, str]) -> float:
    if not tool.evaluates_in_processes:
        return 0.0
    with tempfile.TemporaryDirectory() as folder:
        files = ("--program_path", str(job.inputs / "initial.py"), "--results_dir", folder)
        command = [python, str(job.inputs / "evaluate.py"), *files]
        return 1e3 * measure.cpu_of(command, {**environment, "PEERS_DONE": os.devnull})


def _why(ended: Ended, said: str, limit_s: float) -> str:
    if ended.wall_s >= limit_s:
        return f"no end within {limit_s:g} s; it said last: {said}"
    return f"exit code {ended.code}; it said last: {said}"


def _figures(row: Row, meter: Meter, ended: Ended, room: int) -> Row:
    first, last, count = meter.first, meter.evaluations[-1], len(meter.evaluations)
    assert first is not None
    growth_wall, growth_cpu = measure.growth([first, *meter.evaluations])
    start = first.at - meter.started
    return replace(
        row,
        evaluated=count,
        wall_ms=1e3 * (last.at - first.at) / count,
        cpu_ms=1e3 * (last.cpu_s - first.cpu_s) / count,
        growth_cpu=growth_cpu,
        growth_wall=growth_wall,
        peak_mb=ended.peak_bytes / 1e6,
        disk_kb=room / 1e3 / count,
        start_s=start,
        start_cpu_s=first.cpu_s,
        end_s=meter.started + ended.wall_s - last.at,
        total_cpu_s=ended.cpu_s,
    )


def show(rows: list[Row], facts: dict[str, str]) -> None:
    """The table, then what it rests on."""
    for name, value in facts.items():
        print(f"{name:12} {value}")
    print()
    if good := [row for row in rows if not row.failure]:
        print("| |" + "".join(f" {row.tool} {row.version} |" for row in good))
        print("|---|" + "---:|" * len(good))
        for name, (title, form) in _COLUMNS.items():
            print(f"| {title} |" + "".join(f" {getattr(row, name):{form}} |" for row in good))
    print()
    for row in rows:
        print(f"{row.tool} {row.version}: {f'could not run: {row.failure}' if row.failure else row.settings}")


def about(options: argparse.Namespace) -> dict[str, str]:
    """Date, device, and what was asked for."""
    info = Path("/proc/cpuinfo").read_text()
    names = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": f"{names[0] if names else platform.machine()}, {len(names)} logical CPUs",
        "Python": platform.python_version(),
        "iterations": str(options.iterations),
        "stub model": f"{options.seconds_model:g} s for each call",
        "evaluation": f"{options.seconds_evaluation:g} s for each candidate",
        **({"ksflow also": " ".join(options.ksflow)} if options.ksflow else {}),
    }


def main() -> int:
    """Run and print; the exit code is 1 when a tool could not run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--seconds-model", type=float, default=0.0, help="latency of one model call")
    parser.add_argument("--seconds-evaluation", type=float, default=0.0, help="duration of one evaluation")
    parser.add_argument("--folder", type=Path, default=cache("peers"), help="where the peers are installed")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--tools", nargs="+", default=[*tools.TOOLS], choices=[*tools.TOOLS])
    parser.add_argument("--ksflow", nargs="+", default=[], metavar="KEY=VALUE", help="more overrides for ksflow")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds after which a tool is stopped")
    options = parser.parse_args()
    facts, rows = about(options), []
    for name in options.tools:
        print(f"running {name}", file=sys.stderr, flush=True)
        rows.append(compared(tools.TOOLS[name], options))
    show(rows, facts)
    if options.json:
        options.json.write_text(json.dumps({**facts, "tools": [asdict(row) for row in rows]}, indent=1))
    return int(any(row.failure for row in rows))


if __name__ == "__main__":
    sys.exit(main())
