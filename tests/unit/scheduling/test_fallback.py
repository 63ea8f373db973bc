from contextlib import closing

import pytest

from memline.shared.embedders.choice import Choice
from memline.shared.embedders.protocol import Identity
from memline.shared.index import identities
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


def test_the_fallback_and_why_it_is_in_use_are_written_at_once(stopped, path, clock, monkeypatch):
    """A process that ends before all texts are wanted of the fallback leaves no model that nobody chose."""
    switch_back(stopped)
    stopped.store_file(file_row("c.md", "cherries"))
    fail(stopped, lease_all(stopped)[0], "stop")

    def end(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(model_change, "_want_all", end)
        switch_if_needed(stopped, SECOND)

    with closing(IndexWriter(path, clock=clock)) as again:
        assert target(again) == GEMINI
        assert model_change.is_target(again.connection, SECOND)
        start(again)
        texts = {text.text for request in lease_all(again) for text in request.texts}
        assert texts == {"apples", "pears", "plums", "cherries"}
