"""Runs inside a compiler's sandbox, as a file beside the sources: a few commands one after the other.

Reads `.order.json`, writes `made.json`: each command's output, and the files that were made. Stdlib only. A command
that fails ends it with that command's status, unless it is optional.
"""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

_LONGEST = 24 << 20


def main() -> int:
    """Run the commands; return the status of the one that failed, or 0."""
    order = json.loads(Path(".order.json").read_text(encoding="utf-8"))
    for name, text in order["headers"].items():
        os.makedirs(os.path.dirname(name), exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    outputs = []
    for step in order["steps"]:
        output, status = _run(step["command"])
        if status and not step["optional"]:
            sys.stdout.write(output)
            return status
        outputs.append("" if status else output)
    files = {name: base64.b64encode(Path(name).read_bytes()).decode() for name in order["files"]}
    Path("made.json").write_text(json.dumps({"said": outputs, "files": files}), encoding="utf-8")
    return 0


def _run(command: list[str]) -> tuple[str, int]:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        return f"error: {error}\n", 127
    return done.stdout[:_LONGEST].decode("utf-8", "replace"), done.returncode if done.returncode >= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
