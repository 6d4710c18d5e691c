"""What a person's own command calls a function with: it runs with `recorder` in front of its path."""

import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ksflow import home
from ksflow.errors import ConfigError, one_line, suggest
from ksflow.evaluation.judge import contents
from ksflow.integrate.model import look, recorder
from ksflow.records import Json


@dataclass
class Seen:
    """The calls of a function in a whole run of a command."""

    target: str
    command: str
    run_s: float
    share: float
    """Of the run's time in which the function is at work."""
    facts: Json
    """Of a process that called it."""
    families: "list[Family]"
    """Those that take most time first."""
    calls: int = 0
    remarks: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """In all calls."""
        return sum(family.seconds for family in self.families) or 1e-9


@dataclass
class Family:
    """Calls that differ in nothing but their sizes."""

    nodes: Any
    leaves: Any
    rows: list[Json] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return float(sum(row["seconds"] for row in self.rows))

    @property
    def written(self) -> list[str]:
        """The arguments that calls change in place."""
        return sorted({name for row in self.rows for name in row["written"]})

    @property
    def unfit(self) -> str:
        """Why no kernel can take these calls; empty where one can."""
        if self.nodes is None:
            return "has more signatures than are told apart"
        if others := [node[1] for node in inside(self.nodes) if node[0] == "other"]:
            return f"takes a {others[0]}"
        if not self.leaves:
            return "takes no array"
        if len({leaf[1] for leaf in self.leaves}) > 1:
            return "takes NumPy's arrays and torch's tensors together"
        if any(node[0] == "module" and node[2] for node in inside(self.nodes)):
            return "is called in training mode, in which no kernel takes its place: have the program call eval() on it"
        if why := next((row["why"] for row in self.rows if row["why"]), ""):
            return str(why)
        for leaf in self.leaves:
            if any(step < 0 or (step == 0 and size > 1) for size, step in zip(leaf[3], leaf[4], strict=True)):
                return f"takes {leaf[0]} as a reversed or expanded view"
        if not any(row["samples"] for row in self.rows):
            return "raised in each call"
        return self._returned()

    def _returned(self) -> str:
        known = [row["returns"] for row in self.rows if row["samples"]]
        nodes, leaves, given = known[0]
        if others := [node for node in inside([nodes]) if node[0] not in ("leaf", "tuple", "list", "dict", "const")]:
            return f"returns a {others[0][1]}"
        if not leaves and not self.written:
            return "returns no array"
        if any(
            (n, [leaf[:3] for leaf in ls], g) != (nodes, [leaf[:3] for leaf in leaves], given) for n, ls, g in known
        ):
            return "returns now one thing, now another"
        return ""


