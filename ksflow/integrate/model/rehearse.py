"""The reference of a region in a process that has not imported the model, as the judge has not."""

import re
import traceback
from pathlib import Path

import torch

from ksflow.errors import catch_foreign, one_line
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module
from ksflow.formats.isolated import answer_order
from ksflow.records import Json

_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)")


def rehearse(order: Json) -> str:
    """Why `order["reference"]` does not work on contents of `order["case"]` in this process, which has not imported the
    model, as the judge has not; empty where it works."""
    text = Path(order["reference"]).read_text(encoding="utf-8")
    module = load_module("ksflow_rehearsed", order["reference"])
    for space, name in _OPERATOR.findall(text):
        if not hasattr(getattr(torch.ops, space), name):
            return f"calls torch.ops.{space}.{name}, which the judge does not have: it does not import the model"
    for function in (module.ref_kernel, module.oracle):
        with torch.no_grad(), catch_foreign() as caught:
            function(module.generate_input(**order["case"], device=order["device"]))
        if caught:
            frames = traceback.extract_tb(caught[0].__traceback__)
            found = [_OPERATOR.search(frame.line or "") for frame in frames if frame.filename == order["reference"]]
            at = found[-1].group() if found and found[-1] else f"its {function.__name__}"
            return f"{at} fails in the judge: " + one_line(f"{type(caught[0]).__name__}: {caught[0]}", 300)
    return ""


if __name__ == "__main__":
    answer_order(rehearse)
