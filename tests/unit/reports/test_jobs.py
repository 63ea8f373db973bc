"""What is said of jobs: progress, and what stops it."""

import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from memline.producers.reports.jobs import listed, named
from memline.shared.errors import JobUnknown
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import health, jobs
from memline.shared.scheduling.health import Failure
from tests.support.index_rows import MODEL_A, file_row, make_job, retarget


@pytest.fixture
def writer(place):
    place.configure(provider="openai", model="a", remote={"apiKey": "sk-test"})
    with closing(IndexWriter.of(place.agent)) as writer:
        retarget(writer, MODEL_A)
        yield writer


def shown(place):
    """The reports of all jobs, the oldest first."""
    return listed([place.agent])[::-1]


def test_a_job_says_how_far_it_is_and_what_stops_it(place, writer):
    job = make_job(writer, "a.md", "b.md", now_ns=1)
    writer.store_file(file_row("a.md", "apples"), job=job.token)

    def stopped(was):
        no = Failure(kind="stop", error="bad key", action="set the key")
        return health.after_failure(was, no, time.time())

    health.update(writer.accounts, "openai", health.REQUESTS, stopped)

    (report,) = shown(place)

    assert report["files"] == {"done": 1, "total": 2}
    assert report["texts"] == {"done": 0, "left": 1, "failed": 0, "total": 1}
    assert report["action"] == "set the key; then: memline index"
    assert report["progress"] == "1 of 2 files read, 0 of 1 text embedded"
    assert "bad key" in report["reason"]


def test_a_paused_job_names_the_command_that_resumes_it(place, writer):
    job = make_job(writer, "a.md")
    jobs.change(writer.connection, job, jobs.PAUSED)

    (report,) = shown(place)

    assert (report["state"], report["action"]) == ("paused", f"memline jobs resume {job.token}")


def test_an_unknown_id_names_the_list(place, writer):
    with pytest.raises(JobUnknown, match="there is no job 'x'"):
        named([place.agent], "x")


def test_a_beginning_of_several_ids_names_them(place, writer, monkeypatch):
    tokens = iter((b"\x5f\x3a\x00\x00", b"\x5f\x3a\x11\x11"))
    monkeypatch.setattr(jobs, "os", SimpleNamespace(urandom=lambda _: next(tokens)))
    made = [make_job(writer), make_job(writer)]

    with pytest.raises(JobUnknown, match="'5f3a' is the beginning of 2 jobs"):
        named([place.agent], "5f3a")

    assert named([place.agent], "5f3a1").row == made[1]
