"""What systemd has for a service: a socket that hears what the process says of itself."""

import queue
import socket
import threading
from contextlib import contextmanager

#: Seconds a process may take to say something; far above what it needs.
TIMEOUT_S = 90.0


class NotifySocket:
    """The socket of one service, and the variables that tell the service of it."""

    def __init__(self, path, watchdog_s):
        self.variables = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(int(watchdog_s * 1e6))}
        self._said = queue.Queue()

    def listen(self, opened):
        """Take what is said at once, as systemd does: a socket keeps no more than some ten words."""
        while word := opened.recv(1_000).decode():
            self._said.put(word)

    def next(self, timeout_s=TIMEOUT_S):
        """Wait for the next thing that the process says; empty when it says nothing for so long."""
        try:
            return self._said.get(timeout=timeout_s)
        except queue.Empty:
            return ""

    def until(self, text):
        """Wait for this text, and give all that came before."""
        said = []
        while (word := self.next()) != text:
            assert word, f"{text} was never said, but {said}"
            said.append(word)
        return said


@contextmanager
def notify_socket(folder, *, watchdog_s=0.2):
    path = folder / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(str(path))
        heard = NotifySocket(path, watchdog_s)
        listener = threading.Thread(target=heard.listen, args=(opened,))
        listener.start()
        try:
            yield heard
        finally:
            # Nothing said ends it.
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", str(path))
            listener.join()