def observe(target: str, command: str, folder: Path, title: str = "") -> Seen:
    """Run a command; how often and with what it called a function. ConfigError where it fails or never calls it.

    title: what the command is called. folder: where records are put.
    """
    texts = [Path(str(part.__file__)).read_text(encoding="utf-8") for part in (look, recorder)]
    home.write(folder / "sitecustomize.py", re.sub("^from ksflow.*", "", "".join(texts), flags=re.MULTILINE))
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    order = json.dumps([target, str(folder)])
    log = folder / "log"
    began = time.time()
    with log.open("wb") as stream:
        environment = {**os.environ, "PYTHONPATH": path, "KSFLOW_ISOLATE": order}
        done = subprocess.run(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment, check=False
        )
    run_s = time.time() - began
    if done.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = one_line(next((line for line in lines[::-1] if "Error" in line), (lines or ["no output"])[-1]), 400)
        if title and last.startswith("Error: "):  # of the driver: a sentence that stands alone
            raise ConfigError(last.removeprefix("Error: "))
        raise ConfigError(f"{title or f'`{command}`'} ended with {done.returncode} ({last}): it has to succeed")
    command = title or f"`{command}`"
    found = [json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")]
    return _seen(target, command, run_s, found)


def _seen(target: str, command: str, run_s: float, found: list[Json]) -> Seen:
    """What all processes of a command saw. ConfigError where none saw a call that can be watched."""
    module, _, name = target.partition(":")
    known = [facts for facts in found if facts["file"]]
    if not found:
        raise ConfigError(f"{command} ran no Python that looks into PYTHONPATH (python -I or -E does not)")
    if not known:
        if names := next((facts["names"] for facts in found if facts["names"]), None):
            raise ConfigError(f"{module} has no {name}; {suggest(name.rpartition('.')[2], names)}")
        raise ConfigError(f"{command} did not import {module}: name the module as the program imports it")
    if unfit := next((facts["unfit"] for facts in known if facts["unfit"]), ""):
        raise ConfigError(f"{target} {unfit}")
    known = [facts for facts in known if facts["calls"]]
    if not known:
        raise ConfigError(f"{command} never called {target}: name a command that does, or the function that it calls")
    families: dict[str, Family] = {}
    for facts in known:
        scale = facts["calls"] / max(sum(row["calls"] for row in facts["groups"]), 1)
        for row in facts["groups"]:
            row["calls"] = round(row["calls"] * scale)
            row["seconds"] = (
                statistics.median(row["times"][1:] or row["times"] or [0]) * row["calls"]
            )  # the first is cold
            leaves = (
                []
                if row["leaves"] is None
                else [(*leaf[:3], *map(tuple, leaf[3:5]), leaf[5]) for leaf in row["leaves"]]
            )
            key = repr(
                [
                    row["nodes"],
                    [(leaf[:3], len(leaf[3]), contents.describe_strides(leaf[4], leaf[3])) for leaf in leaves],
                ]
            )
            family = families.setdefault(key, Family(row["nodes"], leaves))
            family.rows.append({**row, "shapes": [leaf[3] for leaf in leaves], "metas": leaves})
    spans = sorted((facts["began"], facts["ended"]) for facts in known)
    walls = sum(facts["ended"] - facts["began"] - facts["overhead_s"] for facts in known)
    share = sum(facts["busy_s"] for facts in known) / max(walls, 1e-9) * min(_union(spans) / max(run_s, 1e-9), 1.0)
    seen = Seen(target, command, run_s, min(share, 1.0), known[0], [], sum(facts["calls"] for facts in known))
    seen.families = sorted(families.values(), key=lambda family: -family.seconds)
    if any(facts["sampled"] for facts in known):
        seen.remarks.append(f"each of the first {recorder._FULL:,} calls was looked at, then one of {recorder._STRIDE}")
    if raised := sum(facts["raised"] for facts in known):
        seen.remarks.append(f"{raised:,} calls raised an exception, and are no cases")
    if (most := max(facts["threads"] for facts in known)) > 1:
        seen.remarks.append(f"{most} threads called it: the share is of the time in which any of them was inside")
    return seen


def inside(nodes: Any) -> list[Any]:
    """All nodes below these."""
    found = []
    for node in nodes:
        if isinstance(node, list | tuple) and len(node) == 3 and isinstance(node[1], bool):
            node = node[2]  # an argument
        found.append(node)
        if node[0] in ("tuple", "list", "dict"):
            found += inside([one for _, one in node[1]])
        elif node[0] == "object":
            found += inside([one for _, one in node[2]])
    return found


def fixed(nodes: Any, leaves: Any, defaults: Json) -> list[str]:
    """What is the same in all calls of a family, such as `eps=1e-05` and `x of float32`. defaults: the parameters'."""
    passed = {name for name, _, _ in nodes}
    usual = [(name, ("const", "", value)) for name, value in defaults.items() if name not in passed]
    given = [(name or "self", node) for name, _, node in nodes]
    constants = [text for name, node in (*given, *usual) for text in _fixed(name, node)]
    return [*constants, *(f"{leaf[0]} of {leaf[2]}" for leaf in leaves)]


def _fixed(name: str, node: Any) -> list[str]:
    """The constants in a node, with what leads to each."""
    if node[0] in ("const", "text"):
        return [f"{name}={node[-1]}"]
    if node[0] == "object":
        return [text for key, one in node[2] for text in _fixed(f"{name}.{key}", one)]
    pairs = node[1] if node[0] in ("tuple", "list", "dict") else ()
    return [text for key, one in pairs for text in _fixed(f"{name}[{key}]", one)]


def as_python(node: Any, arrays: Sequence[str], compared: bool = False) -> str:
    """A value as Python, over these texts for its arrays. compared: as a patch has it, with classes by name."""
    kind = node[0]
    if kind == "leaf":  # a number among results has its type, too
        scalar = "" if len(node) < 3 else ".item()" if node[2] in ("int", "float", "bool") else "[()]"
        return f"{arrays[node[1]]}{scalar}"
    if kind == "const":
        return f'float("{node[2]}")' if node[2] in ("nan", "inf", "-inf") else str(node[2])
    if kind == "text":
        return str(node[1])
    if kind == "object":
        fields = ", ".join(f"{key!r}: {as_python(one, arrays, compared)}" for key, one in node[2])
        made = f"_ksflow_object({node[1]!r}" if compared else f"_object({node[1].partition(':')[2]}"
        return f"{made}, {{{fields}}})"
    pairs = [(key, as_python(one, arrays, compared)) for key, one in node[1]]
    if kind == "dict":
        return f"{{{', '.join(f'{key}: {text}' for key, text in pairs)}}}"
    inner = "".join(f"{text}, " for _, text in pairs)
    return f"[{inner}]" if kind == "list" else f"({inner})"


def _union(spans: list[tuple[float, float]]) -> float:
    """The time that is in any of them, which are sorted."""
    total, end = 0.0, 0.0
    for begins, ends in spans:
        total += max(ends - max(begins, end), 0.0)
        end = max(end, ends)
    return total
