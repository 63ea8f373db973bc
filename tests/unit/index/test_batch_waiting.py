"""What a command that waits for vectors leaves to its batches."""

from __future__ import annotations

import pytest

from shared.clock import ManualClock
from shared.config.schema import Batch as Settings
from shared.errors import ProviderLater, ProviderStop
from shared.index import batches, identity
from shared.index.batch_waiting import Waiting, waiting
from shared.index.writer import IndexWriter
from tests.support.batch_desk import Desk
from tests.support.index_rows import file_row

TEXTS = 20
PATIENT, HASTY = Settings(wait=True), Settings(wait=False)


@pytest.fixture
def desk(writer: IndexWriter, clock: ManualClock) -> Desk:
    desk = Desk(writer, clock)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(TEXTS))))
    return desk


def look(desk: Desk, settings: Settings = HASTY, *, since: float = 0.0) -> Waiting:
    target = identity.target(desk.writer.connection)
    assert target is not None
    return waiting(desk.writer.connection, target.id, settings, since=since)


def test_a_batch_on_its_way_is_waited_for_until_its_provider_has_it(desk: Desk) -> None:
    batch = desk.make()
    before = look(desk)
    desk.step(batch.token)
    after = look(desk)

    assert (before.is_busy, before.texts) == (True, 0)
    assert (after.is_busy, after.texts) == (False, TEXTS)
    assert after.are_left(HASTY)
    assert not after.are_left(PATIENT)


def test_a_batch_from_before_is_looked_at_once_since_it_may_be_done(desk: Desk) -> None:
    batch = desk.make()
    desk.step(batch.token)
    desk.clock.advance(100)
    began = desk.clock.now()
    assert look(desk, since=began).is_busy

    desk.step(batch.token)

    assert not look(desk, since=began).is_busy


def test_texts_that_find_no_place_are_left_as_well(desk: Desk) -> None:
    desk.rules = desk.rules.__class__(concurrency=1, min_texts=3, max_rows=15, max_bytes=10**9)
    batch = desk.make()
    desk.step(batch.token)

    found = look(desk, Settings(wait=False, concurrency=1))

    assert (found.texts, found.in_line) == (15, 5)


def test_nobody_waits_for_a_batch_that_needs_a_person(desk: Desk) -> None:
    batch = desk.make()
    desk.step(batch.token)
    desk.api.errors["look"].append(ProviderStop("bad key", hint="fix it", status=401))
    desk.clock.advance(20)
    desk.step(batch.token)

    found = look(desk, PATIENT, since=desk.clock.now())

    assert found.trouble is not None
    assert found.are_left(PATIENT)


def test_a_batch_that_is_put_off_says_why(desk: Desk) -> None:
    batch = desk.make()
    desk.api.errors["upload"].append(ProviderLater("503"))
    desk.step(batch.token)

    assert look(desk).delayed == "503"


def test_files_that_a_provider_does_not_let_go_are_waited_for_once(desk: Desk) -> None:
    batch = desk.make()
    desk.step(batch.token)
    desk.api.finish()
    desk.clock.advance(20)
    desk.step(batch.token)
    assert look(desk).is_busy
    desk.api.errors["clean_up"].append(ProviderLater("503"))

    desk.step(batch.token)

    assert not look(desk).is_busy
    assert batches.open_batches(desk.writer.connection) != []
