"""The pages of jobs and batches, and what their actions change in the rows."""

import html
import json
import logging
import re
import time
from contextlib import closing
from typing import Any

import pytest

from memline.shared.figures import points
from memline.shared.figures.points import Point
from memline.shared.index import batches, jobs
from memline.shared.index.accounts import AccountFile
from memline.shared.index.driver import reading
from memline.shared.index.rows import LearnedCaps
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling.budget import BATCH, Charge
from memline.shared.scheduling.embed_results import Failure
from tests.integration.web.conftest import configure
from tests.integration.web.test_pages import HOSTILE, assert_harmless, events
from tests.support.browser import Browser, text_of
from tests.support.index_rows import MODEL_A, add_batch, file_row, make_job
from tests.support.workspace import Place


def make(place: Place, agent: str, *, at: int = 1) -> str:
    """A job of an agent, made and gone on with at a time (ns), that has read one of two files."""
    with closing(IndexWriter.of(place.settings.agents[agent])) as writer:
        writer.retarget(MODEL_A)
        made = make_job(writer, "read.md", "more.md", now_ns=at)
        writer.store_file(file_row("read.md", f"apples of {agent}", at=at), job=made.token)
        return made.token


def put_batch(place: Place, agent: str, token: str, *, texts: int = 2, **columns: Any) -> None:
    """A batch at the provider with texts leased to it, and the one of the note that is there."""
    more = {"job_id": f"batch_{token}", "created_at": time.time() - 600, "due": 9e12} | columns
    with closing(IndexWriter.of(place.settings.agents[agent])) as writer:
        add_batch(writer, token, texts=texts, **more)


def state_of(place: Place, agent: str, token: str) -> str:
    with reading(place.settings.agents[agent].index_path) as reader:
        job = jobs.by_token(reader, token)
        return job.state if job else ""


def batch_of(place: Place, agent: str, token: str) -> batches.Batch:
    with reading(place.settings.agents[agent].index_path) as reader:
        found = batches.get(reader, token)
    assert found is not None
    return found


