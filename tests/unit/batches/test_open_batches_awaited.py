"""A command that waits for vectors is told which of them come by batch."""

from memline.shared.batches.open_batches import OpenBatches, failed_since, open_batches
from memline.shared.config.schema import Batch as Settings
from memline.shared.errors import ProviderLater, ProviderStop
from memline.shared.index import batches, identities
from memline.shared.index.driver import transaction
from tests.support.batch_desk import TEXTS, Desk
from tests.support.index_rows import file_row

PATIENT, HASTY = Settings(wait=True, min_texts=3), Settings(wait=False, min_texts=3)


def look(desk: Desk, settings: Settings = HASTY, *, since: float = 0.0) -> OpenBatches:
    target = identities.target(desk.writer.connection)
    assert target is not None
    return open_batches(desk.writer.connection, target.id, settings, since=since)


def test_a_batch_on_its_way_is_waited_for_until_its_provider_has_it(desk: Desk) -> None:
    batch = desk.make()
    before = look(desk)
    desk.step(batch.token)
    after = look(desk)

    assert (before.is_busy, before.texts) == (True, 0)
    assert (after.is_busy, after.texts) == (False, TEXTS)
    assert after.may_leave(HASTY)
    assert not after.may_leave(PATIENT)


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

    found = look(desk, Settings(wait=False, concurrency=1, min_texts=3))

    assert (found.texts, found.queued) == (15, 5)


def test_a_batch_that_waits_for_the_operator_is_left(desk: Desk) -> None:
    batch = desk.make()
    desk.step(batch.token)
    desk.api.errors["get_job"].append(ProviderStop("bad key", hint="fix it", status=401))
    desk.clock.advance(20)
    desk.step(batch.token)

    found = look(desk, PATIENT, since=desk.clock.now())

    assert found.blocked is not None
    assert found.may_leave(PATIENT)


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
    with transaction(desk.writer.connection):
        desk.writer.connection.execute("UPDATE batches SET state = 'cleaning', outcome = 'done'")
    assert look(desk).is_busy
    desk.api.errors["clean_up"].append(ProviderLater("503"))

    desk.step(batch.token)

    assert not look(desk).is_busy
    assert batches.open_batches(desk.writer.connection) != []


def test_while_a_batch_is_stored_and_given_back_a_command_waits(desk: Desk) -> None:
    batch = desk.make()
    desk.step(batch.token)
    for state, outcome in (("collecting", ""), ("cleaning", "timed out")):
        with transaction(desk.writer.connection):
            desk.writer.connection.execute(
                "UPDATE batches SET state = ?, outcome = ?, action = 'set it higher'", (state, outcome)
            )
            if state == "collecting":
                desk.writer.connection.execute("UPDATE batches SET action = ''")

        assert look(desk).is_busy
        assert look(desk).blocked is None


def test_texts_that_no_chunk_needs_any_more_are_not_waited_for(desk: Desk) -> None:
    batch = desk.make()
    desk.step(batch.token)
    desk.writer.store_file(file_row("a.md", "text 0", at=2))

    assert look(desk).texts == 1


def test_it_is_told_how_the_texts_of_a_failed_batch_were_sent(desk: Desk) -> None:
    connection = desk.writer.connection
    batch = desk.make()
    desk.step(batch.token)
    desk.api.finish("failed", [], "it broke")
    desk.run(batch.token)
    told = failed_since(connection, batch.identity_id, 0)
    assert told is not None
    assert (told[0].token, told[1]) == (batch.token, "requests")

    desk.clock.advance(1)
    second = desk.make()
    desk.step(second.token)
    desk.api.finish()
    desk.run(second.token)

    told = failed_since(connection, batch.identity_id, 0)
    assert told is not None
    assert (told[0].token, told[1]) == (batch.token, "another batch")
