"""Two index hosts of one fleet: two homes on one machine, one Redis, and embed workers that both share."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import dramatiq
import pytest

from memline.shared.queue.broker import MessagePack
from memline.shared.queue.messages import ChunkFiles, encode
from memline.shared.queue.redis_broker import FleetBroker
from tests.support.embedding_server import EmbeddingServer, digest_of
from tests.support.fleet import Fleet
from tests.support.index_hosts import NAME, TEXTS, HostPlace, two_fleets, two_hosts, up
from tests.support.redis_server import RedisServer
from tests.support.undisturbed import assert_paid_once


@pytest.fixture
def provider() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(dims=16) as running:
        yield running


@pytest.fixture
def hosts(tmp_path: Path, provider: EmbeddingServer) -> tuple[HostPlace, HostPlace]:
    return two_hosts(tmp_path, provider)


def found(fleet: Fleet, agent: str, word: str) -> bool:
    answer = fleet.run("--agent", agent, "search", word, "--min-score", "0", "--json")
    assert answer.status == 0, answer.stderr
    return any(word in hit["snippet"] for hit in answer.json["results"])


def test_each_host_serves_its_agents_and_an_agent_moves_without_being_embedded_again(
    hosts: tuple[HostPlace, HostPlace], redis_server: RedisServer, provider: EmbeddingServer, tmp_path: Path
) -> None:
    hosts[0].add("alpha", 1, 2)
    hosts[1].add("beta", 3, 4)
    with two_fleets(hosts, redis_server.url) as (one, two):
        # Files on both are indexed, by embed workers that know of no host.
        for fleet in (one, two):
            fleet.until(lambda fleet=fleet: fleet.vectors() == {"ready": 2 * TEXTS}, "all vectors")
        listed = one.run("agent", "ls", "--json").json
        assert [(each["agentId"], each["indexHost"]) for each in listed] == [
            ("alpha", "one"),
            ("beta", "two"),
        ]
        report = one.run("queue", "--json").json
        assert {each["indexHost"] for each in report["queues"]} == {"one", "two", ""}
        assert {(each["role"], each["indexHost"]) for each in report["workers"]} == {
            ("chunk+store+query", "one"),
            ("chunk+store+query", "two"),
            ("embed", ""),
        }

        # Each question is answered by the host of its agent, wherever it is asked.
        assert (
            found(one, "alpha", "word1x0")
            and found(one, "beta", "word3x0")
            and found(two, "alpha", "word1x0")
        )

        # A host that is gone takes nothing of the other along.
        two.kill("work")
        two.kill("watch")
        assert found(one, "alpha", "word1x0")
        two.until(lambda: one.run("--agent", "beta", "search", "word3x0").status != 0, "a refusal")
        refused = one.run("--agent", "beta", "search", "word3x0").stderr
        assert "beta is served by the index host two" in refused
        up(two)

        # The agent moves: backed up there, copied, taken up here.
        backup = tmp_path / "usb"
        left = one.run("agent", "move", "alpha", "--to", "two", "--backup", str(backup))
        assert left.status == 0, left.stderr
        assert f"memline agent move alpha --to two --backup {backup}" in left.stdout
        assert one.run("--agent", "alpha", "index").status != 0
        shutil.copytree(hosts[0].files("alpha"), hosts[1].files("alpha"))
        taken = two.run("agent", "move", "alpha", "--to", "two", "--backup", str(backup))
        assert taken.status == 0, taken.stderr
        assert "alpha is served by two. 2 files, 6 vectors." in taken.stdout
        hosts[1].add("alpha", 5)
        two.until(lambda: found(two, "alpha", "word5x0"), "the note of the agent that moved")

        assert found(one, "alpha", "word1x0") and found(one, "alpha", "word5x0")
        again = one.run("--agent", "alpha", "index")
        assert again.status != 0 and "served by the index host two" in again.stderr
        # What still comes to its old host goes to the new one.
        dramatiq.set_encoder(MessagePack())
        broker = FleetBroker(one.address)
        late = ChunkFiles(agent="alpha", source="memory", paths=("memory/note-1.md",), index="other.sqlite")
        broker.enqueue(
            dramatiq.Message(
                queue_name="chunk-one", actor_name="chunk_files", args=(encode(late),), kwargs={}, options={}
            )
        )
        one.until(lambda: "message.forwarded" in one.log("work"), "the message on its way")
        two.until(lambda: not two.queue("chunk-two").in_flight, "its end")
        assert one.dead() == []
        questions = [f"word{number}x0" for number in (1, 3, 5)]
        assert_paid_once(provider, but=[digest_of(question) for question in questions])


def test_requests_wait_for_an_embed_worker_that_knows_their_agent(
    hosts: tuple[HostPlace, HostPlace], redis_server: RedisServer, provider: EmbeddingServer
) -> None:
    for host in hosts:
        # Each has agents of its own, and knows of no others.
        host.agents = (host.agent_name,)
        host.save()
    hosts[0].add("alpha", 1)
    hosts[1].add("beta", 2, 3)
    name = {"MEMLINE_QUEUE_NAME": NAME}
    with (
        Fleet(hosts[0], redis_server.url, **name, MEMLINE_QUEUE_HOST="one") as one,
        Fleet(hosts[1], redis_server.url, **name, MEMLINE_QUEUE_HOST="two") as two,
    ):
        up(one)
        up(two)
        one.start("embed")

        def told() -> list[str]:
            found = two.run("queue", "--json").json["findings"]
            return [each["what"] for each in found if each["code"] == "agent_not_configured"]

        one.until(lambda: one.vectors() == {"ready": TEXTS}, "the agent that the worker knows")
        two.until(told, "the finding")
        assert "no embed worker knows the agent beta" in told()[0]
        # Nothing was sent: nothing is booked, and no provider is blamed.
        report = two.run("queue", "--json").json
        assert report["spending"]["today"]["requests"] == 0
        assert [each["state"] for each in report["providers"]] == ["ok"]

        two.start("embed")
        two.until(lambda: two.vectors() == {"ready": 2 * TEXTS}, "the other agent")
        two.until(lambda: not told(), "the end of the finding")
        assert one.dead() == two.dead() == []
        assert_paid_once(provider)
