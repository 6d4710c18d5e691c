"""What each layer of a level is here, in a few words."""

import os

from ksflow.sandbox import cgroup, landlock, levels, seccomp


def describe(level: str, grouped: bool) -> dict[str, str]:
    """Layer -> what it is, or why it is missing."""
    private = level in levels.PRIVATE
    filtered = seccomp.supported()
    network = {True: "own namespace, empty", False: "no sockets" if filtered else "missing: open"}
    version = landlock.version()
    return {
        "uid": "own, thrown away" if os.getuid() == 0 else "missing: only root can change user",
        "namespaces": "users, " * (level == "userns") + "processes, mounts, network, ipc, host name"
        if private
        else "missing: none at this level",
        "root": "own, allow-list, small private /tmp" if private else _files(level),
        "network": network[private],
        "seccomp": "on" if filtered else "missing: no filters for this machine or kernel",
        "landlock": _landlock(level, version),
        "limits": _limits(grouped),
    }


def _files(level: str) -> str:
    return "missing: landlock's allow-list instead" if level == "landlock" else "missing: the machine's own files"


def _landlock(level: str, version: int) -> str:
    if level == "landlock":
        return f"version {version}"
    return "not needed" if level in levels.PRIVATE else f"missing: version {version}" if version else "missing: none"


def _limits(grouped: bool) -> str:
    places = cgroup.places() if grouped else None
    if places is None:
        return "rlimits, for each process; missing: control groups that can be written"
    return f"control groups v{2 if places.unified else 1}: memory and processes of the tree; rlimits for the rest"
