"""Reindex jobs on a fleet, with a real redis-server and real worker processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from producers import backfill, feed
from shared.errors import IndexMissing, QueueError
from tests.support.embedding_server import EmbeddingServer
from tests.support.fleet import Fleet
from tests.support.redis_server import RedisServer
from tests.support.workspace import Place, note, remote, until

#: Notes of three texts each.
NOTES = 30


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, server: EmbeddingServer) -> Place:
    place = Place(folder=tmp_path / "user", memory=remote(server.url, maxRows=4))
    for number in range(NOTES):
        place.write(f"memory/{number:02}.md", note(number))
    return place


def states(place: Place) -> dict[str, int]:
    """Vectors by state; none before the store worker has made the index."""
    try:
        return place.vector_states()
    except IndexMissing:
        return {}


def is_settled(place: Place) -> bool:
    return states(place) == {"ready": 3 * NOTES}


def small_windows(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """Announce so many files at a time, each in a message of its own."""
    monkeypatch.setattr(feed, "WINDOW_FILES", files)
    monkeypatch.setattr(feed, "PATHS_PER_MESSAGE", 1)


def waiting(redis: RedisServer, queue: str) -> int:
    return int(redis.ask("LLEN", f"memline:{queue}"))


def test_a_reindex_is_announced_in_windows_and_is_safe_to_run_twice(
    place: Place, redis: RedisServer, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch, 8)
    longest: list[int] = []

    with Fleet(place, redis.url) as fleet:
        fleet.start("chunk", "embed", "store")
        first = backfill.start(
            place.agent,
            redis.url,
            force=True,
            on_announced=lambda _done, _all: longest.append(waiting(redis, "chunk")),
        )
        second = backfill.start(place.agent, redis.url, force=True)
        until(lambda: is_settled(place), "every vector")
        progress = backfill.progress(place.agent)

    assert (first.files, second.files) == (NOTES, NOTES)
    assert max(longest) <= 8
    assert server.repeated() == {}
    assert progress["vectors"]["ready"] == 3 * NOTES
    assert progress["etaSeconds"] is None


def test_a_long_list_that_nobody_takes_ends_with_what_to_start(
    place: Place, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch, 8)
    # Ten seconds pass between any two looks at the clock.
    hasty = SimpleNamespace(monotonic=count(0, 10).__next__, time=time.time)
    monkeypatch.setattr("producers.fleet.time", hasty)

    with pytest.raises(QueueError, match="no worker takes messages from the queue 'chunk'") as raised:
        backfill.start(place.agent, redis.url)

    assert "honcho start" in raised.value.hint
    assert waiting(redis, "chunk") <= 8


def test_a_short_list_is_put_on_the_queue_though_nobody_is_there(place: Place, redis: RedisServer) -> None:
    assert backfill.start(place.agent, redis.url).files == NOTES

    assert waiting(redis, "chunk") == 1


def test_cancelling_takes_the_messages_back_and_sends_nothing_more(
    place: Place, redis: RedisServer, server: EmbeddingServer
) -> None:
    # Files are read and stored, nothing is embedded yet.
    with Fleet(place, redis.url) as fleet:
        fleet.start("chunk", "store")
        backfill.start(place.agent, redis.url)
        until(lambda: sum(states(place).values()) == 3 * NOTES, "every chunk")
        # A request that was leased and not sent yet would be lost with its sender.
        until(lambda: 0 < waiting(redis, "embed") == place.rows("SELECT count(*) FROM leases")[0][0])
    backfill.start(place.agent, redis.url, force=True)

    done = place.run("reindex", "--cancel", "--json", env={"MEMLINE_QUEUE_URL": redis.url}).json

    out = place.vector_states()["leased"]
    assert done == [
        {"agentId": "main", "vectors": 3 * NOTES - out, "batches": 0, "messages": 1, "files": NOTES}
    ]
    with Fleet(place, redis.url) as fleet:
        fleet.start("chunk", "embed", "store")
        until(lambda: place.vector_states() == {"ready": out, "wanted": 3 * NOTES - out})
        assert "cancelled (memline reindex takes them up)" in place.run("reindex", "--status").stdout
        assert sum(server.texts.values()) == out
        assert place.search("Section 1 of 3").to_json()["stale"]

        again = place.run("reindex", env={"MEMLINE_QUEUE_URL": redis.url})
        until(lambda: is_settled(place), "every vector")

    assert f"{3 * NOTES - out} cancelled texts are wanted again" in again.stdout
    assert server.repeated() == {}


def test_an_index_run_takes_up_what_was_cancelled(place: Place, server: EmbeddingServer) -> None:
    place.index()
    server.control({"fault": "401"})
    place.configure(model="another")
    place.index()

    done = place.run("reindex", "--cancel")
    server.control({"fault": ""})

    assert f"main: {3 * NOTES} texts will not be embedded" in done.stdout
    assert place.search("Section 1 of 3").to_json()["stale"]
    assert place.index().vectors["pending"] == 0
    assert not place.search("Section 1 of 3").to_json()["stale"]


def test_somebody_who_cancels_stops_a_reindex_that_is_still_announcing(
    place: Place, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch, 2)

    def cancel(done: int, _all: int) -> None:
        if done >= 4:
            backfill.cancel(place.agent, redis.url)

    with Fleet(place, redis.url) as fleet:
        fleet.start("chunk", "store")
        with pytest.raises(QueueError, match="somebody cancelled the reindex after") as raised:
            backfill.start(place.agent, redis.url, on_announced=cancel)

    assert "memline reindex" in raised.value.hint
