from types import SimpleNamespace
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq.broker import MessageProxy
from dramatiq.middleware import SkipMessage

from memline.shared.errors import IndexElsewhere
from memline.shared.queue import messages
from memline.shared.queue.messages import MessageRefused, Wire
from memline.shared.queue.middleware import ForwardMoved
from memline.shared.queue.routes import ROUTES

SENT = {
    "chunk": messages.ChunkFiles(agent="a", source="memory", paths=("x.md",), index="a.sqlite"),
    "query": messages.RunQuery(agent="a", query="q", reply_to="box", index="a.sqlite"),
    "batch": messages.AdvanceBatch(agent="a", token="t"),
    "store": messages.StoreFiles(agent="a", files=()),
    "sweep": messages.Sweep(agent="a"),
}


class Looking:
    """A worker of the host `one`, just before it works on a message."""

    def __init__(self, server: redis.Redis) -> None:
        self._server = server
        self.forwarded: list[dramatiq.Message[Any]] = []
        self.claimed: list[str] = []
        self.claim_error: Exception | None = None

    def claim(self, agent: str) -> None:
        self.claimed.append(agent)
        if self.claim_error:
            raise self.claim_error

    def at(self, message: Wire, *, host: str = "one") -> str:
        """What becomes of a message: taken, or left."""
        role, row = ROUTES[type(message)]
        queue = f"{role}-{host}" if host else role
        proxy = MessageProxy(
            dramatiq.Message(
                queue_name=queue, actor_name=row.name, args=(messages.encode(message),), kwargs={}, options={}
            )
        )
        broker = SimpleNamespace(
            client=self._server, enqueue=self.forwarded.append, retry=lambda function, *args: function(*args)
        )
        try:
            ForwardMoved(self.claim).before_process_message(broker, proxy)
        except SkipMessage:
            return "left"
        return "taken"


@pytest.fixture
def looking(redis_server: redis.Redis) -> Looking:
    return Looking(redis_server)


def test_messages_of_an_agent_of_this_host_are_worked_on(redis_server: redis.Redis, looking: Looking) -> None:
    redis_server.hset("memline:agents", "a", "one")

    assert {looking.at(message) for message in SENT.values()} == {"taken"}
    assert not looking.forwarded and not looking.claimed


def test_without_names_of_hosts_nothing_is_looked_up(redis_server: redis.Redis, looking: Looking) -> None:
    redis_server.hset("memline:agents", "a", "two")

    assert {looking.at(message, host="") for message in SENT.values()} == {"taken"}


def test_what_only_the_old_host_gets_is_forwarded_and_the_rest_is_found_by_the_new_one(
    redis_server: redis.Redis, looking: Looking
) -> None:
    redis_server.hset("memline:agents", "a", "two")

    assert {looking.at(message) for message in SENT.values()} == {"left"}

    sent = {message.queue_name: message.args[0] for message in looking.forwarded}
    assert set(sent) == {"chunk-two", "query-two"}
    # There the notes may lie in another folder, which gives the index another name.
    assert sent["chunk-two"]["index"] == sent["query-two"]["index"] == ""
    assert sent["chunk-two"]["paths"] == ("x.md",)


def test_vectors_that_were_paid_for_reach_the_new_host_or_wait_for_it(
    redis_server: redis.Redis, looking: Looking, vectors: messages.StoreVectors
) -> None:
    redis_server.hset("memline:agents", "a", "one>two")
    with pytest.raises(MessageRefused, match="a is on its way to the index host two") as error:
        looking.at(vectors)
    assert error.value.hint == "when it is there: memline queue requeue"

    redis_server.hset("memline:agents", "a", "two")
    assert looking.at(vectors) == "left"
    (message,) = looking.forwarded
    assert message.queue_name == "store-two"
    assert messages.decode(message.args[0], messages.StoreVectors) == vectors


def test_while_an_agent_is_on_its_way_its_files_are_left_and_its_questions_answered(
    redis_server: redis.Redis, looking: Looking
) -> None:
    redis_server.hset("memline:agents", "a", "one>two")

    found = {name: looking.at(message) for name, message in SENT.items()}

    assert found == {**dict.fromkeys(SENT, "left"), "query": "taken"}
    assert not looking.forwarded


def test_an_agent_that_no_host_serves_is_claimed_and_refused_if_it_was_handed_over(looking: Looking) -> None:
    assert looking.at(SENT["chunk"]) == "taken"
    assert looking.claimed == ["a"]

    looking.claim_error = IndexElsewhere("handed over")
    with pytest.raises(IndexElsewhere):
        looking.at(SENT["chunk"])


@pytest.fixture
def vectors() -> messages.StoreVectors:
    identity = messages.Identity(provider="openai", model="m", endpoint="", dims=2, scheme="")
    row = messages.VectorRow(hash=b"h", vector=b"12345678")
    return messages.StoreVectors(agent="a", identity=identity, lease="l", vectors=(row,))
