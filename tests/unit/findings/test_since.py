"""Since when a finding is so: what its rows know, else when a process that runs for long saw it first."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from memline.producers.actions import provider_pauses
from memline.producers.web.live import LiveFigures
from memline.shared import sampling
from memline.shared.figures import first_seen
from memline.shared.finding import WARNING, Finding, Trouble
from memline.shared.findings import facts
from memline.shared.findings.answerer import Answerer
from memline.shared.findings.diagnosis import of_common, of_troubles
from memline.shared.index import jobs, meta, vectors
from memline.shared.index.accounts import AccountFile
from memline.shared.sampling import Sampler
from memline.shared.scheduling import health
from memline.shared.scheduling.breaker import Health
from memline.shared.search.request import SearchRequest
from tests.support.index_rows import MODEL_A, MODEL_B, file_row, make_job
from tests.support.workspace import Place
from tests.unit.findings.conftest import fleet_now, found, one, writing

NOON = 1_000_080_000.0


def want_texts(place: Place) -> None:
    place.index_path.parent.mkdir(parents=True, exist_ok=True)
    with writing(place) as writer:
        writer.store_file(file_row("a.md", "one", "two", at=time.time_ns()))


def open_breaker(place: Place) -> None:
    opened = Health(state="open", reason="bad key", since=NOON, probe_at=time.time() + 60)
    with writing(place) as writer, writer.session() as (_, now):
        health.update(writer.accounts, "openai", "requests", now, lambda _: opened)


def pause_a_job(place: Place) -> None:
    with writing(place) as writer:
        jobs.pause(writer.connection, make_job(writer, "b.md"), by="me", now=NOON)


def change_model(place: Place) -> None:
    with writing(place) as writer:
        writer.retarget(MODEL_B)


def keep_a_root(place: Place) -> None:
    with writing(place) as writer, writer.transaction() as (connection, _):
        connection.execute("INSERT INTO kept VALUES ('x/a.md', '/mnt/x', ?)", (NOON,))


def fail_a_file(place: Place) -> None:
    with writing(place) as writer:
        writer.store_file(file_row("b.md", outcome="failed", at=int(NOON * 1e9)))


def put(place: Place, key: str, value: Any) -> None:
    with writing(place) as writer, writer.transaction() as (connection, _):
        meta.put(connection, key, value)


#: Code, what makes its row, the moment that the row has.
OF_ROWS: list[tuple[str, Callable[[Place], object]]] = [
    ("breaker_open", open_breaker),
    ("job_paused", pause_a_job),
    ("root_emptied", keep_a_root),
    ("file_failed", fail_a_file),
    ("log_held", lambda place: put(place, meta.LOG_HELD, NOON)),
    ("paused", lambda place: put(place, meta.PAUSED, NOON)),
    (
        "following_fails",
        lambda place: put(place, meta.LOOP_ERRORS, {"a": {"error": "e", "action": "", "since": NOON}}),
    ),
]


@pytest.mark.parametrize(("code", "state"), OF_ROWS, ids=[code for code, _ in OF_ROWS])
def test_a_row_that_knows_the_moment_tells_it(
    place: Place, code: str, state: Callable[[Place], object]
) -> None:
    want_texts(place)

    state(place)

    assert one(found(place), code).since == NOON


def test_a_pause_tells_its_own_moment_and_a_second_one_does_not_move_it(place: Place) -> None:
    want_texts(place)
    began = time.time()
    provider_pauses.pause(place.agent)
    first = one(found(place), "paused").since

    provider_pauses.pause(place.agent)

    assert first is not None and began <= first <= time.time()
    assert one(found(place), "paused").since == first


def test_a_pause_of_an_older_release_has_no_moment(place: Place) -> None:
    want_texts(place)

    put(place, meta.PAUSED, True)

    assert one(found(place), "paused").since is None


def test_a_model_that_changes_tells_when_its_job_began(place: Place) -> None:
    want_texts(place)
    began = time.time()

    change_model(place)

    since = one(found(place), "model_changing").since
    assert since is not None and began <= since <= time.time()


@pytest.mark.parametrize(("is_paused", "per_million"), [(False, 500), (True, 1_000)])
def test_a_change_of_model_is_priced_by_the_way_that_its_texts_go(
    place: Place, is_paused: bool, per_million: int
) -> None:
    want_texts(place)
    with writing(place) as writer, writer.transaction():
        health.set_paused(writer.accounts, "openai", is_paused, health.BATCH)
    change_model(place)
    place.configure(remote=place.memory["remote"] | {"batch": {"enabled": True}})
    prices = {"b": {"perMillion": 1_000, "batchPerMillion": 500}}
    place.config.write_text(json.dumps(json.loads(place.config.read_text()) | {"prices": prices}))

    what = one(found(place), "model_changing").what

    tokens = int(re.search(r"(\d+) tokens", what)[1])  # type: ignore[index]
    assert what.endswith(f", about ${tokens * per_million / 1e6:.4f}")


def test_a_change_of_model_that_is_taken_back_is_told_no_more(place: Place) -> None:
    want_texts(place)
    change_model(place)
    with writing(place) as writer:
        writer.retarget(MODEL_A)

    assert "model_changing" not in {each.code for each in found(place)}


def test_the_oldest_dead_letter_tells_since_when_there_are_some(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
    fleet = fleet_now("chunk", dead=2)
    monkeypatch.setattr(facts, "_fleets", {place.settings.queue.address: fleet})

    assert one(list(of_common(place.settings, [place.agent])), "dead_letters").since == NOON


def no_texts(place: Place) -> None:
    with writing(place) as writer:
        writer.store_file(file_row("a.md", at=time.time_ns()))


def fail_texts(place: Place, state: str) -> None:
    with writing(place) as writer, writer.transaction() as (connection, _):
        connection.execute("UPDATE vectors SET state = ?", (state,))


def cancel(place: Place, priority: int) -> None:
    with writing(place) as writer, writer.transaction() as (connection, _):
        connection.execute("UPDATE vectors SET priority = ?", (priority,))


#: Code, what begins it, what ends it.
OF_NO_ROW: list[tuple[str, Callable[[Place], object], Callable[[Place], object]]] = [
    ("vectors_behind", want_texts, no_texts),
    ("text_refused", lambda place: fail_texts(place, "failed"), lambda place: fail_texts(place, "wanted")),
    (
        "vectors_cancelled",
        lambda place: cancel(place, vectors.CANCELLED),
        lambda place: cancel(place, vectors.BACKFILL),
    ),
    (
        "paused",
        lambda place: provider_pauses.pause(place.agent, provider="openai", mode="requests"),
        lambda place: provider_pauses.resume(place.agent, provider="openai", mode="requests"),
    ),
    (
        "source_missing",
        lambda place: place.configure(extraPaths=["/none"]),
        lambda place: place.configure(extraPaths=[]),
    ),
    (
        "agent_moving",
        lambda place: put(place, meta.MOVING, {"host": "two", "left": False}),
        lambda place: put(place, meta.MOVING, None),
    ),
]


@pytest.mark.parametrize(("code", "begin", "end"), OF_NO_ROW, ids=[code for code, *_ in OF_NO_ROW])
def test_what_no_row_knows_is_since_the_first_look_and_begins_anew_when_it_comes_back(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    begin: Callable[[Place], object],
    end: Callable[[Place], object],
) -> None:
    # Looks of here are a moment apart, not 15 seconds.
    monkeypatch.setattr(sampling, "LOOK_SHARE", 1e9)
    monkeypatch.setattr(sampling, "RESTING_S", 0.0)
    want_texts(place)
    sampler = Sampler(lambda: place.settings, owner="me")

    begin(place)
    assert one(found(place), code).since is None
    sampler.sample(NOON)
    sampler.sample(NOON + 15)
    assert one(found(place), code).since == NOON
    end(place)
    sampler.sample(NOON + 30)
    begin(place)
    sampler.sample(NOON + 45)

    assert one(found(place), code).since == NOON + 45


def test_what_all_agents_have_in_common_has_its_moment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setattr(facts, "_fleets", {place.settings.queue.address: fleet_now("chunk")})
    want_texts(place)

    Sampler(lambda: place.settings, owner="me").sample(NOON)

    missing = [each for each in of_common(place.settings, [place.agent]) if each.code == "role_missing"]
    assert {each.subject: each.since for each in missing} == {"embed": NOON, "store": NOON}


def test_an_open_page_keeps_when_it_saw_a_finding(place: Place) -> None:
    want_texts(place)
    live = LiveFigures(place.settings, [place.agent])

    first, second = (one(list(live.read(0).findings["main"]), "vectors_behind").since for _ in range(2))

    assert first is not None and first <= time.time()
    assert (first, one(found(place), "vectors_behind").since) == (second, second)


def test_looks_at_one_kind_of_finding_forget_no_other(place: Place) -> None:
    a, b = (Finding(code=code, level=WARNING, what="", agent="main", subject="s") for code in ("a", "b"))
    with closing(AccountFile(place.settings.account_path)) as file:
        first_seen.note(file, [a, b], {"main": {"a", "b"}}, NOON)
        first_seen.note(file, [], {"main": {"a"}, "work": {"b"}}, NOON + 1)

        assert [each.since for each in first_seen.dated(file, [a, b])] == [None, NOON]


def test_what_a_point_cannot_see_is_not_forgotten_by_it(place: Place) -> None:
    unseen = Finding(code="settings_without_effect", level=WARNING, what="")
    with closing(AccountFile(place.settings.account_path)) as file:
        first_seen.note(file, [unseen], {}, NOON)

        Sampler(lambda: place.settings, owner="me").sample(NOON + 15)

        assert [each.since for each in first_seen.dated(file, [unseen])] == [NOON]


def test_of_too_many_findings_the_first_are_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_seen, "MOST", 2)
    many = [Finding(code=f"c{n}", level=WARNING, what="", agent="main") for n in range(4)]

    with closing(AccountFile(place.settings.account_path)) as file:
        first_seen.note(file, many, {}, NOON)

        assert sum(each.since == NOON for each in first_seen.dated(file, many)) == 2


def test_what_an_answer_meets_by_itself_is_of_that_moment(place: Place) -> None:
    began = time.time()

    (met,) = of_troubles(place.agent, Trouble(code="index_empty"))

    assert met.since is not None and began <= met.since <= time.time()


def test_a_search_tells_since_when_and_writes_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    want_texts(place)
    Sampler(lambda: place.settings, owner="me").sample(NOON)
    before = os.stat(place.settings.account_path).st_mtime_ns
    monkeypatch.setattr(AccountFile, "writing", None)

    with closing(Answerer(place.agent)) as answerer:
        answer = answerer.ask(SearchRequest(query="one"))

    assert one(list(answer.findings), "vectors_behind").since == NOON
    assert os.stat(place.settings.account_path).st_mtime_ns == before


def test_a_search_without_trouble_does_not_ask_since_when(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.configure(provider="none")
    place.index()
    monkeypatch.setattr(AccountFile, "reading", None)

    with closing(Answerer(place.agent)) as answerer:
        assert not answerer.ask(SearchRequest(query="notes")).findings
