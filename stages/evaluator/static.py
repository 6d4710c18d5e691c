"""`StaticEvaluator`: compile for a GPU that is not here, and say what the compiler says. Nothing is timed.

Covered: compile errors, launch lines that do not hold, registers, spills, shared memory, occupancy, matrix
instructions; where an emulator knows the language, whether the kernel is right. NOT covered: speed, and all that only
a device shows.
"""

import re
from dataclasses import replace
from functools import cached_property

from ksflow.errors import ConfigError
from ksflow.evaluation import compilers
from ksflow.evaluation.compilers.occupancy import occupancy
from ksflow.evaluation.judge.bench import Emulator
from ksflow.evaluation.sandbox.levels import probe
from ksflow.kernels.languages import LANGUAGES, ON_DEVICE
from ksflow.protocols import Evaluator
from ksflow.records import (
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
        versions = compilers.versions(self.target)
        return "-".join([self.target.fingerprint, *(name or f"no-{language}" for language, name in versions.items())])

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """Never raises for a bad kernel. Raises ConfigError where its compiler is missing."""
        if kernel.language not in (*self._languages, "python") or not problem.accepts_language(kernel.language):
            return self._verdict(Verdict.MALFORMED, f"language {kernel.language} cannot be compiled for {self._what}")
        built = compilers.build(problem, kernel, self.target)
        if built.reason:
            verdict = Verdict.TIMEOUT if built.timed_out else Verdict.COMPILE
            return self._verdict(verdict, built.reason, Evidence(log=built.log))
        compiled = parse(tuple[CompiledKernel, ...], list(built.resources))
        evidence = Evidence(made=built.mode, compiler=compiled, log=built.log)
        try:
            emulated = self._emulator(problem, kernel, self.target.march)
        except ValueError as error:
            evidence = replace(evidence, emulated=f"not emulated: {error}")
            return self._verdict(Verdict.UNTIMED, f"{self._summary(built, compiled)}; nothing was timed", evidence)
        if emulated.verdict is not Verdict.UNTIMED:
            log = built.log or emulated.evidence.log
            final = emulated.with_evidence(made=built.mode, compiler=compiled, log=log)
            return self._verdict(emulated.verdict, f"emulated on the CPU: {_reason(emulated)}", final.evidence)
        words, checked = "right on the CPU at small shapes", emulated.evidence.checked
        evidence = replace(evidence, emulated=words, checked=checked)
        reason = f"{self._summary(built, compiled)}; right where emulated; nothing was timed"
        return self._verdict(Verdict.UNTIMED, reason, evidence)

    def prepare(self, problem: Problem, kernel: Kernel) -> None:
        """Compile ahead; what was made is found again."""
        if kernel.language in self._languages and problem.accepts_language(kernel.language):
            compilers.build(problem, kernel, self.target)

    @property
    def _languages(self) -> tuple[str, ...]:
        return tuple(name for name in ON_DEVICE if LANGUAGES[name].fits(self.target.march))

    @property
    def _what(self) -> str:
        return f"{self.target.name} ({self.target.march})"

    def _summary(self, built: compilers.BuildResult, compiled: tuple[CompiledKernel, ...]) -> str:
        """Of the kernel with the most registers, which is the one that matters."""
        rows = [row for row in compiled if row.registers is not None]
        if not rows:
            return "host mode: it is compiled when it runs" if built.mode == "host" else f"compiled for {self._what}"
        row = max(rows, key=lambda row: row.registers or 0)
        unit = "VGPRs" if self.target.march.startswith("gfx") else "registers"
        parts = [f"{row.registers} {unit}"]
        if row.spill_bytes:
            parts.append(f"{row.spill_bytes} bytes spilled")
        if row.threads is not None:
            fit = occupancy(self.target.march, row.threads, row.registers or 0, row.shared_bytes or 0)
            parts += [f"occupancy {fit.warps} of {fit.most}"] if fit else []
        name = f"{row.kernel} " if len({row.kernel for row in rows}) > 1 else ""
        return f"compiled for {self.target.march}: {name}{', '.join(parts)}"

    def _verdict(self, verdict: Verdict, reason: str, evidence: Evidence = Evidence()) -> Evaluation:  # noqa: B008
        return Evaluation(verdict, reason, None, (), evidence, self.level, self.fingerprint, judge=self.judge)


def _reason(evaluation: Evaluation) -> str:
    """What the emulator said last before it gave up stands in place of the signal that it gave up with."""
    messages = re.findall(r"^emulator: (.+)$", evaluation.evidence.log, re.MULTILINE)
    return evaluation.reason.replace("killed by SIGABRT", messages[-1]) if messages else evaluation.reason
