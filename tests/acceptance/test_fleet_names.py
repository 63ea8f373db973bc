"""Several fleets on one Redis: each has its own notes, queues and workers."""

from functools import partial

import pytest

from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.queue import fleet_owner
from tests.support.fleet import Fleet
from tests.support.workspace import Place, note, until


@pytest.fixture
def homes(tmp_path):
    """Two users of one host, each with a note of their own."""
    ours, theirs = Place(folder=tmp_path / "ours"), Place(folder=tmp_path / "theirs")
    for number, place in enumerate((ours, theirs), 1):
        place.configure()
        place.write("MEMORY.md", note(number))
    return ours, theirs


def found(fleet, word):
    hits = fleet.run("search", word, "--min-score", "0", "--json").json["results"]
    return any(word in hit["snippet"] for hit in hits)


def test_a_worker_of_another_home_is_refused_under_the_same_name(homes, redis_server):
    with (
        Fleet(homes[0], redis_server.url, MEMLINE_QUEUE_NAME="shared") as ours,
        Fleet(homes[1], redis_server.url, MEMLINE_QUEUE_NAME="shared") as theirs,
    ):
        ours.start("store")
        until(lambda: redis_server.ask("GET", "memline:shared:owner") is not None)
        theirs.start("query", "chunk")

        assert theirs.ended("query") != 0
        log = theirs.log("query")
        assert "the fleet shared works on" in log and str(homes[0].home) in log and str(homes[1].home) in log
        assert "queue.name" in log
        # Files may lie on another host than their index.
        until(lambda: "chunk" in theirs.roles())


def test_a_fleet_belongs_to_the_home_that_took_it_first_wherever_that_is_later(redis_server, tmp_path):
    address, moved = QueueAddress(redis_server.url, "team"), tmp_path / "moved"
    claim = partial(fleet_owner.refuse_other, is_claimed=True)
    claim(address, tmp_path / "a")
    claim(address, tmp_path / "a")

    for refuses in (claim, fleet_owner.refuse_other):
        with pytest.raises(QueueError, match=r"team works on the indexes of .*/a on .* of .*/b on") as error:
            refuses(address, tmp_path / "b")
        assert "another queue.name" in error.value.hint
        assert "redis-cli del memline:team:owner" in error.value.hint
    fleet_owner.refuse_other(QueueAddress(redis_server.url, "new"), tmp_path / "b")

    (tmp_path / "a").rename(moved)
    claim(address, moved)
    with pytest.raises(QueueError, match=r"of .*/moved on"):
        claim(address, tmp_path / "b")
    redis_server.ask("DEL", "memline:team:owner")
    claim(address, tmp_path / "b")
