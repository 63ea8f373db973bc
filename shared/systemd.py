"""Tell systemd how a process is doing, by its protocol: https://www.freedesktop.org/software/systemd/man/sd_notify.html"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

#: Pings within the time that systemd allows between two of them: some may be late.
PINGS = 4


class Systemd:
    """Says on the socket of systemd that this process is ready, alive or ending; without one, nothing.

    For the loop that does the work, never for a thread of its own: a loop that hangs has to be noticed.
    What systemd does not take at once is lost, and holds up nothing.
    """

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        """`address`: a path, or `@` and a name without one. `watchdog_s`: seconds between pings at most."""
        # An abstract socket, of Linux, has a name that begins with NUL.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        #: Seconds between two pings; None: no ping is waited for.
        self.every_s = watchdog_s / PINGS if address and watchdog_s else None
        self._next_ping = 0.0

    def ready(self) -> None:
        """Say that the start is over."""
        self._say("READY=1")

    def alive(self) -> None:
        """Say that the loop goes round, when that is due; cheap, for every round."""
        if self.every_s is not None and (now := time.monotonic()) >= self._next_ping:
            self._next_ping = now + self.every_s
            self._say("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the process ends."""
        self._say("STOPPING=1")

    def run_until(self, stop: threading.Event) -> None:
        """Say that a process whose work is done by others is ready, alive and, when `stop` is set, ending."""
        self.ready()
        while not stop.wait(self.every_s):
            self.alive()
        self.stopping()

    def _say(self, text: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
            opened.setblocking(False)
            opened.sendto(text.encode(), self._address)
