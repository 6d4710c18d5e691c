"""The pages that `--help` and `COMMAND --help` print. Imports nothing heavy: help is there at once."""

import textwrap
from collections.abc import Sequence

from ksflow.errors import ConfigError, suggest
from ksflow.home import shipped

_PAGES = {
    "run": """
  ksflow [problem=NAME] [llm=NAME]      search for a faster kernel, or go on
  ksflow -m designer=tune,random ...    a run per variant, compared in one table
  ksflow -m problem=softmax,fp8_gemm    many problems: a suite
---
Selects, designs, writes, judges and learns until a budget is spent. The same
command goes on where it was stopped. Ctrl-C once: what is in flight is
finished, then the run ends as usual; twice: it is abandoned, and nothing that
was written is lost.

  problem=NAME|FOLDER       a shipped problem, or your own
  llm=NAME                  whose models; offline is none
  seed_kernels=FILE         your own kernel among the seeds
  run=main                  name of the run to go on with
  loop.evaluations=60       experiments to judge
  loop.minutes=30           and minutes to search
  loop.usd=5                what models may cost
  loop.stages.writer.usd=3  of one stage; or tokens, calls, minutes
  loop.rounds_in_flight=8   rounds at the same time
  loop.repairs=2            failed kernels go back to the writer
  inherit=PROBLEM/RUN       start with its winner and notes
  recorded.run=main         what llm=replay repeats

Ends with 0; 2: something is to be mended first; 4: nothing was tried, and the
last line says why; 130: abandoned.
---
  ksflow problem=softmax loop.evaluations=12
  ksflow problem=softmax llm=gemini loop.usd=5
""",
    "suite": """
  ksflow suite [suite=NAME] [key=a,b]   many problems, one budget, one table
---
Words with several values make a member for each: problem.id='range(1,101)'.
What is finished is kept below runs/suites/, and the same command goes on with
the rest.

  suite=NAME                a shipped list: kernelbench_l1, kernelbench_l2,
                            kernelbench_l3, gpumode_pmpp
  suite.usd=20              for all of them together
  suite.minutes=60          of one call of the command
  suite.at_once=2           members at the same time
  suite.name=NAME           of the run and the folder

Ends with 0; 1: a member failed; 2: something is to be mended first; 130:
interrupted.
---
  ksflow suite problem=softmax,fp8_gemm loop.evaluations=12
  ksflow suite suite=kernelbench_l1 problem.root=~/KernelBench llm=gemini
""",
    "init": """
  ksflow init problem NAME              a problem of your own, as a folder
  ksflow init stage KIND NAME           a stage of your own, as a module
---
What is written runs as it is, and comments say what to change. Nothing is
overwritten. KIND is selector, designer, writer, evaluator or digester.
---
  ksflow init problem my_sums
  ksflow init stage designer my_designer
""",
    "problem": """
  ksflow problem show [problem=NAME]    what was understood of a problem
  ksflow problem check [problem=NAME]   verify its reference, seeds and probes
---
`show` prints the contract that models get: what a kernel must define, shapes,
rooflines. `check` asks whether the judge can tell right from wrong: the
reference passes, lazy and wrong answers are rejected, every seed is judged.

  problem=NAME|FOLDER       a shipped problem, or your own
  problem.cases=cpu         which set: tests, cpu, leaderboard
  target=NAME               for another machine's kernels

Ends with 0; 1: a check failed; 2: something is to be mended first.
---
  ksflow problem show problem=softmax
  ksflow problem check problem=softmax
""",
    "evaluate": """
  ksflow evaluate KERNEL                judge one file, or a seed by its name
---
No lineage is needed. What was judged before under the same key is told again.

  problem=NAME|FOLDER       whose kernel it is
  out=FILE                  the verdict as JSON
  details=true              how the judge went about it, too
  cache=false               judge it again
  evaluator=static          what a compiler says, for a GPU that is not here
                            (with target=NAME)

Ends with 0: accepted, or untimed with nothing found against it; 1: rejected;
3: the judge could not tell; 2: something is to be mended first.
---
  ksflow evaluate 02_rows.cpp problem=softmax
  ksflow evaluate 02_rows.cpp problem=softmax out=verdict.json cache=false
""",
    "verify": """
  ksflow verify COMMIT [problem=NAME]   judge it again: does its record hold?
---
COMMIT is a commit's id, a branch (fp8_gemm/main/00027) or a trial of the run
(27).

  run=NAME                  another run than main

Ends with 0: the record holds; 1: it does not; 3: the judge could not tell;
2: something is to be mended first.
---
  ksflow verify 27 problem=softmax
  ksflow verify softmax/main/00027 problem=softmax
""",
    "approve": """
  ksflow approve COMMIT [note="..."]    your last word on a kernel, as a git tag
---
COMMIT is a commit's id, a branch (fp8_gemm/main/00027) or a trial of the run
(27).

  note="read it"            kept with the tag
  sign=true                 sign it, as git is set up to
  force=true                replace an earlier approval
---
  ksflow approve 27 problem=softmax note="read it"
  ksflow approve softmax/main/00027 problem=softmax sign=true
""",
    "runs": """
  ksflow runs [problem=NAME]            every run, a line each
---
Trials, the winner's time and how it did beside the seeds, what models cost,
when it was last touched, and whether a process is at work on it.

  lineage.path=FOLDER       another lineage than runs/lineage.git
---
  ksflow runs
  ksflow runs problem=softmax
""",
    "lineage": """
  ksflow lineage [problem=NAME]         the tree of kernels, with the winner
  ksflow lineage show ID                one trial: tried, came out, kernel
  ksflow lineage diff A B               what changed from one to another
---
Verdicts are told as they are on record, with the machine that they hold for;
nothing is compared with this machine. ID is a trial: 27 is 00027. What does not
fit into the window goes through $PAGER.

  run=NAME                  another run than main; `ksflow runs` lists them
  details=true              `show`: how the judge went about it, too
  lineage.path=FOLDER       another lineage than runs/lineage.git
---
  ksflow lineage problem=softmax
  ksflow lineage show 4 problem=softmax
""",
    "explain": """
  ksflow explain [ID] [llm=NAME]        what a kernel does: matrix cores, ...
---
ID is a trial (27 is 00027), a branch or a commit; without one it is the winner.
Each feature is present, absent or unknown, with the line of the source or the
figure of the compiler's report that shows it. It is kept on the kernel's
branch, where `lineage show` and `report` find it, and shown again until there
is something new.

  llm=NAME                  a model describes it, citing lines
  loop.usd=0.5              what that may cost
  again=true                ask it once more
  run=NAME                  another run than main
---
  ksflow explain 27 problem=softmax
  ksflow explain problem=softmax llm=gemini loop.usd=0.5
""",
    "report": """
  ksflow report [run=NAME,NAME]         a run, or several, as one page
---
Writes a file that opens without a network: best so far, the lineage as a graph,
the story of the winner, every trial with its diff and evidence, cases,
predictions, lessons, costs.

  problem=NAME              whose runs
  out=FILE                  instead of runs/reports/...
  format=md                 for a pull request
  format=png                its first screen, for a talk (needs a browser)
---
  ksflow report problem=softmax
  ksflow report problem=softmax format=md out=softmax.md
""",
    "watch": """
  ksflow watch [problem=NAME]           the same page, live, while a run goes on
---
Serves the page on 127.0.0.1 until Ctrl-C. It reads the lineage and writes
nothing.

  run=NAME                  another run than main
  port=8000                 instead of one that is free
---
  ksflow watch problem=softmax
  ksflow watch problem=softmax port=8000
""",
    "llm": """
  ksflow llm check llm=NAME             does it answer, and in the right form?
---
One short question, the way a stage asks it: who answered, how fast, tokens,
cost, and whether stages can read the answer. No key is shown or kept.

  model.name=NAME           another model of that provider
  model.api_base=URL        another address

Ends with 0; 1: its answer cannot be read; 2: it does not answer, with the
remedy.
---
  ksflow llm check llm=dummy
  ksflow llm check llm=gemini model.name=gemini-2.5-flash
""",
    "mcp": """
  ksflow mcp [problem=NAME]             the run as an MCP server
---
An assistant is the scientist: it plans, submits kernels and reads verdicts; the
judge and the lineage are those of any other run. Serves the Model Context
Protocol on stdin and stdout until the client closes them; it needs the package
mcp.

  run=NAME                  another run than main
  loop.evaluations=60       questions to the judge
  evaluator=NAME            who judges
  target=NAME               for what
---
  ksflow mcp problem=softmax
  ksflow mcp problem=fp8_gemm run=assistant loop.evaluations=20
""",
    "skill": """
  ksflow skill install AGENT            teach claude, codex or gemini the work
---
Writes SKILL.md where that agent's command line looks for it (for codex
AGENTS.md too, where there is none), and says how the MCP server is added to it.

  where=user                for all projects, not this folder
---
  ksflow skill install claude
  ksflow skill install codex where=user
""",
    "digest": """
  ksflow digest PATH... llm=NAME        documents and kernels become notes
---
PATH is a manual (PDF, HTML, Markdown, text), a kernel, or a folder of them.
Notes have their sources, and go to runs/knowledge/.

  llm=NAME                  who reads
  target=NAME               what they are about
  digester.tokens=N         how much of a long document
  loop.usd=5                what that may cost

Ends with 0; 1: a limit or a failure left pieces unread; 2: something is to be
mended first.
---
  ksflow digest manual.pdf llm=gemini loop.usd=2
  ksflow digest papers kernels target=h200 llm=gemini
""",
    "probe": """
  ksflow probe [NAME ...]               questions to the hardware become notes
---
Small programs run in the judge's boxes: bandwidths, latencies, matrix rates,
lane layouts, occupancy.

  again=true                ask what was answered before
  target=NAME               what this machine is
  prober=llm                let a model ask more
---
  ksflow probe
  ksflow probe again=true
""",
    "knowledge": """
  ksflow knowledge                      what is known, and how far to trust it
  ksflow knowledge show TITLE           one note
  ksflow knowledge check                do the sources of all of them hold?
  ksflow knowledge challenge TITLE      ask for its sources, or `uphold` it
---
  target=NAME               what is known of a machine
  problem=NAME              and of a problem
  note="why"                `challenge`: why you doubt it

Ends with 0; 1: `check` found something that does not hold; 2: something is to
be mended first.
---
  ksflow knowledge target=h200
  ksflow knowledge check
""",
    "optimize": """
  ksflow optimize stage=NAME            a stage's prompt from the lineage
---
  stage=designer            selector, designer, writer, digester
  optimizer=gepa            gepa, mipro, bootstrap, simba
  llm=NAME                  whose prompt it is
  loop.usd=5                what it may cost
  optimize.measure=live     designs are written and judged
  optimize.name=gepa_v1     of the prompt
  optimize.runs=[main]      runs to learn from
  optimize.rollouts=200     graded answers

The prompt and the card beside it are in runs/prompts/; designer.prompt=gepa_v1
uses it.
---
  ksflow optimize stage=designer llm=gemini loop.usd=5
  ksflow optimize stage=writer optimizer=bootstrap llm=gemini
""",
    "dataset": """
  ksflow dataset [format=chat]          the lineage as training data
---
  format=all                chat, preference, rl, prompts
  out=runs/dataset          the folder
  stages=designer,writer    whose calls
  run=NAME                  one run alone
  test_problems=NAME        problems for the test split
  licence=Apache-2.0        SPDX name, for the card
---
  ksflow dataset format=all
  ksflow dataset problem=softmax run=main out=softmax_data
""",
    "doctor": """
  ksflow doctor                         what this machine can do
---
Compilers, isolation, packages, which keys are set (never their values), and
what to install for more. Ends with 0 when the main job can run here, else with
1. Whether a model answers: `ksflow llm check llm=NAME`.
---
  ksflow doctor
  ksflow doctor | grep isolation
""",
    "worker": """
  ksflow worker FOLDER                  judge what evaluator=spool puts there
---
Needs Python 3.11 and torch; in FOLDER/worker nothing has to be installed:
python -m ksflow worker ..

  once=true                 end when the folder is empty
  devices=0,1               GPUs to judge on
  target=NAME               what this machine is
  idle_minutes=30           end after so long without work
  profile=true              read hardware counters of accepted kernels
  sanitize=false            leave out compute-sanitizer
---
  ksflow worker ~/spool once=true
  ksflow worker ~/spool devices=0,1 idle_minutes=30
""",
}

