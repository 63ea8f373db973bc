"""What the pages of the dashboard show, also of hostile notes, and what their buttons do."""

import html
import re
import shlex
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

from memline.producers.api.arguments import input_schema
from memline.producers.web import dashboard, pages
from memline.producers.web.rendering import path_of
from memline.shared.index.driver import reading
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import jobs
from tests.support.browser import text_of
from tests.support.index_rows import MODEL_A, add_batch, fail_all, file_row, make_job, retarget
from tests.support.process import memline
from tests.support.redis_server import RedisServer
from tests.support.stored_messages import StoredMessages, files
from tests.support.workspace import until

#: Texts that would run, or hide something, if one was not escaped.
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</pre></textarea><svg/onload=alert(1)>",
    "{{ 7 * 7 }} {% raw %}",
    "javascript:alert(1)",
    "\u202egnp.exe \u200b\x1b[31m\x07",
)


def fill(place, error="the server refuses it"):
    """Have a job of `main` with a failed text, and a batch; return the id of the job."""
    with closing(IndexWriter.of(place.settings.agents["main"])) as writer:
        retarget(writer, MODEL_A)
        job = make_job(writer, "read.md", "more.md")
        writer.store_file(file_row("read.md", "apples and pears"), job=job.token)
        fail_all(writer, error)
        add_batch(writer, "b" * 32, job_id="batch_1", error=error, created_at=1.0, due=9e12)
        return job.token


def test_the_overview_says_what_is_behind_and_what_is_wrong(browser, notes):
    assert "Files 2 0 behind" in browser.shows("/")
    notes.write("../main/memory/new.md", "An umbrella.\n")

    until(lambda: "Files 2 1 behind" in browser.shows("/"), "the new file")
    page = browser.shows("/")
    assert "1 file is not in the index yet" in page
    assert re.search(rf"memline [^<]*--workspace {notes.folder / 'main'} index", page)


