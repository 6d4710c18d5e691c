"""A headless coding agent as an engine: it gets the prompt in a folder of its own, and what it leaves is the answer.

One call of the agent is one model call: metered, bounded in time, on the transcript with prompt and answer, answered
from the cache after a crash, and replayed without the agent. The agent runs in a sandbox that shows its folder, its
own settings and the programs of this machine; of the environment it sees what its preset names. With `./check` it asks
the judge about the kernel as it is, a bounded number of times; what the judge said is part of the answer.
"""

import contextlib
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ksflow.errors import ConfigError, StageError, one_of
from ksflow.evaluation.sandbox import agent as keeping
from ksflow.evaluation.sandbox import landlock
from ksflow.home import PACKAGE
from ksflow.kernels.source.answer import as_text, end_with_newline
from ksflow.lm.agent_home import ADDRESSES, copied, installed, left_files, proxy_ports, renew, thrown_away, write_new
from ksflow.lm.agent_output import ENVELOPES, Usage, clean
from ksflow.lm.engines import Engine, as_response
from ksflow.lm.model import Model
from ksflow.lm.prompts.failures import redacted_failure, without_paths
from ksflow.lm.prompts.render import analysis
from ksflow.lm.sections import join
from ksflow.protocols import Workspace, call_context
from ksflow.records import Kernel, Population

if TYPE_CHECKING:
    from dspy.lm15 import Request, Response

_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TERM", "TZ", "SSL_CERT_FILE", "NO_PROXY", "no_proxy")
_PORTS = (53, 80, 443)
_HOME = ".home"
_LONGEST_OUTPUT = 8 << 20
_LONGEST_ANSWER = 20_000  # characters of an agent's last words
_LOOK_S = 0.05
_QUESTIONS = 1_000  # that are looked at at a time
_CHECK = """#!/bin/sh
# Asks the judge about the kernel as it is in this folder, and prints the verdict. At most {checks} times.
name=".checks/$$-$(date +%s%N)"
: > "$name.ask"
while [ ! -e "$name.answer" ]; do sleep 0.1; done
cat "$name.answer"
"""
_HOW = """\
You are in a folder of your own. Read TASK.md. Change {main} as its experiment says; `./check` asks the judge, at most \
{checks} times.
What counts is the judge's verdict on that file. When you are done, end with three to ten sentences for the next
engineer: the techniques used, how the rubric is met, what is uncertain."""


