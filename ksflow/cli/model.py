"""The command `model`: which regions of a model take its time, and those as problems."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from ksflow import report
from ksflow.cli import usage
from ksflow.config import keys
from ksflow.errors import ConfigError
from ksflow.report.words import us

if TYPE_CHECKING:
    from ksflow.model.profile import Profile

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "none")


def model(words: list[str], overrides: list[str]) -> int:
    """`model profile FILE`: 0."""
    usage.expect_word("model", words, ("profile",))
    match words:
        case ["profile", file]:
            return _profile(Path(file).expanduser(), overrides)
        case _:
            raise ConfigError("the command is: model profile FILE")


def _profile(file: Path, overrides: list[str]) -> int:
    """Say which regions take the time; write those that are named as problem folders."""
    own, rest = keys.own_options(overrides, "regions", "out", "mode")
    if rest:
        raise ConfigError(f"{rest[0]}; valid: regions=1,Norm out=FOLDER mode=MODE")
    if own.get("mode", "none") not in _MODES:
        raise ConfigError(f"mode={own['mode']}; valid: {', '.join(_MODES)}")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # what torch.profiler says of itself
    from ksflow.model import problem, profile, user_file  # torch takes seconds

    console = report.console()
    columns = (BarColumn(16), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=report.console(stderr=True), transient=True) as bar:
        task = bar.add_task("the model", total=None)
        user = user_file.load(file)
        mode = own.get("mode") or ("max-autotune-no-cudagraphs" if user.gpu else "default")
        found = profile.profile(user, mode, lambda name: bar.update(task, description=name))
        words = own.get("regions", "1" if "out" in own else "").strip("[]").split(",")
        written = []
        for region in [found.named(word.strip()) for word in words if word]:
            bar.update(task, description=f"{region.title} as a problem")
            written.append(problem.write(user, region, Path(own.get("out", ".")).expanduser()))
    _show(file, found, mode)
    for folder in written:
        console.print(
            f"written to {folder}: python -m ksflow problem={folder if folder.is_absolute() else f'./{folder}'}",
            markup=False,
            soft_wrap=True,
        )
    return 0


def _show(file: Path, found: "Profile", mode: str) -> None:
    """Print the regions that take most, and what the whole could gain by each."""
    console = report.console()
    took = f"{us(found.eager_us)} µs eager"
    if found.compiled_us:
        took += f", {us(found.compiled_us)} µs compiled (mode {mode}), x{found.eager_us / found.compiled_us:.3g}"
    threads = f"{found.threads} threads" if found.threads > 1 else "1 thread"
    console.print(f"{file.name} on {found.chip}, {threads}: {took}", markup=False, soft_wrap=True)
    if found.failed:
        console.print(f"torch.compile fails: {found.failed}", markup=False, soft_wrap=True)
    heads = ("", "modules", "µs", "share", "compiled", "of its roofline", "if half", "if nothing")
    table = Table(*heads, box=SIMPLE_HEAD)
    for number, one in enumerate(found.regions, 1):
        many = f" x{len(one.modules)}" if len(one.modules) > 1 else ""
        about = Text(f"{one.title}{many}: {one.modules[0]}")
        for tensor in one.calls[0].inputs:
            about.append(f"\n  {tensor}", "dim")
        about.append(f"\n  no problem: {one.unfit}" if one.unfit else "", "dim")
        near = f"{100 * one.roofline_us / one.us:.3g} %" if one.roofline_us and one.us else ""
        share = "" if one.compiled_share is None else f"{100 * one.compiled_share:.3g} %"
        gains = (f"x{one.gain(left):.3g}" for left in (0.5, 0.0))
        table.add_row(str(number), about, us(one.us), f"{100 * one.share:.3g} %", share, near, *gains)
    console.print(table)
