"""Processes that run see that their settings changed, take what they can, and start again for the rest."""

import json
import re
import signal
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import httpx
import pytest

from memline.shared.config.environment import fleet_name
from memline.shared.errors import IndexMissing, QueueError
from memline.shared.index import driver
from memline.shared.queue import depth
from tests.acceptance.conftest import ROWS, write_notes
from tests.support.embedding_server import EmbeddingServer
from tests.support.fleet import Fleet
from tests.support.process import running_memline
from tests.support.redis_server import redis_command
from tests.support.workspace import Place, note, remote, until

#: Seconds after which a lowered ceiling holds, and by how much a loaded machine may be slower: the seconds
#: themselves are those of a clock of a test (unit/config).
HOLDS_S, SLACK = 5.0, 6


def models(provider: EmbeddingServer) -> list[str]:
    with provider.lock:
        return [request.body["model"] for request in provider.requests]


def embedded_by(provider: EmbeddingServer, model: str) -> set[str]:
    with provider.lock:
        return {
            text for each in provider.requests if each.body["model"] == model for text in each.body["input"]
        }


def vectors(place: Place) -> dict[str, int]:
    with suppress(IndexMissing):
        return place.vector_states()
    return {}


def workers(fleet: Fleet) -> dict[str, dict[str, Any]]:
    ran = fleet.run("queue", "--json")
    return {each["role"]: each for each in ran.json["workers"]} if ran.status == 0 else {}


def change(
    place: Place, at: EmbeddingServer, *, content: dict[str, Any] | None = None, **changes: Any
) -> None:
    """Write the configuration anew, at once as an editor does."""
    place.memory.update(remote(at.url, maxRows=ROWS, **changes.pop("remote", {})))
    place.memory.update(changes)
    defaults = {"workspace": str(place.workspace), "memorySearch": place.memory}
    part = place.config.with_suffix(".part")
    part.write_text(json.dumps({"agents": {"defaults": defaults}, **(content or {})}), "utf-8")
    part.rename(place.config)


def test_a_fleet_whose_model_changes_starts_again_in_place_and_embeds_all_with_it(
    fleet: Fleet, notes: Place, provider: EmbeddingServer
) -> None:
    texts = write_notes(notes, 0, 4)
    fleet.up()
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "the first vectors")
    before = {role: each["pid"] for role, each in workers(fleet).items()}

    change(notes, provider, model="other")

    fleet.until(lambda: models(provider).count("other") > 0, "requests with the other model")
    fleet.until(
        lambda: notes.status()["model"] == "other" if "model" in notes.status() else True, "the switch"
    )
    fleet.until(lambda: len(workers(fleet)) == len(before), "all workers")
    after = workers(fleet)
    assert {role: each["pid"] for role, each in after.items()} == before
    assert all(fleet.is_running(label) for label in ("watch", "chunk", "embed", "store", "query"))
    assert "the settings changed (memorySearch.model)" in fleet.log("embed")


def test_an_agent_that_was_out_of_the_settings_for_a_while_goes_on_and_nothing_is_paid_for_twice(
    notes: Place, provider: EmbeddingServer, fleet: Fleet
) -> None:
    workspace = notes.folder / "other"
    agents = [{"id": "main", "default": True}, {"id": "other", "workspace": str(workspace)}]
    (workspace / "memory").mkdir(parents=True)
    for number in range(30):
        (workspace / f"memory/note-{number}.md").write_text(note(number))

    def configure(count: int) -> None:
        defaults = {"workspace": str(notes.workspace), "memorySearch": notes.memory}
        change(notes, provider, content={"agents": {"defaults": defaults, "list": agents[:count]}})

    def dead_answers() -> int:
        return sum(each["actor"] == "store_vectors" for each in fleet.dead())

    configure(2)
    provider.control({"latency_ms": 1_000})
    fleet.up_together("embed")
    fleet.until(lambda: len(provider.requests) > 1, "requests")
    fleet.signal("embed", signal.SIGSTOP)
    configure(1)
    fleet.until(lambda: fleet.log("work").count("worker.started") == 2, "processes without the agent")
    # Its answers come when nobody knows the agent any more.
    fleet.signal("embed", signal.SIGCONT)
    fleet.until(lambda: dead_answers() > 0, "answers that nobody can store")
    provider.control({"latency_ms": 20})
    configure(2)

    texts = 3 * 30
    index = notes.home / "memory" / "other.sqlite"
    query = "SELECT count(*) FROM vectors WHERE state = 'ready'"

    def ready() -> int:
        with closing(driver.open_reader(index)) as reader:
            return int(reader.execute(query).fetchone()[0])

    fleet.until(lambda: ready() == texts, "all vectors")
    assert not provider.repeated()
    assert dead_answers() == 0
    # It started again, and did not end.
    assert fleet.is_running("watch") and "Traceback" not in fleet.log("watch")


