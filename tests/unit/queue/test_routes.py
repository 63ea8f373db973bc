from pathlib import Path
from typing import Any

import dramatiq
import pytest
import redis

from memline.shared.config.load import Options, load
from memline.shared.queue.broker import MessagePack, actor, send
from memline.shared.queue.messages import EmbedTexts, MessageRefused, StoreVectors, Sweep, Wire
from memline.shared.queue.redis_broker import FleetBroker
from memline.shared.queue.routes import QUEUES, ROUTES, is_retried, needed_roles
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
    send(EmbedTexts(agent="main", identity=MODEL_A, lease="lease-1", until=0, texts=()))

    ((keys, (name, data, *_)),) = sent.calls
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


def test_every_message_has_one_queue_and_one_actor() -> None:
    assert set(ROUTES) == set(Wire.__subclasses__())
    assert len({actor.name for _, actor in ROUTES.values()}) == len(ROUTES)


def test_the_dispatcher_has_one_thread() -> None:
    assert [name for name, queue in QUEUES.items() if queue.is_single] == ["store"]
    assert QUEUES["store"].threads == 1


def test_an_actor_is_called_with_its_message_and_refuses_every_other(
    redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dramatiq.broker.global_broker", FleetBroker(URL, middleware=[]))
    got: list[Sweep] = []

    @actor(Sweep)
    def take(message: Sweep) -> None:
        got.append(message)

    take({"agent": "main"})
    with pytest.raises(MessageRefused):
        take({"paths": []})

    assert got == [Sweep(agent="main")]
    declared = dramatiq.get_broker().get_actor("sweep")
    assert (declared.queue_name, declared.fn.__name__) == ("store", "take")


@pytest.mark.parametrize(
    ("name", "error", "is_tried_again"),
    [
        ("store_files", OSError("disk full"), True),
        ("store_files", MessageRefused("another version"), False),
        # Its failure is in the rows, which send the texts again.
        ("embed_texts", OSError("disk full"), False),
        ("sweep", OSError("disk full"), False),
    ],
)
def test_a_message_is_tried_again_when_that_may_help(
    name: str, error: Exception, is_tried_again: bool
) -> None:
    assert is_retried(name, error) is is_tried_again


@pytest.mark.parametrize(
    ("settings", "roles"),
    [
        ("provider: 'none'", ("chunk", "store", "query")),
        (
            "provider: 'openai', remote: {apiKey: 'k', batch: {enabled: true}}",
            ("chunk", "embed", "batch", "store", "query"),
        ),
    ],
    ids=["no provider", "batches"],
)
def test_a_role_is_needed_where_the_configuration_uses_it(
    tmp_path: Path, settings: str, roles: tuple[str, ...]
) -> None:
    config = tmp_path / "config.json5"
    config.write_text(f"{{agents: {{defaults: {{memorySearch: {{{settings}}}}}}}}}", "utf-8")
    agent = load(Options(config=config, workspace=tmp_path), {"HOME": str(tmp_path)}).agent()

    assert needed_roles([agent]) == roles
