"""A kernel as its difference from another one in the same prompt."""

from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import lru_cache

from ksflow.lm.prompts.brief import count
from ksflow.lm.prompts.excerpt import first_lines
from ksflow.lm.prompts.render import listing
from ksflow.lm.prompts.times import percent
from ksflow.records import Kernel, Population, Selection, base_of

_CONTEXT = 3  # lines around a change
_GONE = 2  # removed lines shown at one place
_UNLIKE = 0.5  # share of the kernel's length from which on the whole is shown


def difference(kernel: Kernel | None, other: Kernel | None, name: str) -> str:
    """Return a kernel's difference from `other`, which the prompt calls `name`; the whole kernel if they are unlike."""
    whole = listing(kernel)
    if kernel is None or other is None:
        return whole
    edits = unified(kernel.files, other.files)
    if not edits:
        return f"(the same as {name})"
    if count(edits) > _UNLIKE * count(whole):
        return whole
    return f"(what differs from {name}: - is there alone, + is here alone; all else is the same)\n{edits}"


def reference_code(selection: Selection, tokens: int) -> str:
    """Return the reference kernel, as its difference from the base, cut to so many tokens."""
    if selection.reference.id == selection.base.id:
        return "(the base itself)"
    return first_lines(difference(selection.reference.kernel, selection.base.kernel, "the base"), tokens)


def winning_step(population: Population, tokens: int) -> str:
    """Return the code change of the newest experiment that became the best so far, as a diff of so many tokens, and its
    gain. Changes of tunables alone count only if there is no other. "" if no experiment led.
    """
    led = dict.fromkeys(trial.id for trial in population.best_so_far[::-1] if trial)
    steps = [trial for name in led if (trial := population.by_id[name]).experiment]
    last = next((trial for trial in steps if trial.experiment and not trial.experiment.changes), [*steps, None][0])
    base = base_of(last, population.by_id) if last else None
    if not (last and last.kernel and base and base.kernel):
        return ""
    speed = population.speedup(last, base)
    head = f"{last.id} from {base.id}{f', {percent(speed.ratio)}' if speed else ''}:"
    return first_lines(f"{head}\n{unified(last.kernel.files, base.kernel.files)}", tokens)


def unified(files: Mapping[str, str], others: Mapping[str, str]) -> str:
    """Return a unified diff from `others` to `files`. Main files are compared whatever their names."""
    (main, text), (other, before) = next(iter(files.items())), next(iter(others.items()))
    pairs = {main: (before, text)} | {
        name: (others.get(name, ""), files.get(name, "")) for name in {**files, **others} if name not in (main, other)
    }
    titles = {name: f"===== {name} =====\n" if len(pairs) > 1 else "" for name in pairs}
    return "\n".join(titles[name] + _hunks(*pair) for name, pair in pairs.items() if pair[0] != pair[1])


@lru_cache(64)
def _hunks(before: str, after: str) -> str:
    old, new, lines = before.split("\n"), after.split("\n"), list[str]()
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT):
        (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
        lines.append(f"@@ -{a + 1},{b - a} +{c + 1},{d - c} @@")
        for kind, i, j, k, m in group:
            if kind == "equal":
                lines += [f" {line}" for line in old[i:j]]
                continue
            lines += [f"-{line}" for line in old[i:j][: _GONE if j - i > _GONE + 1 else None]]
            if j - i > _GONE + 1:
                lines.append(f"-... ({j - i - _GONE} lines more, as far as line {j})")
            lines += [f"+{line}" for line in new[k:m]]
    return "\n".join(lines)
