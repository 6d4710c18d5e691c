"""A repository's own commands, each in a sandbox that may write into a copy of the repository and nowhere else.

Covered: no network, no keys, limits on time, memory and file sizes; files of git and of runs are not copied. NOT
covered: exit status and output of a command are trusted.
"""

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from ksflow.errors import ConfigError
from ksflow.evaluation.compilers.client import CompileServer, box_request, boxed_environment, stopped
from ksflow.home import not_source
from ksflow.records import Json, Kernel, Problem, Target

_USER = 61182  # owner of the copies if this process is root
_FILE_MB = 1024
_DEVICES = ("/dev/nvidia*", "/dev/kfd", "/dev/dri")


@dataclass(frozen=True)
class CommandResult:
    """Result of a command."""

    ok: bool
    log: str
    timed_out: bool = False


class CommandRunner:
    """Runs commands on copies of a repository. readable: further folders that they may read."""

    def __init__(self, target: Target, readable: Sequence[str]) -> None:
        self.target, self.readable = target, [*map(str, readable)]
        self._server = CompileServer()

    @contextmanager
    def copy(self, problem: Problem, kernel: Kernel) -> Iterator[Path]:
        """Yield a copy of the repository with another text of the file. Raises ConfigError if it cannot be copied."""
        with tempfile.TemporaryDirectory(prefix="ksflow-command-", ignore_cleanup_errors=True) as work:
            folder = Path(work).resolve() / "repo"
            try:
                shutil.copytree(problem.root, folder, symlinks=True, ignore=not_source)
            except OSError as error:  # of several files, the first
                why = error.args[0][0][2] if isinstance(error, shutil.Error) else error
                raise ConfigError(f"{problem.root} cannot be copied: {why}") from error
            file = (folder / problem.origin["file"]).resolve()
            if not file.is_relative_to(folder):
                raise ConfigError(
                    f"{problem.origin['file']} is a link out of {problem.root}; name the file that it points to"
                )
            file.write_text(kernel.main, encoding="utf-8")
            os.chmod(work, 0o755)
            if os.getuid() == 0:
                for path in (folder, *folder.rglob("*")):
                    os.chown(path, _USER, _USER, follow_symlinks=False)
            yield folder

    def __call__(self, problem: Problem, folder: Path, command: str, limit: float) -> CommandResult:
        """Run a command in a sandbox that may write into the copy. Raises ConfigError if sandboxes do not start."""
        if not command:
            return CommandResult(True, "")
        passed = boxed_environment(self.target.environment)
        del passed["PYTHONPATH"]
        devices = [path for pattern in _DEVICES for path in glob(pattern)] if self.target.kind == "gpu" else []
        options: Json = {"uid": _USER} if os.getuid() == 0 else {}
        request = box_request(
            ["/bin/sh", "-c", f"cd {shlex.quote(str(folder))} && {command}"],
            {},
            Path(),
            limit,
            problem.limits.memory_mb,
            environment=passed,
            file_mb=_FILE_MB,
            extra=self.readable,
            writable=[str(folder)],
            devices=devices,
            **options,
        )
        answer = self._server.ask(request, limit)
        log = str(answer["log"]).replace(f"{folder}/", "")
        if why := stopped(answer, "command", limit, problem.limits.memory_mb):
            return CommandResult(False, f"{log}\n{why}", timed_out=answer["timed_out"])
        status = answer["words"]["exit"]
        return CommandResult(status == "0", log if status == "0" or log.strip() else f"\nexit status {status}")
