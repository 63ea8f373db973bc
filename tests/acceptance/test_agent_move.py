"""An agent changes its index host: who serves it, and what a command that was killed leaves."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from memline.producers.actions import backup, move
from memline.producers.memory import Memory
from memline.producers.runs.index_run import bring_up_to_date
from memline.shared.config.installation import QueueSettings
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import IndexElsewhere, IndexFault, QueueError
from memline.shared.index import meta
from memline.shared.index_writer import IndexWriter
from memline.shared.queue import hosts, redis_client
from memline.shared.search.request import SearchRequest
from tests.support.embedding_server import EmbeddingServer
from tests.support.redis_server import RedisServer
from tests.support.workspace import Place, note, remote


class Host:
    """One index host of the fleet `team`."""

    def __init__(self, place: Place, url: str, name: str) -> None:
        self.place, self.name = place, name
        queue = QueueSettings(url=url, name="team", host=name)
        self.settings: Settings = replace(place.settings, queue=queue)
        self.client: redis.Redis = redis_client.client(queue.address)

    @property
    def agent(self) -> AgentSettings:
        return self.place.agent

    def holder(self) -> tuple[str, str]:
        found = hosts.host_of(self.client, "main")
        return found.host, found.next

    def claim(self) -> None:
        hosts.serve_agent(self.client, self.agent)

    def leave(self, to: str, folder: Path) -> Any:
        return move.leave(self.settings, self.agent, to=to, folder=folder)

    def arrive(self, folder: Path) -> Any:
        return move.arrive(self.settings, self.agent, folder)

    def search(self, word: str) -> int:
        with Memory.of(self.place.settings, self.agent) as memory:
            return len(memory.ask(SearchRequest(query=word, min_score=0)).hits)


@pytest.fixture
def provider() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(dims=16) as running:
        yield running


@pytest.fixture
def two_hosts(tmp_path: Path, provider: EmbeddingServer, redis_server: RedisServer) -> Iterator[list[Host]]:
    """An agent with two notes on the host `one`, and the host `two` with the same notes."""
    made = []
    for name in ("one", "two"):
        place = Place(folder=tmp_path / name, memory=remote(provider.url))
        for number in (1, 2):
            place.write(f"memory/note-{number}.md", note(number))
        made.append(Host(place, redis_server.url, name))
    made[0].place.index()
    made[0].claim()
    yield made
    for host in made:
        host.client.close()


def test_of_all_hosts_that_claim_an_agent_at_once_one_gets_it(
    two_hosts: list[Host], redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = two_hosts[0]
    one.client.flushdb()
    racers = [Host(one.place, redis_server.url, f"h{number}") for number in range(8)]
    read, looked, all_looked = hosts.host_of, set(), threading.Barrier(len(racers))

    def holder(client: redis.Redis, agent: str) -> hosts.AgentHost:
        """Let every host see that none has it before one takes it."""
        found = read(client, agent)
        if client not in looked:
            looked.add(client)
            all_looked.wait(120)
        return found

    monkeypatch.setattr(hosts, "host_of", holder)

    def claims(host: Host) -> bool:
        try:
            host.claim()
        except IndexElsewhere:
            return False
        return True

    with ThreadPoolExecutor(len(racers)) as pool:
        won = list(pool.map(claims, racers))

    monkeypatch.undo()
    assert sum(won) == 1
    assert one.holder() == (racers[won.index(True)].name, "")


def test_a_second_host_with_the_same_agent_is_told_who_serves_it_and_what_to_type(
    two_hosts: list[Host], provider: EmbeddingServer
) -> None:
    two = two_hosts[1]
    paid = len(provider.log()["texts"])

    with pytest.raises(IndexElsewhere, match="main is served by the index host one; this") as error:
        bring_up_to_date(two.settings, two.agent)

    assert "on one: memline agent move main --to two --backup PATH" in error.value.hint
    assert not two.place.index_path.exists() and len(provider.log()["texts"]) == paid


def test_an_agent_that_moved_is_read_and_written_on_its_new_host_alone(
    two_hosts: list[Host], provider: EmbeddingServer, tmp_path: Path
) -> None:
    one, two = two_hosts
    before, paid = one.place.contents(), dict(provider.texts)

    saved = one.leave("two", tmp_path / "usb")
    assert (saved.files, saved.vectors, one.holder()) == (2, 6, ("one", "two"))
    arrived = two.arrive(tmp_path / "usb")

    assert (arrived.files, arrived.vectors, two.holder()) == (2, 6, ("two", ""))
    assert two.place.contents() == before and two.search("word1x0")
    assert bring_up_to_date(replace(two.settings, queue=QueueSettings()), two.agent).failed == 0
    assert dict(provider.texts).keys() - paid.keys() == provider.texts.keys() - paid.keys()
    assert {digest: provider.texts[digest] for digest in paid} == paid
    for use in (one.claim, lambda: one.search("word1x0"), lambda: IndexWriter.of(one.agent)):
        with pytest.raises(IndexElsewhere, match="two"):
            use()
    # The copy is of one moment: it is put in place once.
    assert two.arrive(tmp_path / "usb") is None


STEPS = {
    "leave": [(hosts, "hand_over"), (move, "back_up")],
    "arrive": [(move, "restore"), (hosts, "hand_over"), (move, "_clear")],
}


@pytest.mark.parametrize(
    ("command", "step"), [(command, step) for command, steps in STEPS.items() for step in steps]
)
@pytest.mark.parametrize("is_done", [False, True])
def test_a_move_that_is_killed_at_a_step_goes_on_when_it_is_run_again(
    two_hosts: list[Host],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    step: tuple[Any, str],
    is_done: bool,
) -> None:
    one, two = two_hosts
    before = one.place.contents()
    module, name = step
    works: Callable[..., Any] = getattr(module, name)

    def kill(*args: Any, **kwargs: Any) -> None:
        if is_done:
            works(*args, **kwargs)
        raise KeyboardInterrupt

    def run(at: str, call: Callable[[], Any]) -> None:
        if at == command:
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(module, name, kill)
                call()
        call()

    run("leave", lambda: one.leave("two", tmp_path / "usb"))
    with pytest.raises(IndexElsewhere):
        one.claim()
    run("arrive", lambda: two.arrive(tmp_path / "usb"))

    assert two.holder() == ("two", "")
    assert two.place.contents() == before
    two.claim()
    with closing(IndexWriter.of(two.agent)) as writer:
        assert meta.get(writer.connection, meta.MOVING) is None
    with pytest.raises(IndexElsewhere):
        one.claim()


def test_an_emptied_redis_gives_no_agent_back_to_its_old_host(two_hosts: list[Host], tmp_path: Path) -> None:
    one, two = two_hosts
    one.leave("two", tmp_path / "usb")
    one.client.flushdb()

    with pytest.raises(IndexElsewhere, match="was handed to the index host two"):
        one.claim()
    # The command on the old host may be run again all the same, and the new one takes it.
    one.leave("two", tmp_path / "usb")
    one.client.flushdb()
    two.arrive(tmp_path / "usb")
    one.client.flushdb()
    with pytest.raises(IndexElsewhere):
        one.claim()
    two.claim()
    assert one.holder() == ("two", "")


def test_a_move_is_undone_until_the_new_host_has_the_agent(two_hosts: list[Host], tmp_path: Path) -> None:
    one, two = two_hosts
    assert not move.stay(one.settings, one.agent)
    one.leave("two", tmp_path / "usb")

    assert move.stay(one.settings, one.agent)
    one.claim()
    assert one.search("word1x0")
    with pytest.raises(IndexElsewhere, match="served by the index host one"):
        two.arrive(tmp_path / "usb")

    one.leave("two", tmp_path / "usb")
    two.arrive(tmp_path / "usb")
    with pytest.raises(IndexElsewhere, match="served by the index host two"):
        move.stay(one.settings, one.agent)


def test_an_agent_moves_back_with_what_it_learned_meanwhile(
    two_hosts: list[Host], provider: EmbeddingServer, tmp_path: Path
) -> None:
    one, two = two_hosts
    one.leave("two", tmp_path / "out")
    two.arrive(tmp_path / "out")
    two.place.write("memory/note-3.md", note(3))
    two.place.index()

    two.leave("one", tmp_path / "back")
    arrived = one.arrive(tmp_path / "back")

    assert (arrived.files, arrived.vectors, one.holder()) == (3, 9, ("one", ""))
    assert one.search("word3x0")
    with pytest.raises(IndexElsewhere):
        two.claim()


def test_nothing_leaves_while_a_request_is_in_flight_that_no_worker_takes_the_answer_of(
    two_hosts: list[Host], tmp_path: Path
) -> None:
    one = two_hosts[0]
    one.place.execute(
        "INSERT INTO leases (token, identity_id, owner, until, rows)"
        " SELECT 't', id, 'fleet', 1e12, 1 FROM identities LIMIT 1"
    )

    with pytest.raises(QueueError, match="1 request is in flight, and no store worker is there"):
        one.leave("two", tmp_path / "usb")
    assert one.holder() == ("one", "") and not (tmp_path / "usb").exists()

    # Its store worker is there, and the answer comes.
    one.client.set(redis_client.key(one.client, "serving:store-one"), 1)
    said: list[str] = []

    def answer(words: str) -> None:
        said.append(words)
        one.place.execute("DELETE FROM leases")

    move.leave(one.settings, one.agent, to="two", folder=tmp_path / "usb", on_wait=answer)
    assert said == ["1 request is in flight; their answers are waited for"]


def test_a_held_index_sends_nothing_more(two_hosts: list[Host]) -> None:
    one = two_hosts[0]
    one.place.write("memory/note-9.md", note(9))
    with closing(IndexWriter.of(one.agent)) as writer, writer.transaction() as (connection, _):
        meta.put(connection, meta.MOVING, {"host": "two", "left": False})

    report = one.place.index()

    assert report.warning.startswith(
        "the index of the agent main is about to move to the index host two; nothing"
    )


def test_only_a_backup_that_was_made_for_a_host_is_taken(two_hosts: list[Host], tmp_path: Path) -> None:
    one, two = two_hosts
    backup.back_up([one.agent], tmp_path / "plain")
    with pytest.raises(IndexFault, match="was not written by memline agent move"):
        two.arrive(tmp_path / "plain")
    one.leave("three", tmp_path / "three")

    with pytest.raises(IndexElsewhere, match="made for the index host three; this one is two"):
        two.arrive(tmp_path / "three")
    with pytest.raises(IndexElsewhere, match="on its way from the index host one to three"):
        one.leave("two", tmp_path / "usb")

    assert not two.place.index_path.exists()
