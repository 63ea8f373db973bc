from __future__ import annotations

from typing import Any

import dramatiq
import pytest
import redis
from dramatiq.brokers import redis as dramatiq_redis

from shared.errors import QueueError
from shared.queue import fleet, server
from shared.queue.broker import MessagePack, on_redis
from shared.queue.fleet import FleetBroker
from shared.queue.messages import EmbedTexts, StoreVectors, Sweep
from shared.queue.send import send
from tests.support.index_rows import MODEL_A
from tests.unit.queue.conftest import URL


class Scripts:
    """Keeps what the broker would have the server do."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], list[Any]]] = []

    def __call__(self, *, keys: list[str], args: list[Any]) -> None:
        self.calls.append((keys, args))


@pytest.fixture
def sent(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Scripts:
    scripts = Scripts()
    dramatiq.set_encoder(MessagePack())
    broker = FleetBroker(URL, middleware=[])
    monkeypatch.setattr(broker, "_enqueue", scripts)
    monkeypatch.setattr(dramatiq, "get_broker", lambda: broker)
    return scripts


def test_a_request_is_named_after_its_lease_so_that_the_dispatcher_can_look_for_it(sent: Scripts) -> None:
    send(EmbedTexts(agent="main", identity=MODEL_A, lease="lease-1", texts=()))

    ((keys, (name, data, _)),) = sent.calls
    assert keys[:2] == ["memline:embed", "memline:embed.msgs"]
    assert name == "lease-1"
    assert dramatiq.Message.decode(data).options["redis_message_id"] == "lease-1"


def test_the_answers_to_a_request_are_named_after_its_lease_and_have_names_of_their_own(
    sent: Scripts,
) -> None:
    answer = StoreVectors(agent="main", identity=MODEL_A, lease="lease-1", vectors=())
    send(answer)
    send(answer)

    names = [args[0] for _, args in sent.calls]
    assert [name.partition(".")[0] for name in names] == ["lease-1", "lease-1"]
    assert len(set(names)) == 2


def test_other_messages_have_names_of_their_own(sent: Scripts) -> None:
    assert send(Sweep(agent="main")) != send(Sweep(agent="main"))


def test_heartbeats_are_stamped_by_the_clock_of_the_server() -> None:
    assert fleet._CALLERS_CLOCK in dramatiq_redis._scripts["dispatch"]


def test_a_broker_without_a_url_says_how_to_get_one() -> None:
    with pytest.raises(QueueError, match=r"no queue\.url is set") as error:
        on_redis("")

    assert "MEMLINE_QUEUE_URL" in error.value.hint and "memline up" in error.value.hint


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://127.0.0.1:6379/zero", "'zero' is no number of a database"),
        ("http://127.0.0.1:6379/0", "no Redis URL"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_without_its_password(url: str, words: str) -> None:
    with pytest.raises(QueueError, match=words) as error:
        server.client(url.replace("://", "://:hunter2@"))

    assert "hunter2" not in error.value.message
