"""What cannot be taken back asks first, and a form that is sent twice acts once."""

import re
from contextlib import closing

import pytest

from memline.shared.index import jobs
from memline.shared.index_writer import IndexWriter
from tests.integration.web.conftest import Opener
from tests.support.browser import Browser, text_of
from tests.support.index_rows import MODEL_A, add_batch, make_job
from tests.support.workspace import Place


def a_job(place: Place) -> str:
    settings = place.settings.agents["main"]
    with closing(IndexWriter.of(settings)) as writer:
        writer.retarget(MODEL_A)
        make_job(writer, "b.md", "c.md")
        return jobs.open_jobs(writer.connection)[0].token


def fields_of(page: str, action: str) -> dict[str, str]:
    """Return the hidden fields of the form that leads to an address."""
    (form,) = (each for each in page.split("<form")[1:] if f'action="/ui{action}"' in each)
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))


def test_cancelling_a_job_asks_first_and_says_what_is_lost(browser: Browser, notes: Place) -> None:
    job = a_job(notes)
    page = browser.get(f"/jobs/{job}").text
    assert re.search(r'<button class="danger" name="ask" value="1">\s*Cancel', page)
    fields = fields_of(page, "/jobs/cancel")

    asked = browser.post("/jobs/cancel", **fields, ask="1")
    assert "ends for good: it cannot be resumed" in text_of(asked) and "Leave it" in text_of(asked)
    assert "1 text is not embedded" in text_of(asked)
    assert "running" in browser.shows(f"/jobs/{job}")
    done = browser.post("/jobs/cancel", **fields_of(asked.text, "/jobs/cancel"))

    assert "cancelled" in text_of(done) and "Pause" not in text_of(done)


@pytest.mark.parametrize(
    ("prices", "words"),
    [
        (
            {"a": {"perMillion": 2.5, "batchPerMillion": 1.0}},
            ": about $1.0000 instead of $0.4000. What the provider has finished by then is paid for as well.",
        ),
        ({"a": {"perMillion": 2.5}}, ", about twice that of a batch."),
    ],
)
def test_cancelling_a_batch_says_what_is_kept_and_the_price_of_the_rest(
    opened: Opener, notes: Place, prices: dict[str, object], words: str
) -> None:
    browser = opened(blocks={"prices": prices})
    with closing(IndexWriter.of(notes.settings.agents["main"])) as writer:
        # Half of what it was counted with is left: four texts, and that of the note.
        add_batch(writer, "cafe0123cafe", texts=4, rows=10, stored=5, cost=0.8, job_id="batch_7")

    fields = fields_of(browser.get("/batches/cafe0123cafe").text, "/batch/cancel")
    asked = browser.post("/batch/cancel", **fields, ask="1")

    assert "5 vectors are kept; 5 texts are sent in requests." in text_of(asked)
    assert f"Requests are at full price{words}" in text_of(asked)
    assert "at the provider" in browser.shows("/batches/cafe0123cafe")


def test_a_form_that_is_sent_twice_acts_once_and_says_what_the_first_did(
    browser: Browser, notes: Place
) -> None:
    job = a_job(notes)
    fields = fields_of(browser.get(f"/jobs/{job}").text, "/jobs/pause")

    first = text_of(browser.post("/jobs/pause", **fields))
    browser.post("/jobs/resume", job=job)
    again = text_of(browser.post("/jobs/pause", **fields))

    assert f"job {job} is paused" in first or "paused" in first
    assert "Done already, and once: main: job" in again
    assert "running" in browser.shows(f"/jobs/{job}")


def test_a_form_that_failed_may_be_sent_again(browser: Browser) -> None:
    for _ in range(2):
        refused = browser.post("/jobs/pause", job="none", once="the-same-number")
        assert refused.status_code == 404 and "Done already" not in text_of(refused)


def test_a_read_only_server_asks_nothing(opened: Opener, notes: Place) -> None:
    job = a_job(notes)
    browser = opened(readOnly=True)

    assert browser.post("/jobs/cancel", job=job, ask="1").status_code == 403
