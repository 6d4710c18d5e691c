"""Solutions that came with a problem, right ones and wrong ones: does the judge tell them apart?"""

import re
from collections.abc import Callable

from ksflow.records import Evaluation, Kernel, Problem, Seed, Verdict

_ON_A_GPU = re.compile(
    r"^\s*(?:import|from)\s+(?:triton|cutlass|cupy|helion|tilelang|aiter|pycuda)\b|\bcuda_sources\s*=|\bload_inline\(",
    re.MULTILINE,
)
Row = tuple[str, bool, str]


def played(problem: Problem, judge: Callable[[Kernel], Evaluation], gpu: bool) -> tuple[Row, ...]:
    """A row for each of `problem.good` and `problem.bad`. What cannot run here holds, and says that it was skipped."""
    rows = []
    for kind, seeds in (("good", problem.good), ("bad", problem.bad)):
        for seed in seeds:
            why = "" if gpu else _lacks(seed)
            ok, detail = (True, f"skipped: {why}") if why else _verdict(kind, judge(seed.kernel), problem)
            rows.append((f"{kind} {seed.name}", ok, detail))
    return tuple(rows)


def _lacks(seed: Seed) -> str:
    """What a solution needs that is not here."""
    text = "\n".join(seed.kernel.files.values())
    return "needs a GPU" if seed.kernel.language not in ("python", "cpp") or _ON_A_GPU.search(text) else ""


def _verdict(kind: str, result: Evaluation, problem: Problem) -> tuple[bool, str]:
    said = f"{result.score_us:.1f} us" if result.score_us else f"{result.verdict}: {result.reason}"
    if kind == "good":
        return result.accepted, said
    if not result.accepted:
        return result.verdict is not Verdict.HARNESS, said
    cap = problem.origin.get("cap")
    return False, f"accepted, in {said}{f'; sizes are cut to {cap}, which may hide what is wrong' if cap else ''}"
