"""A restore into an index that is worked on: what was held back stays so, and nothing is paid for twice."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memline.producers.actions.backup import back_up, backups_at, restore
from memline.shared.index import jobs, meta
from memline.shared.index_writer import IndexWriter
from tests.support.index_rows import MODEL_A, file_row
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
