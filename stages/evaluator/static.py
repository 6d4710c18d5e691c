"""`StaticEvaluator`: compile for a GPU that is not here, and say what the compiler says. Nothing is timed.

Covered: compile errors, recipe lines that do not hold, registers, spills, shared memory, occupancy, matrix
instructions; where an emulator knows the language, whether the kernel is right. NOT covered: speed, and all that only a
device shows.
"""

import re
from dataclasses import asdict, replace
from functools import cached_property

from ksflow import compilers
from ksflow.compilers.emulator import emulated
from ksflow.compilers.occupancy import occupancy
from ksflow.errors import ConfigError
from ksflow.hardware.target import detect
from ksflow.processes.child_environment import child_environment
from ksflow.records import DEVICE_LANGUAGES, Evaluation, Json, Kernel, Limits, Problem, Target, Trial, Verdict
from ksflow.sandbox.levels import probe
from ksflow.source.launches import parse, plans
from ksflow.stages.evaluator.local import LocalEvaluator

_VERSION = 1
_PATIENT = Limits(compile_s=120, check_s=120, time_s=1, memory_mb=8192)


class StaticEvaluator:
    """Judges kernels by compiling them for `target`, which need not be here."""

    judge = f"static-{_VERSION}"

    def __init__(self, target: Target) -> None:
        if target.kind != "gpu":
            raise ConfigError(
                f"target={target.name} is a {target.kind}, and evaluator=static compiles for GPUs; "
                "name one, such as target=h200 or target=mi300x"
            )
        self.target = target
        self.level = probe().level

    @cached_property
    def fingerprint(self) -> str:
        """The target, and every compiler that was found for it."""
        found = compilers.versions(self.target)
        return "-".join([self.target.fingerprint, *(name or f"no-{language}" for language, name in found.items())])

    def __call__(self, problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        """Never raises for a bad kernel. Raises ConfigError where its compiler is missing."""
        if kernel.language not in (*self._languages, "python") or kernel.language not in problem.languages:
            return self._verdict(Verdict.MALFORMED, f"language {kernel.language} cannot be compiled for {self._what}")
        made = compilers.build(problem, kernel, self.target, child_environment({}))
        if made.reason:
            verdict = Verdict.TIMEOUT if made.timed_out else Verdict.COMPILE
            return self._verdict(verdict, made.reason, {"log": made.log})
        evidence: Json = {"made": made.mode}
        if made.resources:
            evidence["compiler"] = list(made.resources)
        if made.log:
            evidence["log"] = made.log
        found = self._emulated(problem, kernel)
        if isinstance(found, str):
            evidence["emulated"] = f"not emulated: {found}"
            return self._verdict(Verdict.UNTIMED, f"{self._summary(made)}; nothing was timed", evidence)
        if found.verdict is not Verdict.UNTIMED:
            why = f"emulated on the CPU: {_emulators_word(found)}"
            return self._verdict(found.verdict, why, {**found.evidence, **evidence})
        evidence |= {"emulated": "right on the CPU at small shapes", "checked": found.evidence.get("checked", [])}
        return self._verdict(
            Verdict.UNTIMED, f"{self._summary(made)}; right where emulated; nothing was timed", evidence
        )

    def prepare(self, problem: Problem, kernel: Kernel) -> None:
        """Compile ahead; what was made is found again."""
        if kernel.language in self._languages and kernel.language in problem.languages:
            compilers.build(problem, kernel, self.target, child_environment({}))

    def _emulated(self, problem: Problem, kernel: Kernel) -> Evaluation | str:
        """Whether it is right at small shapes, run on this CPU; or why that cannot be said."""
        if not problem.small:
            return "the problem has no small cases"
        little = replace(problem, tests=problem.small, benchmarks=(), limits=_PATIENT)
        try:
            if kernel.language == "hip":
                return self._cpu.right(little, emulated(little, kernel, self.target.march))
            if kernel.language == "triton":
                return self._cpu.right(little, kernel, _interpret(little, kernel))
        except ValueError as error:
            return str(error)
        return f"nothing here runs {kernel.language} without a GPU"

    @cached_property
    def _cpu(self) -> LocalEvaluator:
        return LocalEvaluator(detect())

    @property
    def _languages(self) -> tuple[str, ...]:
        return tuple(name for name, begins in DEVICE_LANGUAGES.items() if self.target.march.startswith(begins))

    @property
    def _what(self) -> str:
        return f"{self.target.name} ({self.target.march})"

    def _summary(self, made: compilers.Made) -> str:
        """Of the kernel with the most registers, which is the one that matters."""
        rows = [row for row in made.resources if "registers" in row]
        if not rows:
            return "host mode: it is compiled when it runs" if made.mode == "host" else f"compiled for {self._what}"
        row = max(rows, key=lambda row: int(row["registers"]))
        unit = "VGPRs" if self.target.march.startswith("gfx") else "registers"
        parts = [f"{row['registers']} {unit}"]
        if row.get("spill_bytes"):
            parts.append(f"{row['spill_bytes']} bytes spilled")
        if "threads" in row:
            found = occupancy(self.target.march, row["threads"], row["registers"], row["shared_bytes"])
            parts += [f"occupancy {found.warps} of {found.most}"] if found else []
        name = f"{row['kernel']} " if len({row["kernel"] for row in rows}) > 1 else ""
        return f"compiled for {self.target.march}: {name}{', '.join(parts)}"

    def _verdict(self, verdict: Verdict, reason: str, evidence: Json | None = None) -> Evaluation:
        line = " ".join(reason.split())[:500]
        return Evaluation(verdict, line, None, (), evidence or {}, self.level, self.fingerprint, judge=self.judge)


def _emulators_word(found: Evaluation) -> str:
    """What the emulator said last before it gave up, where it did, in place of the signal that it gave up with."""
    said = re.findall(r"^emulator: (.+)$", str(found.evidence.get("log", "")), re.MULTILINE)
    return found.reason.replace("killed by SIGABRT", said[-1]) if said else found.reason


def _interpret(problem: Problem, kernel: Kernel) -> Json:
    """The launches of every case, for Triton's interpreter; nothing in host mode. ValueError for a wrong recipe."""
    recipe = parse(kernel.main)
    if recipe is None:
        return {}
    cases = {case.name: case.params for case in problem.tests}
    variants, found = plans(recipe, cases, [arg.name for arg in problem.args])
    return {"variants": variants, "plans": {name: asdict(plan) for name, plan in found.items()}}
