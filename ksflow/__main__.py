"""The door: a verb, then Hydra overrides. `python -m ksflow problem=softmax` is the verb `run`."""

import importlib
import sys
from collections.abc import Callable
from itertools import takewhile

from ksflow import __version__
from ksflow.errors import KsflowError, NothingTried, printable
from ksflow.home import shipped

_USAGE = """ksflow {version}: a kernel scientist you configure instead of program.

  python -m ksflow [problem=NAME] [llm=NAME] [key=value ...]     search for a faster kernel, or go on with it
  python -m ksflow -m designer=tune,random selector=fastest,...  one run per variant, compared in one table
  python -m ksflow -m problem=softmax,fp8_gemm loop.usd=20       many problems: a suite, loop.usd is for all of them
  python -m ksflow suite [suite=NAME] [key=a,b,...]              the same by its own name, suite.usd is for all of them
  python -m ksflow problem show [problem=NAME]                   what was understood of a problem
  python -m ksflow problem check [problem=NAME]                  verify its reference, seeds and probes
  python -m ksflow evaluate KERNEL [problem=NAME] [out=FILE]     judge one file, or a seed by its name
  python -m ksflow verify COMMIT [run=NAME]                      judge a committed kernel again: does its record hold?
  python -m ksflow approve COMMIT [note="..."] [sign=true]       your last word on a kernel, as a git tag
  python -m ksflow lineage [problem=NAME] [run=NAME]             the tree of kernels
  python -m ksflow lineage show ID | diff A B                    one trial, or what changed between two
  python -m ksflow digest PATH... [target=NAME] llm=NAME         documents and kernels become notes with sources
  python -m ksflow probe [NAME ...] [target=NAME] [again=true]   questions to the hardware; answers become notes
  python -m ksflow knowledge [target=NAME] [problem=NAME]        what is known, and how far it can be trusted
  python -m ksflow knowledge show TITLE | check                  one note; do the sources of all of them hold?
  python -m ksflow knowledge challenge TITLE [note="why"]        ask for its sources, or a probe; `uphold` withdraws it
  python -m ksflow optimize stage=NAME [optimizer=NAME]          compile a stage's prompt from what the lineage knows
  python -m ksflow export [problem=NAME] [format=chat]           the lineage as training data: chat, preference, rl, all
  python -m ksflow doctor                                        what this machine can do
  python -m ksflow worker FOLDER [once=true] [devices=0,1]       judge here what evaluator=spool put into a folder

evaluate and verify end with 0 (accepted, holds; untimed, with nothing found against it), 1 (rejected, does not hold) or
3 (the judge could not tell).

Groups (group=option) and their options:
{groups}

Often used keys:
  problem.path=FOLDER   your own problem              seed=FILE            your own kernel as a seed
  loop.evaluations=60   experiments to judge          loop.minutes=30      and minutes to search
  loop.usd=5            what models may cost          loop.stages.writer.usd=3, or tokens, calls, minutes
  loop.rounds_in_flight=8  rounds at the same time    loop.repairs=2       failed kernels go back to the writer
  model.name=NAME       the model of a provider       recorded.run=main    what llm=replay repeats
  run=main              name of the run to go on with lineage.path=runs/lineage.git
  cache=false           `evaluate` again what it knows   inherit=PROBLEM/RUN  start with its winner and its notes

Any parameter of a part can be set: designer.seed=1, problem.cases=tests, evaluator.isolation_floor=rlimits.
Hydra's own flags work: --cfg job, --config-dir DIR, --hydra-help. Configs are code: run only those you trust.
"""


def main() -> int:
    """Run one command; the exit code: 0; 2: the user can mend it; 4: nothing was tried; 130: abandoned.

    Some commands have codes of their own; `COMMAND --help` tells.
    """
    arguments = sys.argv[1:]
    if arguments[:1] == ["--version"]:
        return _say(f"ksflow {__version__}")
    if not {"--help", "-h", "help"}.isdisjoint(arguments):
        return _say(_USAGE.format(version=__version__, groups=_groups()))
    words = len(list(takewhile(_is_word, arguments)))
    try:
        if arguments[:1] == ["worker"]:
            return _work(arguments[1:])
        from ksflow import verbs

        verb, rest = arguments[:words], arguments[words:]
        commands: dict[str, Callable[[list[str], list[str]], int]] = verbs.COMMANDS
        name = verb[0] if verb else "run"
        if name not in commands:
            return _fail(f"no command {name!r}; commands: {', '.join(commands)}, worker; see --help")
        return commands[name](verb[1:], rest)
    except KsflowError as error:
        return _fail(printable(" ".join(str(error).split())), NothingTried.status if type(error) is NothingTried else 2)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing that was written is lost, the same command goes on", 130)


def _work(arguments: list[str]) -> int:
    """The verb `worker`: runs where nothing is installed but torch, so it goes past the other verbs."""
    worker = importlib.import_module("ksflow.stages.evaluator.worker")
    return int(worker.main(arguments))


def _is_word(argument: str) -> bool:
    """Whether it is part of a command, not an override: a name, a file, a branch such as softmax/lr=1,b=2/00003."""
    name = argument.partition("=")[0]
    branch = "/" in name and argument.count("/") == 2 and argument.rpartition("/")[2].isalnum()
    return not argument.startswith(("-", "+", "~")) and (name == argument or branch)


def _groups() -> str:
    rows = []
    for folder in sorted(path for path in shipped("conf").iterdir() if path.is_dir()):
        options = sorted(file.stem for file in folder.glob("*.yaml"))
        rows.append(f"  {folder.name:10} {' '.join(options)}")
    return "\n".join(rows)


def _say(text: str) -> int:
    sys.stdout.write(text.rstrip("\n") + "\n")
    return 0


def _fail(text: str, code: int = 2) -> int:
    sys.stderr.write(f"ksflow: {text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
