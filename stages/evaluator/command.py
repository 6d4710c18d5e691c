"""`CommandEvaluator`: builds, tests and times a file of a repository by the repository's own commands.

Covered: each command runs in a tool's box (no network, no keys, limits on time, memory and file sizes) on a copy of the
repository in which nothing else is written; exit codes are the verdict. NOT covered: whether the time is true. The
benchmark times itself, in the same process as the candidate, and so does the test that says it is right.
"""

import os
import re
import shlex
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from ksflow.compilers.client import CompileServer
from ksflow.errors import ConfigError
from ksflow.processes.child_environment import child_environment
from ksflow.records import Evaluation, Json, Kernel, Problem, Target, Timing, Trial, Verdict
from ksflow.sandbox.levels import probe

_VERSION = 1
_UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_RATE = 1e6
_USER = 61182
"""Whose the copies are where this process is root."""
_FILE_MB, _DISK_MB = 1024, 512
_LOG = 4000
_MANY = 9
_STEADY = 1.25
"""Times further apart than this say nothing."""
_DEVICES = ("/dev/nvidia*", "/dev/kfd", "/dev/dri")


@dataclass(frozen=True)
class Ran:
    """What came of a command."""

    ok: bool
    log: str
    timed_out: bool = False


class CommandEvaluator:
    """Judges by a repository's commands.

    repeats: how often the benchmark runs; the median counts. readable: further folders that the commands may read, such
    as a compiler's outside of /usr.
    """

    judge = f"command-{_VERSION}"

    def __init__(self, target: Target, repeats: int = 9, readable: Sequence[str] = ()) -> None:
        if repeats < 1:
            raise ConfigError(f"evaluator.repeats={repeats}; the benchmark must run at least once")
        self.target = target
        self.repeats = repeats
        self.readable = [*map(str, readable)]
        self.fingerprint = target.fingerprint
        self.level = probe().level
        self._server = CompileServer()

    def __call__(self, problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        """Never raises for a bad kernel. ConfigError for a problem that has no commands."""
        order = _order(problem)
        with self._copy(problem, kernel) as folder:
            evidence: Json = {"time": "self-reported by the benchmark"}
            for step, limit, verdict in (
                ("build", problem.limits.compile_s, Verdict.COMPILE),
                ("test", problem.limits.check_s, Verdict.INCORRECT),
            ):
                ran = self._run(problem, folder, order[step], limit)
                if not ran.ok:
                    told = Verdict.TIMEOUT if ran.timed_out else verdict
                    return self._verdict(told, f"{step}: {_reason(ran.log)}", {**evidence, "log": ran.log[-_LOG:]})
            others = {trial.id: trial.kernel for trial in against if trial.kernel is not None}
            with self._rivals(problem, others) as rivals:
                return self._timed(problem, {"": folder, **rivals}, evidence)

    def admit(self, problem: Problem) -> tuple[tuple[str, bool, str], ...]:
        """Whether the file as it is passes, and an empty one does not: (name, ok, detail)."""
        seed = problem.seeds[0]
        found = self(problem, seed.kernel, ())
        took = f"{found.score_us:.4g} us" if found.score_us else f"{found.verdict}: {found.reason}"
        empty = self(problem, Kernel(seed.kernel.language, dict.fromkeys(seed.kernel.files, "")), ())
        said = "build and test take an empty file: they do not look at it" if empty.accepted else empty.reason
        return (f"seed {seed.name}", found.accepted, took), ("rejects an empty file", not empty.accepted, said)

    # -- inside ----------------------------------------------------------------------------------

    @contextmanager
    def _copy(self, problem: Problem, kernel: Kernel) -> Iterator[Path]:
        """The repository with another text of the file."""
        with tempfile.TemporaryDirectory(prefix="ksflow-command-", ignore_cleanup_errors=True) as made:
            folder = Path(made).resolve() / "repo"
            try:
                shutil.copytree(problem.root, folder, symlinks=True, ignore=_left_out)
            except OSError as error:
                raise ConfigError(f"{problem.root} cannot be copied: {_first(error)}") from error
            file = (folder / problem.origin["file"]).resolve()
            if not file.is_relative_to(folder):
                raise ConfigError(
                    f"{problem.origin['file']} leads out of {problem.root}; name the file that it leads to"
                )
            file.write_text(kernel.main, encoding="utf-8")
            os.chmod(made, 0o755)
            if os.getuid() == 0:
                for path in (folder, *folder.rglob("*")):
                    os.chown(path, _USER, _USER, follow_symlinks=False)
            yield folder

    @contextmanager
    def _rivals(self, problem: Problem, kernels: dict[str, Kernel]) -> Iterator[dict[str, Path]]:
        """Built, and side by side with it; one that does not build is left out."""
        if not kernels:
            yield {}
            return
        (name, kernel), *rest = kernels.items()
        with self._copy(problem, kernel) as folder, self._rivals(problem, dict(rest)) as others:
            ran = self._run(problem, folder, problem.origin["build"], problem.limits.compile_s)
            yield {name: folder, **others} if ran.ok else others

    def _timed(self, problem: Problem, folders: dict[str, Path], evidence: Json) -> Evaluation:
        """In turns, so that whatever the machine does meanwhile meets all of them."""
        samples: dict[str, list[float]] = {name: [] for name in folders}
        for _ in range(self.repeats):
            for name, folder in folders.items():
                ran = self._run(problem, folder, problem.origin["bench"], problem.limits.time_s)
                found = _figure(problem, ran.log) if ran.ok else None
                if found is None and not name:
                    why = _reason(ran.log) if not ran.ok else f"prints nothing like {problem.origin['metric']}"
                    verdict = Verdict.TIMEOUT if ran.timed_out else Verdict.CRASH
                    return self._verdict(verdict, f"bench: {why}", {**evidence, "log": ran.log[-_LOG:]})
                if found is not None:
                    samples[name].append(found)
        mine = samples.pop("")
        score = statistics.median(mine)
        evidence |= {"said": _said(problem, score), "against": [_row(name, mine, theirs) for name, theirs in
                     samples.items() if len(theirs) == len(mine)]}  # fmt: skip
        if evidence["against"]:
            evidence["claim"] = _claim(evidence["against"][0], mine)
        return self._verdict(Verdict.ACCEPT, "", evidence, (Timing("bench", score, tuple(mine)),))

    def _run(self, problem: Problem, folder: Path, command: str, limit: float) -> Ran:
        """One command in a box that may write into the copy."""
        if not command:
            return Ran(True, "")
        passed = {**child_environment({}), **self.target.environment}
        devices = [path for pattern in _DEVICES for path in glob(pattern)] if self.target.kind == "gpu" else []
        order = {
            "level": self.level,
            "command": ["/bin/sh", "-c", f"cd {shlex.quote(str(folder))} && {command}"],
            "makes": "",
            "environment": {name: value for name, value in passed.items() if name not in ("TMPDIR", "PYTHONPATH")},
            "memory_mb": problem.limits.memory_mb,
            "cpu_s": int(limit) + 5,
            "file_mb": _FILE_MB,
            "disk_mb": _DISK_MB,
            "extra": self.readable,
            "writable": [str(folder)],
            **({"uid": _USER} if os.getuid() == 0 else {}),
            **({"devices": devices} if devices else {}),
        }
        answer = self._server.ask({"op": "make", "files": {}, "order": order, "wall_s": limit, "into": ""}, limit)
        words, log = answer["words"], str(answer["log"]).replace(f"{folder}/", "")
        if answer["timed_out"]:
            return Ran(False, f"{log}\ntook longer than {limit:g} s", timed_out=True)
        if "exit" not in words and "disk" not in words:
            raise ConfigError(f"the command's box does not start: {words.get('fault', 'its supervisor ended')}")
        if "memory" in words or "disk" in words:
            return Ran(False, f"{log}\nused up its {'memory' if 'memory' in words else 'disk'}")
        ended = "" if words["exit"] == "0" else f"\nexit status {words['exit']}"
        return Ran(not ended, f"{log}{ended if not log.strip() else ''}")

    def _verdict(
        self, verdict: Verdict, reason: str, evidence: Json | None = None, timings: tuple[Timing, ...] = ()
    ) -> Evaluation:
        score = round(timings[0].us, 6) if timings else None
        line = " ".join(reason.split())[:500]
        return Evaluation(verdict, line, score, timings, evidence or {}, self.level, self.fingerprint, judge=self.judge)


def _left_out(folder: str, names: list[str]) -> list[str]:
    """What is not copied: git's own, and what is neither a file nor a folder nor a link (pipes, sockets)."""
    places = {name: Path(folder, name) for name in names}
    return [
        name
        for name, place in places.items()
        if name == ".git" or not (place.is_symlink() or place.is_file() or place.is_dir())
    ]


def _first(error: OSError) -> str:
    """What went wrong with the first of the files that a copy failed for."""
    told = error.args[0] if isinstance(error, shutil.Error) else None
    return str(told[0][2]) if isinstance(told, list) and told else str(error)


def _order(problem: Problem) -> Json:
    if problem.origin.get("format") != "command":
        raise ConfigError(f"evaluator=command judges problem=command; for {problem.name} use evaluator=local")
    return problem.origin


def _figure(problem: Problem, log: str) -> float | None:
    """The number that the benchmark printed, in µs; of a rate its inverse."""
    found = re.findall(problem.origin["metric"], log)
    try:
        value = float(found[-1]) if found else 0.0
    except ValueError:
        return None
    if not 0 < value < float("inf"):
        return None
    return _RATE / value if problem.origin["better"] == "higher" else value * _UNITS[problem.origin["unit"]]


def _said(problem: Problem, score: float) -> str:
    if problem.origin["better"] == "higher":
        return f"a rate of {_RATE / score:.6g}, higher is better; the score is 1,000,000 over it"
    return f"{score:.6g} us, lower is better"


def _row(name: str, mine: Sequence[float], theirs: Sequence[float]) -> Json:
    """How much faster than another: the median of the turns' ratios, with its interval."""
    ratios = [other / own for own, other in zip(mine, theirs, strict=True)]
    low, high = _interval(ratios)
    return {"id": name, "speedup": round(statistics.median(ratios), 4), "low": round(low, 4), "high": round(high, 4)}


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the median: without the outermost values where nine or more leave 96 % confidence."""
    cut = 1 if len(values) >= _MANY else 0
    found = sorted(values)[cut : len(values) - cut]
    return found[0], found[-1]


def _claim(row: Json, mine: Sequence[float]) -> Json:
    """About the incumbent, with the kernel's own turns as the control."""
    low, high = (value / statistics.median(mine) for value in _interval(mine))
    control = {"speedup": 1.0, "low": round(low, 4), "high": round(high, 4)}
    ranked = control["high"] / control["low"] <= _STEADY
    why = "" if ranked else f"its own times are up to {control['high'] / control['low']:.2f} times apart"
    faster = row["low"] > 1 and row["speedup"] > control["high"]
    return {**row, "faster": faster, "control": control, "ranked": ranked, "why": why}


def _reason(log: str) -> str:
    """The line that says what is wrong, else the last one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next(
        (line for line in lines if re.search(r"\berror\b|Error|FAIL", line)), lines[-1] if lines else "no words"
    )
