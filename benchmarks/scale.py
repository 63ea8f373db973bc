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
import math
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks import fleet_provider
from benchmarks.bench import Place
from benchmarks.children import ROOT, memline
from benchmarks.corpus import Words
from benchmarks.fleet_processes import FleetProcesses, wait_until

#: The real runs: chunks of 1.2 KB, 20 a note, 64 texts a request, vectors of 256 dimensions.
DIMS, ROWS, CHUNKS_A_FILE, LATENCY_MS = 256, 64, 20, 20

#: Threads that embed in them.
EMBED_THREADS_OF_RUN = 4

#: Seconds for which a fleet without work is watched.
IDLE_S = 6.0

#: The calibration, and the run that it is checked against.
SMALL, LARGE = (1, 1, 5_000), (4, 2, 20_000)

#: What is assumed of a host, of a provider and of an agent.
HOST_CORES, HOST_DISK, COPY_BYTES_S = 8, 1e12, 200e6
LATENCY_S, EMBED_THREADS, TOKENS_A_CHUNK, DOLLARS_A_MILLION, TOKENS_A_MINUTE = 0.3, 16, 300, 0.02, 10e6
EDITS_A_DAY, SEARCHES_A_DAY = 50, 200

#: Part of a core, or of a Redis, that is planned with: the rest is for peaks.
PLANNED = 0.5


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a run took: processor seconds by role and of Redis, operations, bytes of the indexes, and time."""

    chunks: int
    store_s: float
    chunk_s: float
    embed_s: float
    redis_s: float
    operations: float
    index_bytes: float
    #: Memory of Redis at the peak, above that of the fleet at rest: of what was in flight.
    redis_bytes: float = 0.0
    #: From the first command to the last vector.
    wall_s: float = 0.0

    def scaled(self, chunks: int, *, hosts: int = 1) -> Taken:
        """What the model says of another number of chunks, of index hosts that share the cores of the run.

        All of it grows with the chunks but for what is in flight, which grows with the hosts.
        """
        part = chunks / self.chunks
        grows = {each.name for each in fields(self)} - {"chunks", "redis_bytes"}
        more = {name: getattr(self, name) * part for name in grows}
        return Taken(chunks=chunks, redis_bytes=self.redis_bytes * hosts, **more)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a fleet of a size takes."""

    agents: int
    chunks: int
    index_hosts: int
    embed_workers: int
    redis: int
    backfill_hours: float
    dollars: float
    #: Hours until a lost host is back: from its backup, and from the notes alone.
    restored_hours: float
    rebuilt_hours: float


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

    def settle(self) -> None:
        """Wait for the workers, and note what they take while nothing happens: that is not of the chunks."""
        wanted = len(self._processes)
        wait_until(
            lambda: sum(one.index_host == self.name for one in self.look().workers) >= wanted, "workers"
        )
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

        files = [file for file in self.place.home.rglob("*.sqlite") if file.name != "accounts.sqlite"]
        for file in files:
            with reading(file) as connection:
                open_jobs = "SELECT count(*) FROM jobs WHERE state = 'running'"
                waiting = "SELECT count(*) FROM vectors WHERE state IN ('wanted', 'leased')"
                if any(connection.execute(query).fetchone()[0] for query in (open_jobs, waiting)):
                    return False
        return bool(files)

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
        root.mkdir(parents=True)
        for number in range(chunks // CHUNKS_A_FILE):
            text = "\n".join(words.section() for _ in range(CHUNKS_A_FILE))
            (root / f"note-{number}.md").write_text(text, "utf-8")
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
            host.settle()
        began = time.monotonic()
        commands = [
            subprocess.Popen(
                memline("--agent", agent.name, "reindex"),
                env=host.environment(),
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for host in everyone
            for agent in sorted(
                each for each in host.place.config.parent.iterdir() if (each / "memory").is_dir()
            )
        ]
        for command in commands:
            command.wait()
        wait_until(lambda: all(host.is_done() for host in everyone), "all vectors")
        wall_s = time.monotonic() - began
        return [taken(hosts_of, wall_s) for hosts_of in running]


def taken(hosts: Sequence[Host], wall_s: float) -> Taken:
    """Read what the processes of a fleet took, and how many chunks its indexes have."""
    from memline.shared.index.driver import reading

    files = [file for host in hosts for file in sorted((host.place.home).rglob("*.sqlite"))]
    indexes = [file for file in files if file.name != "accounts.sqlite"]
    counts = [host.taken() for host in hosts]
    chunks, index_bytes = 0, 0
    for file in indexes:
        with reading(file) as connection:
            chunks += connection.execute("SELECT count(*) FROM chunks").fetchone()[0]
            # Pages: what is still in the log counts.
            pages, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
            )
            index_bytes += pages * size
    return Taken(
        chunks=chunks,
        store_s=sum(each[0] for each in counts),
        chunk_s=sum(each[1] for each in counts),
        embed_s=sum(each[2] for each in counts),
        # The Redis of the first is that of all.
        redis_s=counts[0][3],
        operations=counts[0][4],
        index_bytes=index_bytes,
        redis_bytes=hosts[0].in_flight_bytes(),
        wall_s=wall_s,
    )


def search_s(place: Place, questions: int = 100) -> float:
    """Measure the processor seconds of a question of a long-lived process."""
    from memline import Memory

    words = Words(7)
    names = sorted(each.name for each in place.config.parent.iterdir() if (each / "memory").is_dir())
    with Memory(config=place.config, home=place.home, agent=names[0]) as memory:
        memory.search(words.question())
        began = time.process_time()
        for _ in range(questions):
            memory.search(words.question())
        return (time.process_time() - began) / questions


def plan(small: Taken, question_s: float, agents: int, chunks: int, *, dims: int = 1_536) -> Plan:
    """Say what a fleet of this size takes, from what a small run took."""
    # A vector is 4 bytes a dimension, its signs one bit; the rest of a chunk does not depend on it.
    a_chunk = small.index_bytes / small.chunks + (dims - DIMS) * 4.125
    a_day = agents * EDITS_A_DAY
    cores = (
        a_day * (small.store_s + small.chunk_s) / small.chunks + agents * SEARCHES_A_DAY * question_s
    ) / 86_400
    hosts = max(
        1, math.ceil(chunks * a_chunk / (HOST_DISK * PLANNED)), math.ceil(cores / (HOST_CORES * PLANNED))
    )
    by_provider = TOKENS_A_MINUTE / 60 / TOKENS_A_CHUNK
    rate = rate_of(small, hosts, provider=by_provider)
    workers = max(1, math.ceil(rate * LATENCY_S / ROWS / EMBED_THREADS))
    redis = max(1, math.ceil(rate * small.redis_s / small.chunks / PLANNED))
    of_host = chunks / hosts
    return Plan(
        agents=agents,
        chunks=chunks,
        index_hosts=hosts,
        embed_workers=workers,
        redis=redis,
        backfill_hours=chunks / rate / 3_600,
        dollars=chunks * TOKENS_A_CHUNK * DOLLARS_A_MILLION / 1e6,
        restored_hours=of_host * a_chunk / COPY_BYTES_S / 3_600,
        rebuilt_hours=of_host / rate_of(small, 1, provider=by_provider) / 3_600,
    )


def rate_of(small: Taken, hosts: int, *, provider: float) -> float:
    """Return the chunks a second of a backfill: what the provider takes, or the store of each index host."""
    return min(provider, hosts * PLANNED * small.chunks / small.store_s)


def simulated(size: Plan, rate: float, *, minutes: int = 1_440, seed: int = 1) -> tuple[float, float]:
    """Play a day of edits during a backfill by minutes: p95 seconds of an edit, part left for the backfill.

    Edits come in bursts, nine tenths of them in eight hours; they go first, and wait for what is in flight.
    """
    source, waiting = random.Random(seed), 0.0
    waits, spare = [], 0.0
    in_flight_s = 2 * size.embed_workers * EMBED_THREADS * ROWS / rate
    for minute in range(minutes):
        share = 0.9 / 480 if minute < 480 else 0.1 / (minutes - 480)
        mean = size.agents * EDITS_A_DAY * share
        waiting += max(0.0, source.gauss(mean, math.sqrt(mean) * 3))
        done = min(waiting, rate * 60)
        waits.append(in_flight_s + waiting / rate)
        waiting -= done
        spare += 1 - done / (rate * 60)
    return sorted(waits)[int(0.95 * len(waits))], spare / minutes


SIZES = ((1_000, 10**6), (10_000, 10**7), (100_000, 10**9), (1_000_000, 10**10))


def table(small: Taken, question_s: float, sizes: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Write the plans of sizes as a table in Markdown."""
    titles: tuple[str, ...] = (
        "agents",
        "chunks",
        "index hosts",
        "embed workers",
        "Redis",
        "first backfill",
        "dollars",
    )
    titles += ("an edit meanwhile, p95", "a lost host back: from its backup, from the notes")
    yield f"| {' | '.join(titles)} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for agents, chunks in sizes:
        each = plan(small, question_s, agents, chunks)
        rate = each.chunks / each.backfill_hours / 3_600
        wait_s, _ = simulated(each, rate)
        yield (
            f"| {agents:,} | {chunks:,} | {each.index_hosts:,} | {each.embed_workers:,} | {each.redis} |"
            f" {_hours(each.backfill_hours)} | {each.dollars:,.0f} | {_hours(wait_s / 3_600)} |"
            f" {_hours(each.restored_hours)}, {_hours(each.rebuilt_hours)} |"
        )


def _hours(hours: float) -> str:
    for most, words in (
        (1 / 60, f"{hours * 3_600:.0f} s"),
        (1, f"{hours * 60:.0f} min"),
        (72, f"{hours:.0f} h"),
    ):
        if hours < most:
            return words
    return f"{hours / 24:,.0f} days"


def compared(small: Taken, was: Taken, *, hosts: int) -> Iterator[tuple[str, float, float]]:
    """Yield name, what the model says by a small run, and what a run took.

    The last row is the time that the table would tell: by the provider, or by half a core of each store.
    """
    said = small.scaled(was.chunks, hosts=hosts)
    for each in fields(Taken):
        if each.name != "chunks":
            yield each.name, getattr(said, each.name), getattr(was, each.name)
    provider = EMBED_THREADS_OF_RUN * ROWS / LATENCY_MS * 1e3
    yield "planned_s", was.chunks / rate_of(small, hosts, provider=provider), was.wall_s


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
        place = Place(workspace=home, home=home / "home", config=home / "config.json5")
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
