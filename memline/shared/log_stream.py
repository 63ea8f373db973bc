"""Write lines to a pipe or socket without ever waiting for a reader.

A process that logs to a pipe stands still once the pipe is full and is not read: 64 kB, some 400
requests of a server. What finds no room is dropped here, a whole line at a time, and counted; the next line
that finds room is preceded by one that says how many were dropped.
"""

from __future__ import annotations

import io
import os
import select
import socket
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial

#: Bytes that a pipe takes as a whole, so that lines of several processes do not mix.
PIPE_BYTES = select.PIPE_BUF


def dropped_words(lines: int) -> str:
    """Say how many lines are missing here."""
    said = "line is" if lines == 1 else "lines are"
    return f"memline: {lines} {said} missing here, since they were not read in time"


class LineStream(io.BufferedIOBase):
    """Writes whole lines to a file descriptor, and drops those for which there is no room.

    Safe to use from several threads.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._stack = ExitStack()
        self._send = _sender(descriptor, self._stack)
        self._lock = threading.Lock()
        #: A line of which the end was not written yet, and the rest of one of which the beginning was sent.
        self._line = self._owed = b""
        self._dropped = 0

    def close(self) -> None:
        """Close what it opened; the descriptor stays open."""
        super().close()
        self._stack.close()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: object) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        with self._lock:
            *lines, self._line = (self._line + content).split(b"\n")
            for line in lines:
                self._put(line + b"\n")
        return len(content)

    def _put(self, line: bytes) -> None:
        if self._dropped and self._goes(f"{dropped_words(self._dropped)}\n".encode()):
            self._dropped = 0
        if self._dropped or not self._goes(line):
            self._dropped += 1

    def _goes(self, line: bytes) -> bool:
        """Send a line, after what is left of the one before; tell whether it, or its beginning, went."""
        while self._owed:
            sent = self._sent(self._owed)
            self._owed = self._owed[sent:]
            if not sent:
                return False
        sent = self._sent(line)
        self._owed = line[sent:] if sent else b""
        return sent > 0

    def _sent(self, data: bytes) -> int:
        sent = 0
        # A pipe that is read no more, or is full.
        with suppress(OSError):
            while sent < len(data):
                sent += self._send(data[sent : sent + PIPE_BYTES])
        return sent


def _sender(descriptor: int, stack: ExitStack) -> Callable[[bytes], int]:
    """Return what sends bytes, or raises BlockingIOError where it would have to wait."""
    if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        own = stack.enter_context(socket.socket(fileno=os.dup(descriptor)))
        return lambda data: own.send(data, socket.MSG_DONTWAIT)
    # Opened anew: a flag of the one that was inherited would be changed for all who share it.
    with suppress(OSError):
        opened = os.open(f"/dev/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, opened)
        return partial(os.write, opened)
    return partial(_send_if_ready, descriptor)


def _send_if_ready(descriptor: int, data: bytes) -> int:
    """Send to a pipe of another user, which may not be opened again."""
    if not select.select((), (descriptor,), (), 0)[1]:
        raise BlockingIOError
    return os.write(descriptor, data)


def protect_errors() -> None:
    """Let standard error of this process drop lines, where it is a pipe or a socket."""
    if sys.stderr is not sys.__stderr__ or sys.stderr is None:
        return
    mode = os.fstat(sys.stderr.fileno()).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        stream = LineStream(sys.stderr.fileno())
        encoding = sys.stderr.encoding
        sys.stderr = io.TextIOWrapper(stream, encoding, "backslashreplace", write_through=True)
