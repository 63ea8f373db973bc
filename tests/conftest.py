"""What every test stands on: a home of its own, and none of the developer's variables."""

import fcntl
import os
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
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


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home directory of this test: empty, and nowhere near a real one."""
    for name in [name for name in os.environ if name.startswith(_FOREIGN)]:
        monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
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


@pytest.fixture(scope="session")
def onnx_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a real ONNX model, made once for all processes of a test session."""
    from tests.support.local_model import MODEL
    from tests.support.onnx_model import make

    base = tmp_path_factory.getbasetemp()
    session = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = session / "all-MiniLM-L6-v2"
    with (session / "all-MiniLM-L6-v2.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "model.onnx").is_file():
            make(MODEL, folder)
    return folder


#: Seconds that a thread may go on when its test is over; far above what any needs.
_THREADS_END_S = 60.0

_THREADS_BEFORE = pytest.StashKey[set[threading.Thread]]()

#: Clients that exist, and those that did before a test.
_clients: WeakSet[HttpClient] = WeakSet()
_CLIENTS_BEFORE = pytest.StashKey[set[HttpClient]]()
_begin_client = HttpClient.__init__


def _note_client(client: HttpClient, *arguments: Any, **options: Any) -> None:
    _begin_client(client, *arguments, **options)
    _clients.add(client)


HttpClient.__init__ = _note_client  # type: ignore[assignment, method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    item.stash[_THREADS_BEFORE] = {*threading.enumerate()}
    item.stash[_CLIENTS_BEFORE] = {*_clients}
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Wait for the threads that this code has begun in a test; fail the one that leaves a thread or a client.

    A run that goes on would disturb the test that comes next, which would be blamed for it.
    """
    yield
    deadline = time.monotonic() + _THREADS_END_S
    for thread in {*threading.enumerate()} - item.stash.get(_THREADS_BEFORE, {*threading.enumerate()}):
        runs = type(thread).__module__, getattr(getattr(thread, "_target", None), "__module__", "")
        if any(module.startswith(("memline.", "dramatiq.")) for module in runs):
            thread.join(max(0, deadline - time.monotonic()))
            assert not thread.is_alive(), f"{item.nodeid} left the thread {thread.name} running"
    for client in {*_clients} - item.stash.get(_CLIENTS_BEFORE, {*_clients}):
        # The garbage collector would meet its sockets in another test.
        pool = getattr(client._client._transport, "_pool", None)
        assert not getattr(pool, "connections", ()), f"{item.nodeid} left a client of a provider open"


#: The rings of tests, those that take longest first: what is started last must be short.
_RINGS = ("acceptance", "integration", "unit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run whole processes first, unit tests last, so that no long test begins when the others are done."""
    items.sort(
        key=lambda item: next((n for n, ring in enumerate(_RINGS) if f"/{ring}/" in str(item.path)), 0)
    )
