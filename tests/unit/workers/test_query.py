import json

import fakeredis
import pytest

from memline.shared.queue import redis_client
from memline.shared.queue.messages import RunQuery
from memline.workers import query
from tests.support.index_rows import file_row
from tests.unit.queue.conftest import Client
from tests.unit.workers.conftest import work


@pytest.fixture
def asked(context, monkeypatch):
    """Ask a question and give the answer in its box; None when there is none."""
    context.writer("main").store_file(file_row("memory/a.md", "apples"))

    fake = fakeredis.FakeServer()

    def client(*_, **__):
        return Client(server=fake)

    monkeypatch.setattr(redis_client, "client", client)

    def ask(text, *, agent="main", index="", is_awaited=True, **options):
        until = context.clock.now() + (1 if is_awaited else -1)
        question = RunQuery(
            agent=agent, query=text, reply_to="box", until=until, options=options, index=index
        )
        work(query.run_query, question)
        answer = client().lpop("memline:reply:box")
        return json.loads(answer) if answer else None

    return ask


def test_a_question_of_a_group_is_answered_without_the_long_term_note(asked, context):
    context.writer("main").store_file(file_row("MEMORY.md", "apples, too"))

    def paths(**options):
        return {hit["path"] for hit in asked("apples", **options)["results"]}

    assert paths() == {"memory/a.md", "MEMORY.md"}
    assert paths(private=False) == {"memory/a.md"}


def test_a_question_whose_caller_has_given_up_is_not_answered(asked):
    assert asked("apples", is_awaited=False) is None


@pytest.mark.parametrize("odd", [{"agent": "bob"}, {"index": "main.sqlite"}, {"unknown_option": 1}])
def test_what_cannot_be_answered_is_left_to_who_asks(asked, odd, caplog):
    assert asked("apples", **odd) is None
    assert caplog.messages == ["question.not_answered"]
