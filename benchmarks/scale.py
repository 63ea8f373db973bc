"""How many do I need: what a fleet of any size takes, from what one small run takes on this machine.

    python -m benchmarks.scale                              a small real run, then the table of docs/scale.md
    python -m benchmarks.scale --agents 5000 --chunks 2e8   a size of your own
    python -m benchmarks.scale --check                      also 4 agents on 2 index hosts, and two fleets

What a chunk takes is processor time, bytes and operations, so that other work on the machine changes little.
The provider is a stub. docs/scale.md says what the model assumes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import fleet_provider
from benchmarks.bench import Place
from benchmarks.children import ROOT, memline
from benchmarks.corpus import Words
from benchmarks.fleet_processes import FleetProcesses, processor_s, wait_until
from benchmarks.scale_model import (
    CHUNKS_A_FILE,
    DIMS,
    EMBED_THREADS_OF_RUN,
    LATENCY_MS,
    ROWS,
    SIZES,
    Taken,
    compared,
    table,
)

#: Notes of an agent that are indexed ahead: each process and thread has then done its work once.
WARM_FILES = 16

#: Seconds for which a fleet without work is watched.
IDLE_S = 6.0

#: Where the notes are that come then.
LATER = "later"

#: The calibration, and the run that it is checked against.
SMALL, LARGE = (1, 1, 5_000), (4, 2, 20_000)


class Host(FleetProcesses):
    """One index host: a home and its workers. The first one of a fleet has the Redis of all."""

    def __init__(self, place: Place, *, name: str, fleet: str, first: Host | None) -> None:
        super().__init__(place)
        self.name, self.fleet, self._first = name, fleet, first
        self.url = first.url if first else self.url
        self.address = f"{self.url}#{fleet}@{name}"

    def __enter__(self) -> Host:
        if self._first is None:
            super().__enter__()
        else:
            self._log = (self.place.home / "fleet.log").open("ab")
            self._redis = subprocess.Popen(["true"])
        return self

    def environment(self) -> dict[str, str]:
        named = {"MEMLINE_QUEUE_NAME": self.fleet, "MEMLINE_QUEUE_HOST": self.name}
        without = {"MEMLINE_WORKSPACE"}
        return {name: text for name, text in super().environment().items() if name not in without} | named

    def spawn(self, queue: str, threads: int) -> None:
        self._spawn(queue, memline("worker", queue, "--threads", str(threads)))

    def agents(self) -> list[Path]:
        """Return the workspaces of its agents."""
        return sorted(self.place.config.parent.glob("agent-*"))

    def is_there(self) -> None:
        """Wait for the workers."""
        wanted = len(self._processes)
        wait_until(
            lambda: sum(one.index_host == self.name for one in self.look().workers) >= wanted, "workers"
        )

    def settle(self) -> None:
        """Note what the workers take while nothing happens: that is not of the chunks."""
        self._sizes = self._size()
        before, began = self._counts(), time.monotonic()
        time.sleep(IDLE_S)
        self._start, self._began = self._counts(), time.monotonic()
        self._rest_bytes = int(self.info("memory")["used_memory"])
        self._idle = [
            (now - then) / (self._began - began) for then, now in zip(before, self._start, strict=True)
        ]

    def is_done(self) -> bool:
        """Tell whether every chunk of this host has its vector."""
        from memline.shared.index.driver import reading

        files = self._indexes()
        for file in files:
            with reading(file) as connection:
                open_jobs = "SELECT count(*) FROM jobs WHERE state = 'running'"
                waiting = "SELECT count(*) FROM vectors WHERE state IN ('wanted', 'leased')"
                if any(connection.execute(query).fetchone()[0] for query in (open_jobs, waiting)):
                    return False
        return bool(files)

    def indexed(self) -> tuple[int, int]:
        """Return how many chunks and bytes were added since."""
        chunks, size = self._size()
        return chunks - self._sizes[0], size - self._sizes[1]

    def _size(self) -> tuple[int, int]:
        from memline.shared.index.driver import reading

        chunks = size = 0
        for file in self._indexes():
            with reading(file) as connection:
                chunks += connection.execute("SELECT count(*) FROM chunks").fetchone()[0]
                # Pages: what is still in the log counts.
                pages, each = (
                    connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
                )
                size += pages * each
        return chunks, size

    def _indexes(self) -> list[Path]:
        return [file for file in self.place.home.rglob("*.sqlite") if file.name != "accounts.sqlite"]

    def taken(self) -> list[float]:
        """Return what was taken since: seconds of store, chunk, embed and Redis, and operations."""
        lasted_s = time.monotonic() - self._began
        now = self._counts()
        return [
            count - then - idle * lasted_s
            for count, then, idle in zip(now, self._start, self._idle, strict=True)
        ]

    def in_flight_bytes(self) -> int:
        """Return the memory that Redis had at the peak beside what it had at rest."""
        return max(0, self.peak_memory() - self._rest_bytes)

    def _counts(self) -> list[float]:
        return [
            *(self.cpu_s(role) for role in ("store", "chunk", "embed")),
            self._redis_cpu_s(),
            self.commands(),
        ]

    def _redis_cpu_s(self) -> float:
        cpu = self.info("cpu")
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def place_of(
    folder: Path, url: str, agents: Sequence[str], chunks: int, elsewhere: Sequence[str] = ()
) -> Place:
    """Make a home with notes of so many chunks for each agent; those of others are configured alone.

    An embed worker knows every agent of its fleet by its own configuration.
    """
    listed = [{"id": agent, "workspace": str(folder / agent)} for agent in elsewhere]
    for agent in agents:
        words, root = Words(sum(agent.encode())), folder / agent / "memory"
        later = folder / agent / LATER
        for each, count in ((root, WARM_FILES), (later, chunks // CHUNKS_A_FILE)):
            each.mkdir(parents=True)
            for number in range(count):
                text = "\n".join(words.section() for _ in range(CHUNKS_A_FILE))
                (each / f"note-{number}.md").write_text(text, "utf-8")
        listed.append({"id": agent, "workspace": str(root.parent)})
    home = folder / "home"
    home.mkdir()
    search = {
        "provider": "openai",
        "model": "bench",
        "remote": {"baseUrl": url, "apiKey": "k", "maxRows": ROWS},
    }
    config = folder / "config.json5"
    config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": search}, "list": listed}}))
    return Place(workspace=folder / agents[0], home=home, config=config)


@contextmanager
def fleet_of(
    folder: Path, url: str, agents: int, hosts: int, chunks: int, fleet: str
) -> Iterator[list[Host]]:
    """Run a fleet with its agents spread over index hosts, and workers of each role."""
    with ExitStack() as stack:
        running: list[Host] = []
        for number in range(hosts):
            names = [f"agent-{fleet}-{each}" for each in range(number, agents, hosts)]
            others = [f"agent-{fleet}-{each}" for each in range(agents) if each % hosts != number]
            place = place_of(folder / f"{fleet}-{number}", url, names, chunks // agents, others)
            first = running[0] if running else None
            host = stack.enter_context(Host(place, name=f"host-{number}", fleet=fleet, first=first))
            running.append(host)
        for host in running:
            for queue in ("chunk", "store"):
                host.spawn(queue, 1)
        running[0].spawn("embed", EMBED_THREADS_OF_RUN)
        yield running


def run(folder: Path, agents: int, hosts: int, chunks: int, *, fleets: int = 1) -> list[Taken]:
    """Index so many chunks with real processes, and return what each fleet took."""
    with fleet_provider.serving(latency_ms=LATENCY_MS, dims=DIMS) as url, ExitStack() as stack:
        running = [
            stack.enter_context(
                fleet_of(folder, url, agents // fleets, hosts // fleets, chunks // fleets, f"fleet{number}")
            )
            for number in range(fleets)
        ]
        everyone = [host for hosts_of in running for host in hosts_of]
        for host in everyone:
            host.is_there()
        reindex(everyone)
        for host in everyone:
            for agent in host.agents():
                (agent / LATER).rename(agent / "memory" / LATER)
        for host in everyone:
            host.settle()
        began, before = time.monotonic(), processor_s()
        reindex(everyone)
        wall_s = time.monotonic() - began
        all_s, others_s = (now - then for then, now in zip(before, processor_s(), strict=True))
        cores = len(os.sched_getaffinity(0)) - others_s / wall_s
        return [taken(hosts_of, all_s, cores, wall_s) for hosts_of in running]


def reindex(everyone: Sequence[Host]) -> None:
    """Have all agents reindexed at a time, and wait for the last vector."""
    commands = [
        subprocess.Popen(
            memline("--agent", agent.name, "reindex"),
            env=host.environment(),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for host in everyone
        for agent in host.agents()
    ]
    for command in commands:
        command.wait()
    wait_until(lambda: all(host.is_done() for host in everyone), "all vectors")


def taken(hosts: Sequence[Host], all_s: float, cores: float, wall_s: float) -> Taken:
    """Read what the processes of a fleet took, and how many chunks its indexes got."""
    counts, sizes = [host.taken() for host in hosts], [host.indexed() for host in hosts]
    return Taken(
        chunks=sum(chunks for chunks, _ in sizes),
        store_s=sum(each[0] for each in counts),
        chunk_s=sum(each[1] for each in counts),
        embed_s=sum(each[2] for each in counts),
        # The Redis of the first is that of all.
        redis_s=counts[0][3],
        operations=counts[0][4],
        index_bytes=sum(size for _, size in sizes),
        redis_bytes=hosts[0].in_flight_bytes(),
        all_s=all_s,
        cores=cores,
        wall_s=wall_s,
    )


def search_s(place: Place, questions: int = 100) -> float:
    """Measure the processor seconds of a question of a long-lived process."""
    from memline import Memory

    words = Words(7)
    with Memory(config=place.config, home=place.home, agent=place.workspace.name) as memory:
        memory.search(words.question())
        began = time.process_time()
        for _ in range(questions):
            memory.search(words.question())
        return (time.process_time() - began) / questions


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=float)
    parser.add_argument("--chunks", type=float)
    parser.add_argument("--check", action="store_true", help="compare with a larger run, and with two fleets")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memline-scale-") as name:
        folder = Path(name)
        (small,) = run(folder / "small", *SMALL)
        home = folder / "small" / "fleet0-0"
        place = Place(workspace=home / "agent-fleet0-0", home=home / "home", config=home / "config.json5")
        question_s = search_s(place)
        print(f"{small}\nseconds of a search: {question_s:.4f}")
        print(f"Redis at the peak: {small.redis_bytes / small.chunks:,.0f} bytes a vector of the run\n")
        if chosen.check:
            (large,) = run(folder / "large", *LARGE)
            for what, said, was in compared(small, large, hosts=LARGE[1]):
                print(f"{what:12} model {said:14.1f}   run {was:14.1f}   {100 * (said / was - 1):+.0f} %")
            one, other = run(folder / "two", *LARGE, fleets=2)
            print(f"two fleets: {one.operations:,.0f} and {other.operations:,.0f} operations")
            print(f"one fleet: {large.operations:,.0f} operations\n")
    sizes = (
        SIZES if not chosen.agents else ((int(chosen.agents), int(chosen.chunks or chosen.agents * 1_000)),)
    )
    print("\n".join(table(small, question_s, sizes)))


if __name__ == "__main__":
    main()
