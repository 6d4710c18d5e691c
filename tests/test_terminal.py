"""Commands at a real terminal (a pty): Ctrl-C as its user presses it, a pipe that closes, a narrow window."""

import fcntl
import os
import pty
import random
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ksflow.lm.answers import answer

_LEADER = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, "
    "[sys.executable, '-m', 'ksflow', *sys.argv[1:]])"
)
SEARCH = ["recipe=dry_run", "problem=softmax", "loop.evaluations=100000", "loop.rounds_in_flight=4"]
CTRL_C = b"\x03"


class Terminal:
    """A command whose input, output and controlling terminal are a pty of so many columns."""

    def __init__(self, folder: Path, *words: str, columns: int = 160, **settings: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        environment |= {"TERM": "xterm", **settings}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LEADER, *words],
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=environment,
        )
        os.close(theirs)
        self.text = ""

    def press(self, key: bytes) -> None:
        """A key, as the keyboard sends it."""
        os.write(self._ours, key)

    def close(self) -> int:
        """Close the window; the exit status."""
        os.close(self._ours)
        return self.process.wait(timeout=600)

    def until(self, seen: Callable[[str], object]) -> None:
        """Read until the text so far has it."""
        while not seen(self.text):
            assert self._read(), self.text[-3000:]

    def end(self) -> int:
        """Read to the end; the exit status."""
        while self._read():
            pass
        os.close(self._ours)
        return self.process.wait(timeout=600)

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux's way to say that the other side is closed
            return False
        self.text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text + data.decode(errors="replace"))
        return bool(data)


def judged(trials: int) -> Callable[[str], bool]:
    """Whether so many trials have been shown."""
    return lambda text: len(set(re.findall(r"(\d{5}) +(?:accept|reject|compile|fail)", text))) >= trials


def ended_well(folder: Path, terminal: Terminal) -> None:
    assert terminal.end() == 0, terminal.text[-3000:]
    said = terminal.text
    assert "stopped: interrupted" in said, said[-3000:]
    assert re.search(r"^winner \d{5}: ", said, re.MULTILINE), said[-3000:]
    assert "lower is better" in said
    assert "ksflow: " not in said
    kept_winner(folder)


def kept_winner(folder: Path) -> None:
    (best,) = (folder / "runs/best/softmax").glob("*")
    assert (best / "best.py").is_file()
    assert (best / "evaluation.json").is_file()
    subprocess.run(["git", "-C", folder / "runs/lineage.git", "fsck", "--strict"], check=True, capture_output=True)


def interrupted_once(folder: Path, chance: random.Random) -> None:
    terminal = Terminal(folder, *SEARCH)
    terminal.until(judged(chance.randrange(6, 40)))
    time.sleep(chance.random() / 20)  # anywhere between two writes, or in the middle of one
    terminal.press(CTRL_C)
    ended_well(folder, terminal)


def test_ctrl_c_at_a_terminal_ends_with_table_winner_and_module(tmp_path: Path) -> None:
    interrupted_once(tmp_path, random.Random(1))


@pytest.mark.soak
@pytest.mark.slow
def test_ctrl_c_loses_the_end_of_a_run_at_no_moment(tmp_path: Path) -> None:
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        interrupted_once(folder, random.Random(number))


@pytest.mark.parametrize(
    "signals", [[signal.SIGTERM, signal.SIGTERM], pytest.param([signal.SIGINT], marks=pytest.mark.slow)]
)
def test_a_signal_to_the_whole_process_group_is_a_ctrl_c_too(tmp_path: Path, signals: list[signal.Signals]) -> None:
    terminal = Terminal(tmp_path, *SEARCH)
    terminal.until(judged(8))
    for number in signals:  # `timeout` signals twice
        os.killpg(terminal.process.pid, number)
    ended_well(tmp_path, terminal)


