"""The contract of a kernel in each language, in the same words for models and people.

The grammar of launch lines is in `launches`, which reads every language's seed.
"""

import re
from pathlib import Path

from ksflow.home import sections, shipped_path
from ksflow.kernels.languages import LANGUAGES, ON_DEVICE
from ksflow.kernels.source.expressions import numbers
from ksflow.kernels.source.flags import FLAGS
from ksflow.records import Kernel, Problem, Target

_TEXTS = {name: text.rstrip("\n") for name, text in sections(Path(__file__).with_name("contract.txt")).items()}
_EXAMPLE = "for x [m, n] and y [m]:"


def contract(problem: Problem, language: str, cores: int = 1) -> str:
    """Return the full contract of a kernel in one of the problem's languages. cores: of a CPU, that it has."""
    if problem.origin.get("format") == "command":
        return problem.called
    spoken = LANGUAGES[language]
    if spoken.python and problem.called:
        return _python(problem, cores)
    shown = " ".join(defines(problem))
    compiled = [f"Compiled with {shown}."] if shown else []
    strong = []
    if spoken.launch_lines:
        grammar = _TEXTS["GRAMMAR"].format(
            **spoken.launch_lines,
            args=", ".join(arg.name for arg in problem.args),
            numbers=", ".join(numbers(problem.benchmarks[0].params)),
            example=spoken.seed.rstrip(),
        )
        strong = [f"{_TEXTS['STRONG']} {spoken.contract}", grammar]
    if spoken.python and strong:
        lines = [f"Host mode: {_python(problem, cores)}", *strong]
    elif spoken.python:
        lines = [_python(problem, cores), *filter(None, [spoken.contract, *_known(language)])]
        lines += [f"Example, {_EXAMPLE}", spoken.seed.rstrip()] if spoken.seed else []
    elif not strong:
        lines = ["One file that defines exactly:", problem.signature, _TEXTS["C_NUMBERS"], *compiled]
        lines += [_judged_cpu(cores), _TEXTS["FLAGS"].format(flags=FLAGS)]
    else:
        lines = [
            "One file in one of two modes. Host mode: device pointers, of any type you like; `strides` of every "
            f"tensor, in elements, on the host; launch on `stream` (a {language}Stream_t) and do not wait for it:",
            device_signature(problem),
            *compiled,
            _TEXTS["JUDGED"],
            *strong,
        ]
    if in_place := ", ".join(arg.name for arg in problem.args if arg.role == "inout"):
        lines.append(_TEXTS["IN_PLACE"].format(names=in_place))
    return "\n".join(lines)


def newer_lines(language: str, march: str) -> str:
    """Return what launch lines may have beside the contract on this architecture, or ""; notes tell it to models."""
    return _TEXTS["HOPPER"] if language == "cuda" and march.startswith(("sm_9", "sm_1")) else ""


def short_contract(problem: Problem, language: str) -> str:
    """Return the contract in a few lines, for a reader who knows another language's."""
    if problem.origin.get("format") == "command":
        return problem.called
    spoken = LANGUAGES[language]
    if problem.called and spoken.python:
        return f"{language} (NAME.py): {problem.called}"
    if not spoken.seed and spoken.python:
        return f"{language} (NAME.py): `custom_kernel(data)` with tensors, outputs last; it returns the outputs."
    if not spoken.seed:
        return f"{language} (NAME{spoken.ending}): one file that defines `{problem.signature}`."
    host = "`custom_kernel(data)`" if spoken.python else f"`{device_signature(problem)}`"
    either = f"{host}, or {spoken.contract.partition(';')[0].rstrip('.')}" if spoken.launch_lines else host
    note = f" {spoken.recognised}" if spoken.recognised else ""
    return f"{language} (NAME{spoken.ending}{note}): {either}, {_EXAMPLE}\n{spoken.seed.rstrip()}"


def device_signature(problem: Problem) -> str:
    """Return the C declaration of a `cuda` or `hip` kernel that launches itself."""
    return f"{problem.signature.removesuffix(')')}, void *stream)"


def _judged_cpu(cores: int) -> str:
    where = _TEXTS["ONE_CORE"] if cores == 1 else _TEXTS["CORES"].format(cores=cores)
    return _TEXTS["JUDGED_CPU"].format(where=where)


def _python(problem: Problem, cores: int) -> str:
    if problem.called:
        beside = f" It may import {', '.join(problem.files)}, which lie beside it." if problem.files else ""
        return f"{problem.called}{beside}"
    names = ", ".join(arg.name for arg in problem.args)
    outputs = ", ".join(arg.name for arg in problem.args if arg.role == "out")
    returns = f"outputs preallocated; it returns {outputs}" if outputs else "and returns nothing"
    entry = f"`custom_kernel(data)` with data = ({names}), tensors{{}}, {returns}."
    if not {*ON_DEVICE} & {*problem.languages}:
        return "\n".join([entry.format(""), _judged_cpu(cores)])
    return "\n".join([entry.format(" on the device"), _TEXTS["WAITING"], _TEXTS["JUDGED"]])


def _known(language: str) -> list[str]:
    """Return the shipped note on a language, without the numbers of its sources."""
    file = shipped_path("knowledge", "languages", f"{language}.md")
    text = file.read_text(encoding="utf-8").rpartition("\n---\n")[2] if file.is_file() else ""
    return [re.sub(r" ?\[[\d, ]+\]", "", text).strip()] if text else []


def defines(problem: Problem) -> list[str]:
    """Return the definitions of the compiler's command line, with booleans as 1 and 0."""
    known = {name: int(value) if isinstance(value, bool) else value for name, value in problem.defines.items()}
    return [f"-D{name}={value}" for name, value in known.items()]


def thread_defines(kernel: Kernel, target: Target) -> list[str]:
    """Return `-DNUM_THREADS=N` for a kernel that mentions it: how many threads it has, one for each of its cores."""
    mentions = any("NUM_THREADS" in text for text in kernel.files.values())
    return [f"-DNUM_THREADS={target.cores}"] if mentions else []
