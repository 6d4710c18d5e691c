"""Runs inside a compiler's sandbox, as a file beside a Triton source: compiles its kernels ahead of time.

Reads `.order.json` (the target, and for each entry the kernel's name, arguments, constants, warps and stages), writes
`made.json`. Imports the source, so it executes it: run it in a sandbox only.
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
from pathlib import Path
from typing import Any

os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # Triton's default so far, made explicit

_QUOTED = re.compile(r"^(\w+)\((['\"])(.*)\2\)$", re.DOTALL)  # matches an error that Triton shows as Python writes it


class Wrong(Exception):
    """A fault of the source or its launch lines, in one line."""


def main() -> int:
    """Compile all entries; return 1, with the reason on stdout, if one fails."""
    order = json.loads(Path(".order.json").read_text(encoding="utf-8"))
    try:
        module = _load(order["source"])
        entries = [_compile(module, entry, order) for entry in order["entries"]]
    except Wrong as error:
        print(f"error: {error}")  # noqa: T201
        return 1
    except BaseException as error:  # noqa: BLE001 - whatever the source raises is its own error
        print(_explained(error, order["source"]))  # noqa: T201
        return 1
    Path("made.json").write_text(json.dumps({"entries": entries}), encoding="utf-8")
    return 0


def _load(source: str) -> Any:
    """Import the source as a module; Triton reads a kernel's text from its file."""
    spec = importlib.util.spec_from_file_location("ksflow_main", os.path.abspath(source))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["ksflow_main"] = module
    sys.path.insert(0, os.getcwd())
    spec.loader.exec_module(module)
    return module


def _compile(module: Any, entry: dict[str, Any], order: dict[str, Any]) -> dict[str, Any]:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile
    from triton.runtime.jit import JITFunction

    platform, arch, width = order["target"]
    kernel = entry["kernel"]
    function = getattr(module, kernel, None)
    if function is None:
        there = [other for other, value in vars(module).items() if isinstance(value, JITFunction)]
        raise Wrong(f"launch: {kernel}: the source has no such kernel; it has {', '.join(there) or 'none'}")
    if not isinstance(function, JITFunction):
        raise Wrong(
            f"launch: {kernel}: is a {type(function).__name__}; launch lines launch plain @triton.jit functions"
        )
    signature, constants, attributes = _specialised(function, entry)
    if function.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource as ASTSource
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
            raise Wrong(f"{kernel}: needs {name}, as tensor descriptors made on the device do; use pointers")
    code = compiled.asm["cubin" if platform == "cuda" else "hsaco"]
    sass = b""
    if platform == "cuda" and order["disassembler"]:
        Path("code.cubin").write_bytes(code)
        with contextlib.suppress(OSError):
            sass = subprocess.run([order["disassembler"], "-sass", "code.cubin"], capture_output=True).stdout
    return {
        "code": base64.b64encode(code).decode(),
        "kernel": metadata.name,
        "shared": metadata.shared,
        "warps": metadata.num_warps,
        "log": log.getvalue(),
        "asm": "" if platform == "cuda" else compiled.asm["amdgcn"],
        "sass": sass.decode("utf-8", "replace"),
        "ptx": compiled.asm.get("ptx", ""),
    }


def _specialised(function: Any, entry: dict[str, Any]) -> tuple[dict[str, str], dict[Any, Any], dict[Any, Any]]:
    """Return signature, constants and divisibility, in Triton's form. Raises Wrong."""
    kernel, constants, arguments = entry["kernel"], dict(entry["constants"]), list(entry["args"])
    signature, values, attributes = {}, {}, {}
    for index, parameter in enumerate(function.params):
        name = parameter.name
        if parameter.is_constexpr:
            signature[name] = "constexpr"
            if name not in constants and not parameter.has_default:
                raise Wrong(f"launch: {kernel}: no value for the constexpr parameter {name}")
            values[(index,)] = constants.pop(name) if name in constants else parameter.default
            continue
        if not arguments:
            raise Wrong(f"launch: {kernel}: no argument for {name}")
        signature[name], aligned = arguments.pop(0)
        if aligned:
            attributes[(index,)] = [["tt.divisibility", 16]]
    if arguments:
        raise Wrong(f"launch: {kernel}: {len(arguments)} arguments too many")
    if constants:
        raise Wrong(f"launch: {kernel}: {next(iter(constants))} is no constexpr parameter")
    return signature, values, attributes


def _explained(error: BaseException, source: str) -> str:
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