@dataclass(eq=False, repr=False)
class Agent(Engine):
    """An engine that starts a program for each question, with the prompt on its stdin. Fields: see `agent_model`."""

    command: Sequence[str]
    envelope: str = "text"
    environment: Sequence[str] = ()
    settings: Sequence[str] = ()
    credentials: Sequence[str] = ()
    readable: Sequence[str] = ()
    ports: Sequence[int] | None = _PORTS
    checks: int = 3
    minutes: float = 20.0
    box: bool = True

    price_source = "the agent tells afterwards"

    def __post_init__(self) -> None:
        one_of("envelope", self.envelope, ENVELOPES)
        if not self.command:
            raise ConfigError("agent=command needs a program: agent.command=[PROGRAM,ARGUMENT,...]")
        if self.box and not landlock.version():
            raise ConfigError("this kernel has no Landlock, which holds agents (Linux 5.13); agent.box=false trusts it")
        self._costs: dict[str, tuple[float, str]] = {}

    def __repr__(self) -> str:
        return f"Agent({list(self.command)!r})"

    @property
    def program(self) -> str:
        """The path of its program. ConfigError where it is not installed."""
        if found := shutil.which(self.command[0]):
            return found
        raise ConfigError(f"the agent's program {self.command[0]} is not on PATH: install it")

    def check(self) -> None:
        """Raise ConfigError where its program is not installed."""
        assert self.program

    def complete(self, request: "Request") -> "Response":
        """Return what the agent leaves, in the form of an answer. Raises StageError if it ends without one."""
        prompt = "\n\n".join(message.text or "" for message in request.messages)
        prompt = f"{request.system}\n\n{prompt}" if isinstance(request.system, str) else prompt
        work = call_context().workspace
        with thrown_away() as folder, contextlib.closing(_Run(self, folder, prompt, work)) as run:
            usage = run.finish()
            text = run.answer(usage)
        name = uuid.uuid4().hex
        response = as_response(request, text, usage.tokens or (len(prompt) // 4, len(text) // 4), name)
        source = "the agent's own count" if usage.tokens else "estimated: the agent tells no usage"
        self._costs[name] = (usage.usd or 0.0, source if usage.usd is not None else f"{source}, no price")
        return response

    def answer_cost(self, response: "Response") -> tuple[float, str]:
        """Return what an answer cost in dollars, and who says so."""
        return self._costs.get(response.id or "", (0.0, "unknown"))


class _Run:
    """One agent at work in its folder, which is hostile from the moment when it starts."""

    def __init__(self, agent: Agent, folder: Path, prompt: str, work: Workspace | None) -> None:
        self.agent, self.folder, self.work = agent, folder, work
        self.verdicts: list[str] = []  # what the judge said, check by check
        self._failed = ""  # why it left no answer, where it was paid all the same
        self._asked = prompt  # what it is told on its stdin
        (folder / "TASK.md").write_text(prompt, encoding="utf-8")
        for name in (".checks", ".tmp", _HOME):
            (folder / name).mkdir()
        copied(agent.settings, folder / _HOME)
        self._credentials = copied(agent.credentials, folder / _HOME)
        if work:
            for name, text in {**work.files, **work.kernel.files}.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")
            (folder / "check").write_text(_CHECK.format(checks=agent.checks), encoding="utf-8")
            (folder / "check").chmod(0o755)
            self._asked = _HOW.format(main=next(iter(work.kernel.files)), checks=agent.checks)
        self._top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._checks = os.open(folder / ".checks", os.O_RDONLY | os.O_DIRECTORY)

    def finish(self) -> Usage:
        """Run the agent to its end, and return what it says. Raises StageError if it did not run or left no answer."""
        program = self.agent.program
        limit_s, budget = self.agent.minutes * 60, call_context().until
        if budget is not None:
            limit_s = max(min(limit_s, budget - time.monotonic()), 0.0)
        names = (*_ENVIRONMENT, *ADDRESSES, *self.agent.environment)
        seen = {name: os.environ[name] for name in names if name in os.environ}
        order = {
            "command": [os.path.abspath(program), *self.agent.command[1:]],
            "folder": str(self.folder),
            "readable": [*installed(program), *map(os.path.expanduser, self.agent.readable)],
            "ports": None if self.agent.ports is None else [*self.agent.ports, *proxy_ports(seen)],
            "limit_s": limit_s,
            "held": self.agent.box,
        }
        keeper = [sys.executable, "-P", "-m", "ksflow.evaluation.sandbox.agent", json.dumps(order)]
        seen = seen | {"HOME": str(self.folder / _HOME)} if self.agent.box else dict(os.environ)
        seen |= {"TMPDIR": str(self.folder / ".tmp"), "PYTHONPATH": str(PACKAGE.parent)}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as asked:
            asked.write(self._asked.encode("utf-8", "replace"))
            asked.seek(0)
            process = subprocess.Popen(keeper, stdin=asked, stdout=out, stderr=err, cwd=self.folder, env=seen)
            until, most = time.monotonic() + limit_s + 5, math.inf if budget is None else budget
            try:
                while process.poll() is None and time.monotonic() < min(until, most):
                    until += self._answer_checks(process)
                    time.sleep(_LOOK_S)
            finally:
                process.terminate()
                process.wait()
            usage = self._usage(_tail(out), _tail(err))
        if self.agent.box:
            renew(self._credentials, self.folder / _HOME)
        return self._outcome(process.returncode, usage)

    def _usage(self, output: str, errors: str) -> Usage:
        """What it printed; where it has no answer, what it told of that, which some print beside the output."""
        read = ENVELOPES[self.agent.envelope]
        usage = read(output)
        if not output.strip() and self.agent.envelope != "text":
            usage = replace(read(errors), text="")
        return replace(usage, text=clean(usage.text), error=clean(usage.error or errors[-500:]))

    def _outcome(self, status: int, usage: Usage) -> Usage:
        """What is kept of it: an answer, or why there is none where it was paid for; else StageError."""
        trouble = " ".join(usage.error.split())[-300:]
        stops = {
            keeping.TIMED_OUT: f"the agent did not end within {self.agent.minutes:g} minutes",
            keeping.TOO_LARGE: f"the agent's folder was over {keeping.FOLDER_MB} MB or {keeping.FOLDER_FILES} files",
        }
        ended = stops.get(status, f"the agent ended with {status} and no answer: {trouble}" if status else "")
        if not ended or (usage.text and status not in stops):
            return usage
        with contextlib.suppress(StageError):
            if self.work and left_files(self._top, self.work.kernel) != self.work.kernel.files:
                return replace(usage, text=f"{usage.text}\n\n({ended})".strip())
        if not any(usage.tokens or ()) and not usage.usd and not self.verdicts:
            raise StageError(call_context().stage, ended)
        self._failed = ended
        return usage

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._top)
        os.close(self._checks)

    def answer(self, usage: Usage) -> str:
        """Return what the agent said; in a workspace the sections of an answer, or for the record why there is none."""
        words = usage.text.strip()[:_LONGEST_ANSWER] or "(the agent said nothing)"
        if self._failed:
            return "\n\n".join([self._failed, words, *self.verdicts])
        if self.work is None:
            return words
        try:
            files = left_files(self._top, self.work.kernel)
        except StageError as error:
            return "\n\n".join([error.reason, words, *self.verdicts])
        gone = "".join(f"===== {name} ===== removed\n" for name in self.work.kernel.files if name not in files)
        code = f"{end_with_newline(as_text(files))}{gone}" if gone else as_text(files)
        checks = "\n\n".join(self.verdicts) or "(the judge was not asked)"
        report, checks = (text.replace("[[ ##", "[ [ ##") for text in (words, checks))
        return join({"report": report, "checks": checks, "code": code})

    def _answer_checks(self, keeper: "subprocess.Popen[bytes]") -> float:
        """Put the judge's answer beside each new question; return the seconds that this took, which do not count."""
        started = time.monotonic()
        with os.scandir(self._checks) as entries:
            names = [entry.name for entry in itertools.islice(entries, _QUESTIONS) if entry.name.endswith(".ask")]
        for name in sorted(names):
            stem = name.removesuffix(".ask")
            try:
                os.unlink(name, dir_fd=self._checks)
            except OSError:  # no file, or gone
                continue
            keeper.send_signal(signal.SIGUSR1)
            try:
                text = self._checked()
            finally:
                keeper.send_signal(signal.SIGUSR2)
            with contextlib.suppress(OSError):
                write_new(f"{stem}.draft", f"{text}\n".encode(), 0o644, self._checks)
                os.rename(f"{stem}.draft", f"{stem}.answer", src_dir_fd=self._checks, dst_dir_fd=self._checks)
        return time.monotonic() - started

    def _checked(self) -> str:
        if self.work is None or self.work.check is None:
            return "There is no judge to ask here."
        if len(self.verdicts) >= self.agent.checks:
            return f"The judge was asked {self.agent.checks} times, which is all: end with the kernel as it is."
        try:
            trial = self.work.check(Kernel(self.work.kernel.language, left_files(self._top, self.work.kernel)))
        except (StageError, ValueError) as error:
            return f"This cannot be judged: {error}"
        if isinstance(trial, str):
            text = trial
        elif trial.evaluation and trial.evaluation.accepted:
            text = without_paths(f"accepted\n{analysis(trial, Population(()).step(trial))}")
        else:
            text = redacted_failure(trial)
        self.verdicts.append(f"Check {len(self.verdicts) + 1}: {text}")
        return text


def agent_model(  # noqa: PLR0913 - a setting each
    name: str,
    command: Sequence[str],
    envelope: str = "text",
    environment: Sequence[str] = (),
    settings: Sequence[str] = (),
    credentials: Sequence[str] = (),
    readable: Sequence[str] = (),
    ports: Sequence[int] | None = _PORTS,
    checks: int = 3,
    minutes: float = 20.0,
    box: bool = True,
) -> Model:
    """Return a model whose answers a coding agent gives, a program that reads the prompt on its stdin.

    name: what the records call it. command: the program and its arguments. envelope: how its output is read: `claude`,
    `codex`, `gemini`, or `text`. environment: variables that it sees, its key among them. settings: its own files, of
    which it gets copies in a home of its own. credentials: such files that it renews, and whose copy replaces them
    then. readable: where it is installed. ports: what it may connect to over TCP, beside those that the addresses in
    its environment name; null is any. checks: how often it may ask the judge. minutes: how long it may take.
    box: whether it runs in a sandbox; false trusts it with this whole account.
    """
    engine = Agent(command, envelope, environment, settings, credentials, readable, ports, checks, minutes, box)
    return Model(name, engine=engine, deadline_s=None, retries=0)


def _tail(file: Any) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _LONGEST_OUTPUT, 0))
    return str(file.read(_LONGEST_OUTPUT).decode("utf-8", "replace"))
