"""The pages that `--help` and `COMMAND --help` print. Imports nothing heavy: help is there at once."""

from collections.abc import Sequence

from ksflow.errors import ConfigError, suggest
from ksflow.home import shipped

_PAGES = {
    "run": """
  python -m ksflow [problem=NAME] [llm=NAME] [key=value ...]     search for a faster kernel, or go on with it
  python -m ksflow -m designer=tune,random selector=fastest,...  one run per variant, compared in one table
  python -m ksflow -m problem=softmax,fp8_gemm loop.usd=20       many problems: a suite, loop.usd is for all of them
---
Selects, designs, writes, judges and learns until a budget is spent. The same command goes on where it was stopped.
Ctrl-C once: what is in flight is finished, then the run ends as usual; twice: it is abandoned, and nothing that was
written is lost.

  problem=NAME|FOLDER   a shipped problem, or your own      llm=NAME              whose models; offline is none
  seed_kernels=FILE     your own kernel among the seeds     run=main              name of the run to go on with
  loop.evaluations=60   experiments to judge                loop.minutes=30       and minutes to search
  loop.usd=5            what models may cost                loop.stages.writer.usd=3, or tokens, calls, minutes
  loop.rounds_in_flight=8  rounds at the same time          loop.repairs=2        failed kernels go back to the writer
  inherit=PROBLEM/RUN   start with its winner and notes     recorded.run=main     what llm=replay repeats

Ends with 0; 2: something is to be mended first; 4: nothing was tried, and the last line says why; 130: abandoned.
""",
    "suite": """
  python -m ksflow suite [suite=NAME] [key=a,b,...]              many problems, one budget, one table
---
Words with several values make a member for each: problem.id='range(1,101)'. What is finished is kept below
runs/suites/, and the same command goes on with the rest.

  suite=NAME            a shipped list: kernelbench_l1, kernelbench_l2, kernelbench_l3, gpumode_pmpp
  suite.usd=20          for all of them together            suite.minutes=60      of one call of the command
  suite.at_once=2       members at the same time            suite.name=NAME       of the run and the folder

Ends with 0; 1: a member failed; 2: something is to be mended first; 130: interrupted.
""",
    "problem": """
  python -m ksflow problem show [problem=NAME|FOLDER]            what was understood of a problem
  python -m ksflow problem check [problem=NAME|FOLDER]           verify its reference, seeds and probes
---
`show` prints the contract that models get: what a kernel must define, shapes, floors. `check` asks whether the judge
can tell right from wrong: the reference passes, lazy and wrong answers are rejected, every seed is judged.

  target=NAME           for another machine's kernels       problem.cases=tests|cpu|leaderboard

Ends with 0; 1: a check failed; 2: something is to be mended first.
""",
    "evaluate": """
  python -m ksflow evaluate KERNEL [problem=NAME|FOLDER] [out=FILE]   judge one file, or a seed by its name
---
No lineage is needed. What was judged before under the same key is told again.

  out=FILE              the verdict as JSON                 cache=false           judge it again
  evaluator=static target=mi300x    what a compiler says, for a GPU that is not here

Ends with 0: accepted, or untimed with nothing found against it; 1: rejected; 3: the judge could not tell; 2: something
is to be mended first.
""",
    "verify": """
  python -m ksflow verify COMMIT [problem=NAME] [run=NAME]       judge a committed kernel again: does its record hold?
---
COMMIT is a commit's id, a branch (fp8_gemm/main/00027) or a trial of the run (27).

Ends with 0: the record holds; 1: it does not; 3: the judge could not tell; 2: something is to be mended first.
""",
    "approve": """
  python -m ksflow approve COMMIT [note="..."] [sign=true]       your last word on a kernel, as a git tag
---
COMMIT is a commit's id, a branch (fp8_gemm/main/00027) or a trial of the run (27).

  note="read it"        kept with the tag                   sign=true             sign it, as git is set up to
  force=true            replace an earlier approval
""",
    "lineage": """
  python -m ksflow lineage [problem=NAME] [run=NAME]             the tree of kernels
  python -m ksflow lineage show ID | diff A B                    one trial, or what changed between two
---
Verdicts are told as they are on record, with the machine that they hold for; nothing is compared with this machine.
ID is a trial: 27 is 00027.

  lineage.path=runs/lineage.git         run=main            another run; a wrong name lists those there are
""",
    "explain": """
  python -m ksflow explain [ID] [problem=NAME] [llm=NAME]        what a kernel does: matrix cores, shared memory, ...
---
ID is a trial (27 is 00027), a branch or a commit; without one it is the winner. Each feature is present, absent or
unknown, with the line of the source or the figure of the compiler's report that shows it. It is kept on the kernel's
branch, where `lineage show` and `report` find it, and shown again until there is something new.

  llm=NAME              a model describes it, citing lines  again=true            ask it once more
  loop.usd=0.5          what that may cost                  run=NAME              another run

  python -m ksflow explain 27 problem=softmax
  python -m ksflow explain llm=gemini loop.usd=0.5
""",
    "report": """
  python -m ksflow report [problem=NAME] [run=NAME,NAME...]      a run, or several side by side, as one page
---
Writes a file that opens without a network: best so far, the lineage as a graph, the story of the winner, every trial
with its diff and evidence, cases, predictions, lessons, costs.

  out=FILE              instead of runs/reports/...         format=md             for a pull request
""",
    "watch": """
  python -m ksflow watch [problem=NAME] [run=NAME]               the same page, live, while a run goes on
---
Serves the page on 127.0.0.1 until Ctrl-C. It reads the lineage and writes nothing.

  port=8000             instead of one that is free
""",
    "mcp": """
  python -m ksflow mcp [problem=NAME] [run=NAME]                 the run as an MCP server: an assistant is the scientist
---
Serves the Model Context Protocol on stdin and stdout until the client closes them; it needs the package mcp. The
assistant plans, submits kernels and reads verdicts; the judge and the lineage are those of any other run.

  loop.evaluations=60   questions to the judge              evaluator=NAME target=NAME   who judges, for what
""",
    "skill": """
  python -m ksflow skill install claude|codex|gemini             teach an agent to be the scientist
---
Writes SKILL.md where that agent's command line looks for it (for codex AGENTS.md too, where there is none), and says
how the MCP server is added to it.

  where=user            for all projects, not this folder
""",
    "digest": """
  python -m ksflow digest PATH... [target=NAME] llm=NAME         documents and kernels become notes with sources
---
PATH is a manual (PDF, HTML, Markdown, text), a kernel, or a folder of them. Notes go to runs/knowledge/.

  llm=NAME              who reads                           digester.tokens=N     how much of a long document
  loop.usd=5            what that may cost

Ends with 0; 1: a limit or a failure left pieces unread; 2: something is to be mended first.
""",
    "probe": """
  python -m ksflow probe [NAME ...] [target=NAME] [again=true]   questions to the hardware; answers become notes
---
Small programs run in the judge's boxes: bandwidths, latencies, matrix rates, lane layouts, occupancy.

  again=true            ask what was answered before        prober=llm            let a model ask more
""",
    "knowledge": """
  python -m ksflow knowledge [target=NAME] [problem=NAME]        what is known, and how far it can be trusted
  python -m ksflow knowledge show TITLE | check                  one note; do the sources of all of them hold?
  python -m ksflow knowledge challenge TITLE [note="why"]        ask for its sources, or a probe; `uphold` withdraws it
---
Ends with 0; 1: `check` found something that does not hold; 2: something is to be mended first.
""",
    "optimize": """
  python -m ksflow optimize stage=NAME [optimizer=NAME]          compile a stage's prompt from what the lineage knows
---
  stage=designer        selector, designer, writer, digester        optimizer=gepa    gepa, mipro, bootstrap, simba
  llm=NAME              whose prompt it is                          loop.usd=5        what it may cost
  optimize.measure=live         designs are written and judged      optimize.name=gepa_v1     of the prompt
  optimize.runs=[main]          runs to learn from                  optimize.rollouts=200     graded answers

The prompt and the card beside it are in runs/prompts/; designer.prompt=gepa_v1 uses it.
""",
    "export": """
  python -m ksflow export [problem=NAME] [format=chat]           the lineage as training data: chat, preference, rl, all
---
  format=all            chat, preference, rl, prompts       out=runs/export       the folder
  stages=designer,writer   whose calls                      test_problems=NAME    problems for the test split
  run=NAME              one run alone                       licence=Apache-2.0    SPDX name, for the card
""",
    "doctor": """
  python -m ksflow doctor                                        what this machine can do
---
Also what to install for more. Ends with 0 when the main job can run here, else with 1.
""",
    "worker": """
  python -m ksflow worker FOLDER [once=true] [devices=0,1]       judge here what evaluator=spool put into a folder
---
Needs Python 3.11 and torch; in FOLDER/worker nothing has to be installed: python -m ksflow worker ..

  once=true             end when the folder is empty        devices=0,1           GPUs to judge on
  target=NAME           what this machine is                idle_minutes=30       end after so long without work
""",
}

