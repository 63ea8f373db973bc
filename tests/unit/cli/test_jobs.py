"""`memline jobs`, and what `memline index` has of them."""

import json
import re
from contextlib import closing

import pytest

from memline.producers.cli import run
from memline.shared.index import batches, driver
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import jobs
from tests.support.index_rows import MODEL_A, add_batch, file_row, make_job, retarget

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n"})


@pytest.fixture
def job(place):
    """The id of a job that has read one of two files."""
    with closing(IndexWriter.of(place.agent)) as writer:
        retarget(writer, MODEL_A)
        made = make_job(writer, "MEMORY.md", "more.md")
        writer.store_file(file_row("MEMORY.md", "apples"), job=made.token)
        return made.token


def output(place, capsys, *args, status=0):
    assert run(place.arguments(*args)) == status
    return capsys.readouterr().out


def test_jobs_are_a_table_or_json(place, job, capsys):
    table = output(place, capsys, "jobs")
    (listed,) = json.loads(output(place, capsys, "jobs", "--json"))

    assert [each in table for each in (job, "reindex", "running", "1/2", "0/1")] == [True] * 5
    assert (listed["id"], listed["files"]) == (job, {"done": 1, "total": 2})


def test_a_job_is_shown_by_the_beginning_of_its_id(place, job, capsys):
    shown = output(place, capsys, "jobs", "show", job[:5])

    assert re.search(rf"^Id: +{job}$", shown, re.M)
    assert "1 of 2 files read, 0 of 1 text embedded" in shown


def test_a_job_is_paused_resumed_and_cancelled(place, job, capsys):
    assert output(place, capsys, "jobs", "pause", job) == f"main: job {job} is paused.\n"
    assert "paused" in output(place, capsys, "jobs")
    again = output(place, capsys, "jobs", "pause", job, status=1)
    assert again == f"main: job {job} was left alone, it is paused.\n"
    assert output(place, capsys, "jobs", "resume", job) == f"main: job {job} goes on.\n"
    cancelled = output(place, capsys, "jobs", "cancel", job)
    assert cancelled == (
        f"main: job {job} is cancelled: 1 text will not be embedded, 1 file will not be read.\n"
    )
    assert output(place, capsys, "jobs", "--open") == "No open jobs.\n"


def kinds(place):
    """Kind, state and files of all jobs, the oldest first."""
    with driver.reading(place.index_path) as reader:
        return [(job.kind, job.state, job.files) for job in jobs.listed(reader)][::-1]


def test_each_run_that_reads_files_is_a_job(place):
    place.index()
    place.index()
    place.write("memory/a.md", "# A\n")
    place.index()
    assert kinds(place) == [("import", "done", 1), ("reindex", "done", 1)]

    assert place.run("index", "--force").status == 0

    assert kinds(place)[2:] == [("reindex", "done", 2)]


def test_an_index_run_says_which_job_is_paused(place, job):
    assert place.run("jobs", "pause", job).status == 0

    report = place.index()

    assert f"job {job} is paused" in report.warning
    assert report.action == f"memline jobs resume {job}"
    assert report.failed


@pytest.fixture
def batch(place):
    """The id of a batch at the provider, whose words are those of a hostile one."""
    with closing(IndexWriter.of(place.agent)) as writer:
        retarget(writer, MODEL_A)
        names = {"job_id": "batch\x1b[95m_7", "provider_state": "in_progress"}
        add_batch(writer, "aaaa1111", texts=2, stored=1, **names)
    return "aaaa1111"


def test_batches_are_jobs(place, batch, capsys):
    (listed,) = json.loads(output(place, capsys, "jobs", "--json"))
    table = output(place, capsys, "jobs")
    shown = output(place, capsys, "jobs", "show", batch[:3])

    assert (listed["kind"], listed["id"], listed["state"]) == ("batch", batch, "submitted")
    for text in (table, shown):
        assert "batch\\x1b[95m_7" in text and "at the provider" in text
    assert re.search("^Stored: +1$", shown, re.M) and re.search("^Texts left: +2$", shown, re.M)


def test_a_batch_is_cancelled_and_says_what_becomes_of_its_texts(place, batch, capsys):
    said = output(place, capsys, "jobs", "cancel", batch)

    with closing(IndexWriter.of(place.agent)) as writer:
        (row,) = batches.open_batches(writer.connection)
    assert "1 vector is kept" in said and "are sent in requests" in said and place.typed("index") in said
    assert row.cancel_reason == "cancelled by the operator"
    assert "at the provider, to be cancelled" in output(place, capsys, "jobs")


def test_a_batch_cannot_be_paused(place, batch, capsys):
    output(place, capsys, "jobs", "pause", batch, status=2)
