"""A kernel's files with another main file, and what a new main file must be."""

from collections.abc import Iterable

from ksflow.records import Kernel


def with_main(kernel: Kernel, text: str) -> dict[str, str]:
    """The kernel's files, the main one replaced."""
    main, *others = kernel.files
    return {main: text, **{name: kernel.files[name] for name in others}}


def check(code: str, known: Iterable[Kernel], max_kb: int) -> None:
    """ValueError if `code` is too long, no kernel, or one of the known kernels with other blanks."""
    if (size := len(code.encode("utf-8"))) > max_kb * 1000:
        raise ValueError(f"code: {size} bytes are more than {max_kb} kB")
    if "custom_kernel" not in code:
        raise ValueError("code: it does not define custom_kernel")
    words = code.split()
    if any(words == kernel.main.split() for kernel in known):
        raise ValueError("code: it is the code that was given, unchanged")
