"""What a process counts reaches the rows of its home, and what a histogram says of it."""

import threading
from contextlib import closing

import pytest

from memline.shared.errors import ConfigError, IndexMissing
from memline.shared.figures import counters
from memline.shared.figures.counters import Tally, bucket_of, cumulative, outcome_of
from memline.shared.index.accounts import AccountFile
from memline.shared.search.results import Answer, Behind, Hit


@pytest.fixture
def path(tmp_path):
    return tmp_path / "accounts.sqlite"


def rows(path):
    with closing(AccountFile(path)) as file:
        return counters.read(file)


def hit():
    return Hit(
        path="a.md",
        start_line=1,
        end_line=1,
        score=1,
        vector_score=0,
        text_score=1,
        snippet="apples",
        source="memory",
    )


def test_counts_of_several_processes_are_added(path):
    one, other = Tally(path), Tally(path)

    one.add(counters.REQUESTS)
    one.add(counters.REQUESTS)
    other.add(counters.REQUESTS)
    one.write()
    other.write()

    assert rows(path) == {counters.REQUESTS: [({}, 3.0)]}


def test_what_is_counted_is_written_without_being_asked_to(path, monkeypatch):
    monkeypatch.setattr(counters, "WRITE_AFTER_S", 0.01)
    tally, written = Tally(path), threading.Event()
    write = tally.write
    monkeypatch.setattr(tally, "write", lambda: (write(), written.set()))

    tally.add(counters.REQUESTS, status="200")

    assert written.wait(60)
    assert rows(path) == {counters.REQUESTS: [({"status": "200"}, 1.0)]}


def test_a_question_is_counted_with_its_outcome_and_its_seconds(path):
    tally = Tally(path)

    tally.search("main", counters.HTTP, lambda: Answer(hits=(hit(),), mode="hybrid"))
    tally.write()

    found = rows(path)
    labels = {"agent": "main", "face": "http", "mode": "hybrid", "outcome": "hits"}
    assert found[counters.SEARCHES] == [(labels, 1.0)]
    assert [(each["agent"], count) for each, count in found[counters.SECONDS]] == [("main", 1.0)]
    assert found[counters.SECONDS_SUM][0][1] > 0


def test_a_fault_is_counted_as_an_error_and_a_wrong_question_is_not(path):
    tally = Tally(path)

    def fail(error):
        def ask():
            raise error

        with pytest.raises(type(error)):
            tally.search("main", counters.MCP, ask)

    fail(IndexMissing("gone"))
    fail(ConfigError("no such day"))
    tally.write()

    assert [(each["outcome"], count) for each, count in rows(path)[counters.SEARCHES]] == [("error", 1.0)]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(hits=(hit(),)), "hits"),
        (Answer(hits=(hit(),), behind=Behind(files=1)), "stale"),
        (Answer(behind=Behind(files=1)), "none"),
        (Answer(), "none"),
    ],
)
def test_an_outcome_says_what_the_caller_got(answer, outcome):
    assert outcome_of(answer) == outcome


def test_a_home_that_cannot_be_written_loses_its_counts_and_nothing_else(tmp_path):
    tally = Tally(tmp_path / "file" / "accounts.sqlite")
    (tmp_path / "file").write_text("not a folder")

    tally.add(counters.REQUESTS)
    tally.write()


@pytest.mark.parametrize(
    ("seconds", "label"), [(0.0004, "0.001"), (0.05, "0.05"), (0.051, "0.1"), (61, "+Inf")]
)
def test_a_duration_falls_into_the_bucket_that_ends_after_it(seconds, label):
    assert bucket_of(seconds) == label


def test_buckets_for_prometheus_hold_those_before_them():
    found = dict(cumulative({"0.01": 2.0, "+Inf": 1.0}))

    assert (found["0.005"], found["0.01"], found["60"], found["+Inf"]) == (0.0, 2.0, 2.0, 3.0)


def test_a_figure_that_is_no_sum_is_set(path):
    counters.put(path, counters.BACKED_UP, 5.0, agent="main")
    counters.put(path, counters.BACKED_UP, 7.0, agent="main")

    assert rows(path) == {counters.BACKED_UP: [({"agent": "main"}, 7.0)]}
