"""No face tells how long it takes while nothing is sent or stored, whatever came in the last minute."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from memline.shared.errors import QueueError
from memline.shared.findings import facts
from memline.shared.index import meta
from memline.shared.queue import depth
from memline.shared.queue.depth import Fleet
from memline.shared.scheduling import leases
from tests.support.index_rows import file_row, make_job
from tests.support.workspace import Place
from tests.unit.findings.conftest import fleet, writing
from tests.unit.findings.test_states import State, enter, open_breaker, reach_ceiling

ROLES = ("chunk", "embed", "store", "query")

TEXTS = 1_628


def work(place: Place) -> None:
    """A backfill at 33 texts a second, as a run of `memline index` waits for it."""
    place.index_path.parent.mkdir(parents=True)
    with writing(place) as writer:
        job = make_job(writer, "a.md", "b.md")
        writer.store_file(file_row("a.md", *(f"text {number}" for number in range(TEXTS))))
        with writer.transaction() as (connection, now):
            connection.execute("UPDATE vectors SET job = ?", (job.id,))
            bucket = int(now) // meta.BUCKET_S
            for key in (meta.EMBEDDED_RECENTLY, meta.READ_RECENTLY):
                meta.put(connection, key, [[bucket - 3, 33 * 30]])
    enter(place, "index", owner=leases.current_owner())


def redis_answers(*roles: str) -> State:
    def state(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
        now = fleet(*roles)
        monkeypatch.setattr(depth, "read", lambda *_: now)
        monkeypatch.setattr(facts, "_fleets", {})

    return state


def redis_is_dead(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> Fleet:
        raise QueueError("Redis at 127.0.0.1 cannot be reached", hint="redis-server")

    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setattr(depth, "read", read)
    monkeypatch.setattr(facts, "_fleets", {})


STOPS: dict[str, State] = {
    "open breaker": lambda place, _: open_breaker(place, "requests"),
    "reached ceiling": reach_ceiling,
    "dead Redis": redis_is_dead,
    "dead store": redis_answers("chunk", "embed", "query"),
    "dead embed": redis_answers("chunk", "store", "query"),
}


def etas(answer: Any) -> list[float | None]:
    """All that a JSON answer says of the seconds left."""
    if isinstance(answer, list):
        return [each for one in answer for each in etas(one)]
    if isinstance(answer, dict):
        own = [answer["etaSeconds"]] if "etaSeconds" in answer else []
        return own + [each for one in answer.values() for each in etas(one)]
    return []


def faces(place: Place) -> tuple[list[float | None], str]:
    """What `queue`, `status` and `jobs` say of the seconds left: in JSON, and all their words."""
    found: list[float | None] = []
    words = ""
    for command in (("queue",), ("status",), ("jobs", "ls")):
        ran = place.call(*command, "--json")
        found += etas(json.loads(ran.stdout)) if ran.stdout.strip() else []
        words += ran.stdout + place.call(*command).stdout
    return found, words


LEFT = re.compile(r"a second, about|s left|\bETA\b")


def test_the_time_left_is_told_while_texts_are_sent_and_stored(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(place)
    redis_answers(*ROLES)(place, monkeypatch)

    found, words = faces(place)

    # Of all, of the agent's job in the queue's report, and of the job by itself.
    assert len(found) == 3 and None not in found
    assert LEFT.search(words)


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
def test_no_time_is_told_while_nothing_can_move(
    place: Place, monkeypatch: pytest.MonkeyPatch, stop: State
) -> None:
    work(place)
    redis_answers(*ROLES)(place, monkeypatch)

    stop(place, monkeypatch)

    found, words = faces(place)
    # Without Redis the report of its queues is an error.
    assert found and set(found) == {None}
    assert not LEFT.search(words)
