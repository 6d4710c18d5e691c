"""What a sandbox prints and says, kept in part, and fit to be shown."""

import contextlib
import os

_DRAINS = 64
_LOG_PART = 2000


class Log:
    """A pipe that is drained while waiting; its head and tail are kept."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        self.head, self.tail, self.total = b"", b"", 0

    def drain(self) -> None:
        """Read what is there."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_DRAINS):
                chunk = os.read(self.reader, 1 << 16)
                self.total += len(chunk)
                room = _LOG_PART - len(self.head)
                self.head += chunk[:room]
                self.tail = (self.tail + chunk[max(room, 0) :])[-_LOG_PART:]
                if len(chunk) < 1 << 16:
                    return

    def text(self) -> str:
        """Head and tail, with what is missing between them."""
        lost = self.total - len(self.head) - len(self.tail)
        gap = f"\n... {lost} bytes ...\n".encode() if lost else b""
        return plain(self.head + gap + self.tail)


def plain(text: bytes) -> str:
    """What a sandbox said, without anything that a terminal would act upon."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text.decode("utf-8", "replace"))
