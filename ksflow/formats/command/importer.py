"""A file of a user's own repository, judged by the repository's own commands.

    problem=command problem.repo=~/mine problem.file=src/kernel.cu problem.build='make' problem.test='make test'
    problem.bench='./bench' problem.metric='time: ([0-9.]+) us'

It brings `evaluator=command`, which runs the commands in a copy of the repository. What the benchmark prints is
believed: nothing else times it.
"""

import hashlib
import json
import os
import re
from pathlib import Path

from ksflow.errors import ConfigError, reaching, suggest
from ksflow.formats.checkout import path_in_checkout, provenance, slug
from ksflow.home import not_source
from ksflow.kernels.languages import ENDINGS, detect_language
from ksflow.kernels.problem.file import read_text
from ksflow.records import Case, Json, Kernel, Limits, Problem, Seed

_UNITS = ("ns", "us", "ms", "s")
_BETTER = ("lower", "higher")
_HEADERS = {".h": "cpp", ".hpp": "cpp", ".cuh": "cuda"}
_LARGEST_READ = 4 << 20  # of larger files only the size counts for the digest


def load(  # noqa: PLR0913 - what a user says of a repository
    repo: str | None = None,
    file: str | None = None,
    build: str = "",
    test: str = "",
    bench: str = "",
    metric: str = "",
    unit: str = "us",
    better: str = "lower",
    statement: str = "",
    build_s: float = 600.0,
    test_s: float = 600.0,
    bench_s: float = 600.0,
    memory_mb: int = 8192,
) -> Problem:
    """The problem. Raises ConfigError.

    repo: the folder of your repository. file: the file there that is to be made faster. build: the command that builds
    it, if one is needed. test: the command that fails where the file is wrong. bench: the command that prints the time.
    metric: a regular expression whose group is the number in what `bench` prints; the last match counts. unit: of a
    time. better: `higher` for rates, which have no unit. statement: what a writer should know. build_s, test_s,
    bench_s: how long the command may take. memory_mb: how much memory the commands may use.
    """
    if not (repo and file and test and bench and metric):
        raise ConfigError("problem=command needs problem.repo, .file, .test, .bench and .metric (and may have .build)")
    # a command as the shell knows it: a command line's `true` arrives as a truth value
    build, test, bench = (str(text).lower() if isinstance(text, bool) else text for text in (build, test, bench))
    root = Path(repo).expanduser().resolve()
    source = (root / file).resolve()
    if not source.is_relative_to(root) or not source.is_file():
        raise ConfigError(f"no file {file} in {root}")
    for key, value, valid in (("better", better, _BETTER), ("unit", unit, _UNITS)):
        if value not in valid:
            raise ConfigError(f"problem.{key}={value}; {suggest(value, valid)}")
    try:
        groups = re.compile(metric).groups
    except re.error as error:
        raise ConfigError(f"problem.metric={metric} is no regular expression: {error}") from error
    if groups != 1:
        raise ConfigError(f"problem.metric={metric} has {groups} groups; it needs one: ( ) around the number")
    commands = {"build": build, "test": test, "bench": bench, "metric": metric, "unit": unit, "better": better}
    file = str(source.relative_to(root))  # without links: it is written to in a copy
    body = read_text(source)
    kind = _HEADERS.get(source.suffix) or detect_language(source.name, body)
    if not kind:
        raise ConfigError(f"{source}: its ending says no language; known: {' '.join([*ENDINGS, *_HEADERS])}")
    inferred = ["the time is what the benchmark says of itself"]
    if better == "higher":
        inferred.append("scores are 1,000,000 over the rate, so that lower is better")
    lines = [f"- {name}: `{commands[name]}`" for name in ("build", "test", "bench") if commands[name]]
    counts = f"What it prints for `{metric}` counts; {better} is better."
    task = "\n".join([f"Make `{file}` faster, and keep what it does. Commands:", "", *lines, "", counts])
    return Problem(
        name=slug(f"{root.name}-{source.stem}"),
        title=f"{file} of {root.name}",
        description=path_in_checkout(root),
        statement=statement or task,
        root=str(root),
        reference=body,
        languages=(kind,),
        args=(),
        dims=(),
        tests=(),
        benchmarks=(Case("bench", {}, 0),),
        seeds=(Seed(source.name, Kernel(kind, {source.name: body}), baseline=True),),
        limits=Limits(build_s, test_s, bench_s, memory_mb),
        digest=_digest(root, source, commands),
        called=f"The whole text of `{file}`; what else the repository uses of it must stay: names, types, signatures.",
        origin={"format": "command", "path": str(root), "file": file, **commands, **provenance(root),
                "inferred": inferred, "dropped": []},
    )  # fmt: skip


def _digest(root: Path, source: Path, commands: Json) -> str:
    """Of all that could change a verdict, but the file itself."""
    digest = hashlib.sha256(json.dumps(commands).encode())
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - not_source(folder, folders))
        for path in (Path(folder, name) for name in sorted(set(names) - not_source(folder, names))):
            if path == source or not path.is_file():
                continue
            with reaching(f"cannot read {path}", "the repository is copied whole"):
                size = path.stat().st_size
                digest.update(os.fsencode(f"{path.relative_to(root)}\0{size}\0"))
                if size <= _LARGEST_READ:
                    digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
