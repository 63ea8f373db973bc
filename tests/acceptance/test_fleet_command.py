"""`memline fleet`: one command runs every process, with a Redis of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from memline.shared.config.environment import fleet_name
from memline.shared.errors import IndexMissing, QueueError
from memline.shared.queue import depth, heartbeat, redis_client
from tests.acceptance.conftest import write_notes
from tests.support.embedding_server import EmbeddingServer
from tests.support.process import ROOT
from tests.support.redis_server import RedisServer, redis_command
from tests.support.undisturbed import assert_as_undisturbed, assert_paid_once
from tests.support.workspace import Place, until

#: Seconds that all processes may take to start, and to end.
LIMIT_S = 150.0


class Running:
    """A `memline fleet` that runs beside the test."""

    def __init__(self, place: Place, process: subprocess.Popen[bytes], log: Path, url: str) -> None:
        self.place = place
        self.process = process
        self.url = url or f"unix://{place.home}/redis.sock"
        self._log = log

    def log(self) -> str:
        return self._log.read_text("utf-8")

    def workers(self) -> dict[str, int]:
        """The pids of the live workers, by role."""
        with suppress(QueueError):
            return {
                worker.queues[0]: worker.pid
                for worker in depth.read(f"{self.url}#{fleet_name(self.place.home)}").workers
            }
        return {}

    def vectors(self) -> dict[str, int]:
        """How many vectors the index has in each state; none while there is no index."""
        with suppress(IndexMissing):
            return self.place.vector_states()
        return {}

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(LIMIT_S)


@contextmanager
def running_fleet(place: Place, *args: str, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    log = place.folder / "fleet.log"
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MEMLINE_CONFIG": str(place.config),
        "MEMLINE_HOME": str(place.home),
        **(env or {}),
    }
    script = "from memline.producers.start import main; main()"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", script, "fleet", "--no-api", *args],
            env=variables,
            stdout=file,
            stderr=file,
        )
    try:
        yield Running(place, process, log, variables.get("MEMLINE_QUEUE_URL", ""))
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def wait_for_roles(fleet: Running, *roles: str) -> dict[str, int]:
    until(lambda: set(fleet.workers()) == set(roles))
    return fleet.workers()


@pytest.fixture(autouse=True)
def there_is_a_redis() -> None:
    redis_command()


def test_a_fleet_without_a_queue_runs_on_a_redis_of_its_own_and_ends_in_order(
    notes: Place, provider: EmbeddingServer, tmp_path: Path
) -> None:
    texts = write_notes(notes, 0, 60)

    with running_fleet(notes) as fleet:
        # Neither batch nor flush is configured.
        wait_for_roles(fleet, "store", "embed", "chunk", "query")
        until(lambda: fleet.vectors() == {"ready": texts})
        found = notes.run("search", "word7x1x7", "--json", env={"MEMLINE_QUEUE_URL": fleet.url}).json
        status = fleet.end()

    assert status == 0
    assert found["results"][0]["path"] == "memory/note-7.md"
    assert not (notes.home / "redis.sock").exists()
    lines = fleet.log().splitlines()
    assert "MEMLINE_QUEUE_URL=unix://" in lines[0]
    assert {line.partition("|")[0].strip() for line in lines[1:]} == {
        "store",
        "embed",
        "chunk",
        "query",
        "watch",
    }
    assert_as_undisturbed(notes, tmp_path)
    assert_paid_once(provider)


def test_when_one_process_dies_the_others_end_and_the_status_says_so(
    notes: Place, redis_server: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "url").write_text(redis_server.url)
    with running_fleet(notes, env={"MEMLINE_QUEUE_URL_FILE": str(tmp_path / "url")}) as fleet:
        fleet.url = redis_server.url
        pids = wait_for_roles(fleet, "store", "embed", "chunk", "query")
        os.kill(pids["embed"], signal.SIGKILL)

        assert fleet.process.wait(LIMIT_S) == 1

    assert "embed ended with status -9; the others are ended too" in fleet.log()
    assert fleet.workers().keys() <= {"embed"}


def test_a_worker_that_is_drained_is_started_again_and_the_others_go_on(notes: Place) -> None:
    with running_fleet(notes) as fleet:
        before = wait_for_roles(fleet, "store", "embed", "chunk", "query")
        heartbeat.drain(f"{fleet.url}#{fleet_name(notes.home)}", str(before["query"]))
        until(lambda: fleet.workers().get("query", before["query"]) != before["query"], "another worker")
        after = wait_for_roles(fleet, "store", "embed", "chunk", "query")

        assert fleet.end() == 0

    assert {role: pid for role, pid in after.items() if role != "query"} == {
        role: pid for role, pid in before.items() if role != "query"
    }
    assert "drained and started again: query" in fleet.log()


def test_what_was_paid_for_is_stored_before_a_redis_that_keeps_nothing_ends(
    notes: Place, provider: EmbeddingServer
) -> None:
    provider.control({"latency_ms": 500})
    write_notes(notes, 0, 10)
    with running_fleet(notes) as fleet:
        pids = wait_for_roles(fleet, "store", "embed", "chunk", "query")
        until(lambda: bool(provider.log()["requests"]))
        os.kill(pids["store"], signal.SIGSTOP)
        try:
            fleet.process.terminate()
            until(lambda: not _is_running(pids["embed"]))
        finally:
            # Not at once: an order to end would be waiting for it.
            time.sleep(1)
            os.kill(pids["store"], signal.SIGCONT)
        assert fleet.process.wait(LIMIT_S) == 0

    notes.run("index")
    assert_paid_once(provider)


def test_a_fleet_ends_when_its_own_redis_does(notes: Place) -> None:
    with running_fleet(notes) as fleet:
        wait_for_roles(fleet, "store", "embed", "chunk", "query")
        with redis_client.connected(fleet.url) as client:
            os.kill(client.info()["process_id"], signal.SIGKILL)

        assert fleet.process.wait(LIMIT_S) == 1

    assert "redis ended with status -9; the others are ended too" in fleet.log()


def test_a_second_fleet_of_the_same_home_is_refused(notes: Place) -> None:
    with running_fleet(notes) as fleet:
        wait_for_roles(fleet, "store", "embed", "chunk", "query")

        second = notes.run("fleet", "--no-api")

    assert second.status == 1
    assert "another memline fleet runs" in second.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_the_processes_of_a_fleet_that_was_killed_end_as_well(notes: Place) -> None:
    with running_fleet(notes) as fleet:
        pids = wait_for_roles(fleet, "store", "embed", "chunk", "query")

        fleet.process.kill()

        def is_any_alive() -> bool:
            return any(Path(f"/proc/{pid}/cmdline").is_file() and _is_running(pid) for pid in pids.values())

        until(lambda: not is_any_alive())


def _is_running(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text("utf-8")
    except OSError:
        return False


def test_the_files_for_a_supervisor_name_the_processes_that_the_configuration_needs(
    notes: Place, tmp_path: Path
) -> None:
    procfile = notes.run("fleet", "procfile").stdout
    units = notes.run("fleet", "systemd").stdout
    notes.run("fleet", "systemd", str(tmp_path))
    compose = notes.run("fleet", "--no-api", "compose").stdout

    assert procfile.splitlines() == [
        "store: memline worker store",
        "chunk: memline worker chunk",
        "embed: memline worker embed",
        "query: memline worker query",
        "api: memline serve",
        "watch: memline watch",
    ]
    assert units.splitlines()[-1].endswith(
        "memline.target memline@store memline@chunk memline@embed memline@query memline@api memline@watch"
    )
    assert 'command: ["worker", "store"]' in compose and "api:" not in compose
    program = f"ExecStart={Path(sys.executable).with_name('memline')} "
    shipped = sorted((ROOT / "deploy" / "systemd" / "fleet").iterdir())
    assert [path.name for path in shipped] == ["memline.target", "memline@.service"]
    for path in shipped:
        written = (tmp_path / path.name).read_text("utf-8")
        assert written == path.read_text("utf-8").replace("ExecStart=/opt/memline/bin/memline ", program)
        assert written in units


def test_a_process_that_does_not_exist_is_named_with_those_that_do(notes: Place) -> None:
    ran = notes.run("fleet", "run", "stores")

    assert ran.status == 2
    assert (
        "'stores' is not one of store, chunk, embed, batch, query, flush, api, watch, metrics, up"
        in ran.stderr
    )
