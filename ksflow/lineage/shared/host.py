"""Who this repository is among those that share a run.

The name is made once and kept in the repository's folder. A copy of the folder, or one that was moved to another place,
is another host; what it was called before stays with it, so that what was done under that name is pushed still.
"""

import json
import re
import secrets
import socket
from pathlib import Path

from ksflow.errors import LineageError

_PLAIN = re.compile(r"[^A-Za-z0-9-]+")
_NAME = re.compile(r"[A-Za-z0-9-]{1,80}")


def host_names(repository: Path) -> tuple[str, ...]:
    """The host's name, and before what it was called earlier, the newest first. Raises LineageError."""
    file = repository / "ksflow" / "host.json"
    place = f"{_machine()} {repository.resolve()}"
    try:
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"names": [], "place": ""}
        names = [name for name in known["names"] if _NAME.fullmatch(name)]
        if not names or known["place"] != place:
            name = f"{_PLAIN.sub('-', socket.gethostname()).strip('-')[:40] or 'host'}-{secrets.token_hex(4)}"
            names = [name, *names]
            draft = file.with_name(f"host-{secrets.token_hex(4)}")
            draft.write_text(json.dumps({"names": names, "place": place}) + "\n", encoding="utf-8")
            draft.replace(file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LineageError(f"{file} cannot be read or written ({error}); remove it: a new name is made") from error
    return tuple(names)


def _machine() -> str:
    """What tells this machine from others; a laptop's name may change from network to network."""
    try:
        return Path("/etc/machine-id").read_text(encoding="utf-8").strip() or socket.gethostname()
    except OSError:
        return socket.gethostname()
