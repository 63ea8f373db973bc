"""The pages of queues, messages and workers on a real redis-server, and what their actions do in Redis."""

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from jsonschema import validate

from memline.producers.calls.arguments import answers
from memline.shared.config.config_file import SettingsFile
from memline.shared.index import meta
from memline.shared.index.driver import reading
from memline.shared.queue.heartbeat import Heartbeat, done_key
from memline.shared.queue.message_list import DEAD, DELAYED, WAITING
from memline.shared.scheduling import home_processes
from tests.integration.web.conftest import ALL, WORK, Opener
from tests.integration.web.test_pages import HOSTILE, assert_harmless
from tests.support.browser import Browser, text_of
from tests.support.redis_server import RedisServer
from tests.support.stored_messages import StoredMessages, files
from tests.support.workspace import Place, until


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def stored(redis_server: RedisServer) -> Iterator[StoredMessages]:
    found = StoredMessages(redis_server.url, "web")
    with closing(found.client) as client:
        client.flushdb()
        yield found


@pytest.fixture
def browser(opened: Opener, stored: StoredMessages, redis_server: RedisServer) -> Browser:
    """A browser that is logged in at a server of the fleet `web`."""
    queue = {"queue": {"url": redis_server.url, "name": "web"}}
    found = opened(blocks=queue, token=ALL, tokens={"work": WORK})
    assert found.log_in(ALL).status_code == 200
    return found


@pytest.fixture
def embedder(browser: Browser, stored: StoredMessages) -> Iterator[list[int]]:
    """A worker `embed` that is alive and works on a message; how often it was told to end."""
    told: list[int] = []
    heartbeat = Heartbeat()
    heartbeat.before_process_message(None, _Message)
    heartbeat.start(stored.url, "worker-1", {"embed": 4}, on_drain=lambda: told.append(1))
    until(lambda: "embed_texts" in browser.shows("/workers"), "the worker")
    yield told
    heartbeat.stop()


class _Message:
    message_id, queue_name, actor_name, args = "m<1>", "embed", "embed_texts", ({"agent": "main"},)
    options = MappingProxyType[str, str]({})


def audited(caplog: pytest.LogCaptureFixture, verb: str) -> list[dict[str, Any]]:
    return [record.__dict__ for record in caplog.records if record.getMessage().startswith(f"audit.{verb}")]