def test_a_ceiling_that_is_lowered_holds_soon_and_one_that_is_raised_lets_a_fleet_go_on(
    fleet: Fleet, notes: Place, provider: EmbeddingServer
) -> None:
    provider.control({"latency_ms": 300})
    texts = write_notes(notes, 0, 120)
    fleet.up()
    fleet.until(lambda: len(provider.requests) > 4, "the backfill")

    change(notes, provider, content={"limits": {"maxTokensPerDay": 1}})
    lowered = time.time()
    fleet.until(lambda: "limits.maxTokensPerDay" in fleet.run("queue").stdout, "the ceiling")
    fleet.until(
        lambda: fleet.queue("embed").waiting + fleet.queue("embed").in_flight == 0, "the last request"
    )
    sent = len(provider.requests)
    assert provider.log()["requests"][-1]["at"] - lowered < HOLDS_S * SLACK
    pid = workers(fleet)["store"]["pid"]
    fleet.run("index")
    assert len(provider.requests) == sent < texts / ROWS

    provider.control({"latency_ms": 10})
    change(notes, provider, content={"limits": {"maxTokensPerDay": 10_000_000}})
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")
    assert workers(fleet)["store"]["pid"] == pid
    assert "starts again" not in fleet.log("store")


def test_a_key_that_was_replaced_is_used_after_a_resume(
    fleet: Fleet, notes: Place, provider: EmbeddingServer
) -> None:
    provider.key = "sk-second"
    texts = write_notes(notes, 0, 4)
    fleet.up_together()
    fleet.until(lambda: len(provider.requests) > 0, "a refusal")
    fleet.until(
        lambda: "401" in fleet.run("queue").stdout or "key" in fleet.run("queue").stdout, "the breaker"
    )
    refused = len(provider.requests)

    change(notes, provider, remote={"apiKey": "sk-second"})
    fleet.run("queue", "resume")

    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")
    with provider.lock:
        later = [request.headers.get("authorization") for request in provider.requests[refused:]]
    assert set(later) == {"Bearer sk-second"}


def test_settings_of_workers_that_differ_are_told_by_the_names_of_keys(
    fleet: Fleet, notes: Place, provider: EmbeddingServer, tmp_path: Path
) -> None:
    fleet.up_together()
    other = tmp_path / "other.json5"
    other.write_text(notes.config.read_text().replace('"sk-test"', '"sk-secret"'))
    fleet.start("embed-2", env={"MEMLINE_CONFIG": str(other)})

    def findings() -> list[dict[str, Any]]:
        found = fleet.run("queue", "--json").json["findings"]
        return [each for each in found if each["code"] == "settings_differ"]

    fleet.until(lambda: bool(findings()), "the finding")
    (found,) = findings()
    assert "memorySearch.remote.apiKey" in found["what"] and "sk-" not in json.dumps(found)
    assert str(fleet.pid("embed-2")) in found["what"]
    assert all(len(each["settings"]) == 12 for each in fleet.run("queue", "--json").json["workers"])


def test_up_takes_a_path_and_a_model_in_the_same_process(
    notes: Place, provider: EmbeddingServer, tmp_path: Path
) -> None:
    write_notes(notes, 0, 2)
    more = tmp_path / "more"
    more.mkdir()
    (more / "one.md").write_text("# More\n\nzebra crossing\n")
    with running_memline(*notes.arguments("up")) as process:
        until(lambda: vectors(notes) == {"ready": 6})

        change(notes, provider, extraPaths=[str(more)])
        until(lambda: bool(notes.search("zebra").hits))
        change(notes, provider, model="other")
        until(lambda: "other" in models(provider))
        until(lambda: len(embedded_by(provider, "other")) == 7)

        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_index_ends_and_says_what_changed(notes: Place, provider: EmbeddingServer) -> None:
    provider.control({"latency_ms": 2_000})
    write_notes(notes, 0, 80)
    with running_memline(*notes.arguments("index")) as process:
        until(lambda: len(provider.requests) > 0)

        change(notes, provider, model="other")

        assert process.wait(120) == 1
        assert process.stderr is not None
        assert "the settings changed while this waited: memorySearch.model" in process.stderr.read()


