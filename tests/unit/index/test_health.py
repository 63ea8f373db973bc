from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from sqlite_utils import Database

from shared.clock import ManualClock
from shared.config.schema import Batch
from shared.embedders.choice import Choice
from shared.embedders.protocol import Identity
from shared.index import driver, fallback, health, identity, meta, migrations, vectors
from shared.index.driver import transaction
from shared.index.health import BATCH, Health
from shared.index.rows import LearnedCaps
from shared.index.writer import IndexWriter
from tests.support.index_rows import CAPS, MODEL_A, MODEL_B, answer, fail, file_row, lease_all

NOW = 1_750_000_000.0
GEMINI = Identity(provider="gemini", model="g")


def chosen(of: Identity) -> Choice:
    return Choice(requested="openai", provider=of.provider, model=of.model, identity=of, caps=CAPS)


FIRST, SECOND = chosen(MODEL_A), chosen(GEMINI)


def target(writer: IndexWriter) -> Identity:
    row = identity.target(writer.connection)
    assert row is not None
    return row.identity


def fail_batches(writer: IndexWriter, times: int, now: float = NOW) -> Health:
    state = Health()
    for _ in range(times):
        with transaction(writer.connection):
            state = health.batch_failed(writer.connection, "openai", "it expired", "", now)
    return state


def test_two_batches_that_fail_stop_batches_and_leave_requests_alone(writer: IndexWriter) -> None:
    one = fail_batches(writer, 1)
    two = fail_batches(writer, 1)

    assert (one.state, two.state) == ("closed", "open")
    assert not health.may_batch(writer.connection, "openai", NOW + 60)
    assert health.read(writer.connection, "openai") == Health()


def test_a_batch_that_works_after_the_cool_down_lets_all_go_again(writer: IndexWriter) -> None:
    fail_batches(writer, 2)
    later = NOW + health.BATCH_RULES.cool_down_s

    with transaction(writer.connection):
        first = health.may_batch(writer.connection, "openai", later, tag="probe")
        second = health.may_batch(writer.connection, "openai", later, tag="other")
        health.batch_worked(writer.connection, "openai", later, tag="probe")

    assert (first, second) == (True, False)
    assert health.may_batch(writer.connection, "openai", later)
    assert health.read(writer.connection, "openai", BATCH) == Health()


def test_a_provider_without_batches_is_not_asked_a_second_time(writer: IndexWriter) -> None:
    with transaction(writer.connection):
        health.batch_failed(
            writer.connection, "openai", "404", "set remote.batch.enabled", NOW, for_good=True
        )

    assert not health.may_batch(writer.connection, "openai", NOW)


def test_the_limit_and_the_cool_down_of_batches_are_settings() -> None:
    rules = health.batch_rules(Batch(failure_limit=5, cool_down_minutes=2))

    assert (rules.limit, rules.cool_down_s, rules.max_cool_down_s) == (5, 120, 1440)
    assert health.batch_rules(Batch()) == health.BATCH_RULES


def test_the_state_outlives_the_process_and_is_shared(writer: IndexWriter, path: Path) -> None:
    state = fail_batches(writer, 2)

    with closing(IndexWriter(path)) as other:
        assert health.read(other.connection, "openai", BATCH) == state


