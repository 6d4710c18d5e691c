"""A kernel's files with another main file, and what a new main file must be."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from ksflow.records import DEVICE_LANGUAGES, Kernel, language
from ksflow.source.tunables import has_launches

_NAMED = re.compile(r"\s*(?://|#)\s*file:\s*(\S+)\s*")


def with_main(kernel: Kernel, text: str) -> dict[str, str]:
    """The kernel's files, the main one replaced."""
    return {**kernel.files, next(iter(kernel.files)): text}


def rewritten(kernel: Kernel, text: str, languages: Sequence[str], report: str) -> Kernel:
    """The kernel with another main file, under the name that its first line may give: `// file: gemm.cu`.

    The name's ending and the text tell the language; the other files stay where the ending does. ValueError where it is
    none of `languages`.
    """
    main, *others = kernel.files
    match = _NAMED.fullmatch(text.partition("\n")[0])
    name = match[1] if match else main
    found = language(name, text)
    if found not in (*languages, kernel.language):
        raise ValueError(f"code: {name} is {found or 'of no known language'}; the task takes: {', '.join(languages)}")
    kept = others if PurePath(name).suffix == PurePath(main).suffix else []
    if name in kept:
        raise ValueError(f"code: {name} is the name of another file of the kernel")
    return Kernel(found, {name: text, **{other: kernel.files[other] for other in kept}}, report)


def check(new: Kernel, known: Iterable[Kernel], max_kb: int, entry: str = "custom_kernel") -> None:
    """ValueError if its main file is too long, lacks `entry`, or is that of a known kernel with other blanks."""
    code = new.main
    if (size := len(code.encode("utf-8"))) > max_kb * 1000:
        raise ValueError(f"code: {size} bytes are more than {max_kb} kB")
    on_device = new.language in DEVICE_LANGUAGES
    if entry not in code and not (on_device and has_launches(code)):
        strong = " and has no `launch:` line" if on_device else f" ({new.language})"
        raise ValueError(f"code: it does not define {entry}{strong}")
    words = code.split()
    if any(words == kernel.main.split() for kernel in known):
        raise ValueError("code: it is the code that was given, unchanged")