def test_a_closed_terminal_ends_a_run_as_ctrl_c_does(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, *SEARCH)
    terminal.until(judged(8))
    assert terminal.close() == 0
    kept_winner(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_twice_abandons_and_the_next_run_goes_on(tmp_path: Path, second: signal.Signals) -> None:
    (tmp_path / "endless.py").write_text("import threading\ndef design(*_):\n    threading.Event().wait()\n")
    (tmp_path / "conf" / "designer").mkdir(parents=True)
    (tmp_path / "conf" / "designer" / "endless.yaml").write_text("_target_: endless.design\n_partial_: true\n")
    terminal = Terminal(tmp_path, "--config-dir=conf", "designer=endless", *SEARCH[:2])
    terminal.until(lambda text: "· design" in text)
    terminal.press(CTRL_C)
    terminal.until(lambda text: "finishing design" in text)
    os.kill(terminal.process.pid, second)
    assert terminal.end() == 130, terminal.text[-3000:]
    assert terminal.text.rstrip().splitlines()[-1].startswith("ksflow: interrupted; nothing that was written is lost")
    assert "abandoned: design" in terminal.text
    assert "Traceback" not in terminal.text
    again = Terminal(tmp_path, *SEARCH[:2], "loop.evaluations=3")
    assert again.end() == 0, again.text[-3000:]


@pytest.mark.slow
def test_the_first_ctrl_c_ends_the_wait_for_an_answer_and_the_question_stays(tmp_path: Path) -> None:
    inbox = tmp_path / "runs" / "inbox"

    def interrupted(stage: str) -> str:
        terminal = Terminal(tmp_path, *SEARCH[:2], "llm=inbox", columns=300)
        terminal.until(lambda text: re.search(rf"waiting for an answer; stage {stage};", text))
        os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.end() == 4, terminal.text[-3000:]  # nothing was tried
        said = "no longer waiting for 1 answer: the question stays in the inbox, the next run asks again"
        assert terminal.text.count(said) == 1
        assert "finishing" not in terminal.text
        assert "stopped: interrupted" in terminal.text
        assert re.search(r"^winner \d{5}: ", terminal.text, re.MULTILINE)
        assert re.search(
            r"^ksflow: nothing was tried: stopped before the first experiment; fastest so far \d{5}, as before\s*$",
            terminal.text,
            re.MULTILINE,
        )
        assert terminal.text.count("every verdict is kept") == 1
        (question,) = inbox.glob("*.md")
        return question.name

    asked = interrupted("selector")
    text = (inbox / asked).read_text()
    (inbox / asked.replace(".md", ".answer.md")).write_text(answer(text))
    assert interrupted("designer").startswith("designer-")
    assert (inbox / "done" / asked).read_text() == text


@pytest.mark.slow
@pytest.mark.parametrize("words", [SEARCH[:2], ["problem", "show"], ["--shell-completion", "install=bash"], ["--help"]])
def test_a_pipe_that_closes_is_quiet(tmp_path: Path, words: list[str]) -> None:
    command = f"{shlex.join([sys.executable, '-m', 'ksflow', *words])} 2>&1 | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout in ("141\n", "0\n")  # 0: all was written before the pipe closed
    assert done.stderr == ""


def typed(folder: Path, *words: str, columns: int, **settings: str) -> list[str]:
    """A command's lines at a window of so many columns."""
    terminal = Terminal(folder, *words, columns=columns, **settings)
    assert terminal.end() == 0, terminal.text[-3000:]
    return terminal.text.splitlines()


@pytest.mark.slow
def test_every_line_fits_a_window_of_80_columns_and_rejections_have_their_reason(tmp_path: Path) -> None:
    run = typed(tmp_path, *SEARCH[:2], "loop.evaluations=6", columns=80)
    assert max(map(len, run)) <= 80, run
    (heading,) = [line for line in run if line.startswith("trial  verdict")]
    assert heading.split()[-1] == "tried"
    rejected = [number for number, line in enumerate(run) if re.match(r"\d{5}  (reject-|compile-error)", line)]
    assert rejected
    for number in rejected:
        below = run[number + 1 : number + 3]
        assert any(re.match(r"       (made up: |as \d{5}, \d+ times so far)", line) for line in below), run[number:]
    tried = [line for line in run if re.match(r"\d{5}  ", line)][4:]
    assert len(tried) == 6
    for line in tried:
        assert re.search(r"\w+ \S+→\S+", line), line
    last = "\n".join(run).partition("winner ")[2]
    assert re.search(r"→.* \(\d{5}\)", last) or "no experiment beat the" in "\n".join(run), run
    assert re.search(r"\d+ of 6 experiments failed", last), last
    assert "expect" not in "\n".join(run)
    assert not any("e+0" in line for line in run)
    trial = run[rejected[0]][:5]
    shown = ["problem=softmax", "run=dry"]
    tree = typed(tmp_path, "lineage", *shown, columns=80)
    told = typed(tmp_path, "lineage", "show", trial, *shown, columns=80, PAGER="cat")
    changed = typed(tmp_path, "lineage", "diff", "4", trial, *shown, columns=80, PAGER="cat")
    for lines in (tree, told, changed):
        assert max(map(len, lines)) <= 80, lines
    assert sum(" winner " in line for line in tree) == 1
    headings = [line for line in told if line in ("what was tried", "what came out", "02_rows.cpp")]
    assert headings == ["what was tried", "what came out", "02_rows.cpp"]
    paged = typed(tmp_path, "lineage", "show", trial, *shown, columns=80, PAGER="sed -n 1p")
    assert [line for line in paged if line] == [f"{trial}  experiment  {told[0].split()[-1]}"]


def test_a_narrow_window_breaks_no_table(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, *SEARCH[:2], "loop.evaluations=6", columns=60)
    assert terminal.end() == 0, terminal.text[-3000:]
    (table,) = re.findall(r"softmax: µs per call.*?\r\n(?=\d+ experiments)", terminal.text, re.DOTALL)
    assert "geomean" in table
    assert "x PyTorch" in table
    assert all(len(line) <= 60 for line in table.splitlines())
    assert re.search(r"^winner \d{5}: ", terminal.text, re.MULTILINE)
    assert judged(10)(terminal.text)