def test_jobs_are_listed_shown_paused_resumed_and_cancelled(
    browser: Browser, notes: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    job = make(notes, "main")

    listed, shown = browser.shows("/jobs"), browser.shows(f"/jobs/{job}")
    assert job in listed and "reindex" in listed and "1 of 2" in listed and "me@here" in listed
    assert "asked by me@here" in shown and f"memline jobs pause {job}" in shown

    states = []
    for verb in ("pause", "resume", "cancel", "pause"):
        done = browser.post(f"/jobs/{verb}", job=job)
        states.append(state_of(notes, "main", job))
        assert done.status_code == 200

    assert states == ["paused", "running", "cancelled", "cancelled"]
    assert "was left alone, it is cancelled" in text_of(done)
    shown = browser.shows(f"/jobs/{job}")
    assert "memline jobs pause" not in shown and "cancelled by" in shown
    verbs = [record.getMessage() for record in caplog.records if "audit." in record.getMessage()]
    assert verbs == ["audit.pause", "audit.resume", "audit.cancel", "audit.pause"]


def test_jobs_and_batches_of_another_agent_are_neither_seen_nor_changed(
    worker: Browser, owner: Browser, notes: Place
) -> None:
    theirs, mine = make(notes, "main"), make(notes, "work")
    put_batch(notes, "main", "a" * 32)
    put_batch(notes, "work", "b" * 32)

    listed = worker.shows("/jobs") + worker.shows("/batches")
    assert mine in listed and "bbbbbbbb" in listed and theirs not in listed and "aaaaaaaa" not in listed
    assert worker.get(f"/jobs/{theirs}").status_code == worker.get(f"/batches/{'a' * 32}").status_code == 404
    for path, fields in (
        ("/jobs/cancel", {"job": theirs}),
        ("/batch/cancel", {"batch": "a" * 32}),
        ("/batch/collect", {"batch": "a" * 32}),
    ):
        assert worker.post(path, **fields).status_code in (403, 404)
    assert state_of(notes, "main", theirs) == "running"
    assert batch_of(notes, "main", "a" * 32).cancel_requested_at == 0
    worker.post("/jobs/cancel", job=mine)
    assert state_of(notes, "work", mine) == "cancelled"
    assert theirs in owner.shows("/jobs")


def test_a_batch_is_shown_with_its_price_collected_and_cancelled(
    browser: Browser, notes: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    token = "c" * 32
    put_batch(notes, "main", token)
    configure(notes, prices={"a": {"perMillion": 2.5, "batchPerMillion": 1.25}})
    with closing(IndexWriter.of(notes.settings.agents["main"])) as writer:
        charge = Charge(identity=MODEL_A, account="openai", mode=BATCH)
        writer.budget.resize(charge, token, 1_000_000, time.time())

    listed = browser.shows("/batches")
    assert "$1.2500" in listed and "cccccccc" in listed
    assert f"batch_{token}" in listed and "at the provider" in listed
    shown = browser.shows(f"/batches/{token}")
    assert "$1.2500 as it is counted" in shown
    assert "3 to come" in shown and f"memline batch collect {token}" in shown

    assert "is asked about now" in text_of(browser.post("/batch/collect", batch=token))
    assert batch_of(notes, "main", token).due < 9e11
    assert "will be cancelled" in text_of(browser.post("/batch/cancel", batch=token))
    assert batch_of(notes, "main", token).cancel_requested_at > 0
    verbs = [record.getMessage() for record in caplog.records if "audit." in record.getMessage()]
    assert verbs == ["audit.collect", "audit.cancel"]
    for path in ("/jobs/cancel", "/batch/cancel"):
        assert browser.post(path).status_code in (400, 404)


def test_the_errors_of_a_batch_are_pages(browser: Browser, notes: Place) -> None:
    token = "d" * 32
    put_batch(notes, "main", token, texts=130)
    with closing(IndexWriter.of(notes.settings.agents["main"])) as writer:
        hashes = sorted(batches.hashes_left(writer.connection, token))
        writer.record_failure(
            MODEL_A, token, hashes, Failure(kind="refused", error="not allowed"), LearnedCaps()
        )

    first, second = browser.shows(f"/batches/{token}"), browser.shows(f"/batches/{token}", first="100")

    assert first.count("not allowed") == 100 and second.count("not allowed") == 31
    link = re.search(r'href="(/ui/file\?[^"]+)">[^<]*d{8}\.md</a>', browser.get(f"/batches/{token}").text)
    assert link and "agent=main" in link[1] and link[1].endswith("dddddddd.md")
    assert "dddddddd.md" in first and browser.get(f"/batches/{token}", first="x").status_code == 400


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_provider_says_is_text(browser: Browser, notes: Place, text: str) -> None:
    put_batch(notes, "main", "e" * 32, error=text, action=text, provider_state=text, cancel_reason=text)
    with (
        closing(IndexWriter.of(notes.settings.agents["main"])) as writer,
        writer.transaction() as (connection, _),
    ):
        jobs.create(connection, jobs.MODEL, by=text, now_ns=time.time_ns(), what=text)
        batches.keep_errors(connection, "e" * 32, [b"h" * 32], text)

    for page in (browser.get("/jobs"), browser.get("/batches"), browser.get(f"/batches/{'e' * 32}")):
        assert page.status_code == 200
        assert_harmless(page)


def test_a_page_of_a_job_that_is_none_says_so(browser: Browser) -> None:
    for path in ("/jobs/none", "/batches/none", "/jobs/%3Cscript%3E"):
        assert browser.get(path).status_code == 404


def test_the_page_of_a_job_has_its_own_rate_and_its_own_files(browser: Browser, notes: Place) -> None:
    now = time.time()
    mine, theirs = (make(notes, "main", at=int((now - ago_s) * 1e9)) for ago_s in (600, 590))
    with closing(AccountFile(notes.settings.account_path)) as file:
        points.take_turn(file, "me", now - 60, is_alive=lambda _: False)
        sums = {"vectors\tmain": 450, f"job_texts\tmain\t{mine}": 300, f"job_texts\tmain\t{theirs}": 150}
        points.write(file, Point(seconds=15, sums=sums), {}, now - 60)

    pages = {job: browser.get(f"/jobs/{job}").text for job in (mine, theirs)}

    for job, rate in ((mine, "20"), (theirs, "10")):
        (data,) = re.findall(r'aria-label="Texts per second:[^"]*" data-chart="([^"]+)"', pages[job])
        values = [each for each in json.loads(html.unescape(data))["series"][""] if each not in (None, "0")]
        assert values == [rate]
    left = pages[theirs].partition("Files that are not done")[2]
    assert "more.md" in left and "to be read" in left and "file?agent=main&amp;path=more.md" not in left
    # The job that was there first has the text of the file that both have read.
    assert "read.md" not in left
    first = pages[mine].partition("Files that are not done")[2]
    assert "read.md</a>" in first and "1 text to embed" in first


def test_a_job_says_what_it_waits_for(browser: Browser, notes: Place) -> None:
    job, token = make(notes, "main"), "f" * 32
    with closing(IndexWriter.of(notes.settings.agents["main"])) as writer:
        texts = writer.connection.execute("SELECT count(*) FROM vectors WHERE job > 0").fetchone()[0]
        add_batch(writer, token, job_id="batch_1", created_at=time.time() - 720, due=9e12)
        writer.connection.execute("UPDATE vectors SET state = 'leased', lease = ? WHERE job > 0", (token,))

    page = browser.get(f"/jobs/{job}")
    assert texts and f"Waits: in batch {token[:8]} since 12 min" in text_of(page)
    assert f'href="/ui/batches/{token}"' in page.text and "<progress" in page.text
    assert f"in batch {token[:8]} since 12 min" in browser.shows("/jobs")
    assert job in browser.shows(f"/batches/{token}")

    browser.post("/jobs/pause", job=job)
    assert re.search(r"Waits: paused by \S+ since \d+ s", browser.shows(f"/jobs/{job}"))


def test_the_buttons_of_a_job_and_a_batch_follow_it_in_another_browser(
    browser: Browser, notes: Place
) -> None:
    job, token = make(notes, "main"), "a" * 32
    put_batch(notes, "main", token)
    assert "memline batch cancel" in browser.get(f"/batches/{token}", fragment="rows").text
    said = events(browser)
    next(said)
    with Browser(browser.url) as other:
        other.post("/jobs/pause", job=job)
        assert "jobs" in next(each["topics"] for each in said if "jobs" in each["topics"])
        part = browser.get(f"/jobs/{job}", fragment="rows").text
        assert "/jobs/resume" in part and "/jobs/pause" not in part
        other.post("/batch/cancel", batch=token)
        assert next(each for each in said if "agents" in each["topics"])
    assert "To be cancelled" in browser.get(f"/batches/{token}", fragment="rows").text
