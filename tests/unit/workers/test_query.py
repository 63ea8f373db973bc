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
    monkeypatch.setattr(query, "enqueue_files", lambda *_, **__: None)

    def ask(text, *, agent="main", index="", is_awaited=True, **options):
        until = context.clock.now() + (1 if is_awaited else -1)
        question = RunQuery(
            agent=agent, query=text, reply_to="box", until=until, options=options, index=index
        )
        work(query.run_query, question)
        answer = client().lpop("memline:reply:box")
        return json.loads(answer) if answer else None

    return ask


def test_a_question_is_answered_into_its_box(asked):
    assert asked("apples")["results"][0]["path"] == "memory/a.md"


def test_a_question_of_a_group_is_answered_without_the_long_term_note(asked, context):
    context.writer("main").store_file(file_row("MEMORY.md", "apples, too"))

    def paths(**options):
        return {hit["path"] for hit in asked("apples", **options)["results"]}

    assert paths() == {"memory/a.md", "MEMORY.md"}
    assert paths(private=False) == {"memory/a.md"}


def test_a_question_whose_caller_has_given_up_is_not_answered(asked):
    assert asked("apples", is_awaited=False) is None


def test_a_problem_of_this_process_leaves_the_answer_to_another(asked):
    assert asked("apples", agent="bob")["elsewhere"] is True
    assert "about the index main.sqlite" in asked("apples", index="main.sqlite")["error"]
    assert asked("apples", unknown_option=1)["elsewhere"] is True
