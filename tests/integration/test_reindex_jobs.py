"""Reindex jobs on a fleet, with a real redis-server and real worker processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from memline.producers.runs import feed, reindex
from memline.shared.config.environment import fleet_name
from memline.shared.errors import IndexMissing, QueueError
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
    """Enqueue so many files at a time, each in a message of its own."""
    monkeypatch.setattr(feed, "WINDOW_FILES", files)
    monkeypatch.setattr(feed, "PATHS_PER_MESSAGE", 1)


def address(place: Place, redis: RedisServer) -> str:
    return f"{redis.url}#{fleet_name(place.home)}"


def waiting(place: Place, redis: RedisServer, queue: str) -> int:
    return int(redis.ask("LLEN", f"memline:{fleet_name(place.home)}:{queue}"))


def test_a_reindex_is_enqueued_in_windows_and_is_safe_to_run_twice(
    place: Place, redis: RedisServer, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch, 8)
    longest: list[int] = []

    with Fleet(place, redis.url) as fleet:
        fleet.start("chunk", "embed", "store")
        first = reindex.start(
            place.agent,
            address(place, redis),
            force=True,
            on_progress=lambda _done, _all: longest.append(waiting(place, redis, "chunk")),
        )
        second = reindex.start(place.agent, address(place, redis), force=True)
        until(lambda: is_settled(place), "every vector")
        progress = reindex.progress(place.agent)

    assert (first["files"], second["files"]) == (NOTES, NOTES)
    assert max(longest) <= 8
    assert server.repeated() == {}
    assert progress["vectors"]["ready"] == 3 * NOTES
    assert progress["etaSeconds"] is None


def test_a_long_list_without_workers_ends_with_what_to_start(
    place: Place, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch, 8)
    # Ten seconds pass between any two looks at the clock.
    hasty = SimpleNamespace(monotonic=count(0, 10).__next__, time=time.time)
    monkeypatch.setattr("memline.producers.runs.fleet.time", hasty)

    with pytest.raises(QueueError, match="no worker takes messages from the queue 'chunk'") as raised:
        reindex.start(place.agent, address(place, redis))

    assert "memline fleet" in raised.value.hint
    assert waiting(place, redis, "chunk") <= 8


def test_a_short_list_is_put_on_the_queue_without_any_worker(place: Place, redis: RedisServer) -> None:
    assert reindex.start(place.agent, address(place, redis))["files"] == NOTES

    assert waiting(place, redis, "chunk") == 1


def test_cancelling_takes_the_messages_back_and_sends_nothing_more(
    place: Place, redis: RedisServer, server: EmbeddingServer
) -> None:
    # Files are read and stored, nothing is embedded yet.
    with Fleet(place, redis.url) as fleet:
        fleet.start("chunk", "store")
        reindex.start(place.agent, address(place, redis))
        until(lambda: sum(states(place).values()) == 3 * NOTES, "every chunk")
        # A request that was leased and not sent yet would be lost with its sender.
        until(lambda: 0 < waiting(place, redis, "embed") == place.rows("SELECT count(*) FROM leases")[0][0])
    reindex.start(place.agent, address(place, redis), force=True)

    done = place.run("reindex", "--cancel", "--json", env={"MEMLINE_QUEUE_URL": redis.url}).json

    out = place.vector_states()["leased"]
    assert done == [
        {"agentId": "main", "vectors": 3 * NOTES - out, "batches": 0, "messages": 1, "files": NOTES}
    ]
    with Fleet(place, redis.url) as fleet:
        fleet.start("chunk", "embed", "store")
        until(lambda: place.vector_states() == {"ready": out, "wanted": 3 * NOTES - out})
        assert "cancelled (memline reindex resumes them)" in place.run("reindex", "--status").stdout
        assert sum(server.texts.values()) == out
        assert place.search("Section 1 of 3").to_json()["stale"]

        again = place.run("reindex", env={"MEMLINE_QUEUE_URL": redis.url})
        until(lambda: is_settled(place), "every vector")

    assert f"{3 * NOTES - out} cancelled texts are wanted again" in again.stdout
    assert server.repeated() == {}


def test_an_index_run_resumes_what_was_cancelled(place: Place, server: EmbeddingServer) -> None:
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


def test_cancelling_stops_a_reindex_that_still_hands_files_over(
    place: Place, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch, 2)

    def cancel(done: int, _all: int) -> None:
        if done >= 4:
            reindex.cancel(place.agent, address(place, redis))

    with Fleet(place, redis.url) as fleet:
        fleet.start("chunk", "store")
        with pytest.raises(QueueError, match="the reindex was cancelled after") as raised:
            reindex.start(place.agent, address(place, redis), on_progress=cancel)

    assert "memline reindex" in raised.value.hint


def test_a_hand_over_in_which_no_file_arrives_ends_with_words(
    place: Place, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch, 2)
    monkeypatch.setattr(reindex, "STALLED_S", 0.2)

    with pytest.raises(QueueError, match="no file arrived for 0 min after 0 of 30 files"):
        reindex.start(place.agent, address(place, redis))
