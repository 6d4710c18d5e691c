"""Runs inside a compiler's box, as a file of its own beside a Triton source: compiles its kernels ahead of time.

Reads `.order.json` (the target, and for each entry the kernel's name, arguments, constants, warps and stages), writes
`made.json`. Imports Triton and the source, so it runs what the source says at import: in the box, and nowhere else.
"""

import base64
import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import traceback
from typing import Any

os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # as in all its versions so far, said aloud

_QUOTED = re.compile(r"^(\w+)\((['\"])(.*)\2\)$", re.DOTALL)
"""An error that Triton shows as Python writes it."""


class Wrong(Exception):
    """What is wrong with the source or its launch lines, in a line."""


def main() -> int:
    """Compile everything that is ordered; 1 and the reason on stdout where something cannot be."""
    with open(".order.json") as file:
        order = json.load(file)
    try:
        module = _load(order["source"])
        made = [_compile(module, entry, order) for entry in order["entries"]]
    except Wrong as error:
        print(f"error: {error}")  # noqa: T201
        return 1
    except BaseException as error:  # noqa: BLE001 - whatever the source raises is its own error
        print(_explained(error, order["source"]))  # noqa: T201
        return 1
    with open("made.json", "w") as file:
        json.dump({"entries": made}, file)
    return 0


def _load(source: str) -> Any:
    """The source as a module; Triton reads a kernel's text from its file."""
    spec = importlib.util.spec_from_file_location("kernel", os.path.abspath(source))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel"] = module
    sys.path.insert(0, os.getcwd())
    spec.loader.exec_module(module)
    return module


def _compile(module: Any, entry: dict[str, Any], order: dict[str, Any]) -> dict[str, Any]:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    platform, arch, width = order["target"]
    function = _function(module, entry["kernel"])
    signature, constants, attributes = _specialised(function, entry)
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes)
    log = io.StringIO()
    with contextlib.redirect_stdout(log):
        compiled = compile(
            source,
            target=GPUTarget(platform, arch, width),
            options={"num_warps": entry["warps"], "num_stages": entry["stages"]},
        )
    metadata = compiled.metadata
    for name in ("global_scratch_size", "profile_scratch_size"):
        if getattr(metadata, name, 0):
            raise Wrong(f"{entry['kernel']}: needs {name}, as tensor descriptors made on the device do; use pointers")
    code = compiled.asm["cubin" if platform == "cuda" else "hsaco"]
    return {
        "code": base64.b64encode(code).decode(),
        "kernel": metadata.name,
        "shared": metadata.shared,
        "warps": metadata.num_warps,
        "log": log.getvalue(),
        "asm": "" if platform == "cuda" else compiled.asm["amdgcn"],
        "sass": _disassembled(code, order["disassembler"]) if platform == "cuda" else "",
        "ptx": compiled.asm.get("ptx", ""),
    }


def _function(module: Any, name: str) -> Any:
    from triton.runtime.jit import JITFunction

    found = getattr(module, name, None)
    if isinstance(found, JITFunction):
        return found
    kernels = [other for other, value in vars(module).items() if isinstance(value, JITFunction)]
    if found is None:
        raise Wrong(f"launch: {name}: the source has no such kernel; it has {', '.join(kernels) or 'none'}")
    raise Wrong(f"launch: {name}: is a {type(found).__name__}; launch lines launch plain @triton.jit functions")


def _specialised(function: Any, entry: dict[str, Any]) -> tuple[dict[str, str], dict[Any, Any], dict[Any, Any]]:
    """Signature, constants and divisibility, in the form Triton takes them."""
    constants = dict(entry["constants"])
    given = list(entry["args"])
    signature, values, attributes = {}, {}, {}
    for place, parameter in enumerate(function.params):
        name = parameter.name
        if parameter.is_constexpr:
            signature[name] = "constexpr"
            values[(place,)] = _constant(parameter, constants, entry["kernel"])
            continue
        if not given:
            raise Wrong(f"launch: {entry['kernel']}: no argument for {name}")
        signature[name], aligned = given.pop(0)
        if aligned:
            attributes[(place,)] = [["tt.divisibility", 16]]
    if given:
        raise Wrong(f"launch: {entry['kernel']}: {len(given)} arguments too many")
    if constants:
        raise Wrong(f"launch: {entry['kernel']}: {next(iter(constants))} is no constexpr parameter")
    return signature, values, attributes


def _constant(parameter: Any, constants: dict[str, Any], kernel: str) -> Any:
    if parameter.name in constants:
        return constants.pop(parameter.name)
    if not parameter.has_default:
        raise Wrong(f"launch: {kernel}: no value for the constexpr parameter {parameter.name}")
    return parameter.default


def _disassembled(code: bytes, disassembler: str) -> str:
    if not disassembler:
        return ""
    with open("code.cubin", "wb") as file:
        file.write(code)
    try:
        done = subprocess.run([disassembler, "-sass", "code.cubin"], capture_output=True)
    except OSError:
        return ""
    return done.stdout.decode("utf-8", "replace")


def _explained(error: BaseException, source: str) -> str:
    """The error and where in the source it is, without Triton's own frames."""
    if isinstance(error, SyntaxError):
        return f"error: {source}:{error.lineno}: {error.msg}\n{(error.text or '').rstrip()}"
    while (cause := error.__cause__) is not None and getattr(error, "node", None) is not None:
        if getattr(cause, "node", None) is None:
            return _at(error, str(cause).strip(), source)
        error = cause  # in a function that the kernel calls
    return _at(error, str(getattr(error, "error_message", None) or error).strip(), source)


def _at(error: BaseException, message: str, source: str) -> str:
    message = _QUOTED.sub(r"\3", message)
    head = f"error: {message or type(error).__name__}"
    node, text = getattr(error, "node", None), getattr(error, "src", None)
    if node is not None and text and hasattr(node, "lineno"):
        return f"{head}\n{text.splitlines()[node.lineno - 1].strip()}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == os.path.abspath(source)]
    where = f"\n{source}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
    return f"error: {type(error).__name__}: {message}{where}"


if __name__ == "__main__":
    sys.exit(main())
