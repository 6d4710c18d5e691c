"""Compiled prompts: DSPy states as JSON, bound to the signature they were compiled for.

DSPy matches field descriptions by position, so a state loaded into a changed signature shifts all
of them without a word. The hash refuses that.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import dspy

from ksflow.errors import ConfigError
from ksflow.home import shipped, write

FOLDER = Path("runs", "prompts")
"""Where the working folder's compiled prompts are: `<stage>/<name>.json`. They go before those that ship."""
_STATE = {"traces", "train", "demos", "signature", "lm"}


def signature_hash(signature: type[dspy.Signature]) -> str:
    """Names a signature's fields: names, order, direction and types."""
    fields = [
        [name, name in signature.input_fields, repr(field.annotation)] for name, field in signature.fields.items()
    ]
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:16]


def save(predict: dspy.Predict, stage: str, path: Path) -> None:
    """Write `predict`'s state, without its model, for `load`."""
    state = {**predict.dump_state(), "lm": None, "traces": [], "train": []}
    record = {
        "stage": stage,
        "signature": signature_hash(predict.signature),
        "dspy": dspy.__version__,
        "state": state,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def load(predict: dspy.Predict, stage: str, prompt: str) -> None:
    """Give `predict` the compiled prompt. ConfigError if it was made for another signature."""
    path = _find(stage, prompt)
    record = _read(path, stage)
    now = signature_hash(predict.signature)
    if record["stage"] != stage or record["signature"] != now:
        raise ConfigError(
            f"{path} was compiled for {record['stage']} {record['signature']}, this is "
            f"{stage} {now}: compile it again, or set {stage}.prompt=null"
        )
    try:
        predict.load_state({**record["state"], "lm": None})
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ConfigError(
            f"{path} holds no prompt for {stage}: {type(error).__name__} {error}; compile it again"
        ) from error


def _find(stage: str, prompt: str) -> Path:
    """The file of a prompt. ConfigError names those that there are."""
    if Path(prompt).suffix == ".json":
        return Path(prompt)
    folders = (FOLDER / stage, shipped("stages", "prompts", stage))
    for folder in folders:
        if (folder / f"{prompt}.json").is_file():
            return folder / f"{prompt}.json"
    known = (
        f"{', '.join(sorted(file.stem for file in folder.glob('*.json'))) or 'none'} in {folder}" for folder in folders
    )
    raise ConfigError(f"{stage}.prompt: cannot read {prompt}; there are: {'; '.join(known)}; a path ends in .json")


def _read(path: Path, stage: str) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{stage}.prompt: cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    keys = {"stage", "signature", "state"}
    state = record.get("state") if isinstance(record, dict) and keys <= set(record) else None
    if not (isinstance(state, dict) and set(state) <= _STATE and _is_prompt(state)):
        raise ConfigError(f"{path} is not a compiled prompt; ksflow.stages.lm.prompts.save writes one")
    return record


def _is_prompt(state: dict[str, Any]) -> bool:
    """DSPy takes whatever stands there, and breaks on it when it is asked."""
    demos, signature = state.get("demos", []), state.get("signature", {})
    asked = isinstance(signature, dict) and isinstance(signature.get("instructions", ""), str)
    return asked and isinstance(demos, list) and all(isinstance(demo, dict) for demo in demos)
