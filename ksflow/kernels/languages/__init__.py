"""The languages of kernels, a file NAME.toml each: how to recognise, compile and describe them to models.

In: nothing. Out: `LANGUAGES`, and `named` for a source. Every package may import it; it imports none, and no compiler.
The keys of a file are the fields of `Language`; CONTRIBUTING.md shows how to add one.
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
    """A language of kernels."""

    name: str
    endings: tuple[str, ...] = ()  # of its files
    imports: str = ""  # a regular expression of modules: Python that imports one is in this language
    like: str = ""
    """The language from which missing fields are taken, and as which this one counts unless it is asked for by name."""
    march: str | None = None  # prefix of the `march` of its GPUs, empty for all; None if it is not for GPUs alone
    target: str = ""  # an example of these, for errors
    compiler: str = ""
    """Of `ksflow.evaluation.compilers`: host, nvcc, hip, triton, or traced (compiles when it runs; without a GPU by
    NAME_trace.py); empty if there is none."""
    module: str = ""  # its Python package, if any
    missing: str = ""  # remedy for a missing compiler
    interpreter: str = ""  # what runs it without a GPU: `emulator` (of waves), or `triton`
    launch_lines: Mapping[str, str] = field(default_factory=dict)
    """Terms of the grammar of launch lines (`source/contract.txt`); empty if there is no strong mode."""
    recognised: str = ""  # description for models, beside the ending
    contract: str = ""  # rules for kernels beside the general ones; with launch lines, in strong mode
    seed: str = ""  # a minimal source, for tensors x [m, n] and y [m]; with launch lines an outline
    families: tuple[str, ...] = ()  # groups of languages that share patterns in `source/features.yaml`
    marks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Feature of `source/features.yaml` -> regular expressions: a matching line has the feature."""
    hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The same, for lines that may have it, depending on the compiler."""
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the same, for names that suggest it
    absent: tuple[str, ...] = ()  # features that a source without a mark, a hint or a name lacks
    told: tuple[str, ...] = ()  # features that are described although no source shows them

    @property
    def ending(self) -> str:
        """The ending of a kernel's main file."""
        return self.endings[0]

    @property
    def python(self) -> bool:
        """Whether its sources are Python."""
        return ".py" in self.endings

    @property
    def installed(self) -> bool:
        """Whether its package is installed, or it needs none."""
        return not self.module or importlib.util.find_spec(self.module) is not None

    @property
    def tracer(self) -> Path:
        """The module that compiles it without a GPU."""
        return _FOLDER / f"{self.name}_trace.py"

    def fits(self, march: str) -> bool:
        """Return whether it is for GPUs of this architecture."""
        return self.march is not None and march.startswith(self.march)


def _read(file: Path) -> Language:
    said = tomllib.loads(file.read_text(encoding="utf-8"))
    if unknown := said.keys() - {one.name for one in fields(Language)}:
        raise ValueError(f"{file}: unknown keys: {', '.join(sorted(unknown))}")
    said = {key: tuple(value) if isinstance(value, list) else value for key, value in said.items()}
    base = vars(_read(file.with_name(f"{said['like']}.toml"))) if "like" in said else {}
    return Language(**{**base, **said, "name": file.stem})


LANGUAGES: Mapping[str, Language] = {file.stem: _read(file) for file in sorted(_FOLDER.glob("*.toml"))}
ON_DEVICE = tuple(one.name for one in LANGUAGES.values() if one.march is not None)  # languages for GPUs alone
ENDINGS = {ending: one.name for one in LANGUAGES.values() if not one.imports for ending in one.endings}
"""Ending of a file -> its language."""
IMPORT = r"(?:from\s+|import\s+(?:[\w.]+(?:\s+as\s+\w+)?\s*,\s*)*)"  # what stands before a module's name in Python
_IMPORTS = {
    one.name: re.compile(rf"^{IMPORT}(?:{one.imports})\b", re.MULTILINE)
    for one in sorted(LANGUAGES.values(), key=lambda one: not one.like)
    if one.imports
}  # specific before general: a source that imports Gluon imports Triton, too


def detect_language(file: str, text: str, among: Collection[str] = ()) -> str:
    """Return the language of a kernel's file, or "". One that is `like` another is found only if `among` has it."""
    found = ENDINGS.get(PurePath(file).suffix, "")
    if found == "python":
        known = (one for one in _IMPORTS if one in among or not LANGUAGES[one].like)
        found = next((one for one in known if _IMPORTS[one].search(text)), found)
    return found
