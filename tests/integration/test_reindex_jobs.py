"""Reindex jobs on a fleet, with a real redis-server and real worker processes."""

import pytest

from memline.producers.reports.jobs import listed
from memline.shared.config.environment import fleet_name
from memline.shared.config.installation import QueueAddress
from memline.shared.errors import IndexMissing
from memline.shared.queue.feed import enqueue_files
from memline.shared.queue.redis_broker import on_redis
from tests.support.fleet import Fleet
from tests.support.workspace import note, until

#: Notes of three texts each.
NOTES = 30

pytestmark = pytest.mark.place(
    server={"maxRows": 4}, files={f"memory/{n:02}.md": note(n) for n in range(NOTES)}
)


def states(place):
    """Vectors by state; none before the store worker has made the index."""
    try:
        return place.vector_states()
    except IndexMissing:
        return {}


def is_settled(place):
    return states(place) == {"ready": 3 * NOTES}


def address(place, redis):
    return QueueAddress(redis.url, fleet_name(place.home))


def waiting(place, redis, queue):
    return int(redis.ask("LLEN", f"memline:{fleet_name(place.home)}:{queue}"))


def opened(place):
    """The open jobs, the oldest first."""
    return listed([place.agent], only_open=True)[::-1]


def reindex(place, redis, *options):
    """Ask for a reindex; the answer about the place's one agent."""
    (answer,) = place.run("reindex", "--json", *options, env={"MEMLINE_QUEUE_URL": redis.url}).json
    return answer


def one(place, name):
    return place.run("jobs", "show", name, "--json").json


def test_a_reindex_is_a_job_that_the_fleet_works_off_and_is_safe_to_ask_for_twice(place, redis, server):
    with Fleet(place, redis.url) as fleet:
        fleet.start("chunk", "embed", "store")
        first = reindex(place, redis, "--force")
        second = reindex(place, redis, "--force")
        until(lambda: is_settled(place) and not opened(place), "every vector")

    assert (first["files"], second["files"]) == (NOTES, NOTES)
    assert server.repeated() == {}
    assert states(place) == {"ready": 3 * NOTES}
    done = one(place, first["id"])
    assert (done["state"], done["files"]["done"], done["texts"]["done"]) == ("done", NOTES, 3 * NOTES)


def test_a_reindex_without_workers_is_a_job_that_says_what_is_missing(place, redis):
    asked = place.run("reindex", "--force", env={"MEMLINE_QUEUE_URL": redis.url})

    (job,) = opened(place)
    assert f"job {job['id']} reads {NOTES} files" in asked.stdout
    assert f"no worker does it yet (try: {place.typed('worker chunk embed store')})" in asked.stdout
    assert waiting(place, redis, "chunk") == 0
    (shown,) = place.run("jobs", "--open", "--json").json
    assert (shown["id"], shown["name"]) == (job["id"], "reindex (all files)")
    assert shown["progress"].startswith(f"0 of {NOTES} files read")


def test_a_job_outlives_its_workers_and_an_emptied_redis(place, redis, server):
    with Fleet(place, redis.url) as fleet:
        fleet.start("store")
        job = reindex(place, redis, "--force")
        # The files are on the queue, and with it they are lost.
        until(lambda: waiting(place, redis, "chunk") > 0, "the files on the queue")
    redis.ask("FLUSHALL")
    assert [each["files"]["done"] for each in opened(place)] == [0]

    with Fleet(place, redis.url) as fleet:
        fleet.start("chunk", "embed", "store")
        until(lambda: is_settled(place) and not opened(place), "every vector")

    assert one(place, job["id"])["state"] == "done"
    assert server.repeated() == {}


def test_a_paused_job_waits_while_live_edits_go_on(place, redis, server):
    url = address(place, redis)
    reindex(place, redis)
    (job,) = opened(place)
    env = {"MEMLINE_QUEUE_URL": redis.url}
    assert "is paused" in place.run("jobs", "pause", job["id"][:4], env=env).stdout

    with Fleet(place, redis.url) as fleet:
        fleet.start("chunk", "embed", "store")
        on_redis(url)
        place.write("memory/live.md", note(NOTES))
        enqueue_files(place.agent.agent, ["memory/live.md"])
        until(lambda: states(place) == {"ready": 3}, "the live edit")
        (paused,) = opened(place)
        assert (paused["state"], paused["files"]["done"]) == ("paused", 0)

        assert "goes on" in place.run("jobs", "resume", job["id"], env=env).stdout
        until(lambda: states(place) == {"ready": 3 * NOTES + 3} and not opened(place), "every vector")

    assert server.repeated() == {}


def test_an_index_run_resumes_what_was_cancelled(place, server):
    place.index()
    server.control({"fault": "401"})
    place.configure(model="another")
    place.index()

    (job,) = opened(place)
    done = place.run("jobs", "cancel", job["id"])
    server.control({"fault": ""})
    place.end_cooldowns()

    assert f"{3 * NOTES} texts will not be embedded" in done.stdout
    assert place.search("Section 1 of 3").to_json()["stale"]
    assert place.index().vectors["pending"] == 0
    assert not place.search("Section 1 of 3").to_json()["stale"]
