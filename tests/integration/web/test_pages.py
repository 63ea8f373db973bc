"""What the pages of the dashboard show, also of hostile notes, and how they follow the state."""

import json
import logging
import re
from contextlib import closing
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from memline.producers.web.dashboard import PAGES
from memline.shared.index.driver import reading
from memline.shared.index_writer import IndexWriter
from tests.integration.web.conftest import Opener
from tests.support.browser import Browser, text_of
from tests.support.index_rows import MODEL_A, file_row
from tests.support.transcripts import opening, said, sessions_folder
from tests.support.workspace import Place, until

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


def test_the_overview_says_what_is_behind_and_what_is_wrong(browser: Browser, notes: Place) -> None:
    assert "Files behind 0" in browser.shows("/")
    notes.write("../main/memory/new.md", "An umbrella.\n")

    until(lambda: "Files behind 1" in browser.shows("/"), "the new file")
    until(lambda: "1 file is not in the index yet" in browser.shows("/"), "the finding")
    page = browser.shows("/")
    assert "memline index" in page and "Oldest message" not in page


def test_without_a_queue_there_are_no_pages_of_queues(browser: Browser) -> None:
    navigation = browser.get("/").text.partition("<main")[0]

    for page in PAGES:
        assert (f'href="/ui{page.path}"' in navigation) is (bool(page.group) and not page.needs_queue)
        if page.needs_queue and "{" not in page.path:
            assert browser.get(page.path).status_code == 404
    assert browser.post("/reindex", agent="main").status_code == 405


def test_a_fleet_whose_redis_is_away_is_said(opened: Opener) -> None:
    browser = opened(blocks={"queue": {"url": "redis://127.0.0.1:1/0"}})

    assert "queue: Redis at " in browser.shows("/")


def test_a_search_shows_hits_with_the_parts_of_their_score_and_opens_the_note(browser: Browser) -> None:
    answer = browser.get("/search", q="invoices cents", agent="main")

    assert "<mark>Invoices</mark>" in answer.text and "<mark>cents</mark>" in answer.text
    text = text_of(answer)
    assert "MEMORY.md#L1-L3" in text and "Facts" in text and re.search(r"text \d\.\d+", text)
    assert "memline --agent main search --query 'invoices cents' --explain" in text
    link = re.search(r'href="(/ui/note\?[^"]+)"', answer.text)
    assert link
    note = browser.client.get(link[1].replace("&amp;", "&"))
    assert '<tr id="L3" class="asked">' in note.text and "whole cents" in note.text


def test_a_note_shows_what_it_links_to_and_what_links_to_it(browser: Browser, notes: Place) -> None:
    notes.write("../main/memory/a.md", "# Ann <b>\n\nSee [[Bob]].\n")
    notes.write("../main/memory/b.md", "# Bob\n\nAlone.\n")
    link = r'href="/ui/note\?[^"]*path=memory%2F{}.md[^"]*">{}</a>'

    shown = lambda name: browser.get("/note", agent="main", path=f"memory/{name}.md").text  # noqa: E731
    until(lambda: browser.get("/search", q="alone", agent="main") and "Linked from" in shown("b"), "links")

    assert re.search("Linked from: <a " + link.format("a", "Ann &lt;b&gt;"), shown("b"))
    assert re.search("Links to: <a " + link.format("b", "Bob"), shown("a"))
    assert "Links to" not in shown("b") and "Linked from" not in shown("a")


def test_a_stream_of_events_without_a_body_ends_at_once(browser: Browser) -> None:
    assert browser.client.head("/ui/events").status_code == 204


@pytest.mark.parametrize(
    ("name", "text"), [("maxResults", "0"), ("maxResults", "x"), ("source", "all?"), ("since", "soon")]
)
def test_a_wrong_filter_is_explained(browser: Browser, name: str, text: str) -> None:
    assert browser.get("/search", q="cents", **{name: text}).status_code == 400


