"""The status strip of every page: what is wrong now, each with the page that shows it."""

import re
from pathlib import Path
from typing import Any

import pytest

from memline.producers.runs.index_run import bring_up_to_date
from memline.producers.web.dashboard import PAGES
from memline.producers.web.rendering import Renderer, Static
from memline.producers.web.snapshot import AgentFigures, Snapshot
from memline.producers.web.strip import Link, Strip, link_of, strip_of
from memline.shared.finding import NOTE, PROBLEM, WARNING, Finding
from memline.shared.queue import redis_client
from memline.shared.queue.depth import Fleet, QueueDepth
from memline.shared.queue.heartbeat import WorkerInfo
from tests.integration.web.conftest import Opener
from tests.integration.web.test_pages import events
from tests.support.browser import Browser
from tests.support.redis_server import RedisServer
from tests.support.workspace import Place, until

#: In the head of the page, before its content.
STRIP = re.compile(
    r'<div id="status" data-problems="(\d+)" data-warnings="(\d+)">(.*?)</div>\s*</div>.*<main', re.S
)


def strip(browser: Browser, path: str) -> tuple[int, int, list[tuple[str, str]]]:
    """Return how many problems and warnings a page says, and the code and address of each finding."""
    found = STRIP.search(browser.get(path).text)
    assert found, path
    links = re.findall(r'data-code="(\w+)" href="([^"]+)"', found[3])
    return int(found[1]), int(found[2]), links


def spoil(place: Place, agent: str) -> None:
    """Have a note that is not text in the index of an agent."""
    place.write(f"../{agent}/memory/spoilt.md", b"\xff\xfe\x00")
    settings = place.settings
    bring_up_to_date(settings, settings.agents[agent])


def test_every_page_has_the_strip_and_each_finding_leads_to_a_page(owner: Browser, notes: Place) -> None:
    spoil(notes, "work")
    notes.folder.joinpath("main").rename(notes.folder / "moved")

    for page in PAGES:
        if "{" in page.path or page.needs_queue or page.path in ("/file", "/note"):
            continue
        problems, warnings, links = strip(owner, page.path)
        assert {"file_failed", "workspace_missing"} <= {code for code, _ in links}, page.path
        assert problems and warnings
        for _, href in links:
            assert owner.client.get(href).status_code == 200, href
    assert 'rel="icon" href="/ui/static' in owner.get("/").text
    assert re.search(r"<title>\d+ (problem|warning)s? · Files · Memline</title>", owner.get("/files").text)


def test_a_token_of_one_agent_sees_what_is_of_its_agent(
    owner: Browser, worker: Browser, notes: Place
) -> None:
    spoil(notes, "main")

    assert "file_failed" in {code for code, _ in strip(owner, "/")[2]}
    assert "file_failed" not in {code for code, _ in strip(worker, "/")[2]}
    assert all(worker.client.get(href).status_code == 200 for _, href in strip(worker, "/")[2])


def test_a_page_that_is_open_is_told_what_a_row_says(browser: Browser, notes: Place) -> None:
    said = events(browser)
    first = next(each for each in said if "status" in each)
    assert 'data-code="file_failed"' not in first["status"]["rest"]

    spoil(notes, "main")
    told = next(each for each in said if 'data-code="file_failed"' in each.get("status", {}).get("rest", ""))

    assert "findings" in told["topics"] and told["status"]["warnings"] > first["status"]["warnings"]
    assert told["status"]["words"].endswith(("problem", "warning", "problems", "warnings"))


