"""The pages of providers and sessions, and what their actions change."""

import logging
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memline.producers.runs.index_run import bring_up_to_date
from memline.shared.index import ledger
from memline.shared.index.driver import reading
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import breaker, health
from tests.integration.web.conftest import ALL, WORK, Opener, configure
from tests.integration.web.test_pages import HOSTILE, assert_harmless
from tests.support.browser import Browser, text_of
from tests.support.index_rows import MODEL_A, fail, file_row, lease_all
from tests.support.redis_server import RedisServer
from tests.support.transcripts import said
from tests.support.workspace import Place

KEY = "sk-proj-abcdefghijklmnop1234567890"


def stop(place: Place, agent: str) -> None:
    """An agent whose provider said a definite no, after calls of some kinds."""
    with closing(IndexWriter.of(place.settings.agents[agent])) as writer:
        writer.retarget(MODEL_A)
        writer.store_file(file_row("a.md", "apples"))
        writer.record_calls(MODEL_A, "lease", [("ok", 40), ("ok", 50), ("rate_limit", 3)])
        fail(writer, lease_all(writer)[0], "stop")


def health_of(place: Place, agent: str) -> breaker.Health:
    with closing(IndexWriter.of(place.settings.agents[agent])) as writer:
        return health.read(writer.accounts, "openai")


