"""Tell what looks after a process how it is doing: systemd by its protocol, a container's check by a file.

systemd's protocol: https://www.freedesktop.org/software/systemd/man/sd_notify.html
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

#: Seconds between two signs of life at most; deploy/ takes a process for dead after two minutes. Of the time
#: that systemd allows between two a quarter: some may be late.
EVERY_S = 15.0

#: Seconds that what is said once waits for a systemd that is busy; a sign of life is followed by another.
WAIT_S = 2.0


class Liveness:
    """Says that this process is ready, alive or ending; where nothing listens, it says nothing.

    For the loop that does the work, never for a thread of its own: a loop that hangs has to be noticed.
    """

    def __init__(self, address: str = "", watchdog_s: float | None = None, file: str = "") -> None:
        """`address`: systemd's socket, a path, or `@` and a name. `file`: one that is touched.

        `watchdog_s`: seconds between two signs of life at most, by systemd.
        """
        # An abstract socket, of Linux, has a name that begins with NUL.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._file = Path(file) if file else None
        self._every_s = min(EVERY_S, (watchdog_s or 4 * EVERY_S) / 4)
        self._next = 0.0

    def ready(self) -> None:
        """Say that the start is over."""
        self._say("READY=1", WAIT_S)

    def alive(self) -> None:
        """Say that the loop goes round, when that is due; cheap, for every round."""
        if (now := time.monotonic()) >= self._next:
            self._next = now + self._every_s
            self._say("WATCHDOG=1", 0.0)

    def stopping(self) -> None:
        """Say that the process ends."""
        self._say("STOPPING=1", WAIT_S)
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _say(self, text: str, wait_s: float) -> None:
        with suppress(OSError):
            if self._file is not None:
                self._file.touch()
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
                opened.settimeout(wait_s)
                opened.sendto(text.encode(), self._address)
