"""What systemd has for a service: a socket that hears what the process says of itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Seconds a process may take to say something; far above what it needs.
TIMEOUT_S = 90.0


class NotifySocket:
    """The socket of one service, and the variables that tell the service of it."""

    def __init__(self, path: Path, opened: socket.socket, watchdog_s: float) -> None:
        self.variables = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(int(watchdog_s * 1e6))}
        self._opened = opened

    def next(self, timeout_s: float = TIMEOUT_S) -> str:
        """Wait for the next thing that the process says; empty when it says nothing for so long."""
        self._opened.settimeout(timeout_s)
        try:
            return self._opened.recv(1_000).decode()
        except TimeoutError:
            return ""

    def until(self, text: str) -> list[str]:
        """Wait for this text, and give all that came before."""
        said = []
        while (word := self.next()) != text:
            assert word, f"{text} was never said, but {said}"
            said.append(word)
        return said


@contextmanager
def notify_socket(folder: Path, *, watchdog_s: float = 0.2) -> Iterator[NotifySocket]:
    path = folder / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(str(path))
        yield NotifySocket(path, opened, watchdog_s)
