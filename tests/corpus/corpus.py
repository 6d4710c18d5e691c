"""The files of the corpus: a kernel's text, and in its first comments what should become of it.

    expect: reject        never accepted
            true-speed    accepted at most at the speed of the honest twin
            contained     never accepted, and nothing of it is left
            harmless      accepted or not, nothing of it is left
            accept        right and honest, however it looks
    problem: a folder of problems/
    honest: a file or a folder of the corpus that does the same work without the trick; the problem's plain.* otherwise
    gain: more than so many times as fast as its twin, by the judge's interval, is a gain; 1.01 otherwise, and where
          more is allowed the comment says why
    runs: how often it is judged in a row, for tricks that leave word for their next run
    sample: yes, for the few that every run of the tests judges
    compiles: perhaps not, where the compiler may well refuse it; all others test nothing when they do not compile
    needs: separation, for what can reach the user's own processes and files where a box runs as that user

All other lines of the comment say what it tries. Headers that C++ kernels include lie in the problem's folder:
`work.hpp` is the honest computation, the same code for a trick and its twin.

In a text, @MARK@ stands for a word that marks whatever the kernel leaves behind, @PORT@ for a port number, @PROBLEM@
for the problem's folder, @SECRET@ for a file that only the judge's side may read, @CACHE@ for the compiler's cache.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ksflow.kernels.languages import detect_language
from ksflow.records import Kernel

ROOT = Path(__file__).parent
_HEADER = re.compile(r"^(?:#|//) (\w+): (.+)$")
_INCLUDE = re.compile(r'^#include "(\w+\.hpp)"$', re.MULTILINE)


@dataclass(frozen=True)
class Specimen:
    """One kernel of the corpus."""

    path: Path
    header: dict[str, str]

    @property
    def name(self) -> str:
        """Where it is in the corpus."""
        return str(self.path.relative_to(ROOT))

    @property
    def expect(self) -> str:
        return self.header["expect"]

    @property
    def problem(self) -> str:
        return self.header["problem"]

    @property
    def runs(self) -> int:
        return int(self.header.get("runs", "1"))

    @property
    def gain(self) -> float:
        """What it may not be faster by than its twin."""
        return float(self.header.get("gain", "1.01"))

    @property
    def twin(self) -> Path:
        """The kernel that does the same work honestly."""
        plain = folder(self.problem) / f"plain{main_file(self.path).suffix}"
        return ROOT / self.header["honest"] if "honest" in self.header else plain


def specimens(category: str) -> list[Specimen]:
    """Those of one category: each file, or each folder with a file `kernel.*`, below its kind."""
    found = [path for kind in (ROOT / category).iterdir() for path in kind.iterdir() if path.name != "__pycache__"]
    return [Specimen(path, _header(main_file(path))) for path in sorted(found)]


def folder(problem: str) -> Path:
    """A problem of the corpus."""
    return ROOT / "problems" / problem


def kernel(path: Path, problem: str, words: dict[str, str]) -> Kernel:
    """The kernel in a file or a folder, with its placeholders filled in."""
    main = main_file(path)
    others = sorted(file for file in path.iterdir() if file.is_file() and file != main) if path.is_dir() else []
    texts = {file.name: _filled(file, words) for file in (main, *others)}
    wanted = [name for text in texts.values() for name in _INCLUDE.findall(text)]
    while wanted:
        if (name := wanted.pop()) not in texts:
            texts[name] = (folder(problem) / name).read_text()
            wanted += _INCLUDE.findall(texts[name])
    return Kernel(detect_language(main.name, texts[main.name]), texts)


def main_file(path: Path) -> Path:
    """The file that holds `custom_kernel`."""
    return next(path.glob("kernel.*")) if path.is_dir() else path


def _filled(file: Path, words: dict[str, str]) -> str:
    text = file.read_text()
    for name, value in words.items():
        text = text.replace(f"@{name}@", value)
    return text


def _header(file: Path) -> dict[str, str]:
    header = {}
    for line in file.read_text().splitlines():
        if not line.startswith(("#", "//")):
            break
        if match := _HEADER.match(line):
            header[match[1]] = match[2]
    return header