def test_the_overview_draws_a_day_of_what_was_pending_and_embedded(opened, notes, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    browser = opened()
    page = browser.get("/")
    # The model of the settings is taken up by the next run.
    assert "Vectors pending 2" in text_of(page) and "<svg" not in page.text
    with closing(IndexWriter.of(notes.settings.agents["main"])) as writer:
        retarget(writer, MODEL_A)
        writer.store_file(file_row("read.md", "apples", "pears"))
        writer.note_minute()

    page = browser.get("/")
    assert "Pending : 3 now, 3 at most. Embedded : 0 texts" in text_of(page)
    # A step of ten minutes that is full; nothing was embedded.
    assert 'class="pending" d="M0 40V40H1' in page.text and "V0H144V40Z" in page.text
    assert 'class="embedded" d="M0 84V84H1' in page.text and "V84H144V84Z" in page.text


def test_a_search_shows_hits_with_their_matched_words(browser):
    answer = browser.get("/search", q="invoices cents", agent="main")

    assert "<mark>Invoices</mark>" in answer.text and "<mark>cents</mark>" in answer.text
    assert "MEMORY.md#L1-L3" in text_of(answer) and "Facts" in text_of(answer)


def test_jobs_are_paused_resumed_and_cancelled_by_their_buttons(browser, notes):
    job = fill(notes)
    shown = browser.shows("/jobs")
    assert job in shown and "1 of 2 files" in shown and "bbbbbbbb" in shown

    states = []
    for path in ("pause", "resume", "cancel"):
        done = browser.post(f"/jobs/{path}", job=job, agent="main")
        assert done.url.path == "/ui/jobs" and job in done.text, path
        with reading(notes.settings.agents["main"].index_path) as reader:
            found = jobs.by_token(reader, job)
            states.append(found.state if found else "")

    assert states == ["paused", "running", "cancelled"]


def test_a_provider_is_paused_and_resumed(browser, notes):
    fill(notes)
    assert "openai" in browser.shows("/")

    assert ">paused</span>" in browser.press("/", "Pause").text
    assert ">paused</span>" not in browser.press("/", "Resume").text


def test_files_are_listed_with_their_outcome_and_failed_texts(browser, notes):
    fill(notes)

    page = browser.shows("/files", agent="main")
    assert "MEMORY.md" in page and "indexed" in page and "the server refuses it" in page
    assert "MEMORY.md" not in browser.shows("/files", agent="main", path="read").rpartition("Files")[2]


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running  # type: ignore[misc]


def test_dead_letters_are_shown_by_their_error_put_back_and_dropped(opened, redis_server):
    stored = StoredMessages(redis_server.url, "web")
    for name, error in (("one", "disk is full"), ("two", "disk is full"), ("three", "<b>odd</b>")):
        stored.put("chunk", name, files("a.md"), error=error)
    browser = opened(blocks={"queue": {"url": redis_server.url, "name": "web"}})

    shown = browser.shows("/queue")
    assert "2 messages" in shown and "disk is full" in shown and "<b>odd</b>" in shown
    assert "No worker is alive" in shown

    assert "disk is full" not in text_of(browser.press("/queue", "Requeue"))
    assert "None." in text_of(browser.press("/queue", "Drop"))


def test_without_a_queue_and_without_its_redis_the_page_says_so(opened):
    assert "Everything runs in one process" in opened().shows("/queue")
    browser = opened(blocks={"queue": {"url": "redis://127.0.0.1:1/0"}})
    assert "Redis at " in browser.shows("/queue") and "Redis at " in browser.shows("/")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_texts_and_questions_are_text(opened, notes, text):
    name = re.sub(r"[/\x00]", "_", text)
    notes.write(f"../main/memory/{name}.md", f"# {text}\n\nharmless words {text}\n")
    fill(notes, text)
    browser = opened()

    until(lambda: "harmless words" in browser.shows("/search", q="harmless words", agent="main"), "a hit")

    shown = [
        browser.get("/search", q="harmless words"),
        browser.get("/search", q=text),
        browser.get("/search", q="x", agent=text),
        browser.get("/"),
        browser.get("/jobs"),
        browser.get("/files", agent="main", path=text),
        browser.post("/jobs/pause", job=text),
        browser.get("/" + quote(name)),
    ]

    for page in shown:
        assert_harmless(page)
    if text.isprintable():
        assert text in text_of(shown[0])


class Tags(HTMLParser):
    """What a browser would make of a page: its tags, and attributes that run something."""

    def __init__(self):
        super().__init__()
        self.names = set()
        self.attributes = []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        for name, text in attrs:
            if (
                name.startswith("on")
                or name == "style"
                or (name == "href" and "javascript:" in (text or "")[:20])
            ):
                self.attributes.append((name, text))


def assert_harmless(page):
    """Assert that nothing of a hostile text would run, or hide, in a browser."""
    tags = Tags()
    tags.feed(page.text.partition("<body")[2])
    assert not tags.names & {"script", "img", "iframe"} and not tags.attributes
    assert "\x1b" not in page.text and "\u202e" not in page.text and "\u200b" not in page.text


#: Values that no page of ours sends, as they stand in a form.
ODD = ("", "-1", "9" * 400, "a%00b", "%ED%A0%BD", "%", "..%2F..")


def test_no_form_fails_on_missing_or_odd_fields(browser):
    headers = {"origin": browser.url, "content-type": "application/x-www-form-urlencoded"}
    token, failed = f"form_token={browser.form_token()}", []

    for action in dashboard.ACTIONS:
        names = (*input_schema(dashboard.VERBS[action])["properties"], "agent", "next")
        for text in ["", "agent=main", *(f"{name}={odd}" for name in names for odd in ODD)]:
            answer = browser.client.post(
                f"/ui{path_of(action)}", content=f"{token}&{text}", headers=headers, follow_redirects=False
            )
            if answer.status_code == 500:
                failed.append((action, text[:60]))

    assert failed == []


def test_a_page_that_is_not_there_and_one_that_fails_say_so(browser, monkeypatch):
    missing = browser.get("/nothing")
    assert missing.status_code == 404 and "there is no such page" in text_of(missing)

    def fail(*_, **__):
        raise RuntimeError("a secret")

    monkeypatch.setattr(pages, "listed", fail)
    broken = browser.get("/jobs")
    assert broken.status_code == 500
    assert "failed unexpectedly (RuntimeError)" in broken.text and "secret" not in broken.text


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("/", {}, "(work)"),
        ("/search", {"q": "vault code", "agent": "work"}, "vault"),
        ("/jobs", {}, ""),
        ("/queue", {}, ""),
        ("/files", {"agent": "main"}, "main"),
    ],
)
def test_the_command_of_a_page_works_in_any_folder(browser, tmp_path, monkeypatch, path, query, said):
    page = browser.get(path, **query).text
    words = shlex.split(html.unescape(re.findall(r"in a terminal:</span> <code>(.*?)</code>", page)[0]))

    monkeypatch.chdir(tmp_path)
    ran = memline(*words[1:])

    assert (words[0], ran.status) == ("memline", 0 if path != "/queue" else 1), ran.stderr
    assert said in ran.stdout + ran.stderr


def test_the_command_of_a_button_names_the_workspace(browser, notes):
    fill(notes)

    titles = re.findall(r'<button[^>]* title="([^"]*)"', browser.get("/jobs").text)

    assert titles and all(f"--workspace {notes.folder / 'main'} " in each for each in titles)


def test_static_files_are_served_and_nothing_else(browser):
    addresses = re.findall(r'"(/ui/static/[^"]+)"', browser.get("/").text)

    assert {Path(each).name for each in addresses} == {"memline.css", "memline.js", "icon.svg"}
    assert all(browser.client.get(each).status_code == 200 for each in addresses)
    for missing in ("none.css", "../dashboard.py", "%2e%2e/dashboard.py"):
        assert browser.client.get(f"/ui/static/{missing}").status_code == 404
