"""The languages that kernels are written in, a file NAME.toml each: how one is told, compiled, and told of to models.

In: nothing. Out: `LANGUAGES`, and `named` for a source. Every room may import it; it imports none, and no compiler.
What a file may say is the fields of `Language`; CONTRIBUTING.md shows how one is added.
"""

import importlib.util
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePath

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Language:
    """One of them."""

    name: str
    endings: tuple[str, ...] = ()
    """Of its files."""
    imports: str = ""
    """Modules, as a regular expression: Python that imports one is in this language."""
    like: str = ""
    """The language that has what is not said of this one, and that it counts as where it is not asked for by name."""
    march: str | None = None
    """How the `march` of the GPUs begins that it is for, empty for all; None where it is not for GPUs alone."""
    target: str = ""
    """One of them, for errors."""
    compiler: str = ""
    """Of `ksflow.compilers`: host, nvcc, hip, triton, or traced (it compiles when it runs; where no GPU is, as
    NAME_trace.py has it); empty where there is none."""
    module: str = ""
    """What Python calls its own package, where it has one."""
    missing: str = ""
    """What to do where the compiler is not here."""
    interpreter: str = ""
    """What runs it without a GPU: `emulator` (of waves), or `triton`."""
    launch_lines: Mapping[str, str] = field(default_factory=dict)
    """The words of the grammar of launch lines (`source/contract.txt`); none where there is no strong mode."""
    recognised: str = ""
    """What a model is told beside the ending."""
    contract: str = ""
    """What a kernel must keep to beside what all must; with launch lines, in strong mode."""
    seed: str = ""
    """A minimal source, for tensors x [m, n] and y [m]; with launch lines an outline."""
    families: tuple[str, ...] = ()
    """Groups of languages that share patterns in `source/features.yaml`."""
    marks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Feature of `source/features.yaml` -> regular expressions: a line with one shows that it is there."""
    hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The same, where whoever compiles the line decides."""
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The same, where a name suggests it and proves nothing."""
    absent: tuple[str, ...] = ()
    """Features that a source without a mark, a hint or a name does not have."""
    told: tuple[str, ...] = ()
    """Features that are told of although nothing in a source shows them."""

    @property
    def ending(self) -> str:
        """How the name of a kernel's main file ends."""
        return self.endings[0]

    @property
    def python(self) -> bool:
        """Whether its sources are Python."""
        return ".py" in self.endings

    @property
    def installed(self) -> bool:
        """Whether its own package is here, where it has one."""
        return not self.module or importlib.util.find_spec(self.module) is not None

    @property
    def tracer(self) -> Path:
        """The module that has it compile without a GPU."""
        return _FOLDER / f"{self.name}_trace.py"

    def fits(self, march: str) -> bool:
        """Whether it is for GPUs of this architecture."""
        return self.march is not None and march.startswith(self.march)


def _read(file: Path) -> Language:
    said = tomllib.loads(file.read_text(encoding="utf-8"))
    if unknown := said.keys() - {one.name for one in fields(Language)}:
        raise ValueError(f"{file}: {', '.join(sorted(unknown))} is nothing that a language has")
    said = {key: tuple(value) if isinstance(value, list) else value for key, value in said.items()}
    base = vars(_read(file.with_name(f"{said['like']}.toml"))) if "like" in said else {}
    return Language(**{**base, **said, "name": file.stem})


LANGUAGES: Mapping[str, Language] = {file.stem: _read(file) for file in sorted(_FOLDER.glob("*.toml"))}
ON_DEVICE = tuple(one.name for one in LANGUAGES.values() if one.march is not None)
"""Those for GPUs alone."""
ENDINGS = {ending: one.name for one in LANGUAGES.values() if not one.imports for ending in one.endings}
"""What a file's ending says of its language."""
_IMPORTS = {
    one.name: re.compile(rf"^(?:import|from)\s+(?:{one.imports})\b", re.MULTILINE)
    for one in sorted(LANGUAGES.values(), key=lambda one: not one.like)
    if one.imports
}
"""The particular before the general: what imports Gluon imports Triton, too."""


def named(file: str, text: str, among: Collection[str] = ()) -> str:
    """The language of a kernel's file; empty where its name says none.

    One that is like another is told from it where it is one of `among`.
    """
    found = ENDINGS.get(PurePath(file).suffix, "")
    if found == "python":
        known = (one for one in _IMPORTS if one in among or not LANGUAGES[one].like)
        found = next((one for one in known if _IMPORTS[one].search(text)), found)
    return found
