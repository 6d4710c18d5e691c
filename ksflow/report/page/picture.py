"""A page's first screen as a PNG, drawn by an installed Chromium."""

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from ksflow.errors import ConfigError
from ksflow.evaluation.processes.child_environment import base_environment

_CHROME = ("google-chrome", "google-chrome-stable", "chrome")
_BROWSERS = ("chromium", "chromium-browser", *_CHROME, "msedge", "microsoft-edge")
_WIDTH, _HEIGHT, _SCALE = 1280, 1200, 2
_PATIENCE_S = 120.0
_SAID = 200


def as_png(page: str, patience_s: float = _PATIENCE_S) -> bytes:
    """Return the top of an HTML page, 1280 x 1200 points at two pixels each. Raises ConfigError without a browser."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise ConfigError(
            f"format=png needs one of {', '.join(_BROWSERS)} on the PATH: apt install chromium, or take format=html"
        )
    with tempfile.TemporaryDirectory(prefix="ksflow-", ignore_cleanup_errors=True) as folder:
        page_file, drawn = Path(folder, "page.html"), Path(folder, "page.png")
        page_file.write_text(page, encoding="utf-8")
        options = {
            "headless": "",
            **({"no-sandbox": ""} if os.geteuid() == 0 else {}),  # root cannot use the browser's own
            "user-data-dir": folder,
            "hide-scrollbars": "",
            "force-device-scale-factor": str(_SCALE),
            "virtual-time-budget": "5000",
            "window-size": f"{_WIDTH},{_HEIGHT}",
            "screenshot": str(drawn),
        }
        words = [f"--{name}={value}" if value else f"--{name}" for name, value in options.items()]
        stderr = _run([browser, *words, page_file.as_uri()], folder, patience_s)
        if not drawn.exists():
            raise ConfigError(f"{browser} drew nothing: {stderr[-_SAID:] or 'it said nothing'}; format=html needs none")
        return drawn.read_bytes()


def _run(command: list[str], home: str, patience_s: float) -> str:
    """Run the browser and return its stderr. Its process group is killed at the end. Raises ConfigError on a
    timeout."""
    environment = {**base_environment(), "HOME": home}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            stderr = process.communicate(timeout=patience_s)[1]
        except subprocess.TimeoutExpired as error:
            raise ConfigError(f"{command[0]} took longer than {patience_s:g} s; format=html needs none") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return " ".join(stderr.decode(errors="replace").split())
