"""The faults of `python -m tests.faults`: how each is injected into a fleet, and repaired."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from memline.shared.queue import redis_client
from tests.support.embedding_server import EmbeddingServer
from tests.support.fleet_world import World, mount
from tests.support.workspace import remote

#: Seconds from the moment that a fault can be known until every face says it, and until none does after the
#: repair; more for a killed process, for settings, and for what takes a look at the files.
SEEN_S, GONE_S = 2.0, 5.0
KILLED_S, SETTINGS_S, FILES_S = 17.0, 7.0, 6.0

#: What a fault does: it yields when it can be known, and again when it is repaired.
Steps = Generator[None]


@dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    codes: tuple[str, ...]
    seen_s: float
    gone_s: float
    hold_s: float
    #: It is a note, or becomes one: the strip of a page need not say it.
    is_note: bool
    steps: Callable[[World], Steps]


FAULTS: dict[str, Fault] = {}


def fault(
    name: str,
    *codes: str,
    seen_s: float = SEEN_S,
    gone_s: float = GONE_S,
    hold_s: float = 0.0,
    is_note: bool = False,
) -> Callable[[Callable[[World], Steps]], Callable[[World], Steps]]:
    """Add a fault; `codes`: one of which every face must say."""

    def add(steps: Callable[[World], Steps]) -> Callable[[World], Steps]:
        FAULTS[name] = Fault(
            name=name,
            codes=codes,
            seen_s=seen_s,
            gone_s=gone_s,
            hold_s=hold_s,
            is_note=is_note,
            steps=steps,
        )
        return steps

    return add


@fault("redis killed", "redis_unreachable")
def _redis_killed(world: World) -> Steps:
    world.redis.kill()
    yield
    world.redis.start()
    yield


@fault("redis evicting", "redis_evicting")
def _redis_evicting(world: World) -> Steps:
    world.redis.ask("CONFIG", "SET", "maxmemory", "100mb")
    world.redis.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    yield
    world.redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    world.redis.ask("CONFIG", "SET", "maxmemory", "0")
    yield


# For longer than a heartbeat lasts: none can be written.
@fault("redis full", "redis_full", hold_s=14.0)
def _redis_full(world: World) -> Steps:
    world.redis.ask("CONFIG", "SET", "maxmemory", "1")
    yield
    world.redis.ask("CONFIG", "SET", "maxmemory", "0")
    yield


@fault("index damaged", "index_damaged")
def _index_damaged(world: World) -> Steps:
    with world.place.index_path.open("r+b") as file:
        file.write(b"garbage" * (world.place.index_path.stat().st_size // 7))
    # What is written there still is not checked when it is read.
    with Path(f"{world.place.index_path}-wal").open("r+b") as file:
        file.write(b"garbage" * (Path(file.name).stat().st_size // 7))
    yield
    world.fleet.run("index")
    yield


@fault("disk full", "disk_almost_full", "permissions")
def _disk_full(world: World) -> Steps:
    home = world.place.home
    mount("remount,size=150m", home)
    yield
    used = sum(file.stat().st_blocks * 512 for file in home.rglob("*") if file.is_file())
    mount(f"remount,size={used}", home)
    world.write()
    time.sleep(4)
    mount("remount,size=4g", home)
    # What could not be stored in three tries.
    world.fleet.run("queue", "requeue", "--match", "*")
    yield


@fault("workspace moved", "workspace_missing", seen_s=FILES_S)
def _workspace_moved(world: World) -> Steps:
    moved = world.place.workspace.with_name("moved")
    world.place.workspace.rename(moved)
    yield
    moved.rename(world.place.workspace)
    yield


@fault("file unreadable", "file_failed", seen_s=FILES_S)
def _file_unreadable(world: World) -> Steps:
    file = world.write(name="unreadable")
    world.until(lambda: "memory/unreadable.md" in world.place.outcomes(), "the note")
    file.chmod(0)
    yield
    file.chmod(0o644)
    yield
    file.unlink()


@fault("watches exhausted", "watches_exhausted")
def _watches_exhausted(world: World) -> Steps:
    world.fleet.terminate("watch")
    world.fleet.ended("watch")
    limits = "sh -c 'echo 1 > /proc/sys/user/max_inotify_watches; exec \"$@\"' sh"
    world.fleet.start("watch", before=f"unshare --user --map-root-user {limits}")
    world.until(lambda: "watch.polling" in world.fleet.log("watch").rpartition("watch.started")[2], "polling")
    yield
    world.fleet.terminate("watch")
    world.fleet.ended("watch")
    world.fleet.start("watch")
    world.until(world.has_watch, "the watcher")
    yield


@fault("watch killed", "no_watcher", seen_s=KILLED_S)
def _watch_killed(world: World) -> Steps:
    world.kill("watch")
    yield
    world.fleet.start("watch")
    world.until(world.has_watch, "the watcher")
    yield


@fault("embed killed", "role_missing", seen_s=KILLED_S)
def _embed_killed(world: World) -> Steps:
    world.kill("embed")
    yield
    world.restart("embed")
    yield


@fault("store killed", "role_missing", seen_s=KILLED_S)
def _store_killed(world: World) -> Steps:
    world.kill("store")
    yield
    world.restart("store")
    yield


@fault("401", "breaker_open")
def _401(world: World) -> Steps:
    world.set_provider("401")
    world.write()
    world.until(lambda: world.health("state") == "open", "the breaker")
    yield
    world.resume()
    yield


@fault("429", "rate_limited")
def _429(world: World) -> Steps:
    world.set_provider("429:70")
    world.write()
    world.until(lambda: (world.health("retry_at") or 0.0) > time.time() + 60, "the hold")
    yield
    # What the provider asked for is kept to, whoever resumes.
    world.set_provider("")
    world.until(lambda: world.health("retry_at") <= time.time(), "the end of the hold")
    yield


@fault("500", "breaker_open")
def _500(world: World) -> Steps:
    world.set_provider("500")
    world.write()
    world.until(lambda: world.health("state") == "open", "the breaker")
    yield
    world.resume()
    yield


@fault("provider down", "breaker_open")
def _provider_down(world: World) -> Steps:
    port = int(world.provider.url.rpartition(":")[2].partition("/")[0])
    world.provider.die()
    world.write()
    world.until(lambda: world.health("state") == "open", "the breaker")
    yield
    world.provider = EmbeddingServer(dims=16, port=port).__enter__()
    world.resume()
    yield


@fault("refused texts", "text_refused")
def _refused_texts(world: World) -> Steps:
    world.set_provider("refuse:POISON")
    file = world.write("# Bad\n\nPOISON\n")
    world.until(lambda: world.failed > 0, "the refusal")
    yield
    world.set_provider("")
    file.unlink()
    world.until(lambda: world.failed == 0, "the end of the text")
    yield


@fault("dead letters", "dead_letters")
def _dead_letters(world: World) -> Steps:
    with redis_client.connected(world.fleet.address) as client:
        base = redis_client.key(client, "chunk")
        client.hset(f"{base}.msgs", "bad", b"\xc1 no message at all")
        client.rpush(base, "bad")
        world.until(lambda: bool(client.zcard(f"{base}.XQ")), "the dead letter")
    yield
    world.run("queue", "drop", "--match", "*")
    yield


@fault("paused", "paused")
def _paused(world: World) -> Steps:
    world.run("queue", "pause")
    world.write()
    world.until(lambda: world.waiting > 0, "texts that wait")
    yield
    world.run("queue", "resume")
    yield


@fault("ceiling", "ceiling_reached", seen_s=SETTINGS_S, gone_s=SETTINGS_S)
def _ceiling(world: World) -> Steps:
    world.configure(blocks={"limits": {"maxTokensPerDay": 1}})
    world.write_until(lambda: world.count("SELECT count(*) FROM meta WHERE key = 'ceiling'") > 0)
    yield
    world.configure()
    yield


@fault(
    "other model",
    *("model_changing", "model_differs"),
    seen_s=SETTINGS_S,
    gone_s=SETTINGS_S,
    is_note=True,
)
def _other_model(world: World) -> Steps:
    world.set_provider("slow:60000")
    world.configure(model="other")
    yield
    world.set_provider("")
    world.configure()
    yield


@fault("key missing", "provider_without_key", seen_s=SETTINGS_S, gone_s=SETTINGS_S)
def _key_missing(world: World) -> Steps:
    world.configure(remote={"baseUrl": "https://api.openai.com/v1"})
    yield
    world.configure()
    yield


@fault("other settings", "old_settings")
def _other_settings(world: World) -> Steps:
    world.place.config.touch()
    yield
    world.fleet.restart_all()
    yield


@fault("job paused", "job_paused")
def _job_paused(world: World) -> Steps:
    world.fleet.signal("chunk", signal.SIGSTOP)
    world.run("reindex", "--force")
    (job,) = (each for each in world.run("jobs", "ls", "--json").json if each["state"] == "running")
    world.run("jobs", "pause", job["id"])
    # Its files still wait: with none the pause is a note.
    yield
    world.fleet.signal("chunk", signal.SIGCONT)
    world.run("jobs", "resume", job["id"])
    yield


@fault("batch waiting", "waiting_in_batch", is_note=True)
def _batch_waiting(world: World) -> Steps:
    world.provider.control({"batch": {"looks": 1_000_000}})
    world.configure(
        remote=remote(world.provider.url)["remote"]
        | {"batch": {"enabled": True, "minTexts": 1, "pollIntervalMs": 200}}
    )
    world.write_until(
        lambda: world.count("SELECT count(*) FROM batches WHERE state <> 'closed' AND job_id <> ''") > 0
    )
    yield
    world.provider.control({"batch": {"looks": 0}})
    for job in world.provider.batches.jobs.jobs.values():
        job.looks_left = 0
    for batch in world.run("batch", "ls", "--json").json:
        # It is polled less and less often.
        world.fleet.run("batch", "collect", batch["id"])
    world.until(lambda: world.batches == 0 and world.waiting == 0, "the end of the batch")
    yield
    world.configure()
