"""A fleet for a benchmark: a redis-server of its own and worker processes as the Procfile has them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from benchmarks.bench import Bench, Place
from benchmarks.children import ROOT, environment, memline
from benchmarks.figures import Figure
from memline.shared.config.installation import QueueAddress

if TYPE_CHECKING:
    from memline.shared.queue.depth import Fleet

#: A second of the times of the kernel.
TICKS = os.sysconf("SC_CLK_TCK")

#: Seconds processes may take to be there, and any wait of a benchmark may last.
START_S = 30.0
PATIENCE_S = 900.0


def needs_redis(benchmark: Callable[[Bench], list[Figure]]) -> Callable[[Bench], list[Figure]]:
    """Without a redis-server on the PATH say so in the table; the other benchmarks go on."""

    @wraps(benchmark)
    def measured(bench: Bench) -> list[Figure]:
        if shutil.which("redis-server"):
            return benchmark(bench)
        reason = "not measured: no redis-server on the PATH"
        return [Figure(what=(benchmark.__doc__ or "").partition(":")[0], target="", measured=reason)]

    return measured


class FleetProcesses:
    """Redis and workers on one place; a context manager that ends what it started."""

    def __init__(self, place: Place) -> None:
        self.place = place
        #: Each with the name of its line in the Procfile.
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"redis://127.0.0.1:{probe.getsockname()[1]}/0"
        self.address = QueueAddress(self.url, "bench")

    def __enter__(self) -> FleetProcesses:
        self._log = (self.place.home / "fleet.log").open("ab")
        port = self.url.rsplit(":", 1)[1].partition("/")[0]
        options = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", str(self.place.home)]
        self._redis = subprocess.Popen(["redis-server", *options], stdout=self._log, stderr=self._log)
        wait_until(self._answers, "redis-server", START_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, process in self._processes:
            process.terminate()
        for _, process in self._processes:
            process.wait()
        self._redis.terminate()
        self._redis.wait()
        self._log.close()

    def start(self, queue: str, *, processes: int = 1, threads: int = 1) -> None:
        """Start workers of a queue and wait until their heartbeat is there."""
        there = sum(queue in one.queues for one in self.look().workers)
        for _ in range(processes):
            self._spawn(queue, memline("worker", queue, "--threads", str(threads)))
        wait_until(
            lambda: sum(queue in one.queues for one in self.look().workers) == there + processes,
            f"{processes} {queue} workers",
            START_S,
        )

    def start_watch(self) -> None:
        self._spawn("watch", memline("watch"))

    def memline(self, *args: str) -> str:
        """What a command prints that uses this fleet. Raises CalledProcessError when it fails."""
        done = subprocess.run(
            memline(*args), env=self.environment(), cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True
        )
        return done.stdout

    def look(self) -> Fleet:
        """The picture of `memline queue`."""
        from memline.shared.queue import depth, redis_client

        with redis_client.client(self.address) as client:
            return depth.read(client)

    def environment(self) -> dict[str, str]:
        """The environment of its processes, and of commands that use it."""
        return environment() | {
            "MEMLINE_QUEUE_URL": self.url,
            "MEMLINE_QUEUE_NAME": "bench",
            "MEMLINE_CONFIG": str(self.place.config),
            "MEMLINE_HOME": str(self.place.home),
            "MEMLINE_WORKSPACE": str(self.place.workspace),
            "MEMLINE_LOG_LEVEL": "WARNING",
        }

    def cpu_s(self, queue: str = "") -> float:
        """CPU seconds so far of the workers of a queue, or of all processes but Redis."""
        chosen = [process.pid for name, process in self._processes if not queue or name == queue]
        for pid in chosen:
            chosen.extend(_children(pid))
        return sum(map(_cpu_s, chosen))

    def commands(self) -> int:
        """Commands that Redis has processed."""
        return int(self.info("stats")["total_commands_processed"])

    def peak_memory(self) -> int:
        """Bytes that Redis has used at most."""
        return int(self.info("memory")["used_memory_peak"])

    def info(self, section: str) -> dict[str, Any]:
        from memline.shared.queue import redis_client

        with redis_client.client(self.address) as client:
            found: dict[str, object] = client.info(section)
            return found

    def _spawn(self, name: str, command: list[str]) -> None:
        process = subprocess.Popen(
            command, env=self.environment(), cwd=ROOT, stdout=self._log, stderr=self._log
        )
        self._processes.append((name, process))

    def _answers(self) -> bool:
        from memline.shared.errors import QueueError
        from memline.shared.queue import redis_client

        try:
            with redis_client.client(self.address) as client:
                return bool(client.ping())
        except QueueError:
            return False


def wait_until(holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Look again and again until `holds`. Raises RuntimeError when that takes too long."""
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {patience_s:.0f} s")
        time.sleep(0.05)


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        yield from map(int, task.read_text().split())


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