def test_a_redis_that_is_killed_is_told_and_so_is_its_return(opened: Opener, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis") as redis:
        said = events(opened(blocks={"queue": {"url": redis.url}}))
        is_told = (
            'data-code="redis_unreachable"' in each["status"]["rest"] for each in said if "status" in each
        )
        assert next(is_told) is False

        redis.kill()
        assert next(each for each in is_told if each)
        redis.start()
        assert next(not each for each in is_told if not each)


@pytest.mark.parametrize(
    ("setting", "code"), [("maxmemory-policy", "redis_evicting"), ("maxmemory", "redis_full")]
)
def test_a_redis_that_loses_or_refuses_messages_is_told(
    opened: Opener, tmp_path: Path, setting: str, code: str
) -> None:
    with RedisServer(tmp_path / "redis") as redis:
        client = redis_client.client(redis.url)
        client.config_set("maxmemory", "1" if setting == "maxmemory" else "100mb")
        if setting == "maxmemory-policy":
            client.config_set("maxmemory-policy", "allkeys-lru")
        browser = opened(blocks={"queue": {"url": redis.url}})

        links = strip(browser, "/queues")[2]

    assert code in {each for each, _ in links} and "redis_unreachable" not in {each for each, _ in links}


def test_the_strip_counts_a_thing_once_and_no_note() -> None:
    def finding(code: str, level: str, what: str = "words") -> Finding:
        return Finding(code=code, level=level, what=what, agent="main", page="overview")

    found = (
        finding("a", PROBLEM), finding("a", PROBLEM, "other words"), finding("b", WARNING), finding("c", NOTE)
    )  # fmt: skip
    snapshot = Snapshot(
        at=0.0, agents={}, fleet=None, fleet_error="", expected=(), spending={}, has_queue=False,
        findings={"main": found}, files_at=0.0,
    )  # fmt: skip

    made = strip_of(snapshot, "main", has_page=lambda _: False)

    assert (made.problems, made.warnings, made.counts, made.level) == (1, 1, "1 problem", PROBLEM)
    assert [each.href for each in made.links] == ["/ui/#a", "/ui/#a", "/ui/#b"]


def fleet_without(missing: str) -> Fleet:
    depths = {"waiting": 0, "in_flight": 0, "delayed": 0, "dead": 0, "oldest_s": 0.0, "rate_per_minute": 0.0}
    worker = WorkerInfo(
        id="w", threads_of={role: 1 for role in ROLES if role != missing}, host="kelp", pid=1, version="1",
        started=0.0, last_seen=0.0, busy_s=0,
    )  # fmt: skip
    queues = tuple(QueueDepth(name=role, role=role, **depths) for role in ROLES)
    return Fleet(queues=queues, workers=(worker,), used_memory=0)


ROLES = ("chunk", "embed", "store")


def spending(cost: float = 0.0, unpriced: int = 0, tokens: int = 0, **limits: float) -> dict[str, Any]:
    return {
        "today": {"cost": cost, "tokens": tokens, "unpricedTokens": unpriced},
        "limits": {"maxCostPerDay": None, "maxTokensPerDay": None} | limits,
    }


def snapshot_of(*codes: str, missing: str = "", **spent: Any) -> Snapshot:
    """A fleet whose index wants texts, and of which these are told."""
    vectors = {"wanted": 3, "leased": 0, "failed": 0, "ready": 0, "paused": 0, "cancelled": 0}
    state = {"vectors": vectors, "vectorsPerSecond": 0.0, "findings": [], "halted": "", "providers": []}
    told = {"": tuple(Finding(code=each, level=WARNING, what="words") for each in codes)}
    figures = AgentFigures(agent="main", state=state, files_behind=0)
    return Snapshot(
        at=0.0, agents={"main": figures}, fleet=fleet_without(missing), fleet_error="", expected=ROLES,
        spending=spending(**spent), has_queue=True, findings=told, files_at=0.0,
    )  # fmt: skip


def test_a_role_that_is_missing_is_said_once() -> None:
    facts = strip_of(snapshot_of("role_missing", missing="embed"), "", has_page=lambda _: True).facts

    assert facts.count("roles missing: embed") == 1 and not any("role is missing" in each for each in facts)
    assert "no role is missing" in strip_of(snapshot_of(), "", has_page=lambda _: True).facts


@pytest.mark.parametrize(
    ("spent", "words", "tile"),
    [
        ({}, "$0.00", ("$0.00", "")),
        ({"cost": 1.4, "maxCostPerDay": 2.5}, "$1.4000 of $2.5000", ("$1.4000", "")),
        (
            {"unpriced": 4183, "tokens": 4183},
            "4,183 tokens without a price",
            ("4,183", "tokens without a price"),
        ),
        (
            {"unpriced": 5, "maxTokensPerDay": 5},
            "5 of 5 tokens without a price",
            ("5", "tokens without a price"),
        ),
        (
            {"cost": 0.2, "unpriced": 1},
            "$0.2000 and 1 token without a price",
            ("$0.2000", "and 1 token without a price"),
        ),
    ],
)
def test_what_was_spent_is_said_with_its_ceiling_and_without_a_price_in_tokens(
    spent: dict[str, Any], words: str, tile: tuple[str, str]
) -> None:
    """The figure of the tile, which is large, is a figure; words stand below it."""
    snapshot = snapshot_of(**spent)

    assert f"{words} spent today" in strip_of(snapshot, "", has_page=lambda _: True).facts
    assert tuple(snapshot.figures("")[name] for name in ("spent", "spent_more")) == tile


def test_each_finding_of_the_home_page_says_whose_it_is_leads_to_its_page_and_has_its_button(
    browser: Browser, notes: Place
) -> None:
    spoil(notes, "work")
    notes.write("../main/memory/new.md", "An umbrella.\n")
    until(lambda: 'id="files_behind"' in browser.get("/").text, "the new file")

    # Since when depends on who looked first.
    page = re.sub(r" · <time.*?</time>", "", browser.get("/").text)
    rows = dict(re.findall(r'<li id="(\w+)">(.*?)</li>', page, re.S))

    assert 'href="/ui/files?agent=main">main: 1 file is not in the index yet</a>' in rows["files_behind"]
    assert 'href="/ui/files?agent=work&amp;outcome=problems">work: 1 file' in rows["file_failed"]
    for code, agent in (("files_behind", "main"), ("file_failed", "work")):
        assert 'action="/ui/index"' in rows[code] and f'name="agent" value="{agent}"' in rows[code]
        assert "memline index</code>" in rows[code] and '<p class="command">' not in rows[code]
        assert f'id="{code}"' in browser.get("/files", agent=agent).text.partition("<main")[2]
    browser.press("/files", "Index now", agent="main")
    until(lambda: 'id="files_behind"' not in browser.get("/").text, "the index run")


def finding(code: str = "vectors_behind", action: str = "memline index", **more: Any) -> Finding:
    return Finding(code=code, level=WARNING, what="words", agent="main", action=action, page="files", **more)


@pytest.mark.parametrize(
    ("action", "is_owner", "has_queue", "expected"),
    [
        ("memline index", False, False, ("index", {})),
        ("memline index", False, True, ("reindex", {})),
        ("memline index   (moves the damaged file aside)", True, True, ("reindex", {})),
        ("memline jobs resume 5f3a", False, True, ("jobs resume", {"job": "5f3a"})),
        ("memline queue resume --provider gemini", True, False, ("queue resume", {"provider": "gemini"})),
        ("memline queue resume", False, True, ("", {})),
        ("memline queue resume --mode", True, True, ("", {})),
        ("memline fleet", True, True, ("", {})),
        ("search again", True, True, ("", {})),
        ("", True, True, ("", {})),
    ],
)  # fmt: skip
def test_the_button_of_a_finding_is_that_of_the_command_which_it_advises(
    action: str, is_owner: bool, has_queue: bool, expected: tuple[str, dict[str, str]]
) -> None:
    link = link_of(finding(action=action), has_page=lambda _: True, is_owner=is_owner, has_queue=has_queue)

    assert (link.call, {name: text for name, text in link.fields.items() if name != "agent"}) == expected
    assert link.fields.get("agent", "main") == "main" and bool(link.call) is bool(link.command)


def test_a_finding_says_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_600.0)
    link = Link(finding=finding(since=1_000_000.0), href="/ui/files")
    strip = Strip(problems=0, warnings=1, links=(link,), facts=())

    shown = Renderer(Static()).macro("strip.html", "rest", strip)

    moment = '<time datetime="1970-01-12T13:46:40Z" title="1970-01-12 13:46:40 UTC">10 min ago</time>'
    # What it says may end with a time of its own: "about 55 s".
    assert f"main: words · {moment}</a>" in shown
