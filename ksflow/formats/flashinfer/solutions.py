"""FlashInfer's solutions, in and out: text only."""

from ksflow.records import Json, Kernel


def params(work: Json) -> Json:
    """A case's parameters: the axes, and the workload's name where that says more than they do."""
    plain = all(tensor["type"] == "random" for tensor in work["inputs"].values())
    return dict(work["axes"]) if plain and work["axes"] else {**work["axes"], "workload": work["uuid"]}


def adapt_solution(task: Json, module: str, entry: str, destination: bool) -> str:
    """The text of a file whose `run` calls a solution's function, whichever way that hands over outputs."""
    inputs, outputs = ", ".join(task["inputs"]), ", ".join(task["outputs"])
    body = ["run = _run"]
    if destination:  # outputs are made by the sizes of the inputs
        first = next((name for name, item in task["inputs"].items() if item["shape"]), next(iter(task["inputs"])))
        lines = [
            f"    {name} = torch.empty(({''.join(f'{_size(task, axis)}, ' for axis in item['shape'] or ())}), "
            f"dtype=torch.{item['dtype']}, device={first}.device)"
            for name, item in task["outputs"].items()
        ]
        body = [f"def run({inputs}):", *lines, f"    _run({inputs}, {outputs})", f"    return {outputs}"]
    return "\n".join(["import torch", f"from {module} import {entry} as _run", "", *body, ""])


def _size(task: Json, axis: str) -> str:
    """An axis, read off an input that has it."""
    known = task["axes"].get(axis, {})
    if known.get("type") == "const":
        return str(known["value"])
    for name, item in task["inputs"].items():
        if axis in (item["shape"] or ()):
            return f"{name}.shape[{item['shape'].index(axis)}]"
    return axis


def solution(definition: str, name: str, kernel: Kernel, entry: str, hardware: str) -> Json:
    """A solution as the format has it."""
    return {
        "name": name,
        "definition": definition,
        "author": "ksflow",
        "description": kernel.report,
        "spec": {
            "language": kernel.language,
            "target_hardware": [hardware],
            "entry_point": f"{next(iter(kernel.files))}::{entry}",
            "dependencies": [],
            "destination_passing_style": False,
        },
        "sources": [{"path": path, "content": body} for path, body in kernel.files.items()],
    }
