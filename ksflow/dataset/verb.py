"""`export`: the lineage as training data in the layouts that TRL and Hugging Face's readers take.

    runs/export/README.md                        the card: licences, models, problems, splits, how rewards are made
    runs/export/<configuration>/<split>.jsonl    chat, preference, rl, prompts (see `rows`)

What it does not do: judge, train, publish, or settle whose words these are. Secrets of the environment and paths of
this machine are struck out; read what you publish all the same.
"""

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from ksflow import report
from ksflow.config import compose
from ksflow.dataset.card import MARK, SEE_CARD, Files
from ksflow.dataset.licences import UNKNOWN, of_problem
from ksflow.dataset.pairs import preference
from ksflow.dataset.record import IndexReader
from ksflow.dataset.rows import FORMATS, STAGES, Row, Seen, Source, chat, prompts, rl
from ksflow.errors import ConfigError, counted
from ksflow.lineage import Lineage
from ksflow.lineage.history import runs
from ksflow.lineage.store import Store
from ksflow.lineage.transcript import Transcript
from ksflow.records import Problem, family

_MAKERS: dict[str, Callable[[Source], Iterator[Row]]] = {
    "chat": chat,
    "preference": preference,
    "rl": rl,
    "prompts": prompts,
}
_OPTIONS = {
    "format": "all",
    "out": "runs/export",
    "stages": ",".join(STAGES),
    "test_problems": "",
    "licence": "",
    "run": "",
}
_LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,60}")
_TENTH = 10
"""One problem in so many is for testing, where none is named."""
_ANY_ROOT = r"(?:tmp|root|mnt|media|private|scratch|var/(?:tmp|folders))"
_REST = r"""(?:/[^\s"'`<>|:;,)\]}]*)?(?!\w)"""


def export(words: list[str], overrides: list[str]) -> int:
    """`export`: the rows of one format or all, of one problem or all, of one run or all. ConfigError, LineageError."""
    if words:
        raise ConfigError(f"export takes key=value arguments, not {words[0]!r}: {', '.join(_OPTIONS)}, problem")
    given, rest = _options(overrides)
    names = _formats(given["format"])
    stages = _listed("stages", given["stages"], STAGES)
    if given["licence"] and not _LICENCE.fullmatch(given["licence"]):
        raise ConfigError(f"licence={given['licence']} is not an SPDX name such as Apache-2.0")
    cfg = compose.compose(rest)
    chosen = any(override.startswith(("problem=", "problem.path=")) for override in rest)
    problem: Problem | None = compose.build(cfg.problem) if chosen else None
    lineage: Lineage = compose.build(cfg.lineage)(problem=problem.name if problem else "any", run="any", create=False)
    try:
        found = _runs(lineage.store, problem.name if problem else "", given["run"])
        splits = _splits({name for name, _ in found}, given["test_problems"])
        clean = _cleaner(Transcript(lineage).redact, lineage.store.path)
        console = report.console(stderr=True)
        with _replacing(Path(given["out"]).expanduser()) as folder, Files(folder) as files:
            source = _sources(lineage.store, clean, stages, given["licence"], _problems(problem))
            for place in found:
                _export_run(console, source, place, names, lambda n, r: files.write(n, splits[r["problem"]], r))
            if not files.rows:
                raise ConfigError(_nothing(given, len(found)))
            files.card(_typed(overrides))
    finally:
        lineage.close()
    _tell(report.console(), files, given["out"])
    return 0


# -- inside ----------------------------------------------------------------------------------------


def _options(overrides: list[str]) -> tuple[dict[str, str], list[str]]:
    """The command's own key=value arguments with their defaults, and those that are the configuration's."""
    pairs = [override.partition("=") for override in overrides]
    mine = {name: value.strip("\"'") for name, equals, value in pairs if equals and name in _OPTIONS}
    rest = [override for override, pair in zip(overrides, pairs, strict=True) if pair[0] not in mine]
    return _OPTIONS | mine, rest


def _formats(name: str) -> tuple[str, ...]:
    if name != "all" and name not in FORMATS:
        raise ConfigError(f"format={name}; valid: {', '.join(FORMATS)}, all")
    return tuple(dict.fromkeys(made for kind in FORMATS if name in ("all", kind) for made in FORMATS[kind]))


def _listed(key: str, value: str, valid: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name for name in value.strip("[]").replace(" ", "").split(",") if name)
    if unknown := [name for name in names if name not in valid]:
        raise ConfigError(f"{key}: {', '.join(unknown)}; valid: {', '.join(valid)}")
    return names


def _runs(store: Store, problem: str, run: str) -> list[tuple[str, str]]:
    everything = runs(store)
    found = [(p, r) for p, r in everything if problem in ("", p) and run in ("", r)]
    if not found:
        known = ", ".join("/".join(place) for place in everything) or "none"
        raise ConfigError(f"no such run in {store.path}; its runs: {known}")
    return found