def test_a_long_note_is_shown_in_parts(browser: Browser, notes: Place) -> None:
    notes.write("../main/memory/long.md", "".join(f"line {number}\n" for number in range(1, 1001)))

    page = browser.get("/note", agent="main", path="memory/long.md", **{"from": 500, "to": 502})

    asked = re.findall(r'<tr id="L(\d+)" class="asked">', page.text)
    assert asked == ["500", "501", "502"]
    following = re.search(r'href="([^"]+)" rel="next"', page.text)
    assert following and "line 800" in browser.client.get(following[1].replace("&amp;", "&")).text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_texts_and_questions_are_text(opened: Opener, notes: Place, text: str) -> None:
    name = re.sub(r"[/\x00]", "_", text)
    notes.write(f"../main/memory/{name}.md", f"# {text}\n\nharmless words {text}\n")
    browser = opened()

    until(lambda: "harmless words" in browser.shows("/search", q="harmless words", agent="main"), "a hit")

    pages = [
        browser.get("/search", q="harmless words"),
        browser.get("/search", q=text),
        browser.get("/search", q="x", agent=text),
        browser.get("/note", agent="main", path=f"memory/{name}.md"),
        browser.get("/note", agent=text, path=text),
        browser.get("/reindex", agent=text, plan="1"),
        browser.get("/configuration", agent=text),
        browser.get("/login", next=text),
        browser.get("/" + quote(name)),
    ]

    for page in pages:
        assert_harmless(page)
    if text.isprintable():
        assert text in text_of(pages[0])


