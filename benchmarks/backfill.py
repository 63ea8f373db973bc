"""A backfill through a fleet: how busy embed workers are, what more of them bring, what the store bears.

Texts are made up, 1.2 KB each. The vectors of the provider have 256 dimensions, so that a request costs its
server little: on few cores it runs beside what is measured. With MEMLINE_BENCH_TEXTS=100000 the backlog is
five times as long.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec

from benchmarks.bench import Bench, Place
from benchmarks.children import cpu_s
from benchmarks.corpus import Words
from benchmarks.figures import Figure, at_least, at_most
from benchmarks.provider import serving
from memline.shared.embedders.choice import choose
from memline.shared.index.rows import Chunk, FileRow
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import model_change
from tests.support.fleet import Fleet
from tests.support.redis_server import RedisServer

_TEXTS = int(os.environ.get("MEMLINE_BENCH_TEXTS", "20000"))
_TEXT_CHARS = 1_200
_TEXTS_A_FILE = 50
_LATENCY_MS, _DIMS = 60, 256

#: Rows of a request of the runs that are compared: small enough for the other processes to keep up on two
#: cores, so that the embed workers are what is measured.
_ROWS = 32

#: Rows of a request, and threads, of the run that shows what the machine bears.
_FULL_ROWS, _FULL_THREADS = 256, 4


#: Seconds a part of a backlog may take.
_WITHIN_S = 900.0


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """One backlog, embedded."""

    rate: float
    #: Part of their time that the embed threads waited for the provider, 0 to 1.
    busy: float
    #: Cores that the store worker took.
    store_cores: float
    peak_mb: float


def backfill(bench: Bench) -> list[Figure]:
    """A backlog of 1.2 KB texts, 60 ms a request: how busy embed workers are, 1 against 4, Redis memory."""
    one = _embed_all(bench, processes=1, threads=1, rows=_ROWS)
    four = _embed_all(bench, processes=4, threads=1, rows=_ROWS)
    full = _embed_all(bench, processes=1, threads=_FULL_THREADS, rows=_FULL_ROWS)
    return [
        *(
            at_least(
                f"embed workers busy, {count} x 1 thread, {_ROWS} rows and {_LATENCY_MS} ms a request",
                100 * run.busy,
                90,
                "%",
                detail=f"{_TEXTS:,} texts, {run.rate:.0f} vectors/s; store {run.store_cores:.2f} cores",
            )
            for count, run in ((1, one), (4, four))
        ),
        at_least(
            "4 embed processes against 1",
            four.rate / one.rate,
            3.8,
            "x",
            detail=f"{one.rate:.0f} and {four.rate:.0f} vectors/s",
        ),
        Figure(
            what=f"one embed process as in the Procfile, {_FULL_ROWS} rows a request",
            target="",
            measured=f"{full.rate:.0f} vectors/s",
            detail=f"the provider allows {_FULL_THREADS * _FULL_ROWS * 1000 / _LATENCY_MS:.0f};"
            f" store {full.store_cores:.2f} cores, {os.cpu_count()} cores for all processes",
        ),
        at_most("Redis memory at its peak", max(run.peak_mb for run in (one, four, full)), 100, "MB"),
    ]


@contextmanager
def fleet_of(place: Place, **threads: int) -> Iterator[tuple[Fleet, RedisServer]]:
    """Run a Redis of its own and the workers of these queues on a place, each with so many threads.

    The names are labels of `Fleet` with an underscore: `embed_2` is a second embed worker.
    """
    with (
        RedisServer(place.folder / "redis") as redis,
        Fleet(place, redis.url, MEMLINE_LOG_LEVEL="WARNING") as fleet,
    ):
        labels = {name.replace("_", "-"): count for name, count in threads.items()}
        for label, count in labels.items():
            fleet.start(label, line=f"memline worker {label.partition('-')[0]} --threads {count}")
        fleet.until_alive(*labels)
        yield fleet, redis


def _embed_all(bench: Bench, *, processes: int, threads: int, rows: int) -> _Run:
    with serving(latency_ms=_LATENCY_MS, dims=_DIMS) as url:
        place = backlog(bench, url, rows)
        workers = {f"embed_{number}": threads for number in range(processes)}
        with fleet_of(place, **workers, store=1) as (fleet, redis):
            store = fleet.pid("store")
            _until_ready(fleet, 0.1)
            began, first, cpu = time.monotonic(), _ready(place), cpu_s(store)
            _until_ready(fleet, 0.9)
            took, last, cpu = time.monotonic() - began, _ready(place), cpu_s(store) - cpu
            _until_ready(fleet, 1.0)
            rate = (last - first) / took
            with closing(redis.client()) as client:
                peak_mb = client.info("memory")["used_memory_peak"] / 2**20
            return _Run(
                rate=rate,
                busy=rate * _LATENCY_MS / (1_000 * processes * threads * rows),
                store_cores=cpu / took,
                peak_mb=peak_mb,
            )


def _until_ready(fleet: Fleet, part: float) -> None:
    what = f"{part:.0%} of the vectors"
    fleet.until(lambda: _ready(fleet.place) >= part * _TEXTS, what, within_s=_WITHIN_S)


def _ready(place: Place) -> int:
    return int(place.vector_states().get("ready", 0))


def backlog(bench: Bench, url: str, rows: int) -> Place:
    """A place whose index holds so many texts, all of them wanted."""
    filled = bench.folder / f"texts-{_TEXTS}"
    if not (filled / ".filled").exists():
        _fill(bench.place(filled.name, bench.notes(1, 1)))
        (filled / ".filled").touch()
    shutil.rmtree(bench.folder / "backlog", ignore_errors=True)
    shutil.copytree(filled, bench.folder / "backlog")
    place = bench.place("backlog", bench.notes(1, 1), base_url=url, maxRows=rows)
    with closing(IndexWriter.of(place.agent)) as writer:
        model_change.use(writer.accounts, choose(place.agent), time.time())
    return place


def _fill(place: Place) -> None:
    words = Words()
    sections = [words.section() for _ in range(500)]
    with closing(IndexWriter.of(place.agent)) as writer:
        for first in range(0, _TEXTS, _TEXTS_A_FILE):
            numbers = range(first, first + _TEXTS_A_FILE)
            texts = (f"Text {number}. {sections[number % 500]}".ljust(_TEXT_CHARS) for number in numbers)
            chunks = tuple(
                Chunk(start_line=n, end_line=n, text=text[:_TEXT_CHARS]) for n, text in enumerate(texts, 1)
            )
            writer.store_file(
                FileRow(
                    path=f"memory/{first}.md",
                    source="memory",
                    outcome="indexed",
                    observed_ns=1,
                    chunks=chunks,
                )
            )
