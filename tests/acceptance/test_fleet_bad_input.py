"""A Redis that cannot be used, and messages that are not valid: clear words or a dead letter, no loss."""

import json
import time

import msgspec
import pytest

from memline.shared.queue import redis_client
from memline.shared.queue.messages import (
    VERSION,
    ChunkFiles,
    RunQuery,
    StoreFiles,
    Sweep,
)
from tests.acceptance.conftest import write_notes
from tests.support.fleet import LINES, WORKERS, Fleet
from tests.support.redis_server import RedisServer
from tests.support.undisturbed import assert_as_undisturbed, assert_paid_once

#: A password that no output may hold.
SECRET = "correct-horse"


def list_agents(place, *agents):
    """Make these the only agents there are; without a list any name is one."""
    place.save()
    content = json.loads(place.config.read_text())
    content["agents"]["list"] = [{"id": agent, "workspace": str(place.workspace)} for agent in agents]
    place.config.write_text(json.dumps(content))


def assert_refused(fleet, *words):
    """Every process ends at once with one line that has these words, and so do the commands."""
    fleet.start(*LINES)
    for label in LINES:
        assert fleet.ended(label) != 0
        said = fleet.log(label)
        assert "Traceback" not in said
        assert all(word in said for word in words), said
    for command in ("index", "reindex"):
        ran = fleet.run(command)
        assert ran.status == 1
        assert all(word in ran.stderr for word in words), ran.stderr
    assert not [line for line in fleet.logs() if SECRET in line]


def test_a_wrong_password_is_told_and_never_shown(notes, tmp_path):
    write_notes(notes, 0, 2)
    with RedisServer(tmp_path / "redis", password=SECRET) as running:
        right = running.url
        with Fleet(notes, right.replace(SECRET, "wrong")) as fleet:
            assert_refused(fleet, "refuses the password", "redis://:PASSWORD@")
        with Fleet(notes, right.replace(f":{SECRET}@", "")) as fleet:
            assert "refuses the password" in fleet.run("index").stderr
        with Fleet(notes, right) as fleet:
            fleet.up_together()
            fleet.until(lambda: fleet.vectors() == {"ready": 6}, "all vectors")
            shown = fleet.run("config", "show")
            assert SECRET not in "".join(fleet.logs()) + shown.stdout + fleet.run("queue").stdout


def test_a_user_of_redis_needs_our_keys_alone_and_is_told_what_it_lacks(notes, redis_server):
    texts = write_notes(notes, 0, 2)
    redis_server.ask("ACL", "SETUSER", "ann", "on", f">{SECRET}", "~memline:*", "+@all", "-set")
    with Fleet(notes, redis_server.url.replace("redis://", f"redis://ann:{SECRET}@")) as fleet:
        assert_refused(fleet, "no permissions", "a user that may use it")
        redis_server.ask("ACL", "SETUSER", "ann", "~memline:*", "+@all")

        fleet.up_together()
        fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")
        assert not [line for line in fleet.logs() if SECRET in line]


def test_a_redis_that_is_full_in_the_middle_costs_time_and_nothing_else(
    fleet, notes, provider, redis_server, tmp_path
):
    texts = write_notes(notes, 0, 80)
    provider.control({"latency_ms": 150})
    fleet.up()
    fleet.until(lambda: len(provider.requests) > 4, "the backfill")

    redis_server.ask("CONFIG", "SET", "maxmemory", "1")
    fleet.until(lambda: "out of memory" in fleet.log("store") + fleet.log("embed"), "words about it")
    told = fleet.run("reindex")
    redis_server.ask("CONFIG", "SET", "maxmemory", "0")

    assert told.status == 1
    assert "out of memory" in told.stderr
    assert "redis-cli config set maxmemory" in told.stderr
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")
    assert_as_undisturbed(notes, tmp_path)
    assert_paid_once(provider)
    assert fleet.dead() == []
    assert "Traceback" not in "".join(fleet.logs())


# Messages.


def put(fleet, queue, data, *, name="bad"):
    """Put any bytes on a queue, as the broker would."""
    with redis_client.client(fleet.address) as client:
        base = client.key(queue)
        client.hset(f"{base}.msgs", name, data)  # type: ignore[arg-type]
        client.rpush(base, name)


def envelope(message, *, name="bad", **changes):
    """A message as the broker puts it on a queue; `changes` are to its argument."""
    return msgspec.msgpack.encode(
        {
            "queue_name": message.queue,
            "actor_name": changes.pop("actor", message.actor),
            "args": [{**msgspec.to_builtins(message), **changes}],
            "kwargs": {},
            "options": {"redis_message_id": name},
            "message_id": name,
            "message_timestamp": int(time.time() * 1000),
        }
    )


CHUNK = ChunkFiles(agent="main", paths=("memory/note-1.md",))

