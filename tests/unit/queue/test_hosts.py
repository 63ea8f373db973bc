from collections.abc import Iterator
from pathlib import Path

import dramatiq
import pytest
import redis
from dramatiq.brokers.stub import StubBroker

from memline.shared.embedders.protocol import Identity
from memline.shared.errors import BadRequest, QueueError
from memline.shared.queue import depth, hosts, message_changes, message_list, messages, redis_client, routes
from memline.shared.queue.broker import own_host, send
from memline.shared.queue.redis_broker import FleetBroker
from memline.shared.queue.routes import QUEUES
from tests.unit.queue.conftest import URL
from tests.unit.queue.test_message_list import dead_letter

ONE, TWO, TEAM = f"{URL}#team@one", f"{URL}#team@two", f"{URL}#team"
IDENTITY = Identity(provider="openai", model="m", endpoint="", dims=2, scheme="")


def test_all_queues_but_that_of_the_embed_workers_are_of_an_index_host() -> None:
    assert {role: routes.queue_name(role, "one") for role in QUEUES} == {
        **{role: f"{role}-one" for role in QUEUES},
        "embed": "embed",
    }
    assert [routes.queue_name(role, "") for role in QUEUES] == [*QUEUES]


def test_a_name_of_a_queue_tells_its_role_and_host_whatever_the_host_is_named() -> None:
    for host in ("", "a", "a-b", "store-2", "embed"):
        for role in (role for role in QUEUES if not routes.is_shared(role)):
            assert hosts.split(routes.queue_name(role, host)) == (role, host)


@pytest.fixture
def a_broker() -> Iterator[dramatiq.Broker]:
    """The broker that the process has again after a test."""
    before = dramatiq.get_broker()
    yield before
    dramatiq.set_broker(before)


def test_messages_go_to_the_queues_of_their_own_host_and_answers_to_that_which_asked(
    redis_server: redis.Redis, a_broker: dramatiq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(FleetBroker, "enqueue", lambda _, message: sent.append(message.queue_name))
    dramatiq.set_broker(FleetBroker(ONE))

    send(messages.ChunkFiles(agent="main", source="memory", paths=()))
    send(messages.EmbedTexts(agent="main", identity=IDENTITY, lease="l", texts=(), host="one"))
    send(messages.StoreVectors(agent="main", identity=IDENTITY, lease="l", vectors=()), host="two")
    send(messages.StoreVectors(agent="main", identity=IDENTITY, lease="l", vectors=()), host="")
    assert sent == ["chunk-one", "embed", "store-two", "store"]


def test_one_process_knows_no_hosts(a_broker: dramatiq.Broker) -> None:
    dramatiq.set_broker(StubBroker())

    assert own_host() == ""


def test_each_host_is_one_home_and_two_homes_are_told_of_each_other(
    redis_server: redis.Redis, tmp_path: Path
) -> None:
    for url, home in ((ONE, "a"), (TWO, "b"), (ONE, "a")):
        hosts.register(url, tmp_path / home)

    with pytest.raises(QueueError, match=r"index host one of the fleet team is taken .*/a; .*/b") as error:
        hosts.register(ONE, tmp_path / "b")
    assert "redis-cli hdel memline:team:hosts one" in error.value.hint
    with pytest.raises(QueueError, match=r"have names \(one, two\), and this one has none"):
        hosts.register(TEAM, tmp_path / "a")


def test_the_only_home_of_a_fleet_may_be_given_a_name_and_another_may_not_join_before(
    redis_server: redis.Redis, tmp_path: Path
) -> None:
    hosts.register(TEAM, tmp_path / "a")

    with pytest.raises(QueueError, match=r"an index host without a name, .*/a; this one is two"):
        hosts.register(TWO, tmp_path / "b")
    hosts.register(ONE, tmp_path / "a")
    hosts.register(TWO, tmp_path / "b")

    assert hosts.known(redis_client.client(TEAM)) == ["one", "two"]


def test_readers_see_the_queues_of_all_hosts_from_anywhere(
    redis_server: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(redis_server), "info", lambda self, section=None: {"used_memory": 1})
    hosts.register(ONE, tmp_path / "a")
    hosts.register(TWO, tmp_path / "b")
    redis_server.rpush("memline:team:store-two", "m")
    redis_server.hset("memline:team:store-two.msgs", "m", b"")
    dead_letter(redis_server, "store-one", "x", error="disk full")
    dead_letter(redis_server, "chunk", "old")
    for name in ("store-one.XQ", "store-one.XQ.msgs", "chunk.XQ", "chunk.XQ.msgs"):
        redis_server.rename(f"memline:{name}", f"memline:team:{name}")

    for url in (ONE, TWO, TEAM):
        queues = {(each.role, each.host): each for each in depth.read(url).queues}
        expected = {(role, host) for host in ("one", "two") for role in QUEUES if role != "embed"}
        # What lies there from before the hosts had names is shown, too.
        assert set(queues) == expected | {("embed", ""), ("chunk", "")}
        assert queues["store", "two"].waiting == 1 and queues["store", "one"].dead == 1
        letters = message_list.listed(url, message_list.Filter())
        assert [(each.queue, each.host, each.id) for each in letters] == [
            ("store-one", "one", "x"),
            ("chunk", "", "old"),
        ]
    assert [each.id for each in message_list.listed(TWO, message_list.Filter(match="one"))] == ["x"]


@pytest.mark.parametrize(
    "queue", ["store-", "embed-one", "stor", "store-one.XQ", "store-*", "store-a:b", "-one"]
)
def test_what_is_not_the_name_of_a_queue_reaches_no_key(queue: str) -> None:
    assert not routes.is_queue(queue, QUEUES)
    with pytest.raises(BadRequest, match="there is no queue"):
        message_changes.drop(URL, "dead", [(queue, "m")])
