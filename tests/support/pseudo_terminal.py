"""A terminal of a fixed size for processes of tests: what they show on it, and Ctrl-C."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager, suppress

from tests.support.process import ROOT, TIMEOUT_S

#: Colours and links: what a terminal obeys without moving.
_STYLES = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\")

_MAIN = "from memline.producers.start import main; main()"


class Terminal:
    """A process whose input, output and errors are one terminal."""

    def __init__(self, pid, master):
        self.pid = pid
        #: Everything that was shown so far.
        self.shown = ""
        self.status = None
        self._master = master

    def interrupt(self):
        """Press Ctrl-C."""
        os.write(self._master, b"\x03")

    def type(self, text):
        """Type a text, with the line end that Enter is."""
        os.write(self._master, text.encode())

    def until(self, holds, what="it"):
        """Read what is shown until `holds`, and return it."""
        deadline = time.monotonic() + TIMEOUT_S
        while not holds(self.shown):
            assert time.monotonic() < deadline, f"{what} was not shown: {self.shown!r}"
            assert self._read(deadline), f"the process ended before {what}: {self.shown!r}"
        return self.shown

    def end(self):
        """Read to the end of the process and return its exit status, or minus the signal that ended it."""
        if self.status is None:
            deadline = time.monotonic() + TIMEOUT_S
            while self._read(deadline):
                assert time.monotonic() < deadline, f"the process did not end: {self.shown!r}"
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def _read(self, deadline):
        ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
        try:
            data = os.read(self._master, 1 << 16) if ready else b"\0"
        except OSError:
            # Linux: the last process has closed the terminal.
            data = b""
        self.shown += data.replace(b"\0", b"").decode("utf-8", "replace")
        return bool(data)


@contextmanager
def on_terminal(*args, columns=80, env=None, before=""):
    """Run `memline` on a terminal of so many columns; `before` is Python that the process runs first."""
    variables = {
        **{name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")},
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TERM": "xterm-256color",
        **(env or {}),
    }
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    script = f"import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{before}\n{_MAIN}"

    process = subprocess.Popen(
        [sys.executable, "-c", script, *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=variables,
        start_new_session=True,
    )
    os.close(slave)
    terminal = Terminal(process.pid, master)
    try:
        yield terminal
    finally:
        if terminal.status is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(process.pid, 0)
        process.returncode = 0
        os.close(master)


def plain(shown):
    """Take colours and links off, and the line ends of a terminal."""
    return _STYLES.sub("", shown).replace("\r\n", "\n")
