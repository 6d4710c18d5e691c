"""AMD machine code on a CPU, in AMD's instruction-set emulator rocjitsu: for checking results, never for times.

Each call is a process of its own: `kfd.py` under rocjitsu, its race detector on. Standard library only.
"""

import json
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ksflow.sandbox.runners.protocol import Call, Json, WrongResult

CODE, CONFIG, PROGRAM = "kernel.json", "config.json", "kfd.py"
"""The files that a kernel comes with here: its device container, rocjitsu's configuration, what launches it."""
_RACE = re.compile(r"^(?:Race on|RACE ).*|^ *==>.*", re.MULTILINE)
_MOST = 3
_LONGEST = 4000


class Rocjitsu:
    """A Runner. `rocjitsu` in the order: the program; `deadline_s`: of a call."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._command = [order["rocjitsu"], "--config", CONFIG, "--", sys.executable, "-I", PROGRAM]
        self._deadline_s = order["deadline_s"]
        self._plans = json.loads(Path(CODE).read_text(encoding="utf-8"))["plans"]

    def stage(self, case: Json, inputs: mmap.mmap, outputs: mmap.mmap) -> list[Call]:
        """One ready call per slot."""
        plan = self._plans[case["name"]]
        order = {
            "launches": plan["launches"],
            "workspaces": plan["workspaces"],
            "tensors": [piece["bytes"] for piece in case["pieces"]],
            "deadline_s": self._deadline_s,
        }

        def ready(slot: int) -> Callable[[], None]:
            regions = [
                memoryview((inputs, outputs)[piece["out"]])[start : start + piece["bytes"]]
                for piece in case["pieces"]
                for start in [slot * case["pitch"][piece["out"]] + piece["offset"]]
            ]
            return partial(self._run, order, regions)

        return [ready(slot) for slot in range(case["slots"])]

    def _run(self, order: Json, regions: list[memoryview]) -> None:
        """WrongResult for a race. RuntimeError where the kernel did not come to its end, whoever is to blame."""
        Path("order.json").write_text(json.dumps(order), encoding="utf-8")
        with open("memory.bin", "wb") as memory:
            memory.writelines(regions)
        Path("done").unlink(missing_ok=True)
        environment = {**os.environ, "RJ_RACE": "1"}
        try:
            ended = subprocess.run(
                self._command,
                env=environment,
                timeout=self._deadline_s + 10,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"rocjitsu does not end in {self._deadline_s:g} s") from None
        text = ended.stdout.decode("utf-8", "replace")
        if races := _RACE.findall(text):
            lines = [" ".join(line.split()) for line in races if not line.startswith("RACE ")] or races
            raise WrongResult(f"race: {'; '.join(lines[:_MOST])}")
        if not os.path.exists("done"):
            last = (text.strip().splitlines() or ["it said nothing: an instruction that it does not know?"])[-1]
            print(text[-_LONGEST:])  # noqa: T201 - the sandbox's log
            raise RuntimeError(f"rocjitsu ended with status {ended.returncode} before the kernel did; {last[:300]}")
        with open("memory.bin", "rb") as memory:
            for region in regions:
                region[:] = memory.read(len(region))
