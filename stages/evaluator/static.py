"""`StaticEvaluator`: compile for a GPU that is not here, and say what the compiler says. Nothing is timed.

Covered: compile errors, launch lines that do not hold, registers, spills, shared memory, occupancy, matrix
instructions; where an emulator knows the language, whether the kernel is right, of AMD's chips by a second one that
runs the machine code (rocjitsu, where it is installed). NOT covered: speed, and all that only a device shows.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial

from ksflow import compilers
from ksflow.compilers.occupancy import occupancy
from ksflow.errors import ConfigError
from ksflow.judge.bench import Emulator
from ksflow.languages import LANGUAGES, ON_DEVICE
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
        versions = compilers.versions(self.target)
        second = self._emulator.rocjitsu.version if self.target.march.startswith("gfx") else ""
        names = [name or f"no-{language}" for language, name in versions.items()]
        return "-".join(filter(None, [self.target.fingerprint, *names, second]))

    def __call__(self, problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        """Never raises for a bad kernel. Raises ConfigError where its compiler is missing."""
        if kernel.language not in (*self._languages, "python") or not problem.takes(kernel.language):
            return self._verdict(Verdict.MALFORMED, f"language {kernel.language} cannot be compiled for {self._what}")
        built = compilers.build(problem, kernel, self.target)
        if built.reason:
            verdict = Verdict.TIMEOUT if built.timed_out else Verdict.COMPILE
            return self._verdict(verdict, built.reason, Evidence(log=built.log))
        compiled = parse(tuple[CompiledKernel, ...], list(built.resources))
        evidence = Evidence(made=built.mode, compiler=compiled, log=built.log)
        first, why = _asked(partial(self._emulator, problem, kernel, self.target.march))
        second, why_no_second = None, ""
        if kernel.language in ("hip", "triton") and self._emulator.rocjitsu.version:
            second, why_no_second = _asked(partial(self._emulator.rocjitsu, problem, kernel, self.target))
        words = [_word(first, "right on the CPU at small shapes") or f"not emulated: {why}"]
        if second or why_no_second:
            words.append(f"rocjitsu: {_word(second, 'right') or f'no word, {why_no_second}'}")
        evidence = replace(evidence, emulated="; ".join(words))
        evaluations = [evaluation for evaluation in (first, second) if evaluation]
        wrong = [evaluation for evaluation in evaluations if evaluation.verdict is not Verdict.UNTIMED]
        if wrong and len(wrong) < len(evaluations):
            return self._verdict(Verdict.DISPUTED, f"emulators disagree: {'; '.join(words)}", evidence)
        if wrong:
            by = "emulated on the CPU" if first else "in rocjitsu"
            final = wrong[0].with_evidence(made=built.mode, compiler=compiled, log=built.log or wrong[0].evidence.log)
            final = final.with_evidence(emulated=evidence.emulated) if second else final
            return self._verdict(wrong[0].verdict, f"{by}: {_reason(wrong[0])}", final.evidence)
        right = "; right where emulated" if first else ""
        right += "; right in rocjitsu, instruction by instruction" if second else ""
        evidence = replace(evidence, checked=evaluations[0].evidence.checked if evaluations else ())
        return self._verdict(Verdict.UNTIMED, f"{self._summary(built, compiled)}{right}; nothing was timed", evidence)

    def prepare(self, problem: Problem, kernel: Kernel) -> None:
        """Compile ahead; what was made is found again."""
        if kernel.language in self._languages and problem.takes(kernel.language):
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


def _asked(emulator: Callable[[], Evaluation]) -> tuple[Evaluation | None, str]:
    """What an emulator says, or why it says nothing."""
    try:
        return emulator(), ""
    except ValueError as error:
        return None, str(error)


def _word(evaluation: Evaluation | None, right: str) -> str:
    """An emulator's, in words; empty where it has none."""
    if evaluation is None:
        return ""
    return right if evaluation.verdict is Verdict.UNTIMED else f"{evaluation.verdict}, {_reason(evaluation)}"


def _reason(evaluation: Evaluation) -> str:
    """What the emulator said last before it gave up stands in place of the signal that it gave up with."""
    messages = re.findall(r"^emulator: (.+)$", evaluation.evidence.log, re.MULTILINE)
    return evaluation.reason.replace("killed by SIGABRT", messages[-1]) if messages else evaluation.reason
