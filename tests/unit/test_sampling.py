"""What a point of a home says: its agents, its fleet, and what was asked."""

import threading
import time
from contextlib import closing

import pytest

from memline.shared import sampling
from memline.shared.embedders.choice import choose
from memline.shared.errors import QueueError
from memline.shared.figures import counters, points
from memline.shared.figures.counters import Tally
from memline.shared.figures.points import SPANS, Point
from memline.shared.index.accounts import AccountFile
from memline.shared.index.rows import Chunk, FileRow
from memline.shared.index_writer import IndexWriter
from memline.shared.queue import depth
from memline.shared.queue.depth import Fleet, QueueDepth
from memline.shared.sampling import Sampler
from memline.shared.scheduling import call_times
from tests.support.index_rows import answer, file_row, lease_all, make_job
from tests.support.workspace import Place, remote, until

NOON = 1_000_080_000.0

FLEET = Fleet(
    queues=(
        QueueDepth(
            name="embed",
            role="embed",
            waiting=3,
            in_flight=0,
            delayed=0,
            dead=4,
            oldest_s=1.5,
            rate_per_minute=0.0,
        ),
    ),
    workers=(),
    used_memory=1_048_576,
)


@pytest.fixture
def place(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    # Points of here are a moment apart, not 15 seconds.
    monkeypatch.setattr(sampling, "READ_SHARE", 1e9)
    place.configure(**remote("http://127.0.0.1:9/v1"))
    return place


def store(place: Place, path: str, *, is_answered: bool) -> None:
    """Store a note of two texts, whose vectors are there or wait."""
    with closing(IndexWriter.of(place.agent)) as writer:
        writer.retarget(choose(place.agent).identity)
        chunks = tuple(Chunk(start_line=n, end_line=n, text=f"{path} {n}") for n in (1, 2))
        writer.store_file(
            FileRow(path=path, source="memory", outcome="indexed", observed_ns=1, chunks=chunks)
        )
        if is_answered:
            answer(writer, lease_all(writer))


def sampled(place: Place, sampler: Sampler, at: float) -> Point:
    assert sampler.sample(at)
    with closing(AccountFile(place.settings.account_path)) as file:
        point = points.read(file, SPANS["hour"], at)[-1]
    assert point is not None
    return point


def test_a_point_has_the_backlog_and_what_was_stored_since(place: Place) -> None:
    sampler = Sampler(lambda: place.settings, owner="me")
    store(place, "a.md", is_answered=True)
    first = sampled(place, sampler, NOON)

    store(place, "b.md", is_answered=True)
    store(place, "c.md", is_answered=False)
    second = sampled(place, sampler, NOON + 15)

    assert (dict(first.last), dict(first.sums)) == ({"backlog\t": 0}, {})
    assert dict(second.last) == {"backlog\tmain": 2, "backlog\t": 2}
    assert dict(second.sums) == {"vectors\tmain": 2, "vectors\t": 2}
    assert second.seconds == 15


def test_a_point_has_what_was_asked_and_what_providers_answered(place: Place) -> None:
    sampler, tally = Sampler(lambda: place.settings, owner="me"), Tally(place.settings.account_path)
    sampled(place, sampler, NOON)

    tally.add(counters.SEARCHES, agent="main", face="http", mode="keyword", outcome="hits")
    tally.add(counters.SEARCHES, agent="main", face="mcp", mode="hybrid", outcome="none")
    tally.add(counters.SECONDS, agent="main", le="0.01")
    tally.write()
    with closing(AccountFile(place.settings.account_path)) as file:
        call_times.record(file, "openai:1f", [("ok", 90), ("rate_limit", 5)], NOON)
    point = sampled(place, sampler, NOON + 15)

    assert dict(point.sums) == {
        "searches\tmain": 2,
        "searches\t": 2,
        "search_le\tmain\t0.01": 1,
        "search_le\t\t0.01": 1,
        "calls\topenai\tok": 1,
        "calls\topenai\trate_limit": 1,
        "call_le\topenai\t0.1": 1,
    }


def test_a_point_has_the_fleet_and_says_nothing_of_one_that_cannot_be_asked(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> Fleet:
        raise QueueError("away")

    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
    sampler = Sampler(lambda: place.settings, owner="me")
    monkeypatch.setattr(depth, "read", lambda *_: FLEET)
    there = sampled(place, sampler, NOON)
    monkeypatch.setattr(depth, "read", unreachable)
    away = sampled(place, sampler, NOON + 15)

    assert (there.last["oldest"], there.last["dead"], there.last["redis_memory"]) == (1.5, 4, 1_048_576)
    assert "dead" not in away.last


def test_a_point_has_what_each_job_embedded_since(place: Place) -> None:
    sampler = Sampler(lambda: place.settings, owner="me")
    sampled(place, sampler, NOON)
    with closing(IndexWriter.of(place.agent)) as writer:
        writer.retarget(choose(place.agent).identity)
        made_ns = int((NOON + 1) * 1e9)
        one, other = (make_job(writer, f"{each}.md", now_ns=made_ns) for each in "ab")
        writer.store_file(file_row("a.md", "apples", "pears", at=made_ns), job=one.token)
        answer(writer, lease_all(writer))
        writer.store_file(file_row("c.md", "plums", at=made_ns))
        answer(writer, lease_all(writer))
        counted = dict(sampled(place, sampler, NOON + 15).sums)
        # What is there when a job is met again, after it seemed done, was counted before.
        with closing(AccountFile(place.settings.account_path)) as file, file.writing() as connection:
            connection.execute("UPDATE sampler SET totals = '{}'")
        writer.store_file(file_row("b.md", "figs", at=made_ns), job=other.token)
        answer(writer, lease_all(writer))
        again = dict(sampled(place, sampler, NOON + 30).sums)

    assert counted[f"job_texts\tmain\t{one.token}"] == 2 and counted["vectors\tmain"] == 3
    assert f"job_texts\tmain\t{other.token}" not in counted
    assert not [key for key in again if key.startswith("job_texts")]


def test_a_second_process_waits_for_its_turn(place: Place) -> None:
    one, other = (Sampler(lambda: place.settings, owner=name) for name in ("host:1:1", "host:2:2"))

    assert one.sample(NOON)
    assert not other.sample(NOON + 1)
    one.end()
    assert other.sample(NOON + 2)


def test_the_rows_of_an_agent_that_rests_are_not_counted_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = Sampler(lambda: place.settings, owner="me")
    store(place, "a.md", is_answered=False)
    sampled(place, sampler, NOON)

    monkeypatch.setattr(sampling, "reading_if_any", lambda _: pytest.fail("the index was read again"))

    assert sampled(place, sampler, NOON + 15).last["backlog\tmain"] == 2


def test_of_many_agents_those_with_the_most_have_series_and_all_are_in_the_sums() -> None:
    figures = {f"backlog\t{number}": float(number) for number in range(200)}

    kept = sampling._busiest(figures)
    bounded = sampling._bounded(sampling._with_all(figures), kept)

    assert len(kept) == sampling.MOST_AGENTS
    assert len(bounded) == sampling.MOST_AGENTS + 1
    assert bounded["backlog\t"] == sum(range(200)) and "backlog\t199" in bounded


def test_points_are_written_while_a_process_runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "EVERY_S", 0.01)
    with closing(AccountFile(place.settings.account_path)) as file, sampling.sampling(lambda: place.settings):
        until(lambda: any(points.read(file, SPANS["hour"], time.time())), "a first point")
    with closing(AccountFile(place.settings.account_path)) as file:
        assert points.take_turn(file, "other:1:1", time.time()) is not None

    assert not [thread for thread in threading.enumerate() if thread.name == "sampling"]