def test_queues_show_their_depth_age_rate_and_who_serves_them(
    browser: Browser, stored: StoredMessages
) -> None:
    stored.put(WAITING, "chunk", "one", files("a.md"), ago_s=600)
    stored.put(DELAYED, "chunk", "two", files("a.md"), ago_s=-60)
    stored.put(DEAD, "store", "three", files("a.md"))
    now_s: Any = stored.client.time()
    stored.client.set(done_key(stored.client, "chunk", now_s[0] // 10), 7)

    until(lambda: "chunk 1 " in browser.shows("/queues"), "the message")
    page = browser.get("/queues")
    row = re.search(r'<th scope="row">chunk</th>(.*?)</tr>', page.text, re.DOTALL)

    assert row and "10 min" in row[1] and "memline worker chunk" in row[1] and "<polyline" in row[1]
    assert ">1</a>" in row[1] and "7.0" in row[1]
    assert browser.get("/queues", fragment="rows").text.count("<tr>") == page.text.count("<tr>")


def test_a_pause_is_of_a_mode_and_an_agent_and_is_taken_back(
    browser: Browser, notes: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def paused(agent: str) -> bool:
        with reading(notes.settings.agents[agent].index_path) as reader:
            return bool(meta.get(reader, meta.PAUSED, False))

    done = browser.post("/queue/pause", agent="work", mode="", next="/ui/queues")
    assert "work: embedding is paused." in text_of(done) and done.url.path == "/ui/queues"
    assert (paused("main"), paused("work")) == (False, True)

    browser.post("/queue/resume", agent="", mode="")
    assert not paused("work")
    assert "While batches are paused, texts go out in requests, at full price" in browser.shows("/queues")
    assert len(audited(caplog, "pause")) == 1 and len(audited(caplog, "resume")) == 1
    assert browser.post("/queue/pause", mode="no").status_code == 400
    assert browser.post("/queue/pause", provider="no").status_code == 400


def test_a_selection_of_dead_messages_is_requeued(
    browser: Browser, stored: StoredMessages, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stored.put(DEAD, "chunk", "one", files("deep/a.md"), error="OSError: disk is full")
    stored.put(DEAD, "chunk", "two", files("b.md", agent="work"), error="ValueError: no")

    page = browser.shows("/messages", agent="main")
    assert "deep/a.md" in page and "b.md" not in page and "memline --agent main queue dead" in page

    done = browser.post("/messages/requeue", state="dead", message=["chunk one", "chunk gone"])

    assert "1 message put back on the queues. 1 other had been taken" in text_of(done)
    assert stored.names() == ["two"] and stored.names(WAITING) == ["one"]
    (line,) = audited(caplog, "requeue")
    assert "deep/a.md" not in str(line)


def test_a_group_of_dead_messages_with_one_error_is_dropped_as_it_was_shown(
    browser: Browser, stored: StoredMessages
) -> None:
    for number in range(60):
        stored.put(DEAD, "chunk", f"m{number:02}", files("a.md"), ago_s=600 - number, error=f"no '{number}'")
    stored.put(DEAD, "store", "other", files("a.md"), error="else")

    page = browser.get("/messages")
    (form,) = [each for each in page.text.split("<form") if "Drop 60 messages" in each]
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))
    assert f"memline queue drop --state dead --group {fields['group']}" in text_of(page)
    assert "chunk: 60 dead, store: 1 dead." in text_of(page)
    assert "other" not in browser.get("/messages", group=fields["group"]).text.partition("<table")[2]
    # One more fails after the page was shown.
    stored.put(DEAD, "chunk", "late", files("a.md"), ago_s=-1, error="no 'late'")
    done = browser.post("/messages/drop", **{**fields, "form_token": browser.form_token()})

    assert "60 messages removed." in text_of(done)
    assert stored.names() == ["late", "other"]


def test_messages_are_listed_and_changed_over_http_with_a_token_for_all(
    browser: Browser, stored: StoredMessages
) -> None:
    for name in ("one", "two"):
        stored.put(DEAD, "chunk", name, files(f"{name}.md"), error=f"no '{name}'")

    with httpx.Client(base_url=browser.url, headers={"authorization": f"Bearer {ALL}"}) as client:
        dead = client.get("/queue/dead").json()
        listed = client.get("/queue/messages", params={"state": "dead", "limit": 1}).json()
        following = client.get("/queue/messages", params={"after": listed["after"]}).json()
        requeued = client.post("/queue/requeue", json={"id": ["one"]}).json()
        dropped = client.post("/queue/drop", json={"group": dead["groups"][0]["group"]}).json()
        refused = client.post("/queue/drop", json={})
        of_one = {"authorization": f"Bearer {WORK}"}
        closed = [client.get(f"/queue/{each}", headers=of_one).status_code for each in ("dead", "messages")]

    validate(dead, answers()["dead"])
    validate(listed, answers()["messages"])
    assert [group["count"] for group in dead["groups"]] == [2]
    assert [each["path"] for each in (*listed["messages"], *following["messages"])] == ["one.md", "two.md"]
    assert (listed["counts"], requeued) == ({"chunk": 2}, {"requeued": 1})
    assert dropped == {"dropped": 1, "paidAnswers": 0}
    assert (refused.status_code, closed) == (400, [403, 403])
    assert stored.names() == [] and stored.names(WAITING) == ["one"]


def test_all_waiting_messages_of_a_queue_are_dropped(browser: Browser, stored: StoredMessages) -> None:
    for number in range(60):
        stored.put(WAITING, "chunk", f"m{number:02}", files(f"{number}.md"))
    stored.put(WAITING, "store", "other", files("a.md"))

    page = text_of(browser.get("/messages", state="waiting", queue="chunk"))
    assert "Drop all 60" in page and "memline queue drop --state waiting --queue chunk" in page
    done = browser.post("/messages/drop", state="waiting", queue="chunk", all="1", count="60")

    assert "60 messages removed." in text_of(done)
    assert stored.names(WAITING) == ["other"]


@pytest.mark.parametrize("fields", [{"all": "1", "count": "2"}, {"message": ["store paid", "store files"]}])
def test_before_an_answer_that_is_paid_for_is_dropped_its_loss_is_said(
    browser: Browser, stored: StoredMessages, fields: dict[str, Any]
) -> None:
    stored.put(WAITING, "store", "files", files("a.md"))
    stored.put(WAITING, "store", "paid", files("a.md"), actor="store_vectors")

    asked = browser.post("/messages/drop", state="waiting", queue="store", ask="1", **fields)

    assert "2 messages are removed for good" in text_of(asked)
    assert "Lost with them: 1 paid answer." in text_of(asked)
    assert stored.names(WAITING) == ["files", "paid"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"state": "no", "message": "chunk one"},
        {"state": "waiting", "message": "chunk one", "verb": "requeue"},
        {"message": "no one"},
        {"message": "chunk"},
        {"all": "1"},
        {"all": "1", "count": "-1"},
        {"all": "1", "count": "x" * 20},
    ],
)
def test_a_form_that_no_page_of_ours_made_changes_nothing(
    browser: Browser, stored: StoredMessages, fields: dict[str, str]
) -> None:
    stored.put(DEAD, "chunk", "one", files("a.md"))
    verb = fields.pop("verb", "drop")

    answer = browser.post(f"/messages/{verb}", **fields)

    assert answer.status_code < 500 and stored.names() == ["one"]


