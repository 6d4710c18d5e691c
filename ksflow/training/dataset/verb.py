"""`dataset`: the lineage as training data in the layouts that TRL and Hugging Face's readers take.

    runs/dataset/<configuration>/<split>.jsonl   chat, preference, rl, prompts (see `rows`)

What it does not do: judge, train, publish, or settle whose words these are. Secrets of the environment and paths of
this machine are struck out; read what you publish all the same.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ksflow import report
from ksflow.config import compose, keys
from ksflow.errors import ConfigError, explain_write_errors, one_of, pluralize, reaching
from ksflow.kernels.problem.licences import UNKNOWN, of_problem
from ksflow.lineage import Lineage
from ksflow.records import Problem, digest, name_without_precision
from ksflow.redaction import redact
from ksflow.training.dataset.pairs import preference
from ksflow.training.dataset.record import IndexReader
from ksflow.training.dataset.rows import FORMATS, STAGES, RowSource, chat, prompts, rl

_MAKERS = {"chat": chat, "preference": preference, "rl": rl, "prompts": prompts}
_OPTIONS = {"format": "all", "out": "runs/dataset", "stages": ",".join(STAGES), "test_problems": "", "run": ""}
_MARK = ".ksflow-dataset"  # a file: a folder with it may be replaced by another data set
_TENTH = 10  # one problem in so many is for testing, where none is named
_ANY_ROOT = r"(?:tmp|root|mnt|media|private|scratch|var/(?:tmp|folders))"
_REST = r"""(?:/[^\s"'`<>|:;,)\]}]*)?(?!\w)"""


def dataset(words: list[str], overrides: list[str]) -> int:
    """`dataset`: the rows of one format or all, of one problem or all, of one run or all. ConfigError, LineageError."""
    if words:
        raise ConfigError(f"dataset takes key=value arguments, not {words[0]!r}: {', '.join(_OPTIONS)}, problem")
    mine, rest = keys.own_options(overrides, *_OPTIONS)
    own = _OPTIONS | mine
    one_of("format", own["format"], (*FORMATS, "all"))
    kinds = [kind for kind in FORMATS if own["format"] in ("all", kind)]
    stages = _listed("stages", own["stages"], STAGES)
    cfg = compose.compose(rest)
    chosen = any(override.startswith(("problem=", "problem.path=")) for override in rest)
    problem: Problem | None = compose.build(cfg.problem) if chosen else None
    lineage: Lineage = compose.build(cfg.lineage)(problem=problem.name if problem else "any", run="any", create=False)
    with closing(lineage):
        everything = lineage.store.runs()
        runs = [(p, r) for p, r in everything if (not problem or problem.name == p) and own["run"] in ("", r)]
        if not runs:
            known = ", ".join("/".join(place) for place in everything) or "none"
            raise ConfigError(f"no such run in {lineage.store.path}; its runs: {known}")
        splits = _splits({name for name, _ in runs}, own["test_problems"])
        clean = _cleaner(lineage.store.path)
        console, seen = report.console(stderr=True), set[Hashable]()
        rows: Counter[tuple[str, str]] = Counter()  # of each configuration and split
        with _replacing(Path(own["out"]).expanduser()) as folder:
            for name, run in runs:
                reader, at_hand = IndexReader(lineage.store, name, run, clean), _problem(name, problem)
                licence = of_problem(at_hand) if at_hand else UNKNOWN
                source = RowSource(reader.index(), reader, stages, seen, at_hand, licence)
                for configuration in dict.fromkeys(part for kind in kinds for part in FORMATS[kind]):
                    path = folder / configuration / f"{splits[name]}.jsonl"
                    for row in _MAKERS[configuration](source):
                        path.parent.mkdir(exist_ok=True)
                        with path.open("a", encoding="utf-8", newline="\n") as file:
                            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
                        rows[configuration, splits[name]] += 1
                calls = pluralize(len(source.run.calls), "model call")
                report.say(console, f"{name}/{run}: {calls}, {pluralize(len(source.run.results), 'trial')}")
            if not rows:
                raise ConfigError(
                    f"format={own['format']} stages={own['stages']} makes no row of {pluralize(len(runs), 'run')}: "
                    "no answer of a model, and no two kernels from one base, whose worth the record tells"
                )
    console = report.console()
    for (configuration, split), count in sorted(rows.items()):
        report.say(console, f"{own['out']}/{configuration}/{split}.jsonl  {pluralize(count, 'row')}")
    report.say(console, "licences (the column `licence`) and providers' terms are yours to settle")
    return 0


def _listed(key: str, value: str, valid: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name for name in value.strip("[]").replace(" ", "").split(",") if name)
    if unknown := [name for name in names if name not in valid]:
        raise ConfigError(f"{key}: {', '.join(unknown)}; valid: {', '.join(valid)}")
    return names


def _splits(problems: set[str], named: str) -> dict[str, str]:
    """Return problem -> train or test, as named or by its name's digest. All precisions of one go together."""
    families = {name_without_precision(problem) for problem in problems}
    if named:
        test = {name_without_precision(problem) for problem in _listed("test_problems", named, tuple(sorted(problems)))}
    else:
        test = {name for name in families if int(digest(name, digits=64)[-8:], 16) % _TENTH == 0}
        test = test if families - test else set()
    return {problem: "test" if name_without_precision(problem) in test else "train" for problem in problems}


def _problem(name: str, chosen: Problem | None) -> Problem | None:
    if chosen and chosen.name == name:
        return chosen
    with suppress(ConfigError):
        problem: Problem = compose.build(compose.compose([f"problem={name}"]).problem)
        return problem
    return None


def _cleaner(lineage: Path) -> Callable[[str], str]:
    """Return a function that strikes secrets and paths of this machine out of a text."""
    own = {Path.home(), Path.cwd(), Path(tempfile.gettempdir()), lineage.resolve().parent, Path(sys.prefix)}
    deep = [re.escape(str(path)[1:]) for path in sorted(own, key=lambda path: -len(str(path))) if len(path.parts) > 2]
    homes = "|".join([*deep, r"(?:home|Users)/[^\s/\"'`<>|:;,)\]}]+"])
    # a folder right below the root is a word that a division may have too, so something must set it apart
    alone = rf"(?:(?<=-[IL]/)|(?<![\w.)\]]/)){_ANY_ROOT}(?=/)"
    paths = re.compile(rf"/(?:{homes}|{alone}){_REST}")
    return lambda text: paths.sub("[path]", redact(text))


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `out` once the block has ended without an error."""
    ours = out.is_dir() and ((out / _MARK).is_file() or not any(out.iterdir()))
    if out.exists() and not ours:
        raise ConfigError(f"out={out} exists and is no data set; name another folder")
    with explain_write_errors(f"out={out}"):
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    new, old = draft / "new", draft / "old"
    try:
        new.mkdir()
        (new / _MARK).touch()
        yield new
        with reaching(f"out={out} cannot be replaced", "name another folder"):
            if out.exists():
                os.rename(out, old)
            os.rename(new, out)
    finally:
        if old.exists() and not out.exists():
            os.rename(old, out)
        shutil.rmtree(draft)
