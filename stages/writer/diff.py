"""A model edits the base's files, or the failed attempt's; an edit is applied where it can mean one place alone."""

import re
from dataclasses import dataclass
from typing import Any

import dspy

from ksflow.errors import one_of
from ksflow.kernels.source.answer import as_files, as_text, end_with_newline, split_files
from ksflow.kernels.source.edits import has_edits
from ksflow.kernels.source.patch import apply
from ksflow.lm.program import MoreWanted
from ksflow.lm.prompts import excerpt
from ksflow.lm.prompts.brief import VOLATILE, Section, count
from ksflow.records import Kernel
from ksflow.stages.writer.model_writer import CRAFT, REPORT, ModelWriter, WriterSignature

CODE = 9_000  # tokens of the file to edit that a prompt has room for, unless a stage says otherwise
_WHOLE = 0.5  # of the file's length: what has no edit and is not shorter may be the whole new file
_SHOW = re.compile(r"\s*SHOW((?:[ ,]+\d+ ?- ?\d+)+)\s*")
_RULES = """
Quote whole lines as they are. What you quote must occur exactly once in the file: quote enough lines around the place.
Every edit quotes the file as it is given, not as your earlier edits left it, and no two change the same lines."""
_LEFT_OUT = """

Parts of the file are left out, each marked with its first and last line. Edit around them, or, if you must see some of
them first, ask for them, which costs nothing: answer with their lines alone in `edits`, `SHOW 120-180, 300-340`, and
with `-` as the report. You are then shown these lines and asked again."""

STYLES = {
    "blocks": f"""Search/replace blocks, each:
<<<<<<< SEARCH
lines of the file as they are
=======
lines as they shall be
>>>>>>> REPLACE
{_RULES}

To delete lines, leave the second part empty. To insert, quote a line beside the place and repeat it. Where the code
itself holds a line of seven =, < or > like these, make all three markers of that block longer: <<<<<<<<< SEARCH,
=========, >>>>>>>>> REPLACE.""",
    "unified": f"""A unified diff of the one file: hunks that each begin with a line @@ -start,count +start,count @@,
then lines that begin with a space (stays), - (goes) or + (comes).
{_RULES}

Line numbers need not be right. Give three lines of context where there are so many.""",
}
"""How edits are asked for. Both are read, whichever it was."""


class EditSignature(WriterSignature):
    __doc__ = f"""You are an expert kernel engineer. Carry out one experiment on a working kernel by editing its main
    file.

    The base compiles, it is correct, and it was timed. Change what the experiment asks for and nothing else. The
    reference kernel works too: take techniques from it where they serve the experiment. Do what the description says
    so that the rubric is met; if a detail of it cannot work, do the nearest thing that can, and say so in the report.
    Without a failed attempt your edits apply to `base_code`. With one they apply to `failed_code`, not to the base:
    mend what the evidence shows, and keep the experiment.
    {CRAFT}"""

    more_code: str = dspy.InputField(
        desc="parts that are left out of `base_code` and bear on the experiment, under the numbers of their lines"
    )
    edit_format: str = dspy.InputField(desc="how to write the edits")
    edits_apply_to: str = dspy.InputField(desc="the section that holds the file to edit")
    edits: str = dspy.OutputField(
        desc="the edits, in the format of `edit_format`, of the file that `edits_apply_to` names"
    )
    report: str = dspy.OutputField(desc=REPORT)


@dataclass(eq=False)
class Diff(ModelWriter):
    """A writer whose model edits the base's files, or the failed attempt's."""

    label, signature = "writer=diff", EditSignature
    style: str = "blocks"
    """The form of edits that is asked for, `blocks` or `unified`."""
    code: int = CODE
    """Tokens of the file to edit: two thirds are the same for a round's experiments, the rest bears on this one."""

    def __post_init__(self) -> None:
        one_of("writer.style", self.style, STYLES)
        super().__post_init__()
        self.spare = self.code // 3
        self.room = self.code - self.spare

    def main(self, answer: dict[str, Any], start: Kernel) -> str:
        """Return the edited file, or an answer without edits that is long enough to be the whole new file."""
        edits, below = split_files(answer["edits"])
        if asked := _SHOW.fullmatch(edits):
            raise MoreWanted(excerpt.requested_lines(start.main, asked[1], 2 * self.room))
        if not has_edits(edits) and len(edits) >= _WHOLE * len(start.main):
            return as_files(answer["edits"])
        edited = start.main
        if edits.strip() or not below:
            try:
                edited = apply(start.main, edits)
            except ValueError:  # they may be of all files
                if len(start.files) == 1:
                    raise
                edited = apply(as_text(start.files), edits)
        return f"{end_with_newline(edited)}{as_files(below)}" if below else edited

    def show_kernel(self, kernel: Kernel | None, about: str, room: int) -> str:
        """Return the main file; of a long one what bears on `about`."""
        return excerpt.shorten_file(kernel.main, room, about) if kernel else ""

    def more_sections(self, start: Kernel, work: str, repairs: bool) -> list[Section]:
        """Return what else of a long file bears on the work, how to write edits, and what they apply to."""
        also = "\n\nEdits may quote lines of other_files, too." if len(start.files) > 1 else ""
        left_out = _LEFT_OUT if count(start.main) > self.room else ""
        code = (lambda room: excerpt.omitted_parts(start.main, room, work)) if left_out and not repairs else ""
        return [
            Section("more_code", VOLATILE, code, self.spare),
            Section("edit_format", VOLATILE, STYLES[self.style] + also + left_out),
            Section("edits_apply_to", VOLATILE, "failed_code" if repairs else "base_code"),
        ]
