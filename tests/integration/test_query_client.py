"""What a question through the queue asks of a real Redis: one connection, and nothing but plain commands."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dramatiq
import pytest

from memline.shared.queue import redis_client
from memline.shared.queue.broker import MessagePack
from memline.shared.queue.messages import RunQuery, decode
from memline.shared.queue.replies import QueryClient, Replies, ask_fleet
from memline.shared.search.request import SearchRequest
from tests.support.redis_server import RedisServer

QUESTION = SearchRequest(query="apples")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def url(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a fleet whose query worker, a thread that is connected already, echoes questions."""
    # On a loaded machine the worker takes a question later.
    monkeypatch.setattr("memline.shared.queue.replies.TAKEN_S", 60)
    address = f"{redis.url}#notes"
    dramatiq.set_encoder(MessagePack())
    client = redis_client.client(address, block_s=60)
    client.set("memline:notes:serving:query", "yes")
    replies = Replies(address)
    replies.put("warm", b"")
    stopped = threading.Event()

    def answer() -> None:
        while not stopped.is_set():
            popped: Any = client.blpop(["memline:notes:query"], timeout=1)
            if popped:
                content = client.hget("memline:notes:query.msgs", popped[1])
                question = decode(dramatiq.Message.decode(content).args[0], RunQuery)
                replies.put(question.reply_to, json.dumps({"question": question.query}).encode())

    worker = threading.Thread(target=answer)
    worker.start()
    yield address
    stopped.set()
    worker.join()
    client.close()
    replies.close()


def connections(redis: RedisServer) -> int:
    """How many connections the server has had; each look is one more."""
    return int(redis.ask("INFO", "stats")["total_connections_received"])


def test_a_command_asks_over_one_connection_and_loads_no_script(redis: RedisServer, url: str) -> None:
    before = connections(redis)

    assert ask_fleet(url, "main", QUESTION) == {"question": "apples"}

    assert connections(redis) - before == 2
    commands = redis.ask("INFO", "commandstats")
    assert "cmdstat_blpop" in commands
    assert not commands.keys() & {"cmdstat_eval", "cmdstat_evalsha", "cmdstat_script|load"}


def test_a_client_that_is_kept_asks_all_its_questions_over_one_connection(
    redis: RedisServer, url: str
) -> None:
    with QueryClient(url) as client:
        before = connections(redis)
        for _ in range(5):
            assert client.ask("main", QUESTION, timeout_s=60) == {"question": "apples"}

    assert connections(redis) - before == 2


def test_a_client_that_is_kept_survives_a_restart_of_redis(redis: RedisServer) -> None:
    with QueryClient(f"{redis.url}#notes") as client:
        assert client.ask("main", QUESTION, timeout_s=60) is None
        redis.kill()
        redis.start()

        assert client.ask("main", QUESTION, timeout_s=60) is None
