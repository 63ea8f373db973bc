"""A reindex that is asked for on the page: its job, who asked for it, and the state of the fleet."""

import logging
import re

import pytest

from memline.producers.reports import job_reports
from tests.integration.web.conftest import ALL, WORK, Opener, configure
from tests.support.browser import Browser, text_of
from tests.support.redis_server import RedisServer
from tests.support.workspace import Place


@pytest.fixture
def fleet(opened: Opener, redis: RedisServer) -> Browser:
    """A browser of the owner, at a server with a queue and without workers."""
    browser = opened(token=ALL, tokens={"work": WORK}, blocks={"queue": {"url": redis.url}})
    browser.log_in(ALL)
    return browser


def jobs_of(place: Place, redis: RedisServer) -> list[tuple[str, str, str]]:
    """(agent, state, who asked) of every job."""
    settings = configure(place, queue={"url": redis.url}).settings
    listed = job_reports.listed([*settings.agents.values()], prices={}, now=0)
    return sorted(
        (each.agent, each.job.state, each.job.asked_by) for each in listed if each.job.kind == "reindex"
    )


def test_a_reindex_of_the_page_is_a_job_with_one_line_in_the_log(
    fleet: Browser, redis: RedisServer, notes: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    plan = fleet.shows("/reindex", agent="main", plan="1", force="1")
    done = fleet.post("/reindex", agent="main", force="1")

    assert "1 file to read" in plan and "memline --agent main reindex --force" in plan
    assert done.url.path == "/ui/" and "reads 1 file." in text_of(done)
    assert "reads 1 file" not in fleet.shows("/")
    assert jobs_of(notes, redis) == [("main", "running", "token")]
    assert [each.getMessage() for each in caplog.records].count("audit.reindex") == 1


def test_the_token_of_an_agent_asks_for_its_own_agent_alone(
    fleet: Browser, redis: RedisServer, notes: Place
) -> None:
    with Browser(fleet.url) as worker:
        worker.log_in(WORK)

        assert worker.post("/reindex", agent="main").status_code == 403
        assert worker.post("/reindex", agent="work", force="1").status_code == 200
        assert "Oldest message" not in worker.shows("/") and "Dead messages" not in worker.shows("/")

    assert jobs_of(notes, redis) == [("work", "running", "tokens.work")]


def test_the_overview_of_a_fleet_says_how_many_roles_are_alive(fleet: Browser) -> None:
    page = fleet.shows("/")

    assert re.search(r"Roles alive 0 of [234] expected", page)
    assert re.search(r"queue: no worker is alive (· .{1,12} )?command memline fleet", page)
    assert "Dead messages 0" in page