def test_a_message_shows_its_errors_and_paths(browser: Browser, stored: StoredMessages) -> None:
    options = {
        "error": "last",
        "first_error": "first",
        "trace": "Traceback: line 7",
        "first_failed_at": 1_000,
    }
    stored.put(DEAD, "chunk", "one", files("a.md", "b.md"), retries=3, **options)

    link = re.search(r'href="/ui(/messages/one\?[^"]+)"', browser.get("/messages").text)
    assert link
    query = {
        name: found[0] for name, found in parse_qs(urlsplit(link[1].replace("&amp;", "&")).query).items()
    }
    page = browser.shows("/messages/one", **query)

    assert 'href="/ui/file?agent=main&amp;path=b.md">b.md</a>' in browser.get("/messages/one", **query).text
    for text in ("Last error last", "First error first", "line 7", "a.md b.md", "--id one"):
        assert text in page
    assert browser.get("/messages/one", state="dead", queue="chunk", id="gone").status_code == 404
    assert browser.get("/messages/one", state="no", queue="chunk", id="one").status_code == 400
    assert browser.get("/messages/one", state="dead", queue="no", id="one").status_code == 400


def test_pages_of_messages_go_on(browser: Browser, stored: StoredMessages) -> None:
    for number in range(120):
        stored.put(WAITING, "chunk", f"m{number}", files(f"note-{number}-.md"))

    seen, address = [], "/ui/messages?state=waiting"
    while address:
        page = browser.client.get(address).text
        seen += re.findall(r"note-(\d+)-", page)
        following = re.search(r'href="([^"]+)" rel="next"', page)
        address = following[1].replace("&amp;", "&") if following else ""

    assert seen == [str(number) for number in range(120)]
    assert browser.get("/messages", after="nowhere").status_code == 400


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_messages_are_text(browser: Browser, stored: StoredMessages, text: str) -> None:
    stored.put(DEAD, "chunk", text, files(f"{text}.md", agent=text), error=text, first_error=text, trace=text)
    stored.put(WAITING, "chunk", f"w{text}", files(text))
    link = re.search(r'href="(/ui/messages/one\?[^"]+)"', browser.get("/messages").text)
    assert link

    for page in (
        browser.get("/messages"),
        browser.get("/messages", state="waiting"),
        browser.get("/messages", agent=text, group=text),
        browser.client.get(link[1].replace("&amp;", "&")),
        browser.get("/messages/one", state="dead", queue="chunk", id=text),
        browser.get("/queues"),
    ):
        assert page.status_code == 200
        assert_harmless(page)


def test_a_worker_shows_what_it_works_on_and_is_drained(
    browser: Browser, embedder: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    # What is wrong is at most a second old.
    until(lambda: "memline worker store" in browser.shows("/workers"), "the finding")
    page = browser.shows("/workers")
    for text in (
        "embed",
        f"{os.getpid()}",
        "1 of 4",
        "embed_texts of main",
        "m<1>",
        "MB",
    ):
        assert text in page

    done = browser.post("/queue/drain", worker="worker-1")

    assert "finishes what it has taken, and ends" in text_of(done)
    until(lambda: bool(embedder), "the worker's drain")
    assert len(audited(caplog, "drain")) == 1
    assert browser.post("/queue/drain", worker="none").status_code >= 400


def test_processes_without_a_heartbeat_stand_beside_the_workers(browser: Browser, notes: Place) -> None:
    path = notes.settings.agents["main"].account_path
    with home_processes.registered(path, home_processes.WATCH, ["main", "work"], 1.0, SettingsFile()):
        assert f"watch {socket.gethostname()} {os.getpid()} main, work" in browser.shows("/workers")
        assert "alive" in text_of(browser.get("/workers", fragment="processes"))
    assert "neither watch nor serve is listed" in browser.shows("/workers")


def test_a_message_in_flight_is_shown_from_its_worker(browser: Browser, stored: StoredMessages) -> None:
    stored.put(WAITING, "chunk", "one", files("a.md"))
    assert browser.client.get("/ui/messages/one?state=in flight&queue=chunk&id=none").status_code == 404
    stored.client.lpop("memline:web:chunk")

    page = browser.shows("/messages/one", state="in flight", queue="chunk", id="one")

    assert "State in flight" in page and "a.md" in page and "Drop" not in page


def test_pages_of_the_fleet_are_not_for_a_token_of_one_agent(browser: Browser) -> None:
    with Browser(browser.url) as worker:
        worker.log_in(WORK)
        for path in ("/queues", "/messages", "/messages/one", "/workers"):
            assert worker.get(path).status_code == 403
        for path in ("/queue/pause", "/messages/drop", "/messages/requeue", "/queue/drain"):
            assert worker.post(path).status_code == 403
        navigation = worker.get("/").text
        assert "/ui/messages" not in navigation and "/ui/workers" not in navigation


def test_a_redis_that_goes_away_is_said_on_each_page(opened: Opener, tmp_path: Path) -> None:
    browser = opened(blocks={"queue": {"url": "redis://127.0.0.1:1/0"}})

    for path in ("/queues", "/workers"):
        assert "queue: Redis at " in browser.shows(path)
    assert browser.get("/messages").status_code == 503
