"""Answer the one-shot commands of a home from a process that stays warm, for `memline up` and `serve`.

A command (`command_client`) sends its arguments, variables and folder over a Unix socket in the home. This
process takes them on, reads the settings anew and runs the command as the command would; only what it
searches with is kept. One command at a time: who finds it busy works alone. It is started at the first
command, which works alone, and ends when none came for `IDLE_S`.
"""

from __future__ import annotations

import fcntl
import io
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from memline.producers.cli import failed, plain
from memline.producers.cli.command_client import TAKEN, address, identity
from memline.producers.cli.invocation import Invocation
from memline.producers.memory import Memory
from memline.shared.config import environment
from memline.shared.config.config_file import for_owner
from memline.shared.config.schema import AgentSettings, Settings

#: Seconds without a command after which the process ends, and frees the vectors.
IDLE_S = 600.0

#: Seconds between two looks at other processes: the one that answers this home, its parent and its child.
_LOOK_EVERY_S = 1.0

#: Seconds in which a command has to arrive.
_ARRIVED_S = 1.0

#: Variables that a connection to a provider is made with, or a day is told by.
_KEPT_WITH = ("SSL_", "MEMLINE_", "HF_", "TZ", "HOME", "HTTP", "http", "ALL_", "all_", "NO_P", "no_p")


class CommandServer:
    """Runs the commands that come in over a listening socket."""

    def __init__(self) -> None:
        #: Agent -> what its memory was made of, and the memory.
        self._memories: dict[str, tuple[object, Memory]] = {}

    def serve(self, listener: socket.socket) -> None:
        """Answer until no command comes any more, or the process that started this one has ended."""
        listener.settimeout(_LOOK_EVERY_S)
        parent, last_s = os.getppid(), time.monotonic()
        while os.getppid() == parent and time.monotonic() - last_s < IDLE_S:
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                with connection, suppress(OSError, ValueError):
                    self._answer(connection)
                last_s = time.monotonic()
        for _, memory in self._memories.values():
            memory.close()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(_ARRIVED_S)
        request = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        asked, folder, *rest = os.fsdecode(request).split("\0")
        if asked != identity():
            return
        connection.sendall(TAKEN)
        pieces: list[tuple[int, bytes]] = []
        status = self._run(folder, rest, pieces)
        if status is None or isinstance(status, int):
            pieces.append((0, bytes([status or 0])))
            connection.sendall(
                b"".join(bytes([to]) + len(each).to_bytes(4, "big") + each for to, each in pieces)
            )

    def _run(self, folder: str, rest: list[str], pieces: list[tuple[int, bytes]]) -> object:
        """Run a command in its folder, with its variables; what it prints becomes pieces of the answer."""
        terminals, encodings, count, words = rest[:2], rest[2:4], int(rest[4]), rest[5:]
        before = sys.stdout, sys.stderr
        os.environ.clear()
        os.environ.update(dict(each.split("=", 1) for each in words[count:]))
        time.tzset()
        os.chdir(folder)
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(io.BufferedWriter(_Pieces(number, pieces, terminal)), encoding, errors)
            for number, terminal, encoding, errors in zip(
                (1, 2), terminals, encodings, ("strict", "backslashreplace"), strict=True
            )
        )
        try:
            return plain.run(words[:count], lambda given: Invocation.of(given, kept=self._memory))
        except Exception as error:
            return failed(error)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            sys.stdout, sys.stderr = before

    def _memory(self, settings: Settings, agent: AgentSettings) -> AbstractContextManager[Memory]:
        """Return the memory of an agent, the same as long as what it was made of is the same."""
        if settings.queue.url:
            # Beside a fleet a process that stays leaves the index to the store worker; a command does not.
            return Memory.of(settings, agent)
        with_variables = {name: text for name, text in os.environ.items() if name.startswith(_KEPT_WITH)}
        made_of = agent, settings.home, settings.serve, settings.limits, settings.prices, with_variables
        of, memory = self._memories.get(agent.agent, (None, None))
        if memory is None or of != made_of:
            if memory is not None:
                memory.close()
            memory = Memory.of(settings, agent, long_lived=True)
            self._memories[agent.agent] = made_of, memory
        return nullcontext(memory)


class _Pieces(io.RawIOBase):
    """One of the streams of a command."""

    def __init__(self, number: int, pieces: list[tuple[int, bytes]], terminal: str) -> None:
        self._number, self._pieces, self._terminal = number, pieces, terminal

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return bool(self._terminal)

    def write(self, data: Any) -> int:
        self._pieces.append((self._number, bytes(data)))
        return len(data)


def main() -> None:
    """Serve on standard input, a listening socket: this is the process that `answering` starts."""
    # Ctrl-C at the terminal of `memline up` is for that process, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as listener:
        CommandServer().serve(listener)


@contextmanager
def answering(home: Path) -> Iterator[None]:
    """Have the commands of a home answered while a block runs; one process of a home does so at a time."""
    over, end = os.pipe()
    thread = threading.Thread(target=_keep_answering, args=(home, over), name="commands", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(end)
        thread.join()
        os.close(over)


def _keep_answering(home: Path, over: int) -> None:
    # A home that is not there, or on a disk without sockets, has commands that work alone.
    with suppress(OSError), open(home / "commands.lock", "w", opener=for_owner) as lock:
        while not _locks(lock.fileno()):
            if select.select([over], [], [], _LOOK_EVERY_S)[0]:
                return
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _listen(address(str(home), folder), over)
        finally:
            os.close(folder)


def _locks(lock: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _listen(path: str, over: int) -> None:
    """Start a process for the commands at the first one, and again when it has ended."""
    words = "from memline.producers.cli.command_server import main; main()"
    child = None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        # Of a process that was killed: the lock says that none listens.
        Path(path).unlink(missing_ok=True)
        listener.bind(path)
        try:
            # Before any process can connect.
            os.chmod(path, 0o600)
            listener.listen()
            while True:
                waits = [over] if child else [over, listener.fileno()]
                ready, _, _ = select.select(waits, [], [], _LOOK_EVERY_S if child else None)
                if over in ready:
                    return
                if child is None:
                    # Not taken: to wait for the start would take it longer.
                    with suppress(BlockingIOError):
                        listener.accept()[0].close()
                    program, env = (
                        [sys.executable, "-P", "-c", words],
                        environment.without_liveness(os.environ),
                    )
                    child = subprocess.Popen(
                        program, stdin=listener.fileno(), stdout=subprocess.DEVNULL, env=env
                    )
                elif child.poll() is not None:
                    child = None
        finally:
            Path(path).unlink(missing_ok=True)
            if child is not None:
                child.terminate()
                child.wait()
