"""The charts: what they show after a restart, to whom, and that they end with what the tiles say."""

import html
import json
import re
import time
from contextlib import closing
from typing import Any

import pytest

from memline.shared.embedders.protocol import Identity
from memline.shared.figures import points
from memline.shared.figures.points import Point
from memline.shared.index.accounts import AccountFile
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling.budget import Budget, Charge
from tests.integration.web.conftest import Opener
from tests.support.browser import Browser
from tests.support.index_rows import MODEL_A, file_row
from tests.support.workspace import Place


def put(place: Place, ago_s: float, **fields: Any) -> None:
    """Write a point of some time ago."""
    now = time.time() - ago_s
    with closing(AccountFile(place.settings.account_path)) as file:
        points.take_turn(file, "me", now, is_alive=lambda _: False)
        points.write(file, Point(seconds=15, **fields), {}, now)


def charts(browser: Browser, **query: str) -> dict[str, dict[str, Any]]:
    """The values of each chart, by what it is called."""
    page = browser.get("/charts", **query).text
    shown = re.findall(r'aria-label="([^:"]+):[^"]*" data-chart="([^"]+)"', page)
    return {html.unescape(label): json.loads(html.unescape(data)) for label, data in shown}


def values(chart: dict[str, Any], series: str = "") -> list[str]:
    """The values of a series that are known."""
    return [each for each in chart["series"][series] if each is not None]


def test_charts_survive_a_restart_of_the_server(notes: Place, opened: Opener) -> None:
    put(notes, 40 * 60, last={"backlog\t": 251}, sums={"searches\t": 30, "search_le\t\t0.01": 30})

    for _ in range(2):
        found = charts(opened())
        assert values(found["Vectors wanted"]) == ["251", "0"]
        assert values(found["Searches per minute"]) == ["120"]
        assert values(found["Time of a search"], "p95") == ["10 ms"]
    day, month = charts(opened(), span="day"), charts(opened(), span="month")

    assert day["Vectors wanted"]["step"] == 360 and month["Vectors wanted"]["step"] == 10_800
    assert "251" in values(day["Vectors wanted"])
    assert "251" in values(month["Vectors wanted"]) or values(month["Vectors wanted"]) == ["0"]


def test_a_chart_ends_with_what_its_tile_says(notes: Place, browser: Browser) -> None:
    put(notes, 5, last={"backlog\t": 251})
    with closing(IndexWriter.of(notes.settings.agents["work"])) as writer:
        writer.retarget(MODEL_A)
        writer.store_file(file_row("memory/a.md", "one text"))

    tile = re.findall(r'data-figure="wanted">([^<]+)', browser.get("/").text)

    assert values(charts(browser)["Vectors wanted"])[-1:] == tile == ["2"]


def test_a_chart_ends_with_a_gap_where_redis_cannot_be_asked(notes: Place, opened: Opener) -> None:
    put(notes, 5, last={"oldest": 21, "dead": 3})

    page = opened(blocks={"queue": {"url": "redis://127.0.0.1:1/0"}}).get("/charts").text

    assert 'aria-label="Oldest message: now –' in page and 'aria-label="Dead messages: now –' in page


def test_an_agent_has_charts_of_its_own(notes: Place, browser: Browser) -> None:
    put(notes, 60, last={"backlog\t": 9, "backlog\twork": 4, "backlog\tmain": 5})

    assert values(charts(browser, agent="work")["Vectors wanted"]) == ["4", "0"]
    assert values(charts(browser)["Vectors wanted"]) == ["9", "0"]


def test_the_token_of_an_agent_sees_no_other_and_nothing_of_the_home(notes: Place, worker: Browser) -> None:
    put(notes, 60, last={"backlog\t": 9, "backlog\twork": 4}, sums={"calls\topenai\trate_limit": 3})

    found = charts(worker)

    assert values(found["Vectors wanted"])[0] == "4"
    assert found.keys() == {"Vectors wanted", "Vectors per second", "Searches per minute", "Time of a search"}
    assert worker.get("/charts", agent="main").status_code == 403


def test_errors_are_shown_by_kind(notes: Place, browser: Browser) -> None:
    put(notes, 60, sums={"calls\topenai\trate_limit": 3, "calls\topenai\tok": 90, "calls\topenai\tlater": 1})

    found = charts(browser)["Errors of providers"]

    assert {name: values(found, name) for name in found["series"]} == {
        "429": ["3"],
        "401, quota": ["0"],
        "5xx, network": ["1"],
    }


def test_money_is_shown_by_day_and_provider_below_its_ceiling(notes: Place, opened: Opener) -> None:
    browser, now = opened(blocks={"limits": {"maxCostPerDay": 2.5}}), time.time()
    with closing(AccountFile(notes.settings.account_path)) as file:
        for provider, model in (("openai", "text-embedding-3-small"), ("voyage", "voyage-4-large")):
            identity = Identity(provider=provider, model=model)
            Budget(file).reserve(Charge(identity=identity, account=f"{provider}:1"), "", 10_000_000, now)

    page = browser.shows("/charts")
    money = charts(browser)["Money a day (UTC)"]

    assert "ceiling $2.50" in page
    assert {name: values(money, name)[-1] for name in money["series"]} == {
        "openai": "$0.2000",
        "voyage": "$1.2000",
    }
    spent = re.findall(r'data-figure="spent">([^<]+)', browser.get("/").text)
    assert spent == ["$1.4000"]


def test_a_span_that_does_not_exist_is_said(browser: Browser) -> None:
    answer = browser.get("/charts", span="year")

    assert answer.status_code == 400 and "hour, day, month" in answer.text


@pytest.mark.parametrize("path", ["/", "/charts"])
def test_a_picture_needs_no_script_and_has_axes(notes: Place, browser: Browser, path: str) -> None:
    put(notes, 600, last={"backlog\t": 8})
    put(notes, 585, last={"backlog\t": 6})

    drawn = r'<svg viewBox[^>]+aria-label="Vectors wanted.*?</svg>'
    picture = re.findall(drawn, browser.get(path).text, re.DOTALL)

    assert len(picture) == 1
    assert "<polyline" in picture[0] and ">5</text>" in picture[0] and ">10</text>" in picture[0]
    assert re.search(r">\d\d:[0-5][05]</text>", picture[0])
