"""`StaticEvaluator`: compile for a GPU that is not here, and say what the compiler says. Nothing is timed.

Covered: compile errors, launch lines that do not hold, registers, spills, shared memory, occupancy, matrix
instructions; where an emulator knows the language, whether the kernel is right. NOT covered: speed, and all that only a
device shows.
"""

import re
from dataclasses import replace
from functools import cached_property

from ksflow import compilers
from ksflow.compilers.occupancy import occupancy
from ksflow.errors import ConfigError
from ksflow.judge.bench import Emulator
from ksflow.protocols import Evaluator
from ksflow.records import (
    DEVICE_LANGUAGES,
    CompiledKernel,
    Evaluation,
    Evidence,
    Kernel,
    Problem,
    Target,
    Trial,
    Verdict,
    parse,
)
from ksflow.sandbox.levels import probe

_VERSION = 1


class StaticEvaluator(Evaluator):
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
        self._emulator = Emulator()

    @cached_property
    def fingerprint(self) -> str:
        """The target, and every compiler that was found for it."""
        found = compilers.versions(self.target)
        return "-".join([self.target.fingerprint, *(name or f"no-{language}" for language, name in found.items())])

    def __call__(self, problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        """Never raises for a bad kernel. Raises ConfigError where its compiler is missing."""
        if kernel.language not in (*self._languages, "python") or kernel.language not in problem.languages:
            return self._verdict(Verdict.MALFORMED, f"language {kernel.language} cannot be compiled for {self._what}")
        made = compilers.build(problem, kernel, self.target)
        if made.reason:
            verdict = Verdict.TIMEOUT if made.timed_out else Verdict.COMPILE
            return self._verdict(verdict, made.reason, Evidence(log=made.log))
        compiled = parse(tuple[CompiledKernel, ...], list(made.resources))
        evidence = Evidence(made=made.mode, compiler=compiled, log=made.log)
        try:
            found = self._emulator(problem, kernel, self.target.march)
        except ValueError as error:
            evidence = replace(evidence, emulated=f"not emulated: {error}")
            return self._verdict(Verdict.UNTIMED, f"{self._summary(made, compiled)}; nothing was timed", evidence)
        if found.verdict is not Verdict.UNTIMED:
            # what the emulator said last before it gave up stands in place of the signal that it gave up with
            said = re.findall(r"^emulator: (.+)$", found.evidence.log, re.MULTILINE)
            reason = found.reason.replace("killed by SIGABRT", said[-1]) if said else found.reason
            why = f"emulated on the CPU: {reason}"
            log = made.log or found.evidence.log
            found = found.with_evidence(made=made.mode, compiler=compiled, log=log)
            return self._verdict(found.verdict, why, found.evidence)
        evidence = replace(evidence, emulated="right on the CPU at small shapes", checked=found.evidence.checked)
        return self._verdict(
            Verdict.UNTIMED, f"{self._summary(made, compiled)}; right where emulated; nothing was timed", evidence
        )

    def prepare(self, problem: Problem, kernel: Kernel) -> None:
        """Compile ahead; what was made is found again."""
        if kernel.language in self._languages and kernel.language in problem.languages:
            compilers.build(problem, kernel, self.target)

    @property
    def _languages(self) -> tuple[str, ...]:
        return tuple(name for name, begins in DEVICE_LANGUAGES.items() if self.target.march.startswith(begins))

    @property
    def _what(self) -> str:
        return f"{self.target.name} ({self.target.march})"

    def _summary(self, made: compilers.BuildResult, compiled: tuple[CompiledKernel, ...]) -> str:
        """Of the kernel with the most registers, which is the one that matters."""
        rows = [row for row in compiled if row.registers is not None]
        if not rows:
            return "host mode: it is compiled when it runs" if made.mode == "host" else f"compiled for {self._what}"
        row = max(rows, key=lambda row: row.registers or 0)
        unit = "VGPRs" if self.target.march.startswith("gfx") else "registers"
        parts = [f"{row.registers} {unit}"]
        if row.spill_bytes:
            parts.append(f"{row.spill_bytes} bytes spilled")
        if row.threads is not None:
            found = occupancy(self.target.march, row.threads, row.registers or 0, row.shared_bytes or 0)
            parts += [f"occupancy {found.warps} of {found.most}"] if found else []
        name = f"{row.kernel} " if len({row.kernel for row in rows}) > 1 else ""
        return f"compiled for {self.target.march}: {name}{', '.join(parts)}"

    def _verdict(self, verdict: Verdict, reason: str, evidence: Evidence = Evidence()) -> Evaluation:  # noqa: B008
        return Evaluation(verdict, reason, None, (), evidence, self.level, self.fingerprint, judge=self.judge)
