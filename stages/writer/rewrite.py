"""A model writes the whole new kernel, in the base's language and file unless it says otherwise."""

from typing import Any

import dspy

from ksflow.kernels.source.answer import as_files
from ksflow.lm.call import LONGEST_ANSWER
from ksflow.lm.prices import answer_limit
from ksflow.lm.prompts.brief import count
from ksflow.records import Kernel
from ksflow.stages.writer.model_writer import CRAFT, REPORT, ModelWriter, WriterSignature

_GROWTH = 1.25  # a new file is at most that much longer than the old one
_BESIDE = 6_000  # tokens of report and thought


class Write(WriterSignature):
    __doc__ = f"""You are an expert kernel engineer. Carry out one experiment on a working kernel and return the whole
    new file.

    Start from the base: it compiles, it is correct, and it was timed. Keep what the experiment does not ask to
    change. The reference kernel works too: take techniques from it where they serve the experiment. Do what the
    description says so that the rubric is met; if a detail of it cannot work, do the nearest thing that can, and say
    so in the report. Where a failed attempt is given, mend what the evidence shows, and keep the experiment.
    {CRAFT}"""

    code: str = dspy.OutputField(desc="the complete new source file, exactly as it is to be saved")
    report: str = dspy.OutputField(desc=REPORT)


class Rewrite(ModelWriter):
    """A writer whose model writes the main file anew, and other files that it names."""

    label, signature = "writer=rewrite", Write

    def answer_tokens(self, text: str) -> int:
        """Return the tokens of an answer with the next version of a file, its report and some thought."""
        return round(_GROWTH * count(text)) + _BESIDE

    def fits(self, text: str) -> bool:
        """Return whether an answer of the model has room for the next version of a file."""
        needed = self.answer_tokens(text)
        return needed <= (answer_limit(self.program.model, needed) or LONGEST_ANSWER)

    def main(self, answer: dict[str, Any], start: Kernel) -> str:
        """Return the answer's code with a line break at its end."""
        return as_files(str(answer["code"]))