class Tags(HTMLParser):
    """What a browser would make of a page: its tags, and attributes that run something."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        for name, text in attrs:
            if (
                name.startswith("on")
                or name == "style"
                or (name == "href" and "javascript:" in (text or "")[:20])
            ):
                self.attributes.append((name, text))


def assert_harmless(page: httpx.Response) -> None:
    """Assert that nothing of a hostile text would run, or hide, in a browser."""
    tags = Tags()
    tags.feed(page.text.partition("<main")[2])
    assert not tags.names & {"script", "img", "iframe"} and not tags.attributes
    assert "\x1b" not in page.text and "\u202e" not in page.text and "\u200b" not in page.text


def test_the_configuration_has_origins_and_no_secret(opened: Opener) -> None:
    browser = opened(
        blocks={"models": {"providers": {"openai": {"apiKey": "sk-very-secret"}}}, "agentz": 1},
        maxBodyBytes=70_000,
    )

    page = browser.shows("/configuration", set="1")

    assert "serve.maxBodyBytes 70000" in page.replace("serve.maxBodyBytes Value: ", "serve.maxBodyBytes ")
    assert "sk-very-secret" not in page and "config.json5" in page
    assert "when the server started" not in page and "as this server has it now" in page


def test_a_plan_of_a_reindex_changes_nothing(browser: Browser, notes: Place) -> None:
    page = browser.shows("/reindex", agent="main", plan="1", force="1")

    assert "1 file to read, 1 chunk" in page
    assert "memline --agent main index --force" in page


def test_a_part_of_a_page_is_given_alone(browser: Browser) -> None:
    part = browser.get("/", fragment="agents")

    assert "<html" not in part.text and "main" in part.text
    assert browser.get("/", fragment="none").status_code == 404


def test_static_files_are_kept_for_good_and_change_their_address(browser: Browser) -> None:
    names = re.findall(r'"(/ui/static/[^"]+)"', browser.get("/").text)

    assert len(names) == 5
    for name in names:
        answer = browser.client.get(name)
        assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
        assert browser.client.get(re.sub("[0-9a-f]{16}", "0" * 16, name)).status_code == 404


def events(browser: Browser) -> Any:
    """Yield what the stream of events says."""
    with browser.client.stream("GET", "/ui/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def test_a_browser_that_watches_is_told_what_changed(browser: Browser, notes: Place) -> None:
    settings = notes.settings.agents["main"]
    said = events(browser)
    first = next(said)
    assert first["topics"] == [] and first["figures"]["wanted"] == "0"

    with closing(IndexWriter.of(settings)) as writer:
        writer.retarget(MODEL_A)
        writer.store_file(file_row("memory/wanted.md", "one text"))

    changed = next(each for each in said if "wanted" in each["figures"])
    assert changed["figures"]["wanted"] != "0" and "agents" in changed["topics"]


def test_the_events_of_a_token_are_of_its_agent_alone(worker: Browser, owner: Browser, notes: Place) -> None:
    notes.write("../main/memory/new.md", "An umbrella.\n")
    until(lambda: "Files behind 1" in owner.shows("/"), "the new file")

    assert next(events(worker))["figures"]["files_behind"] == "0"
    assert "spent" not in next(events(worker))["figures"]


def test_events_without_a_login_are_none(owner: Browser) -> None:
    with httpx.Client(base_url=owner.url, timeout=120) as client:
        assert client.get("/ui/events").status_code == 204


def test_a_search_says_how_long_each_step_took(browser: Browser) -> None:
    first, again = (browser.shows("/search", q="invoices") for _ in range(2))

    assert re.search(r"ms: question \d+\.\d ms, filters .* keyword .* snippets \d+\.\d ms", first)
    assert "the same answer as a moment ago" in again


def test_a_past_conversation_is_read_masked_and_without_line_numbers(
    opened: Opener, notes: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(notes.folder / "state"))
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    (sessions_folder(notes.folder / "state") / "one.jsonl").write_text(
        opening() + said("user", f"the ferry key is {secret}")
    )
    agents = [{"id": name, "workspace": str(notes.folder / name)} for name in ("main", "work")]
    memory = {"experimental": {"sessionMemory": True}, "sources": ["memory", "sessions"]}
    browser = opened(blocks={"agents": {"list": agents, "defaults": {"memorySearch": memory}}})

    search = {"q": "ferry", "agent": "main", "source": "sessions"}
    until(lambda: "sessions/one.jsonl#L2" in browser.shows("/search", **search), "the session")
    page = browser.get("/note", agent="main", path="sessions/one.jsonl", **{"from": 2, "to": 2})

    assert "ferry key" in page.text and secret not in page.text and 'id="L' not in page.text


def test_a_page_that_fails_says_so_and_nothing_of_the_inside(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("of the inside")

    monkeypatch.setattr("memline.producers.web.snapshot.Snapshot.figures", fail)
    answer = browser.get("/")

    assert answer.status_code == 500 and "unexpectedly (ZeroDivisionError)" in text_of(answer)
    assert "inside" not in answer.text
    assert [each.getMessage() for each in caplog.records].count("request.failed") == 1


def test_a_memory_that_is_switched_off_says_so(opened: Opener, notes: Place) -> None:
    agents = {"list": [{"id": "main", "workspace": str(notes.workspace), "memorySearch": {"enabled": False}}]}

    page = opened(blocks={"agents": agents}).shows("/search", q="cents", agent="main")

    assert "memory search is disabled" in page and "0 hits" in page


def test_an_unknown_address_is_answered_as_it_was_asked_for(browser: Browser) -> None:
    for path in ("/ui/nowhere", "/nowhere"):
        as_json = browser.client.get(path, headers={"accept": "application/json"})
        as_page = browser.client.get(path, headers={"accept": "text/html,*/*;q=0.8"})
        assert (as_json.status_code, as_json.json()["hint"] != "") == (404, True)
        assert as_page.status_code == 404 and "<main" in as_page.text


def test_what_is_shown_of_one_thing_has_its_name_in_title_and_heading(browser: Browser) -> None:
    page = browser.get("/note", agent="main", path="MEMORY.md").text

    assert "Note MEMORY.md · Memline</title>" in page and "<h1>Note MEMORY.md</h1>" in page
    seen = browser.get("/files", agent="main").text
    assert re.search(r'<time datetime="[^"]+Z" title="[^"]+ UTC">[^<]+ ago</time>', seen)


def test_failed_texts_are_grouped_by_the_words_of_the_provider(browser: Browser, notes: Place) -> None:
    with closing(IndexWriter.of(notes.settings.agents["main"])) as writer:
        writer.retarget(MODEL_A)
        writer.store_file(file_row("memory/a.md", "one text", "another", "third"))
        failed = "UPDATE vectors SET state = 'failed', error = '<b>refused</b>', attempts = 2"
        writer.connection.execute(failed)

    page = text_of(browser.get("/failed"))

    assert "4 texts of main <b>refused</b>" in page and "memory/a.md" in page
    assert "Retry 4 texts" in page and "memline queue leave" not in page
    assert "memline --agent main queue leave --group" in page
    assert 'href="/ui/failed"' in browser.get("/").text


def test_failed_texts_are_left_alone_and_tried_again(
    browser: Browser, notes: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = notes.settings.agents["main"]

    def counts() -> dict[str, int]:
        with reading(settings.index_path) as reader:
            rows = reader.execute("SELECT state, count(*) FROM vectors GROUP BY state")
            return dict(rows.fetchall())

    with closing(IndexWriter.of(settings)) as writer:
        writer.retarget(MODEL_A)
        writer.store_file(file_row("memory/a.md", "one text", "another", "third"))
        failed = "UPDATE vectors SET state = 'failed', error = 'refused: row ' || id || '0000', due = 1"
        writer.connection.execute(failed)
    page = browser.get("/failed").text
    group, text = (
        re.findall(r'name="group" value="(\w+)"', page)[0],
        re.findall(r'name="text" value="(\w+)"', page),
    )
    assert "text_refused" in browser.get("/").text and "4 texts of main" in page

    assert "main: 1 text is left alone." in text_of(browser.post("/queue/leave", agent="main", text=text[0]))
    assert "main: 4 texts are left alone." in text_of(browser.post("/queue/leave", agent="main", group=group))
    overview = browser.get("/").text
    assert "text_refused" not in overview and 'data-figure="failed">0<' in overview
    assert "left alone" in browser.get("/failed").text
    # Neither an hour nor a resume takes them up.
    with closing(IndexWriter.of(settings)) as writer:
        writer.sweep()
        writer.retry_all()
    assert counts()["failed"] == 4

    assert "main: 1 text is tried again." in text_of(browser.post("/queue/retry", agent="main", text=text[0]))
    assert counts() == {"failed": 3, "wanted": 1}
    assert "main: 3 texts are tried again." in text_of(
        browser.post("/queue/retry", agent="main", group=group)
    )
    assert counts() == {"wanted": 4}
    verbs = [record.getMessage() for record in caplog.records if "audit." in record.getMessage()]
    assert verbs == ["audit.leave", "audit.leave", "audit.retry", "audit.retry"]


def test_an_agent_with_a_failure_is_not_ok(browser: Browser, notes: Place) -> None:
    def state_of(agent: str) -> str:
        row = browser.get("/", fragment="agents").text.partition(f"{agent}</th>")[2].partition("</tr>")[0]
        return row.partition('data-label="State">')[2]

    assert ">ok<" in state_of("main") and ">ok<" in state_of("work")
    with closing(IndexWriter.of(notes.settings.agents["work"])) as writer:
        writer.retarget(MODEL_A)
        writer.store_file(file_row("memory/a.md", "one text"))
        writer.connection.execute("UPDATE vectors SET state = 'failed', error = 'refused'")
    notes.folder.joinpath("main").rename(notes.folder / "moved")

    until(lambda: ">problem<" in state_of("main"), "the workspace that is gone")
    assert ">failed<" in state_of("work")
