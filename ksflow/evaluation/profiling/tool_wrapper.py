"""Runs in the sandbox: one tool, then the files that it wrote, as one JSON object. Stdlib only; see `tool_sandbox`.

Reads `.tool.json`: the `command`, and patterns of the files to `collect`. Writes `made.json`: the tool's `status`, and
`files`, name -> text. The tool's output goes to the sandbox's log.
"""

import json
import subprocess
from pathlib import Path

_LARGEST = 16 << 20
_LARGEST_TOGETHER = 32 << 20

if __name__ == "__main__":
    order = json.loads(Path(".tool.json").read_text(encoding="utf-8"))
    status = subprocess.run(order["command"], stdin=subprocess.DEVNULL, check=False).returncode
    files: dict[str, str] = {}
    left = _LARGEST_TOGETHER
    for path in sorted(path for pattern in order["collect"] for path in Path().glob(pattern)):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                data = file.read(min(_LARGEST, left))
            left -= len(data)
            files[str(path)] = data.decode("utf-8", "replace")
    Path("made.json").write_text(json.dumps({"status": status, "files": files}), encoding="utf-8")
