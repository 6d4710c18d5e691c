"""A kernel: source code in one language."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ksflow.records.base import Record, digest

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
RESERVED_NAMES = frozenset({"trial.json", "evaluation.json", "explanation.json"})
"""Files that the lineage writes beside a kernel's."""
C_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float8_e4m3fn": "uint8_t",
    "float8_e4m3fnuz": "uint8_t",
    "float8_e5m2": "uint8_t",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "uint8_t",
}
"""torch dtype -> C type: 8- and 16-bit floats are passed as their bits."""


@dataclass(frozen=True)
class Kernel(Record):
    """Source code in one language."""

    language: str  # one of `problem.languages`
    files: Mapping[str, str]
    """File name -> text. The first one holds `custom_kernel`."""
    report: str = ""  # the writer's report: the techniques used

    def __post_init__(self) -> None:
        if not self.files:
            raise ValueError("a kernel has at least one file")
        for name in self.files:
            if not FILE_NAME.fullmatch(name) or name in RESERVED_NAMES:
                raise ValueError(f"not a kernel's file name: {name!r}")

    @property
    def main(self) -> str:
        """The text of the file that holds `custom_kernel`."""
        return next(iter(self.files.values()))

    @cached_property
    def digest(self) -> str:
        """Digest of the content (language, names, texts), without the report."""
        return digest(self.language, *(f"{name}\0{text}" for name, text in self.files.items()))
