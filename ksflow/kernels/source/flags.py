"""Compiler flags in the source of a C++ kernel: only flags that leave its results as they are.

    // flags: -funroll-loops -mprefer-vector-width=VECTOR if VECTOR

The value after `=` and the condition may name constants of the source, tunables among them, and NUM_THREADS. Flags
outside of the list are refused.
"""

import re

from ksflow.kernels.source.expressions import calculate
from ksflow.kernels.source.tunables import NUM_THREADS, constants

FLAGS = (
    "-funroll-loops -fvect-cost-model=unlimited -fno-math-errno -fno-trapping-math -ffp-contract=fast|off "
    "-fno-tree-vectorize -fno-tree-slp-vectorize -mprefer-vector-width=128|256|512 -fopenmp"
)
"""Contraction rounds a product and a sum once instead of twice; OpenMP's reductions sum in another order; the others
change no result."""
ALLOWED = tuple(
    name + sign + value
    for name, sign, values in (flag.partition("=") for flag in FLAGS.split())
    for value in values.split("|")
)
_LINE = re.compile(r"\s*//\s*flags:(?P<rest>.*)")
_LONGEST = 300
TUNABLE_FLAGS = """\
constexpr int FLAG_WIDTH = 0;   // tune: 0 128 256 512 | vector: bits of the vectors that the compiler prefers, if any
constexpr int FLAG_LOOPS = 1;   // tune: 1 0 2 | vector: vectorizes never (0), where it expects a gain, anywhere (2)
constexpr int FLAG_UNROLL = 0;  // tune: 0 1 | unroll: whether it unrolls loops
constexpr int FLAG_ERRNO = 1;   // tune: 1 0 | compiler: whether mathematics may set errno and trap
// flags: -mprefer-vector-width=FLAG_WIDTH if FLAG_WIDTH
// flags: -fno-tree-vectorize -fno-tree-slp-vectorize if FLAG_LOOPS == 0
// flags: -fvect-cost-model=unlimited if FLAG_LOOPS == 2
// flags: -funroll-loops if FLAG_UNROLL
// flags: -fno-math-errno -fno-trapping-math if not FLAG_ERRNO
"""
"""For a source without tunables: tunables for compiler flags that ask for nothing yet."""


def flag_lines(text: str) -> tuple[str, ...]:
    """Return the text of the lines with flags, in order."""
    matches = (_LINE.fullmatch(line) for line in text.split("\n") if "flags:" in line and len(line) <= _LONGEST)
    return tuple(match["rest"].strip() for match in matches if match)


def compiler_flags(text: str, cores: int = 1) -> tuple[str, ...]:
    """Return the flags that a source asks for with so many cores. Raises ValueError, which names the line."""
    known = {**constants(text), NUM_THREADS: cores} if (lines := flag_lines(text)) else {}
    flags: list[str] = []
    for line in lines:
        words, _, when = line.partition(" if ")
        try:
            if not when or calculate(when, known):
                parts = [word.partition("=") for word in words.split()]
                flags += [f"{name}{sign}{known.get(value, value)}" for name, sign, value in parts]
        except ValueError as error:
            raise ValueError(f"flags: {line}: {error}") from error
    if wrong := [flag for flag in flags if flag not in ALLOWED]:
        raise ValueError(f"flags: {wrong[0]} is not among those a kernel may ask for: {' '.join(ALLOWED)}")
    return tuple(dict.fromkeys(flags))
