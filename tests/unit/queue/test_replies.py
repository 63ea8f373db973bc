from __future__ import annotations

import json
import threading
from datetime import date
from typing import Any

import dramatiq
import pytest
import redis

from memline.shared.queue import replies
from memline.shared.queue.broker import MessagePack
from memline.shared.queue.messages import RunQuery, decode
from memline.shared.queue.replies import QueryClient, Replies, WorkerRefused
from memline.shared.search.request import SearchRequest
from tests.support.process import python
from tests.unit.queue.conftest import URL

QUESTION = SearchRequest(query="apples", max_results=3)


@pytest.fixture
def boxes(redis_server: redis.Redis) -> Replies:
    return Replies(URL)


@pytest.fixture
def served(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> redis.Redis:
    """A fleet with a query worker alive, and a client to look into its Redis."""
    # On a loaded machine the worker takes a question later.
    monkeypatch.setattr(replies, "TAKEN_S", 120)
    redis_server.set("memline:serving:query", "memline:worker:1")
    return redis_server


def stored(server: redis.Redis) -> dict[bytes, bytes]:
    found: Any = server.hgetall("memline:query.msgs")
    return dict(found)


class Worker:
    """A query worker that takes one message, as dramatiq decodes it, and answers it."""

    def __init__(self, server: redis.Redis, answer: dict[str, Any], queue: str = "memline:query") -> None:
        self._server = server
        self._queue = queue
        self._answer = json.dumps(answer).encode()
        self.message: dramatiq.Message[Any] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(120)

    def _run(self) -> None:
        popped: Any = self._server.blpop([self._queue], timeout=120)
        dramatiq.set_encoder(MessagePack())
        self.message = dramatiq.Message.decode(self._server.hget(f"{self._queue}.msgs", popped[1]))
        Replies(URL).put(decode(self.message.args[0], RunQuery).reply_to, self._answer)


def test_an_answer_is_taken_from_the_box_it_was_put_into(boxes: Replies) -> None:
    boxes.put("b", b"to b")
    boxes.put("a", b"to a")

    assert (boxes.take("a", 1), boxes.take("b", 1)) == (b"to a", b"to b")


def test_without_an_answer_there_is_none_when_the_time_is_over(boxes: Replies) -> None:
    assert boxes.take("a", 0.01) is None


def test_an_answer_that_is_not_taken_is_gone_after_a_while(redis_server: redis.Redis) -> None:
    Replies(URL).put("a", b"late")

    assert 0 < redis_server.ttl("memline:reply:a") <= 30


def test_a_question_reaches_a_worker_as_a_message_of_the_broker_and_its_answer_comes_back(
    served: redis.Redis,
) -> None:
    with Worker(served, {"results": []}) as worker, QueryClient(URL) as client:
        assert client.ask("main", QUESTION, timeout_s=120) == {"results": []}

    message = worker.message
    assert message is not None
    assert (message.queue_name, message.actor_name) == ("query", "run_query")
    question = decode(message.args[0], RunQuery)
    assert (question.agent, question.query, question.options["max_results"]) == ("main", "apples", 3)
    # "Yesterday" is that of who asks.
    assert question.options["today"] == date.today().isoformat()


def test_without_a_worker_alive_nothing_is_put_on_the_queue(redis_server: redis.Redis) -> None:
    assert QueryClient(URL).ask("main", QUESTION, timeout_s=120) is None
    assert redis_server.keys("memline:query*") == []


def test_a_question_that_no_worker_takes_is_taken_back(
    served: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "TAKEN_S", 0.01)

    assert QueryClient(URL).ask("main", QUESTION, timeout_s=120) is None
    assert served.keys("memline:query*") == []


def test_a_question_that_is_wrong_is_refused_and_a_problem_of_the_worker_is_no_answer(
    served: redis.Redis,
) -> None:
    client = QueryClient(URL)

    refusal = {"error": "no such day", "action": "2026-02-10", "elsewhere": False}
    with Worker(served, refusal), pytest.raises(WorkerRefused, match="no such day"):
        client.ask("main", QUESTION, timeout_s=120)
    with Worker(served, {"error": "damaged", "elsewhere": True}):
        assert client.ask("main", QUESTION, timeout_s=120) is None


def test_a_command_asks_without_importing_dramatiq() -> None:
    ran = python("import sys, memline.shared.queue.replies; print('dramatiq' in sys.modules)")

    assert ran.stdout.strip() == "False", ran.stderr
