"""A server, a provider and notes for a fleet of real processes."""

import pytest

from tests.support.embedding_server import EmbeddingServer
from tests.support.fleet import Fleet
from tests.support.redis_server import RedisServer
from tests.support.workspace import note, remote

#: Texts in a request: a backfill needs many of them.
ROWS = 8

#: Texts of a note.
TEXTS = 3

#: Seconds of a lease: what a killed process had in flight is sent again after that time. Longer than the 15 s
#: after which answers that a killed process had fetched come back.
LEASE_S = 25


@pytest.fixture
def redis_server(tmp_path):
    """A server that forgets everything when it ends."""
    with RedisServer(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def lasting_redis(tmp_path):
    """A server that has its data again when it is started again."""
    with RedisServer(tmp_path / "redis", keeps_data=True) as running:
        yield running


@pytest.fixture
def provider():
    """A remote provider: it takes its time."""
    with EmbeddingServer(dims=16, latency_ms=40) as running:
        yield running


@pytest.fixture
def notes(place, provider):
    """A user's place, its notes still to be written."""
    place.furnish(
        folders=["memory"],
        **remote(provider.url, maxRows=ROWS, timeoutSeconds=10),
        sync={"watchDebounceMs": 100},
    )
    return place


@pytest.fixture
def fleet(notes, redis_server):
    """The processes of the Procfile, none of them started yet."""
    with Fleet(notes, redis_server.url, lease_s=LEASE_S) as fleet:
        yield fleet


def write_notes(place, first, count):
    """Write notes with numbers of their own; how many texts they have."""
    for number in range(first, first + count):
        place.write(f"memory/note-{number}.md", note(number))
    return TEXTS * count