_WHOLE = """ksflow {version}: a kernel scientist you configure instead of program.

{lines}

`ksflow VERB --help` has the options of a verb, and two examples. Verbs end with
0; with 2 for something that is to be mended first; a search with 4 when nothing
was tried, and 130 when it was abandoned; evaluate and verify with 1 (rejected,
does not hold) or 3 (the judge could not tell). `python -m ksflow` is the same.

Groups (group=option) and their options:
{groups}

Often used keys:
  problem.path=FOLDER       your own problem; problem=./FOLDER is the same
  seed_kernels=FILE         your own kernel as a seed
  loop.evaluations=60       experiments to judge
  loop.minutes=30           and minutes to search
  loop.usd=5                what models may cost
  loop.stages.writer.usd=3  of one stage; or tokens, calls, minutes
  loop.rounds_in_flight=8   rounds at the same time
  loop.repairs=2            failed kernels go back to the writer
  model.name=NAME           the model of a provider
  recorded.run=main         what llm=replay repeats
  run=main                  name of the run to go on with
  lineage.path=FOLDER       instead of runs/lineage.git
  cache=false               `evaluate` again what it knows
  inherit=PROBLEM/RUN       start with its winner and its notes

Any parameter of a part can be set: designer.seed=1, problem.cases=tests,
evaluator.isolation_floor=rlimits. Hydra's own flags work: --cfg job,
--config-dir DIR, --hydra-help. Configs are code: run only those you trust.
"""

