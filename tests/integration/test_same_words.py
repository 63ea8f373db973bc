"""Every face of a fleet says what is wrong in the words of the table, and nothing beside them."""

import json
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from memline.producers.actions import provider_pauses
from memline.producers.cli import run
from memline.producers.reports.status import examine
from memline.shared.finding import Finding
from memline.shared.findings.diagnosis import merged, of_common, queue_of
from memline.shared.findings.table import AGENT, COMMON, rows
from memline.shared.index import jobs
from memline.shared.index_writer import IndexWriter
from tests.support.browser import Browser
from tests.support.http_api import serving
from tests.support.index_rows import MODEL_A, add_batch, file_row, make_job
from tests.support.redis_server import RedisServer
from tests.support.workspace import Place

BATCH = "cafe0123cafe"


@pytest.fixture
def troubled(place: Place, redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An agent of a fleet without workers: paused, a job that waits, a batch that a person has to look at."""
    monkeypatch.setenv("MEMLINE_QUEUE_URL", redis.url)
    monkeypatch.setenv("COLUMNS", "400")
    place.configure(provider="openai", model="a", remote={"apiKey": "sk-test"}, sync={"onSearch": False})
    place.write("memory/a.md", "redis\n")
    place.index_path.parent.mkdir(parents=True)
    with closing(IndexWriter.of(place.agent)) as writer:
        writer.retarget(MODEL_A)
        writer.store_file(file_row("memory/a.md", "redis", "apples", "pears"))
        writer.store_file(file_row("memory/odd.md", outcome="not_text"))
        jobs.pause(writer.connection, make_job(writer, "b.md"), by="me", now=1.0)
        columns = {"job_id": "batch_7", "created_at": 1.0, "error": "403", "action": "make a key"}
        add_batch(writer, BATCH, **columns)
    provider_pauses.pause(place.agent)
    return place


@pytest.fixture
def api(troubled: Place) -> Iterator[httpx.Client]:
    with serving(troubled.settings) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


def expected(place: Place) -> list[Finding]:
    queue = queue_of(place.settings)
    return [*merged(examine(place.agent, queue=queue)[1], of_common(place.settings, [place.agent]))]


def words(found: list[dict[str, str]]) -> list[str]:
    return [each["what"] for each in found if each["level"] != "ok"]


def test_every_face_of_a_fleet_says_the_words_of_the_table(
    troubled: Place, api: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*line: str) -> str:
        run(troubled.arguments(*line))
        return capsys.readouterr().out

    found = expected(troubled)
    from_disk = {row.code for kind in (AGENT, COMMON) for row in rows(kind) if row.from_disk}
    everything = [each.what for each in found]
    of_rows = [each.what for each in found if each.code not in from_disk]
    of_agent = [each.what for each in found if each.agent]
    one = {each.code: each for each in found}
    assert {"paused", "job_paused", "batch_blocked", "file_failed", "role_missing"} <= set(one)

    (status,) = json.loads(printed("status", "--json"))
    queue = json.loads(printed("queue", "--json"))
    jobs = json.loads(printed("jobs", "ls", "--json"))
    (batch,) = json.loads(printed("batch", "ls", "--json"))
    answered = api.get("/search", params={"query": "redis"}).json()
    overview = api.get("/overview").json()
    for each in (status, api.get("/status").json(), *overview["agents"]):
        assert words(each["findings"]) == everything
    assert words(queue["findings"]) == of_rows
    (agent,) = queue["agents"]
    assert words(agent["findings"]) == [what for what in of_rows if what in of_agent]
    # What is of the machine comes first there.
    assert sorted(words(json.loads(printed("doctor", "--json")))) == sorted(everything)
    assert words(json.loads(printed("search", "redis", "--json"))["findings"]) == of_agent
    assert words(answered["findings"]) == of_agent
    assert (answered["warning"], answered["action"]) == (found[0].what, found[0].action)
    assert words(batch["findings"]) == [one["batch_blocked"].what]
    assert [words(each["findings"]) for each in jobs] == [[one["job_paused"].what]]
    assert [words(each["findings"]) for each in api.get("/jobs").json()["jobs"]] == [[one["job_paused"].what]]

    with Browser(str(api.base_url)) as browser:
        page = browser.shows("/")
    for text, listed in ((printed("status"), everything), (printed("queue"), of_rows), (page, everything)):
        shown = " ".join(text.split())
        places = [shown.find(what) for what in listed]
        assert -1 not in places and places == sorted(places)
    assert one["batch_blocked"].what in printed("batch", "show", BATCH)
    assert one["job_paused"].what in printed("jobs", "show", jobs[0]["id"])


def test_a_queue_that_cannot_be_asked_is_said_once(
    troubled: Place, redis: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    redis.close()
    (unreachable,) = (each for each in expected(troubled) if each.code == "redis_unreachable")

    with serving(troubled.settings) as url, Browser(url) as browser:
        page = browser.shows("/")

    assert page.count(unreachable.what.removeprefix("queue: ")) == 1