_WHOLE = """ksflow {version}: a kernel scientist you configure instead of program.

{lines}

`COMMAND --help` says more about one of them. They end with 0; with 2 for something that is to be mended first; a search
with 4 when nothing was tried, and 130 when it was abandoned; evaluate and verify with 1 (rejected, does not hold) or 3
(the judge could not tell).

Groups (group=option) and their options:
{groups}

Often used keys:
  problem.path=FOLDER   your own problem              seed_kernels=FILE    your own kernel as a seed
  loop.evaluations=60   experiments to judge          loop.minutes=30      and minutes to search
  loop.usd=5            what models may cost          loop.stages.writer.usd=3, or tokens, calls, minutes
  loop.rounds_in_flight=8  rounds at the same time    loop.repairs=2       failed kernels go back to the writer
  model.name=NAME       the model of a provider       recorded.run=main    what llm=replay repeats
  run=main              name of the run to go on with lineage.path=runs/lineage.git
  cache=false           `evaluate` again what it knows   inherit=PROBLEM/RUN  start with its winner and its notes

Any parameter of a part can be set: designer.seed=1, problem.cases=tests, evaluator.isolation_floor=rlimits.
Hydra's own flags work: --cfg job, --config-dir DIR, --hydra-help. Configs are code: run only those you trust.
"""

COMMANDS = tuple(_PAGES)


def whole(version: str) -> str:
    """The page of all commands, groups and options."""
    lines = "\n".join(page.partition("---")[0].strip("\n") for page in _PAGES.values())
    return _WHOLE.format(version=version, lines=lines, groups=_groups())


def of(command: str) -> str:
    """One command's own page."""
    return _PAGES[command].replace("---\n", "\n").strip("\n")


def expect_word(command: str, words: Sequence[str], valid: Sequence[str]) -> None:
    """Raise ConfigError, with the word that may be meant, unless a command's first word is one of its own."""
    if words and words[0] not in valid:
        names = [f"{command} {word}" for word in valid]
        raise ConfigError(f"no command '{command} {words[0]}'; {suggest(f'{command} {words[0]}', names)}")


def _groups() -> str:
    rows = []
    for folder in sorted(path for path in shipped("conf").iterdir() if path.is_dir()):
        options = sorted(file.stem for file in folder.glob("[!_]*.yaml"))
        rows.append(f"  {folder.name:10} {' '.join(options)}")
    return "\n".join(rows)
