"""A restore into an index that is worked on: what was held back stays so, and nothing is paid for twice."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memline.producers.actions.backup import back_up, backups_at, restore
from memline.shared.index import batches, jobs, meta
from memline.shared.index_writer import IndexWriter
from tests.support.index_rows import MODEL_A, answer, file_row, lease_all
from tests.support.workspace import Place


@pytest.fixture
def writer(place: Place) -> Iterator[IndexWriter]:
    """A process that works on the index, whose texts `apples` and `pears` wait to be embedded for a job."""
    with closing(IndexWriter.of(place.agent)) as opened:
        opened.retarget(MODEL_A)
        with opened.transaction() as (connection, now):
            job = jobs.create(connection, jobs.REINDEX, by="ann", now_ns=int(now * 1e9))
        opened.store_file(file_row("a.md", "apples", "pears"), job=job.token)
        yield opened


def the_job(writer: IndexWriter) -> jobs.Job:
    (job,) = jobs.latest(writer.connection, 2)
    return job


def put_back(place: Place, folder: Path) -> None:
    (saved,) = backups_at(folder, [place.agent], place.agent)
    restore(saved, place.agent)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "Embedding stays paused."),
        (("--provider", "openai"), "paused for batch to openai and for requests to openai."),
    ],
)
def test_a_pause_outlives_the_restore_of_a_backup_from_before_it(
    place: Place, writer: IndexWriter, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    place.call("backup", str(tmp_path / "saved"))
    place.call("queue", "pause", *options)
    paused = place.rows("SELECT key, value FROM meta WHERE key LIKE 'paused%'")

    said = place.call("restore", str(tmp_path / "saved"), "--yes")

    assert paused
    assert place.rows("SELECT key, value FROM meta WHERE key LIKE 'paused%'") == paused
    assert words in said.stdout
    assert "queue resume --agent main" in said.stderr
    place.call("queue", "resume")
    again = place.call("restore", str(tmp_path / "saved"), "--yes")
    assert not place.rows("SELECT key, value FROM meta WHERE key LIKE 'paused%'")
    assert "Embedding goes on: 2 texts wait." in again.stdout
    assert "queue pause --agent main" in again.stderr


def test_a_pause_of_the_backup_and_one_of_the_index_both_hold(
    place: Place, writer: IndexWriter, tmp_path: Path
) -> None:
    place.call("queue", "pause", "--provider", "openai", "--mode", "batch")
    back_up([place.agent], tmp_path / "saved")
    place.call("queue", "resume")
    place.call("queue", "pause", "--provider", "openai", "--mode", "requests")

    put_back(place, tmp_path / "saved")

    assert meta.get(writer.connection, meta.PAUSED_MODES) == ["openai batch", "openai requests"]


@pytest.mark.parametrize("state", ["paused", "cancelled"])
def test_a_job_that_was_held_back_since_the_backup_stays_so(
    place: Place, writer: IndexWriter, tmp_path: Path, state: str
) -> None:
    back_up([place.agent], tmp_path / "saved")
    change = {"paused": jobs.pause, "cancelled": jobs.cancel}[state]
    change(writer.connection, the_job(writer), by="ann", now=1.0)

    put_back(place, tmp_path / "saved")

    assert the_job(writer).state == state
    priorities = writer.connection.execute("SELECT DISTINCT priority FROM vectors").fetchall()
    assert priorities == [({"paused": 3, "cancelled": 2}[state],)]


def test_a_job_that_was_resumed_since_the_backup_goes_on(
    place: Place, writer: IndexWriter, tmp_path: Path
) -> None:
    jobs.pause(writer.connection, the_job(writer), by="ann", now=1.0)
    back_up([place.agent], tmp_path / "saved")
    jobs.resume(writer.connection, the_job(writer), by="ann", now=2.0)

    put_back(place, tmp_path / "saved")

    assert the_job(writer).state == "running"
    assert writer.connection.execute("SELECT DISTINCT priority FROM vectors").fetchall() == [(1,)]


def states(writer: IndexWriter) -> list[tuple[str, int, str | None]]:
    rows = writer.connection.execute("SELECT state, active, lease FROM vectors ORDER BY state, active")
    return rows.fetchall()


def test_a_request_in_flight_is_not_sent_again_after_a_restore(
    place: Place, writer: IndexWriter, tmp_path: Path
) -> None:
    back_up([place.agent], tmp_path / "saved")
    requests = lease_all(writer)

    put_back(place, tmp_path / "saved")

    assert lease_all(writer) == []
    answer(writer, requests)
    assert states(writer) == [("ready", 1, None)] * 2
    assert writer.connection.execute("SELECT * FROM leases").fetchall() == []


def test_a_request_for_a_text_from_after_the_backup_is_waited_for_when_its_note_is_read_again(
    place: Place, writer: IndexWriter, tmp_path: Path
) -> None:
    answer(writer, lease_all(writer))
    back_up([place.agent], tmp_path / "saved")
    writer.store_file(file_row("b.md", "plums"))
    requests = lease_all(writer)

    put_back(place, tmp_path / "saved")
    writer.store_file(file_row("b.md", "plums"))

    assert lease_all(writer) == []
    answer(writer, requests)
    assert states(writer) == [("ready", 1, None)] * 3


def test_an_answer_that_comes_during_a_restore_is_kept(
    place: Place, writer: IndexWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up([place.agent], tmp_path / "saved")
    requests = lease_all(writer)
    recover = IndexWriter.recover

    def slow(stage: IndexWriter) -> None:
        recover(stage)
        if requests:
            answer(writer, [requests.pop()])

    monkeypatch.setattr(IndexWriter, "recover", slow)
    put_back(place, tmp_path / "saved")

    assert states(writer) == [("ready", 1, None)] * 2


def test_what_is_in_flight_when_a_restore_ends_waits_for_its_owner_alone(
    place: Place, writer: IndexWriter, tmp_path: Path
) -> None:
    """A request of the backup that was answered since, and one whose process died, hold nothing back."""
    requests = lease_all(writer)
    back_up([place.agent], tmp_path / "saved")
    answer(writer, requests)
    writer.store_file(file_row("b.md", "plums"))
    lease_all(writer)
    writer.connection.execute("UPDATE leases SET owner = 'redis 1 redis://127.0.0.1:1/0'")

    put_back(place, tmp_path / "saved")

    assert [row[0] for row in states(writer)] == ["leased", "ready", "ready"]
    writer.connection.execute("UPDATE leases SET owner = replace(?, ':', ':9')", (writer.holder.owner,))
    put_back(place, tmp_path / "saved")
    assert states(writer) == [("ready", 1, None)] * 2
    assert writer.connection.execute("SELECT * FROM leases").fetchall() == []


def test_the_texts_of_a_batch_from_after_the_backup_are_not_sent_again(
    place: Place, writer: IndexWriter, tmp_path: Path
) -> None:
    back_up([place.agent], tmp_path / "saved")
    with writer.transaction() as (connection, now):
        connection.execute(
            "INSERT INTO batches (token, identity_id, state, rows, created_at)"
            " VALUES ('b1', 1, 'submitted', 2, ?)",
            (now,),
        )
        connection.execute("UPDATE vectors SET state = 'leased', lease = 'b1'")

    put_back(place, tmp_path / "saved")

    assert lease_all(writer) == []
    assert batches.texts_awaited(writer.connection, "b1") == 2


def test_a_batch_that_was_paid_for_since_the_backup_keeps_its_figures_and_its_job(
    place: Place, writer: IndexWriter, tmp_path: Path
) -> None:
    requests = lease_all(writer)
    with writer.transaction() as (connection, now):
        # As a batch has its texts.
        connection.execute(
            "INSERT INTO batches (token, identity_id, state, rows, created_at)"
            " VALUES (?, 1, 'submitted', 2, ?)",
            (requests[0].lease, now),
        )
        connection.execute("DELETE FROM leases")
    back_up([place.agent], tmp_path / "saved")
    answer(writer, requests)
    with writer.transaction() as (connection, now):
        connection.execute(
            "UPDATE batches SET state = 'closed', outcome = 'done', cost = 0.5, closed_at = ?", (now,)
        )
        connection.execute("INSERT INTO batch_errors SELECT token, x'00', 'no' FROM batches")
    before = (batches.latest(connection, 9), the_job(writer).tokens_done)

    put_back(place, tmp_path / "saved")

    assert (batches.latest(writer.connection, 9), the_job(writer).tokens_done) == before
    (batch,) = before[0]
    assert (batch.stored, batch.outcome, batch.cost) == (2, "done", 0.5)
    assert len(batches.errors(writer.connection, batch.token)) == 1
    assert (the_job(writer).texts_done, the_job(writer).identity_id) == (2, 1)
    assert states(writer) == [("ready", 1, None)] * 2
