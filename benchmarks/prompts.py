"""How long the prompts of a recorded run would be now, by section, and how much of them the prompt before has too.

    python benchmarks/prompts.py results/fp8_gemm_h200_columns/lineage.bundle h200_columns problem=fp8_gemm \
        target=h200 'problem.seeds=[01_naive.cu,03_mma.cu]'

BUNDLE RUN [key=value ...]. No model is asked; tokens are estimated. Of the newest round: the selector, the designer
with the round's base and reference, the writer for each of its experiments. Providers cache what two prompts have in
common from their start on.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ksflow.cli.prompt import Asker
from ksflow.config import compose
from ksflow.lineage import Lineage
from ksflow.lm.program import Prompt


def round_prompts(bundle: Path, run: str, words: Sequence[str], folder: Path) -> dict[str, list[Prompt]]:
    """Stage -> what it would be asked for the newest round of a bundled run."""
    subprocess.run(["git", "clone", "--quiet", "--mirror", bundle, folder / "lineage.git"], check=True)
    given = ["llm=dummy", f"run={run}", f"lineage.path={folder / 'lineage.git'}", *words]
    cfg = compose.without_keys(compose.compose(given))
    problem = compose.build(cfg.problem)
    lineage: Lineage = compose.build(cfg.lineage)(problem=problem.name, run=run, create=False)
    try:
        lineage.expect_as_recorded()
        tried = [trial for trial in lineage.all_trials() if trial.experiment]
        ids = [trial.id for trial in tried if trial.parents == tried[-1].parents][-3:]
        asker = Asker(cfg, problem, lineage)
        return {
            "selector": [asker.ask("selector", "")],
            "designer": [asker.ask("designer", ids[-1])],
            "writer": [asker.ask("writer", id) for id in ids],
        }
    finally:
        lineage.close()


def shared(prompts: Sequence[Prompt]) -> float:
    """Of all characters but the first prompt's the share that the prompt before begins with as well."""
    texts = ["\0".join(str(message["content"]) for message in prompt.messages) for prompt in prompts]
    common = sum(_common(*pair) for pair in pairwise(texts))
    return common / sum(map(len, texts[1:]))


def _common(first: str, second: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(first), len(second)))


def main() -> None:
    """Print a table, and what the writers' prompts share."""
    bundle, run, *words = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        found = round_prompts(Path(bundle), run, words, Path(folder))
    names = list(dict.fromkeys(name for prompts in found.values() for name, _, _ in prompts[-1].sections))
    print(f"| section | {' | '.join(found)} |\n|---|{'---:|' * len(found)}")
    tokens = {stage: {name: count for name, _, count in prompts[-1].sections} for stage, prompts in found.items()}
    for name in names:
        print(f"| {name} | {' | '.join(str(tokens[stage].get(name, '-')) for stage in found)} |")
    print(f"| **all** | {' | '.join(str(sum(tokens[stage].values())) for stage in found)} |")
    print(f"\nshared with the prompt before, writer: {100 * shared(found['writer']):.1f} %")


if __name__ == "__main__":
    main()