def test_a_provider_shows_its_breaker_calls_and_errors_and_is_probed_and_resumed(
    browser: Browser, notes: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stop(notes, "main")

    page = browser.shows("/providers")
    for text in (
        "openai",
        "open",
        "Calls in a day",
        "3 p50",
        "1 rate limit",
        "p50",
        "Probe now",
        "queue probe",
    ):
        assert text in page
    before = health_of(notes, "main").probe_at
    fields = {"agent": "main", "provider": "openai", "mode": "requests"}

    done = browser.post("/queue/probe", **fields)
    assert "main: openai requests: asked again" in text_of(done)
    assert health_of(notes, "main").probe_at < before

    done = browser.post("/queue/pause", **fields, next="/ui/providers")
    assert done.url.path == "/ui/providers" and health_of(notes, "main").manual
    browser.post("/queue/resume", **fields, next="/ui/providers")
    assert health_of(notes, "main").state == "closed" and not health_of(notes, "main").manual
    assert "no breaker is open" in text_of(browser.post("/queue/probe", **fields))
    assert browser.post("/queue/probe", **{**fields, "mode": "no"}).status_code == 400
    verbs = [record.getMessage() for record in caplog.records if "audit." in record.getMessage()]
    assert verbs == ["audit.probe", "audit.pause", "audit.resume", "audit.probe"]


#: What an operator paused, by the fields of the form.
PAUSES: tuple[dict[str, str], ...] = (
    {},
    {"mode": "requests"},
    {"mode": "batch"},
    {"provider": "openai"},
    {"provider": "openai", "mode": "requests"},
)


@pytest.mark.parametrize(
    ("path", "labels"),
    [
        ("/", ("Resume",)),
        ("/providers", ("Resume all", "Resume")),
        ("/queues", ("Resume all", "Resume embed", "Resume batch")),
    ],
)
def test_each_pause_is_ended_on_the_page_that_its_finding_leads_to(
    opened: Opener, notes: Place, path: str, labels: tuple[str, ...], tmp_path: Path
) -> None:
    with closing(IndexWriter.of(notes.settings.agents["main"])) as writer:
        writer.retarget(MODEL_A)
    with RedisServer(tmp_path / "redis") as redis:
        browser = opened(blocks={"queue": {"url": redis.url}})

        def is_told() -> bool:
            return 'data-code="paused"' in browser.get(path).text or 'id="paused"' in browser.get("/").text

        for pause in PAUSES:
            browser.post("/queue/pause", agent="main", **pause)
            assert is_told(), pause
            for _ in range(4):
                page = browser.get(path).text.partition("<main")[2]
                if label := next((each for each in labels if f">{each}</button>" in page), ""):
                    done = browser.press(path, label)
                    assert "goes on." in text_of(done) and "still is" not in text_of(done), pause
            assert not is_told(), pause


def test_a_resume_of_a_mode_does_not_say_that_a_pause_of_all_ended(browser: Browser, notes: Place) -> None:
    stop(notes, "main")
    browser.post("/queue/pause", agent="main")

    done = browser.post("/queue/resume", agent="main", provider="openai", mode="requests")

    assert "goes on" not in text_of(done)
    assert "all embedding still is: memline queue resume --agent main" in text_of(done)
    assert "all embedding is paused" in browser.shows("/providers")


def test_a_pause_is_shown_at_the_queues_that_it_holds_back(
    opened: Opener, notes: Place, tmp_path: Path
) -> None:
    stop(notes, "main")
    with RedisServer(tmp_path / "redis") as redis:
        browser = opened(blocks={"queue": {"url": redis.url}})
        browser.post("/queue/pause", agent="main")
        page = browser.get("/queues").text

    held = re.findall(r'<th scope="row">(\w+)</th>(?:(?!</tr>).)*badge warning">paused', page, re.DOTALL)
    assert held == ["embed", "batch"]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_provider_answers_is_text(browser: Browser, notes: Place, text: str) -> None:
    with closing(IndexWriter.of(notes.settings.agents["main"])) as writer:
        writer.retarget(MODEL_A)
        ill = breaker.Health(state="open", reason=text, action=text, probe_at=9e9)
        health.update(writer.accounts, "openai", health.REQUESTS, 0.0, lambda _: ill)

    page = browser.get("/providers")

    assert page.status_code == 200
    assert_harmless(page)


@pytest.fixture
def sessions(notes: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Two agents with a transcript each, both indexed; that of `work` is nobody else's."""
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(notes.folder / "state"))
    for agent in ("main", "work"):
        folder = notes.folder / "state" / "agents" / agent / "sessions"
        folder.mkdir(parents=True)
        lines = [
            said("user", f"my key of {agent} is {KEY}, and api_key={KEY[8:]}"),
            said("assistant", "fine"),
        ]
        (folder / f"{agent}.jsonl").write_text("".join(f"{line.rstrip()}\n" for line in lines))
    return notes


def opened_with_sessions(opened: Opener, place: Place, **more: Any) -> Browser:
    defaults: dict[str, Any] = {
        "memorySearch": {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
    }
    defaults |= more.pop("defaults", {})
    agents = [{"id": name, "workspace": str(place.folder / name)} for name in ("main", "work")]
    blocks = {"agents": {"defaults": defaults, "list": agents}}
    settings = configure(place, **blocks).settings
    for agent in settings.agents.values():
        bring_up_to_date(settings, agent)
    return opened(blocks=blocks, **more)


def test_transcripts_show_how_far_they_were_read_and_count_secrets(opened: Opener, sessions: Place) -> None:
    browser = opened_with_sessions(opened, sessions, token=ALL, tokens={"work": WORK})
    browser.log_in(ALL)

    page = browser.get("/sessions", agent="main")

    assert "main.jsonl" in page.text and "work.jsonl" not in page.text
    assert KEY not in page.text and KEY[8:20] not in page.text
    with reading(sessions.settings.agents["main"].index_path) as reader:
        (row,) = ledger.transcripts(reader, first=0, limit=9)
    assert (row["messages"], row["secrets"]) == (2, 2) and row["consumed"] == row["size"]
    assert 'data-label="Secrets masked">2<' in page.text
    with Browser(browser.url) as worker:
        worker.log_in(WORK)
        assert "work.jsonl" in worker.get("/sessions").text
        assert worker.get("/sessions", agent="main").status_code == 403


@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_titles_of_sessions_are_text(opened: Opener, sessions: Place, text: str) -> None:
    name = text.replace("/", "_") + ".jsonl"
    folder: Path = sessions.folder / "state" / "agents" / "main" / "sessions"
    (folder / name).write_text(said("user", text).rstrip() + "\n")
    browser = opened_with_sessions(opened, sessions)

    page = browser.get("/sessions", agent="main")

    assert page.status_code == 200
    assert_harmless(page)