COMMANDS = tuple(_PAGES)
RENAMED = {"export": "dataset"}
"""Former names of commands."""


def whole(version: str) -> str:
    """The page of all commands, groups and options."""
    lines = "\n".join(page.split("---\n")[0].strip("\n") for page in _PAGES.values())
    return _WHOLE.format(version=version, lines=lines, groups=_groups())


def of(command: str) -> str:
    """One command's own page."""
    lines, about, examples = (part.strip("\n") for part in _PAGES[command].split("---\n"))
    return f"{lines}\n\n{about}\n\nExamples:\n{examples}"


def examples(command: str) -> list[str]:
    """Those of a command's page, as they are typed."""
    return [line.strip() for line in _PAGES[command].rpartition("---\n")[2].strip("\n").splitlines()]


def expect_word(command: str, words: Sequence[str], valid: Sequence[str]) -> None:
    """Raise ConfigError, with the word that may be meant, unless a command's first word is one of its own."""
    if words and words[0] not in valid:
        names = [f"{command} {word}" for word in valid]
        raise ConfigError(f"no command '{command} {words[0]}'; {suggest(f'{command} {words[0]}', names)}")


def _groups() -> str:
    rows = []
    for folder in sorted(path for path in shipped("conf").iterdir() if path.is_dir()):
        options = " ".join(sorted(file.stem for file in folder.glob("[!_]*.yaml")))
        rows.append(textwrap.fill(f"  {folder.name:10} {options}", 80, subsequent_indent=" " * 13))
    return "\n".join(rows)
