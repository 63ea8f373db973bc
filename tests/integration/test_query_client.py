"""A question through the queue of a real Redis, and its answer."""

import json
from contextlib import closing, contextmanager

import dramatiq
import pytest

from memline.shared.config.installation import QueueAddress
from memline.shared.queue import redis_client, replies
from memline.shared.queue.heartbeat import Heartbeat
from memline.shared.queue.messages import RunQuery, decode
from memline.shared.queue.redis_broker import on_redis
from memline.shared.queue.replies import QueryClient, ask_fleet
from memline.shared.search.request import SearchRequest
from tests.support.redis_server import RedisServer

QUESTION = SearchRequest(query="apples", max_results=3)


@pytest.fixture
def redis(tmp_path):
    with RedisServer(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def url(redis, monkeypatch):
    # On a loaded machine a worker takes a question later.
    monkeypatch.setattr(replies, "ANSWER_TIMEOUT_S", 60)
    return QueueAddress(redis.url, "notes")


@contextmanager
def alive(url):
    """Somebody says that it serves the queue."""
    with closing(Heartbeat(url, {"query": 1})) as heartbeat:
        heartbeat.beat()
        yield


@contextmanager
def serving(url, answer):
    """A query worker that answers with what the function gives."""
    broker, boxes = on_redis(url), redis_client.client(url)

    def run_query(raw):
        question = decode(raw, RunQuery)
        replies.put(boxes, question.reply_to, json.dumps(answer(question)).encode())

    dramatiq.actor(run_query, broker=broker, queue_name="query", actor_name="run_query")
    worker = dramatiq.Worker(broker, queues={"query"}, worker_threads=1, worker_timeout=20)
    worker.start()
    with alive(url):
        yield
    worker.stop()
    boxes.close()


def test_a_question_reaches_a_worker_and_its_answer_comes_back(url):
    questions = []

    def answer(question):
        questions.append(question)
        return {"results": [len(questions)]}

    with serving(url, answer), closing(QueryClient(url)) as client:
        assert client.ask("main", QUESTION, timeout_s=60, index="main.sqlite") == {"results": [1]}
        assert client.ask("main", QUESTION, timeout_s=60) == {"results": [2]}
        assert ask_fleet(url, "main", QUESTION) == {"results": [3]}

    question = questions[0]
    assert (question.agent, question.query, question.index) == ("main", "apples", "main.sqlite")
    assert question.options["max_results"] == 3


def test_without_a_worker_alive_nothing_is_put_on_the_queue(redis, url):
    assert ask_fleet(url, "main", QUESTION) is None
    assert redis.ask("KEYS", "memline:notes:query*") == []


def test_an_answer_that_is_not_read_is_gone_after_a_while(redis, url):
    with closing(redis_client.client(url)) as client:
        replies.put(client, "a", b"late")

    assert 0 < redis.ask("TTL", "memline:notes:reply:a") <= 30


def test_a_client_that_is_kept_survives_a_restart_of_redis(redis, url):
    with closing(QueryClient(url)) as client:
        assert client.ask("main", QUESTION, timeout_s=60) is None
        redis.kill()
        redis.start()

        assert client.ask("main", QUESTION, timeout_s=60) is None