#: (queue, bytes, words of the reason)
BAD_MESSAGES = {
    "a newer version": ("chunk", envelope(CHUNK, v=VERSION + 1), f"has version {VERSION + 1}"),
    "a newer version on store": (
        "store",
        envelope(StoreFiles(agent="main", files=()), v=VERSION + 1),
        f"has version {VERSION + 1}",
    ),
    "another shape": ("chunk", envelope(CHUNK, paths=7), "not a valid ChunkFiles message"),
    "no arguments": ("chunk", envelope(CHUNK).replace(b"paths", b"sapth"), "not a valid ChunkFiles message"),
    "an unknown agent on chunk": ("chunk", envelope(CHUNK, agent="nobody"), "names the agent 'nobody'"),
    "an unknown agent on store": (
        "store",
        envelope(StoreFiles(agent="nobody", files=())),
        "names the agent 'nobody'",
    ),
    "an unknown actor": ("store", envelope(Sweep(agent="main"), actor="burn"), "burn"),
}


@pytest.fixture
def listing(notes):
    """Only agents of a list are known."""
    list_agents(notes, "main")


def test_every_message_that_cannot_be_worked_on_is_a_dead_letter_with_its_reason_and_holds_up_no_other(
    fleet, notes, redis_server, provider, listing
):
    for number, (queue, data, _) in enumerate(BAD_MESSAGES.values()):
        put(fleet, queue, data.replace(b"\xa3bad", b"\xa3%03d" % number), name=f"{number:03d}")
    texts = write_notes(notes, 0, 10)
    fleet.up_together()

    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")
    fleet.until(lambda: len(fleet.dead()) == len(BAD_MESSAGES), "the dead letters")
    dead = {letter["id"]: letter for letter in fleet.dead()}

    for number, (queue, _, reason) in enumerate(BAD_MESSAGES.values()):
        letter = dead[f"{number:03d}"]
        assert letter["queue"] == queue
        assert reason in letter["error"], letter
    assert_paid_once(provider)
    assert all(fleet.queue(name).in_flight == fleet.queue(name).waiting == 0 for name in WORKERS)
    # No loop: seconds later there are as many.
    assert len(fleet.dead()) == len(BAD_MESSAGES)
    assert fleet.log("work").count("message_id=000") <= 2


def test_dead_messages_are_put_back_or_dropped_by_what_they_are(fleet, notes, redis_server, listing):
    notes.write("memory/new.md", "# New\n\nplugh\n")
    put(fleet, "chunk", envelope(CHUNK, agent="later", paths=["memory/new.md"]))
    put(fleet, "chunk", envelope(CHUNK, name="burn", actor="burn"), name="burn")
    fleet.start("chunk", "store")
    fleet.until(lambda: len(fleet.dead()) == 2, "the dead letters")

    dropped = fleet.run("queue", "drop", "--error", "burn", "--json")
    in_vain = fleet.run("queue", "requeue", "--error", "later", "--json")
    fleet.until(lambda: [one["id"] for one in fleet.dead()] == ["bad"], "the dead letter again")
    list_agents(notes, "main", "later")
    for label in ("chunk", "store"):
        fleet.restart(label)
    moved = fleet.run("queue", "requeue", "--json")

    assert (dropped.json, in_vain.json, moved.json) == (
        {"dropped": 1},
        {"requeued": 1},
        {"requeued": 1},
    )
    later = notes.index_path.with_name("later.sqlite")
    fleet.until(later.exists, "the index of the other agent")
    assert fleet.dead() == []


def test_an_index_run_whose_agent_no_worker_knows_ends_and_says_why(fleet, notes, tmp_path):
    write_notes(notes, 0, 3)
    list_agents(notes, "other")
    # A file of their own: of that of the command they would take the other agents.
    own = tmp_path / "workers.json5"
    own.write_text(notes.config.read_text())
    fleet.start("chunk", "store", env={"MEMLINE_CONFIG": str(own)})
    fleet.until_alive("chunk", "store")
    list_agents(notes, "main")

    ran = fleet.run("index")

    assert ran.status == 1
    assert "no worker of the queue 'store' takes the index of the agent 'main'" in ran.stderr


def test_an_old_question_is_not_answered_and_leaves_nothing(fleet, notes, redis_server):
    texts = write_notes(notes, 0, 2)
    fleet.up_together()
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")

    late = RunQuery(agent="main", query="word1x1x7", reply_to="box", until=1.0)
    put(fleet, "query", envelope(late))
    fleet.until(lambda: fleet.queue("query").in_flight == fleet.queue("query").waiting == 0, "its end")

    assert redis_server.ask("KEYS", "memline:*:reply:*") == []
    assert fleet.dead() == []


def test_a_client_that_is_no_redis_is_no_crash(notes, provider):
    url = provider.url.replace("http://", "redis://").replace("/v1", "/0")
    with Fleet(notes, url) as fleet:
        fleet.start("embed")

        assert fleet.ended("embed") != 0
        assert "Redis at" in fleet.log("embed") and "Traceback" not in fleet.log("embed")
