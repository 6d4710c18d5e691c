"""What GPU MODE's service refuses to take, said before it is asked: a refusal would cost a submission's wait."""

import re
from itertools import takewhile

from ksflow.kernels.languages import LANGUAGES
from ksflow.records import Kernel

LARGEST = 1_000_000
"""Bytes of a file."""
_DIRECTIVE = re.compile(r"(?:#|//)!POPCORN\s+leaderboard\s+(\S+)", re.IGNORECASE)


def fault(kernel: Kernel, leaderboard: str) -> str:
    """Why the service would not take a kernel; empty where it would."""
    if not LANGUAGES[kernel.language].python:
        return f"the service takes one Python file, not {kernel.language}; CUDA and HIP go inside, through load_inline"
    if len(kernel.files) > 1:
        return f"the service takes one file, this kernel has {len(kernel.files)}: {', '.join(kernel.files)}"
    text = kernel.main
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        return f"the file is not UTF-8: {error.reason} at character {error.start}"
    if not text.strip():
        return "the file is empty"
    if size > LARGEST:
        return f"the file has {size} bytes, the service takes {LARGEST}"
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if "stream" in line.lower():
            where = f"line {number}: {line.strip()[:120]}"
            return f"the service refuses the word `stream` anywhere, comments and names included; {where}"
    header = takewhile(lambda line: line.startswith(("#", "//")), lines)
    for match in filter(None, map(_DIRECTIVE.match, header)):
        if match[1] != leaderboard:
            return f"its header says leaderboard {match[1]}, it is for {leaderboard}"
    return ""