@pytest.mark.parametrize("broken", ["{", '{"limits": {"maxCostPerDay": "much"}}'])
def test_settings_that_are_invalid_end_nothing(
    fleet: Fleet, notes: Place, provider: EmbeddingServer, broken: str
) -> None:
    fleet.up_together()
    # A process that has not begun needs valid settings.
    fleet.until(lambda: "files.followed" in fleet.log("watch"), "the watcher")
    good = notes.config.read_text()
    notes.config.write_text(broken)

    fleet.until(lambda: "settings.invalid" in fleet.log("work"), "the line")

    notes.config.write_text(good)
    texts = write_notes(notes, 0, 2)
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "the vectors")
    assert str(notes.config) in fleet.log("work")


def test_serve_answers_from_other_settings_and_keeps_its_port(
    notes: Place, provider: EmbeddingServer
) -> None:
    write_notes(notes, 0, 2)
    notes.run("index")
    with running_memline(*notes.arguments("serve", "--port", "0")) as process:
        assert process.stderr is not None
        url = re.search(r"http://\S+:\d+", process.stderr.readline())[0]  # type: ignore[index]

        def hits() -> int:
            return len(httpx.get(f"{url}/search", params={"query": "word1x1x7 alpha"}).json()["results"])

        until(lambda: hits() > 1)
        change(notes, provider, query={"maxResults": 1})
        until(lambda: hits() == 1)
        change(notes, provider, content={"serve": {"port": 9}})

        def codes() -> set[str]:
            found = notes.run("status", "--json").json[0]["findings"]
            return {each["code"] for each in found}

        until(lambda: "restart_needed" in codes())
        assert hits() == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_mcp_takes_other_settings_between_two_calls_and_says_what_it_cannot_take(
    notes: Place, provider: EmbeddingServer
) -> None:
    write_notes(notes, 0, 2)
    notes.run("index")
    command = ["-c", "from memline.producers.start import main; main()", *notes.arguments("mcp")]
    with Popen([sys.executable, *command], stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        number = 0

        def call(method: str, params: dict[str, Any]) -> dict[str, Any]:
            nonlocal number
            number += 1
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            print(json.dumps(message), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())["result"]  # type: ignore[no-any-return, union-attr]

        client = {"name": "test", "version": "1"}
        call("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        print(json.dumps(initialized), file=process.stdin, flush=True)

        def search() -> dict[str, Any]:
            asked = {"name": "memory_search", "arguments": {"query": "word1x1x7 alpha"}}
            found: dict[str, Any] = call("tools/call", asked)["structuredContent"]
            return found

        assert len(search()["results"]) > 1
        change(notes, provider, query={"maxResults": 1})
        until(lambda: len(search()["results"]) == 1)
        change(notes, provider, content={"queue": {"url": "redis://127.0.0.1:9/0"}})
        until(lambda: any(each["code"] == "started_before" for each in search()["findings"]))
        assert "queue.url" in search()["findings"][-1]["what"]
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_fleet_starts_the_roles_that_other_settings_need_and_keeps_its_redis(
    notes: Place, provider: EmbeddingServer
) -> None:
    redis_command()
    change(notes, provider, provider="none")
    texts = write_notes(notes, 0, 2)
    with running_memline(*notes.arguments("fleet", "--no-api")) as process:
        address = f"unix://{notes.home}/redis.sock#{fleet_name(notes.home)}"

        def pids() -> dict[str, int]:
            with suppress(QueueError):
                return {each.queues[0]: each.pid for each in depth.read(address).workers}
            return {}

        until(lambda: set(pids()) == {"store", "chunk", "query"})
        before = pids()

        change(notes, provider, provider="openai")

        until(lambda: vectors(notes) == {"ready": texts})
        until(lambda: set(pids()) == {"store", "chunk", "query", "embed"})
        assert {role: pid for role, pid in pids().items() if role != "embed"} == before

        change(notes, provider, provider="none")
        until(lambda: set(pids()) == {"store", "chunk", "query"})
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(100) == 0