def test_an_index_of_the_release_before_keeps_its_pause_and_its_caps(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with closing(driver.library().connect(str(path))) as old:
        old.execute("PRAGMA journal_mode = WAL")
        database = Database(old, recursive_triggers=False, execute_plugins=False)
        migrations.m001_index(database)
        old.execute(f"PRAGMA application_id = {driver.APPLICATION_ID}")
        database["_sqlite_migrations"].insert(  # type: ignore[union-attr]
            {"id": 1, "migration_set": "memline", "name": "m001_index", "applied_at": "2026-01-01"}, pk="id"
        )
        old.execute(
            "INSERT INTO providers VALUES ('openai', 'paused', 'no quota', 'pay', 0, 0, 64, 0, ?)", (NOW,)
        )
        old.commit()

    with closing(driver.open_reader(path)) as reader:
        unknown = health.read(reader, "openai"), health.all_of(reader)
    with closing(IndexWriter(path)) as writer:
        known = health.read(writer.connection, "openai")

    assert unknown == (Health(), {})
    assert (known.state, known.reason, known.action, known.max_rows) == ("open", "no quota", "pay", 64)
    assert known.probe_at == NOW


def test_another_model_of_the_same_provider_begins_anew(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    fail(writer, lease_all(writer)[0], "stop")
    fail_batches(writer, 2)

    writer.retarget(MODEL_A)
    same = health.read(writer.connection, "openai").paused
    writer.retarget(MODEL_B)

    assert same
    assert health.all_of(writer.connection) == {
        ("openai", "requests"): Health(),
        ("openai", "batch"): Health(),
    }


def test_a_probe_needs_nothing_that_is_wanted(writer: IndexWriter, clock: ManualClock) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples", "pears"))
    answer(writer, lease_all(writer))
    writer.store_file(file_row("b.md", "plums"))
    (request,) = lease_all(writer)
    fail(writer, request, "stop")
    writer.store_file(file_row("b.md", "apples", at=2))
    clock.advance(health.REQUEST_RULES.cool_down_s)

    (probe,) = lease_all(writer)
    answer(writer, [probe])

    assert [text.text for text in probe.texts] == ["apples"]
    assert not health.read(writer.connection, "openai").paused
    assert lease_all(writer) == []


# The fallback.


@pytest.fixture
def stopped(writer: IndexWriter) -> IndexWriter:
    """An index whose provider stopped with two of three texts embedded, and whose fallback stands in."""
    fallback.begin(writer, FIRST, SECOND)
    writer.store_file(file_row("a.md", "apples", "pears"))
    answer(writer, lease_all(writer))
    writer.store_file(file_row("b.md", "plums"))
    fail(writer, lease_all(writer)[0], "stop")
    assert fallback.turn(writer, FIRST, SECOND)
    return writer


def work_as(writer: IndexWriter, of: Choice) -> None:
    """Embed all that is wanted of a provider."""
    assert target(writer) == of.identity
    while requests := lease_all(writer):
        answer(writer, requests)


def test_the_fallback_takes_over_when_the_breaker_opens_and_says_why(stopped: IndexWriter) -> None:
    assert target(stopped) == GEMINI
    assert stopped.meta(meta.FALLBACK) == {"from": "openai", "reason": "it was stop"}


def test_a_restart_goes_on_with_the_fallback(stopped: IndexWriter, path: Path, clock: ManualClock) -> None:
    with closing(IndexWriter(path, clock=clock)) as again:
        fallback.begin(again, FIRST, SECOND)

        assert fallback.stands_in(again, FIRST, SECOND)
        assert target(again) == GEMINI


def test_the_first_provider_is_probed_while_the_fallback_works(
    stopped: IndexWriter, clock: ManualClock
) -> None:
    early = fallback.probe(stopped, FIRST, SECOND)
    clock.advance(health.REQUEST_RULES.cool_down_s)

    probe = fallback.probe(stopped, FIRST, SECOND)
    second = fallback.probe(stopped, FIRST, SECOND)

    assert early is None
    assert second is None
    assert probe is not None
    assert (probe.identity, len(probe.texts)) == (MODEL_A, 1)


def test_the_first_comes_back_by_itself_when_that_costs_next_to_nothing(
    stopped: IndexWriter, clock: ManualClock
) -> None:
    work_as(stopped, SECOND)
    clock.advance(health.REQUEST_RULES.cool_down_s)
    probe = fallback.probe(stopped, FIRST, SECOND)
    assert probe is not None

    answer(stopped, [probe])
    came_back = fallback.turn(stopped, FIRST, SECOND)

    assert came_back
    assert target(stopped) == MODEL_A
    assert stopped.meta(meta.FALLBACK) is None


def test_the_fallback_stays_when_going_back_would_cost_more_until_somebody_asks(
    stopped: IndexWriter, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback, "RETURN_TEXTS", 0)
    stopped.store_file(file_row("c.md", "figs", "dates", "limes"))
    work_as(stopped, SECOND)
    clock.advance(health.REQUEST_RULES.cool_down_s)
    probe = fallback.probe(stopped, FIRST, SECOND)
    assert probe is not None
    answer(stopped, [probe])

    by_itself = fallback.turn(stopped, FIRST, SECOND)
    after_a_restart = fallback.begin(stopped, FIRST, SECOND)
    stayed = target(stopped)
    fallback.come_back(stopped, FIRST)

    assert not by_itself
    assert after_a_restart is None
    assert stayed == GEMINI
    assert target(stopped) == MODEL_A


def test_nothing_is_paid_for_twice_however_often_they_take_turns(
    stopped: IndexWriter, clock: ManualClock
) -> None:
    work_as(stopped, SECOND)
    embedded = stopped.meta(meta.EMBEDDED_TOTAL)

    for _ in range(3):
        fallback.come_back(stopped, FIRST)
        work_as(stopped, FIRST)
        stopped.sweep()
        stopped.store_file(file_row("c.md", f"new at {clock.now()}", at=int(clock.now())))
        fail(stopped, lease_all(stopped)[0], "stop")
        fallback.turn(stopped, FIRST, SECOND)
        work_as(stopped, SECOND)
        stopped.sweep()
        clock.advance(10)

    # The text that the first lacked, the new texts at the fallback, all but the last of them at the first.
    assert stopped.meta(meta.EMBEDDED_TOTAL) == embedded + 1 + 3 + 2


def test_a_cache_of_nothing_keeps_the_vectors_of_both(path: Path, clock: ManualClock) -> None:
    with closing(IndexWriter(path, clock=clock, cache_entries=0)) as writer:
        fallback.begin(writer, FIRST, SECOND)
        writer.store_file(file_row("a.md", "apples"))
        answer(writer, lease_all(writer))
        writer.store_file(file_row("b.md", "plums"))
        fail(writer, lease_all(writer)[0], "stop")
        fallback.turn(writer, FIRST, SECOND)
        work_as(writer, SECOND)
        writer.sweep()

        assert vectors.cached_entries(writer.connection) == 3


def test_a_fallback_that_is_configured_no_more_is_left(stopped: IndexWriter) -> None:
    fallback.begin(stopped, FIRST, None)

    assert target(stopped) == MODEL_A
    assert stopped.meta(meta.FALLBACK_PAIR) is None


def test_caps_are_kept_while_the_fallback_stands_in(writer: IndexWriter) -> None:
    fallback.begin(writer, FIRST, SECOND)
    writer.store_file(file_row("a.md", "apples"))
    (request,) = lease_all(writer)
    writer.store_vectors(MODEL_A, request.lease, [], LearnedCaps(max_rows=7))

    writer.use(SECOND)
    writer.use(FIRST)

    assert health.read(writer.connection, "openai").max_rows == 7