def _splits(problems: set[str], named: str) -> dict[str, str]:
    """Problem -> train or test: as named, or by the name's digest, where that leaves any to train on. One problem in
    several precisions is one problem: all of them are in the same split.
    """
    families = {family(problem) for problem in problems}
    if named:
        test = {family(problem) for problem in _listed("test_problems", named, tuple(sorted(problems)))}
    else:
        test = {name for name in families if int(hashlib.sha256(name.encode()).hexdigest()[-8:], 16) % _TENTH == 0}
        test = test if families - test else set()
    return {problem: "test" if family(problem) in test else "train" for problem in problems}


def _sources(
    store: Store,
    clean: Callable[[str], str],
    stages: tuple[str, ...],
    licence: str,
    problem: Callable[[str], Problem | None],
) -> Callable[[tuple[str, str], Callable[[int], Callable[[], None]]], Source]:
    """(problem, run), and who is told how many steps there are -> its rows' source. What was seen is seen for all."""
    seen = Seen()

    def source(place: tuple[str, str], steps: Callable[[int], Callable[[], None]]) -> Source:
        reader = IndexReader(store, *place, clean)
        index = reader.index(steps(len(reader)))
        known = problem(place[0])
        reference = of_problem(known) if known else UNKNOWN
        return Source(index, reader, stages, seen, licence or SEE_CARD, statement, reference)

    def statement(name: str, digest: str) -> str:
        """Where the problem is still the one that was judged."""
        found = problem(name)
        return found.statement.strip() if found and found.digest == digest else ""

    return source


def _export_run(
    console: Console,
    source: Callable[[tuple[str, str], Callable[[int], Callable[[], None]]], Source],
    place: tuple[str, str],
    names: tuple[str, ...],
    write: Callable[[str, Row], None],
) -> None:
    name = "/".join(place)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:

        def steps(total: int) -> Callable[[], None]:
            bar = progress.add_task(f"reading {name}", total=total)
            return lambda: progress.advance(bar)

        made = source(place, steps)
        writing = progress.add_task(f"writing {name}", total=None)
        for configuration in names:
            for row in _MAKERS[configuration](made):
                write(configuration, row)
                progress.advance(writing)
    calls, trials = len(made.run.asked), len(made.run.results)
    console.print(f"{name}: {counted(calls, 'model call')}, {counted(trials, 'trial')}", markup=False, soft_wrap=True)


def _problems(given: Problem | None) -> Callable[[str], Problem | None]:
    """Name -> problem, where it is at hand: the one that was named, or one that ships."""

    @cache
    def problem(name: str) -> Problem | None:
        if given and given.name == name:
            return given
        with suppress(ConfigError):
            made: Problem = compose.build(compose.compose([f"problem={name}"]).problem)
            return made
        return None

    return problem


def _cleaner(redact: Callable[[str], str], lineage: Path) -> Callable[[str], str]:
    """Strikes out secrets of the environment and paths of this machine."""
    own = {Path.home(), Path.cwd(), Path(tempfile.gettempdir()), lineage.resolve().parent, Path(sys.prefix)}
    deep = [re.escape(str(path)[1:]) for path in sorted(own, key=lambda path: -len(str(path))) if len(path.parts) > 2]
    homes = "|".join([*deep, r"(?:home|Users)/[^\s/\"'`<>|:;,)\]}]+"])
    # a folder right below the root is a word that a division may have too, so something must set it apart
    alone = rf"(?:(?<=-[IL]/)|(?<![\w.)\]]/)){_ANY_ROOT}(?=/)"
    paths = re.compile(rf"/(?:{homes}|{alone}){_REST}")
    return lambda text: paths.sub("[path]", redact(text))


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """A new folder that takes the place of `out` once it is complete; until then `out` stays as it is."""
    if out.exists() and not _ours(out):
        raise ConfigError(f"out={out} exists and is no export; name another folder")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise ConfigError(f"out={out} cannot be written: {error.strerror}") from error
    new, old = made / "new", made / "old"
    try:
        new.mkdir()
        yield new
        try:
            if out.exists():
                os.rename(out, old)
            os.rename(new, out)
        except OSError as error:
            raise ConfigError(f"out={out} cannot be replaced: {error.strerror}; name another folder") from error
    finally:
        if old.exists() and not out.exists():
            os.rename(old, out)
        shutil.rmtree(made)


def _ours(out: Path) -> bool:
    if out.is_dir() and not any(out.iterdir()):
        return True
    card = out / "README.md"
    return card.is_file() and f"- {MARK}\n" in card.read_text(encoding="utf-8", errors="replace")[:4000]


def _nothing(given: Mapping[str, Any], count: int) -> str:
    return (
        f"format={given['format']} stages={given['stages']} makes no row of {counted(count, 'run')}: no answer of a "
        "model, and no two kernels from one base, whose worth the record tells"
    )


def _typed(overrides: list[str]) -> str:
    """The command line, without what may be private."""
    return " ".join(o for o in overrides if o.partition("=")[0] in ("format", "stages", "test_problems", "licence"))


def _tell(console: Console, files: Files, out: str) -> None:
    for (configuration, split), count in sorted(files.rows.items()):
        console.print(f"{out}/{configuration}/{split}.jsonl  {counted(count, 'row')}", markup=False, soft_wrap=True)
    console.print(f"{out}/README.md  the card: licences and providers' terms are yours to settle", soft_wrap=True)
