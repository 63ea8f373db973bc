import re
from pathlib import Path

import pytest

from memline.producers.reports.metrics import METRICS, PREFIX, page
from memline.producers.reports.state import StateReader
from memline.shared.embedders.choice import choose
from memline.shared.errors import QueueError
from memline.shared.index.rows import Chunk, FileRow
from memline.shared.index_writer import IndexWriter
from memline.shared.queue import fleet as fleet_module
from memline.shared.queue.fleet import Fleet
from tests.support.index_rows import answer, cancel_backfill, lease_all, make_job, retarget
from tests.support.workspace import remote

ROOT = Path(__file__).parents[3]


@pytest.fixture
def place(place, monkeypatch):
    """A workspace of a fleet: its Redis is not asked here."""
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setattr(fleet_module, "GOOD_FOR_S", 0.0)
    monkeypatch.setattr(fleet_module, "read_fleet", lambda *_: Fleet())
    place.configure(**remote("http://127.0.0.1:9/v1"))
    return place


def scraped(place):
    """Every sample by its name and labels."""
    return samples(page(StateReader(place.settings, [place.agent])))


def samples(text):
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix(PREFIX): float(value) for name, value in lines}


def fill(place):
    """An index with vectors in every state: two ready, two out, one wanted and one cancelled."""
    index = IndexWriter.of(place.agent)
    retarget(index, choose(place.agent).identity)
    for number, path in enumerate(("ready.md", "out.md")):
        index.store_file(_file(path, f"{path} 1", f"{path} 2", at=number + 1))
        requests = lease_all(index)
        if path == "ready.md":
            answer(index, requests)
    index.store_file(_file("backfill.md", "cancelled", at=3), job=make_job(index).token)
    cancel_backfill(index)
    index.store_file(_file("wanted.md", "wanted", at=4))
    index.close()


def _file(path, *texts, at):
    chunks = tuple(Chunk(start_line=n, end_line=n, text=text) for n, text in enumerate(texts, 1))
    return FileRow(path=path, source="memory", outcome="indexed", observed_ns=at, chunks=chunks)


def test_the_rows_of_an_agent_are_reported(place):
    fill(place)

    found = scraped(place)

    states = ("ready", "leased", "wanted", "cancelled", "failed")
    assert [found[f'vectors{{agent="main",state="{state}"}}'] for state in states] == [2, 2, 1, 1, 0]
    assert found['vectors_per_second{agent="main"}'] > 0


def test_an_unreachable_redis_hides_no_rows(place, monkeypatch):
    def refuse(*_):
        raise QueueError("Redis cannot be reached")

    monkeypatch.setattr(fleet_module, "read_fleet", refuse)

    found = scraped(place)

    assert found["redis_up"] == 0
    assert found['files_behind{agent="main"}'] == 0
    assert not any(name.startswith("queue") for name in found)


def test_every_metric_is_in_the_operators_page_with_the_same_words():
    text = (ROOT / "docs" / "fleet.md").read_text("utf-8")

    documented = dict(re.findall(rf"^\| `{PREFIX}(\w+)` \|[^|]*\| (.+?) \|$", text, re.MULTILINE))

    assert documented == METRICS
