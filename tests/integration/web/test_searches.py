"""The page of searches: what is counted, and what of the questions is kept, told and forgotten."""

import json
from typing import Any

import httpx
import pytest

from memline.shared.figures.counters import tally_of
from tests.integration.web.conftest import ALL, WORK, Opener
from tests.support.browser import Browser
from tests.support.workspace import Place, until

SECRET = "zanzibar painting"


def ask(browser: Browser, query: str, agent: str = "main") -> dict[str, Any]:
    answer = httpx.get(f"{browser.url}/search", params={"query": query, "agent": agent}, timeout=120)
    assert answer.status_code == 200
    return dict(answer.json())


def kept(place: Place) -> list[str]:
    """What of questions stands in the account file, as bytes: also what was deleted."""
    content = place.settings.account_path.read_bytes()
    wal = place.settings.account_path.with_name(place.settings.account_path.name + "-wal")
    content += wal.read_bytes() if wal.exists() else b""
    return [word for word in SECRET.split() if word.encode() in content]


def test_without_the_key_questions_are_counted_and_their_text_is_kept_nowhere(
    notes: Place, opened: Opener
) -> None:
    first = opened()
    ask(first, "cents")
    ask(first, SECRET)
    ask(first, "vault", agent="work")
    # By itself it does so some seconds later.
    tally_of(notes.settings.account_path).write()

    page = first.shows("/searches")

    assert "main http 2 1 0 1 0" in page and "work http 1 1 0 0 0" in page
    assert "The text of questions is not kept" in page
    assert kept(notes) == []


def test_with_the_key_the_page_says_what_is_not_found_and_what_is_slow(opened: Opener) -> None:
    browser = opened(logQuestions=True)
    ask(browser, "cents")
    for _ in range(2):
        ask(browser, SECRET)

    page = browser.shows("/searches")

    words, _, rest = page.partition("Words that stand nowhere")[2].partition("Without a hit")
    assert "painting 2 questions" in words and "zanzibar 2 questions" in words
    without, _, slowest = rest.partition("The slowest")
    assert without.count(SECRET) == 1 and "cents" not in without
    assert slowest.count(SECRET) == 2 and "cents" in slowest


def test_forget_deletes_the_kept_questions_of_its_agent(notes: Place, opened: Opener) -> None:
    browser = opened(logQuestions=True)
    ask(browser, SECRET)
    ask(browser, "harbour", agent="work")
    assert kept(notes) == SECRET.split()

    ran = notes.run("--agent", "main", "forget", "MEMORY.md#L3", "--yes")

    assert ran.status == 0, ran.stderr
    assert kept(notes) == []
    page = browser.shows("/searches")
    assert SECRET not in page and "harbour" in page


def test_the_token_of_an_agent_sees_its_own_questions(opened: Opener) -> None:
    browser = opened(logQuestions=True)
    ask(browser, SECRET)
    ask(browser, "harbour", agent="work")

    other = opened(logQuestions=True, token=ALL, tokens={"work": WORK})
    assert other.log_in(WORK).status_code == 200
    page = other.shows("/searches")

    assert "harbour" in page and SECRET not in page
    assert other.get("/searches", agent="main").status_code == 403


@pytest.mark.parametrize("is_logged", [False, True])
def test_the_line_of_a_request_has_its_question_only_with_the_key(
    opened: Opener, caplog: pytest.LogCaptureFixture, is_logged: bool
) -> None:
    browser = opened(logQuestions=is_logged)
    caplog.set_level("INFO")

    ask(browser, SECRET)
    headers = {"accept": "application/json, text/event-stream"}
    call = {"name": "memory_search", "arguments": {"query": SECRET}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    answer = httpx.post(f"{browser.url}/mcp", json=body, headers=headers, timeout=120)
    assert answer.status_code == 200 and not json.loads(answer.text)["result"]["isError"]

    def lines() -> list[dict[str, Any]]:
        return [vars(each)["memline_fields"] for each in caplog.records if each.name == "memline.request"]

    # A line is written when its answer has been sent.
    until(lambda: len(lines()) == 2, "the lines of both requests")
    assert [(line["route"], line.get("question")) for line in lines()] == [
        (route, SECRET if is_logged else None) for route in ("/search", "/mcp")
    ]
