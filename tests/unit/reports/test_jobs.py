"""What is said of jobs: progress, rate and time left."""

import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from memline.producers.reports.jobs import listed, named
from memline.shared.errors import JobUnknown
from memline.shared.index import meta
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import health, jobs
from tests.support.index_rows import MODEL_A, answer, file_row, lease_all, make_job, retarget


@pytest.fixture
def writer(place):
    place.configure(provider="openai", model="a", remote={"apiKey": "sk-test"})
    with closing(IndexWriter.of(place.agent)) as writer:
        retarget(writer, MODEL_A)
        yield writer


def shown(place):
    """The reports of all jobs, the oldest first."""
    return listed([place.agent])[::-1]


def embedded(writer, texts):
    """So many texts were embedded in the last ten seconds or a little longer."""
    now = time.time()
    with writer.transaction() as (connection, _):
        meta.put(connection, meta.EMBEDDED_RECENTLY, None)
        meta.count_embedded(connection, texts, now - 10)


def test_what_is_to_come_is_estimated_by_the_files_read_so_far(place, writer):
    job = make_job(writer, *(f"{number}.md" for number in range(10)), now_ns=1)
    writer.store_file(file_row("0.md", "apples and pears", "plums and dates"), job=job.token)
    answer(writer, lease_all(writer))
    writer.store_file(file_row("1.md", "figs and limes", "kiwis and nuts"), job=job.token)
    embedded(writer, 20)

    (report,) = shown(place)

    assert report["files"] == {"done": 2, "total": 10}
    assert report["texts"] == {"done": 2, "left": 2, "failed": 0, "total": 4, "expected": 20}
    assert 9 <= report["etaSeconds"] < 19, "eighteen texts at one or two a second"
    assert report["progress"].startswith("2 of 10 files read, 2 of 4 texts embedded, total about 20, ")


def test_a_later_job_waits_for_the_older_ones(place, writer):
    for number in range(2):
        job = make_job(writer, f"{number}.md", now_ns=number + 1)
        texts = (f"text {number} {each}" for each in range(10))
        writer.store_file(file_row(f"{number}.md", *texts, at=9), job=job.token)
    embedded(writer, 10)

    first, later = shown(place)

    assert later["etaSeconds"] == pytest.approx(2 * first["etaSeconds"], rel=0.01)
    assert later["progress"].startswith("1 of 1 file read, 0 of 10 texts embedded, ETA ")


def test_nothing_is_promised_while_nothing_moves(place, writer):
    job = make_job(writer, "a.md", now_ns=1)
    (report,) = shown(place)
    assert (report["etaSeconds"], report["texts"]["expected"]) == (None, None)
    writer.store_file(file_row("a.md", "apples"), job=job.token)
    embedded(writer, 10)

    def stopped(was):
        return health.stopped(was, health.REQUEST_RULES, "bad key", "set the key", time.time())

    health.update(writer.accounts, "openai", health.REQUESTS, stopped)

    (report,) = shown(place)

    assert (report["etaSeconds"], report["action"]) == (None, "set the key")
    assert report["progress"].endswith(report["reason"])
    assert [each["code"] for each in report["findings"]] == ["breaker_open"]


def test_a_paused_job_names_the_command_that_resumes_it(place, writer):
    job = make_job(writer, "a.md")
    jobs.change(writer.connection, job, jobs.PAUSED)

    (report,) = shown(place)

    assert (report["state"], report["action"]) == ("paused", f"memline jobs resume {job.token}")


def test_an_unknown_id_names_the_nearest_one(place, writer):
    job = make_job(writer)
    wrong = job.token[:-1] + "x"

    with pytest.raises(JobUnknown, match=f"there is no job '{wrong}'; did you mean {job.token}"):
        named([place.agent], wrong)


def test_a_beginning_of_several_ids_names_them(place, writer, monkeypatch):
    tokens = iter((b"\x5f\x3a\x00\x00", b"\x5f\x3a\x11\x11"))
    monkeypatch.setattr(jobs, "os", SimpleNamespace(urandom=lambda _: next(tokens)))
    made = [make_job(writer), make_job(writer)]

    with pytest.raises(JobUnknown, match="'5f3a' is the beginning of 2 jobs"):
        named([place.agent], "5f3a")

    assert named([place.agent], "5f3a1").row == made[1]
