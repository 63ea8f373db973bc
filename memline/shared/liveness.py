"""Tell what looks after a process how it is doing: systemd by its protocol, a container's check by a file.

systemd's protocol: https://www.freedesktop.org/software/systemd/man/sd_notify.html
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

#: Signs of life within the time that systemd allows between two of them: some may be late.
PINGS = 4

#: Seconds that what is said once waits for a systemd that is busy; a sign of life is followed by another.
WAIT_S = 2.0

#: Seconds between two signs of life in the file; deploy/ takes a process for dead after two minutes.
FILE_EVERY_S = 15.0


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
        self._pings = bool(address and watchdog_s)
        self._file = Path(file) if file else None
        every_s = [watchdog_s / PINGS] if watchdog_s and self._pings else []
        #: Seconds between two signs of life; None: they are not waited for.
        self.every_s = min([*every_s, *[FILE_EVERY_S] * bool(file)], default=None)
        self._next = 0.0

    def ready(self) -> None:
        """Say that the start is over."""
        self._say("READY=1", WAIT_S)
        self._touch()

    def alive(self) -> None:
        """Say that the loop goes round, when that is due; cheap, for every round."""
        if self.every_s is not None and (now := time.monotonic()) >= self._next:
            self._next = now + self.every_s
            if self._pings:
                self._say("WATCHDOG=1", 0.0)
            self._touch()

    def stopping(self) -> None:
        """Say that the process ends."""
        self._say("STOPPING=1", WAIT_S)
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink()

    def _say(self, text: str, wait_s: float) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
            opened.settimeout(wait_s)
            opened.sendto(text.encode(), self._address)

    def _touch(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.touch()
