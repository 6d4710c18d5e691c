"""The verb `mcp`: a run as a server of the Model Context Protocol over stdio, for an assistant that is the scientist.

An assistant sees the problem, the lineage and the notes, and asks the judge (`mcp_tools`); it may be as free as it
likes, because the judge shares no process with it and the lineage is written here.
"""

import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from ksflow.cli import usage
from ksflow.cli.inbox import InboxFolder
from ksflow.cli.install import install
from ksflow.cli.mcp_tools import Tools
from ksflow.cli.task import open_lineage
from ksflow.config import compose
from ksflow.config.parts import parts
from ksflow.errors import need_package
from ksflow.evaluation.processes import ending
from ksflow.loop.assistant import AskTell
from ksflow.loop.queue import ThreadJob

_SKILL = Path(__file__).parent / "assistant" / "SKILL.md"


def mcp(words: list[str], overrides: list[str]) -> int:
    """`mcp`: serve until the client closes its end; `mcp install CLIENT`; 0, or ConfigError."""
    usage.expect_word("mcp", words, ("install",))
    if words:
        return install(words[1:], overrides)
    # nothing but the protocol reaches stdout: what a problem or a stage prints goes to stderr
    sys.stdout.flush()
    wire = os.dup(1)
    os.dup2(2, 1)
    try:
        return _serve(overrides, partial(os.dup2, wire, 1))
    finally:
        os.dup2(wire, 1)
        os.close(wire)


def _serve(overrides: list[str], give_back: Callable[[], int]) -> int:
    """Puts stdout back for the protocol's own transport, which takes it over at once."""
    need_package("ksflow mcp", "mcp", "mcp", "mcp")
    from mcp.server import MCPServer

    cfg = compose.compose(overrides)
    with parts(cfg, driven=True) as made:
        study = AskTell(made.run(), made.seeds, made.settings, made.profiler)

        @asynccontextmanager
        async def begun(_: Any) -> AsyncIterator[None]:
            study.begin()  # by now what a stage prints goes to stderr
            yield

        with ending.handle_signals(_at_signals(study)), closing(study):
            skill = _SKILL.read_text(encoding="utf-8").partition("---\n\n")[2]
            inbox = InboxFolder(Path(str(cfg.model.get("folder") or made.lineage.store.path.parent / "inbox")))
            tools = Tools(study, inbox, partial(open_lineage, cfg, made.problem.name), made.target).all()
            server = MCPServer(
                "ksflow", instructions=skill, lifespan=begun, log_level="WARNING", tools=[*map(_strict, tools)]
            )
            give_back()
            server.run("stdio")
    return 0


def _at_signals(study: AskTell) -> Callable[[int], None]:
    """What a signal calls: a first one ends the process when the judge is done with its work, a second one at once.

    An exception would not end the thread that waits for the client's next line.
    """
    ends = threading.Event()

    def finish() -> None:
        try:
            study.close()
        finally:
            os._exit(0)

    def asked(_: int) -> None:
        if ends.is_set():
            os._exit(130)
        ends.set()
        with suppress(OSError):
            os.write(2, b"ksflow: finishing what the judge is at work on; a second signal abandons it\n")
        ThreadJob(finish)

    return asked


def _strict(function: Callable[..., str]) -> Any:
    """A tool of the protocol that refuses arguments which the function does not name."""
    from mcp.server.mcpserver.tools import Tool

    tool = Tool.from_function(function, structured_output=False)
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters = arguments.model_json_schema(by_alias=True)
    return tool
