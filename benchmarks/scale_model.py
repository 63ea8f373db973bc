"""The model of `benchmarks.scale`: what a fleet of any size takes, from what one small run took.

docs/scale.md says what it assumes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

#: The real runs: chunks of 1.2 KB, 20 a note, 64 texts a request, vectors of 256 dimensions.
DIMS, ROWS, CHUNKS_A_FILE, LATENCY_MS = 256, 64, 20, 20

#: Threads that embed in them.
EMBED_THREADS_OF_RUN = 4

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
    redis_bytes: float
    #: Processor seconds of all processes of the run: commands, the provider and the benchmark too.
    all_s: float
    #: Cores of the machine less what others took of them meanwhile.
    cores: float
    #: From the first command to the last vector.
    wall_s: float

    def scaled(self, chunks: int, *, hosts: int = 1) -> Taken:
        """What the model says of another number of chunks and index hosts, but for the time (`rate_of`).

        All of it grows with the chunks but for what is in flight, which grows with the hosts.
        """
        part = chunks / self.chunks
        grows = {each.name for each in fields(self)} - {"chunks", "redis_bytes", "cores", "wall_s"}
        more = {name: getattr(self, name) * part for name in grows}
        redis_bytes = self.redis_bytes * hosts
        return Taken(chunks=chunks, redis_bytes=redis_bytes, cores=self.cores, wall_s=self.wall_s, **more)


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
    rate = rate_of(small, hosts, provider=by_provider, cores=hosts * HOST_CORES * PLANNED)
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
        rebuilt_hours=of_host / rate_of(small, 1, provider=by_provider, cores=HOST_CORES * PLANNED) / 3_600,
    )


def rate_of(small: Taken, hosts: int, *, provider: float, cores: float) -> float:
    """Return the chunks a second of a backfill: what the slowest of three takes.

    The provider; the store of each index host, one thread; the cores that all processes have together.
    """
    return min(provider, hosts * PLANNED * small.chunks / small.store_s, cores * small.chunks / small.all_s)


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
    """Yield name, what the model says by a small run, and what a run took; the time as the table has it."""
    said = small.scaled(was.chunks, hosts=hosts)
    for each in fields(Taken):
        if each.name not in ("chunks", "cores", "wall_s"):
            yield each.name, getattr(said, each.name), getattr(was, each.name)
    provider = EMBED_THREADS_OF_RUN * ROWS / LATENCY_MS * 1e3
    yield "wall_s", was.chunks / rate_of(small, hosts, provider=provider, cores=was.cores), was.wall_s
