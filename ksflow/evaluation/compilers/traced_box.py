"""Runs inside a compiler's sandbox, as a file beside a Python source: calls `custom_kernel`, launches nothing.

Reads `.order.json` (the source, the architecture, the tensors), writes `made.json`. `ksflow_tracer.py` beside it knows
the language. Imports the source, so it executes it: run it in a sandbox only.
"""

import importlib.util
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any


def main() -> int:
    """Compile; return 1, with the reason on stdout, on failure."""
    order = json.loads(Path(".order.json").read_text(encoding="utf-8"))
    try:
        rows = _rows(order)
    except BaseException as error:  # noqa: BLE001 - whatever the source raises is its own error
        print(_explained(error, order["source"]))  # noqa: T201
        return 1
    Path("made.json").write_text(json.dumps({"kernels": rows}), encoding="utf-8")
    return 0


def _rows(order: dict[str, Any]) -> list[dict[str, str]]:
    sys.path.insert(0, os.getcwd())
    import torch

    tracer: Any = importlib.import_module("ksflow_tracer")
    tracer.start(order["march"])
    spec = importlib.util.spec_from_file_location("ksflow_main", os.path.abspath(order["source"]))
    assert spec
    assert spec.loader
    module = sys.modules["ksflow_main"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tracer.tensors():
        data = [
            torch.empty_strided(arg["sizes"], arg["strides"], dtype=getattr(torch, arg["dtype"]), device=tracer.DEVICE)
            for arg in order["tensors"]
        ]
        module.custom_kernel(tuple(data))
    rows = [{"ptx": "", "asm": "", **row} for row in tracer.made()]
    if not rows:
        raise ValueError("custom_kernel launches no kernel of this language")
    for row in rows:
        row |= {"usage": "", "sass": ""}
        if (binary := row.pop("cubin", b"")) and order["disassembler"]:
            Path("code.cubin").write_bytes(binary)
            for key, option in (("usage", "-res-usage"), ("sass", "-sass")):
                run = subprocess.run([order["disassembler"], option, "code.cubin"], capture_output=True)
                row[key] = run.stdout.decode("utf-8", "replace")
    return rows


def _explained(error: BaseException, source: str) -> str:
    path = os.path.abspath(source)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    text = " ".join(str(error).split())
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
    where = f"{source}:{line}: " if line else ""
    return f"error: {where}{type(error).__name__}: {text[:2000]}"


if __name__ == "__main__":
    sys.exit(main())
