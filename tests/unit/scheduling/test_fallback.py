from contextlib import closing

import pytest

from memline.shared.embedders.choice import Choice
from memline.shared.embedders.protocol import Identity
from memline.shared.index import identities, meta
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import model_change
from tests.support.index_rows import CAPS, MODEL_A, answer, fail, file_row, lease_all

GEMINI = Identity(provider="gemini", model="g")


def chosen(of):
    return Choice(requested="openai", provider=of.provider, model=of.model, identity=of, caps=CAPS)


FIRST, SECOND = chosen(MODEL_A), chosen(GEMINI)


def target(writer):
    row = identities.target(writer.connection)
    assert row is not None
    return row.identity


def start(writer, second=SECOND):
    with writer.session() as (_, now):
        model_change.start(writer.accounts, FIRST, second, now)


def switch_if_needed(writer, second):
    with writer.session() as (_, now):
        model_change.switch_if_needed(writer.accounts, FIRST, second, now)


def switch_back(writer):
    with writer.session() as (_, now):
        model_change.switch_back(writer.accounts, FIRST, now)


@pytest.fixture
def stopped(writer):
    """An index whose provider stopped with two of three texts embedded, and whose fallback is active."""
    start(writer, SECOND)
    writer.store_file(file_row("a.md", "apples", "pears"))
    answer(writer, lease_all(writer))
    writer.store_file(file_row("b.md", "plums"))
    fail(writer, lease_all(writer)[0], "stop")
    switch_if_needed(writer, SECOND)
    return writer


def work_as(writer, of):
    """Embed all that is wanted of a provider."""
    assert target(writer) == of.identity
    while requests := lease_all(writer):
        answer(writer, requests)


def test_the_fallback_and_why_it_is_in_use_are_written_at_once(stopped, path, monkeypatch):
    """A process that ends before all texts are wanted of the fallback leaves no model that nobody chose."""
    switch_back(stopped)
    stopped.store_file(file_row("c.md", "cherries"))
    fail(stopped, lease_all(stopped)[0], "stop")

    def end(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(model_change, "_want_all", end)
    with pytest.raises(KeyboardInterrupt):
        switch_if_needed(stopped, SECOND)

    with closing(IndexWriter(path)) as again:
        assert target(again) == GEMINI
        assert model_change.is_fallback_active(again.connection, FIRST, SECOND)


def test_nothing_is_paid_for_twice_however_often_they_alternate(stopped, clock):
    work_as(stopped, SECOND)
    embedded = meta.get(stopped.connection, meta.EMBEDDED_TOTAL)

    for _ in range(3):
        switch_back(stopped)
        work_as(stopped, FIRST)
        stopped.sweep()
        stopped.store_file(file_row("c.md", f"new at {clock.now()}", at=int(clock.now())))
        fail(stopped, lease_all(stopped)[0], "stop")
        switch_if_needed(stopped, SECOND)
        work_as(stopped, SECOND)
        stopped.sweep()
        clock.advance(10)

    # The text that the first lacked, the new texts at the fallback, all but the last of them at the first.
    assert meta.get(stopped.connection, meta.EMBEDDED_TOTAL) == embedded + 1 + 3 + 2
