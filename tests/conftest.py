"""What every test stands on: a home of its own, and none of the developer's variables."""

import compileall
import gc
import os
import shutil
import signal
import threading
import time
from itertools import chain, groupby
from pathlib import Path
from weakref import WeakSet

import pytest
from hypothesis import HealthCheck, settings

from memline.shared.embedders.http import HttpClient
from tests.support.workspace import Place, remote

# A busy machine is no fault of the code: an example may take its time.
settings.register_profile(
    "any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

_FOREIGN = (
    "MEMLINE_",
    "OPENCLAW_",
    "CLAUDE_",
    "XDG_",
    "OPENAI_",
    "GEMINI_",
    "GOOGLE_",
    "VOYAGE_",
    "MISTRAL_",
    "_MEMLINE_",
)


# A shell has what it starts in the background ignore it, as do all processes from there on.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What is collected stays: to look for garbage in it again and again is half of what the collection takes.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


#: A file system in memory, and the bytes that must be free there: far above what all tests write.
_IN_MEMORY, _ROOM = Path("/dev/shm"), 4 << 30


def pytest_configure(config):
    """Have what all processes of the tests need once: compiled packages, and a place in memory for files."""
    if hasattr(config, "workerinput"):
        return
    # Processes of tests leave no bytecode: without it each would compile what it imports.
    compileall.compile_dir(Path(__file__).parents[1] / "memline", quiet=1)
    if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    """The user's home directory of this test: empty, and nowhere near a real one."""
    for name in [name for name in os.environ if name.startswith(_FOREIGN)]:
        monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def place(request, tmp_path):
    """A user's place: without notes and without a provider, or with what the nearest mark `place` names.

    Its keys are those of `Place.furnish`, and `server`: keys of the provider that the stub server is.
    """
    place = Place(folder=tmp_path / "user")
    if mark := request.node.get_closest_marker("place"):
        wanted = dict(mark.kwargs)
        if "server" in wanted:
            wanted |= remote(request.getfixturevalue("server").url, **wanted.pop("server"))
        place.furnish(**wanted)
    return place


#: Seconds that a thread may go on when its test is over; far above what any needs.
_THREADS_END_S = 60.0

_THREADS_BEFORE = pytest.StashKey[set[threading.Thread]]()

#: Clients that exist, and those that did before a test.
_clients: WeakSet[HttpClient] = WeakSet()
_CLIENTS_BEFORE = pytest.StashKey[set[HttpClient]]()
_begin_client = HttpClient.__init__


def _note_client(client, *arguments, **options):
    _begin_client(client, *arguments, **options)
    _clients.add(client)


HttpClient.__init__ = _note_client  # type: ignore[assignment, method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    item.stash[_THREADS_BEFORE] = {*threading.enumerate()}
    item.stash[_CLIENTS_BEFORE] = {*_clients}
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Wait for the threads that this code has begun in a test; fail the one that leaves a thread or a client.

    A run that goes on would disturb the test that comes next, which would be blamed for it.
    """
    yield
    deadline = time.monotonic() + _THREADS_END_S
    for thread in {*threading.enumerate()} - item.stash.get(_THREADS_BEFORE, {*threading.enumerate()}):
        runs = type(thread).__module__, getattr(getattr(thread, "_target", None), "__module__", "")
        if any(module.startswith(("memline.", "dramatiq.")) for module in runs):
            # Beside its starter a thread is listed before it has begun, and cannot be joined then.
            thread._started.wait(max(0, deadline - time.monotonic()))  # type: ignore[attr-defined]
            thread.join(max(0, deadline - time.monotonic()))
            assert not thread.is_alive(), f"{item.nodeid} left the thread {thread.name} running"
    for client in {*_clients} - item.stash.get(_CLIENTS_BEFORE, {*_clients}):
        # The garbage collector would meet its sockets in another test.
        pool = getattr(client._client._transport, "_pool", None)
        assert not getattr(pool, "connections", ()), f"{item.nodeid} left a client of a provider open"


#: The rings of tests, those that take longest first: what is started last must be short.
_RINGS = ("acceptance", "browser", "integration", "unit")


def pytest_collection_modifyitems(config, items):
    """Deal the tests out to the processes, so that each begins with whole runs and ends with unit tests.

    A process is given one part of the list, and the end of another's when it has none left: as the tests are
    collected, one would have all that takes long. Files with something in common for their tests stay whole.
    """
    items.sort(key=_ring)
    count = int(getattr(config, "workerinput", {}).get("workercount", 1))
    parts = [[] for _ in range(count)]
    slow = [item for item in items if _ring(item) < len(_RINGS) - 1]
    for _, together in groupby(slow, lambda item: item.path if _ring(item) else item.nodeid):
        min(parts, key=len).extend(together)
    # Unit tests fill up what a process is given.
    rest = items[len(slow) :]
    for number, part in enumerate(parts):
        missing = (len(rest) + sum(map(len, parts[number:]))) // (count - number) - len(part)
        part += rest[: max(0, missing)]
        del rest[: max(0, missing)]
    items[:] = chain.from_iterable(parts)


def _ring(item):
    return next((number for number, ring in enumerate(_RINGS) if f"/{ring}/" in str(item.path)), 0)
