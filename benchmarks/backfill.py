"""A backfill through a fleet: how busy embed workers are, what more of them bring, what the store bears.

Texts are made up, 1.2 KB each. The vectors of the provider have 256 dimensions, so that a request costs its
server little: on few cores it runs beside what is measured. With MEMLINE_BENCH_TEXTS=100000 the backlog is
five times as long.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import closing
from dataclasses import dataclass

from benchmarks import fleet_provider
from benchmarks.bench import Bench, Place
from benchmarks.corpus import Words
from benchmarks.figures import Figure, at_least, at_most
from benchmarks.fleet_processes import FleetProcesses, needs_redis, wait_until

_TEXTS = int(os.environ.get("MEMLINE_BENCH_TEXTS", "20000"))
_TEXT_CHARS = 1_200
_TEXTS_A_FILE = 50
_LATENCY_MS, _DIMS = 60, 256

#: Rows of a request of the runs that are compared: small enough for the other processes to keep up on two
#: cores, so that the embed workers are what is measured.
_ROWS = 32

#: Rows of a request, and threads, of the run that shows what the machine bears.
_FULL_ROWS, _FULL_THREADS = 256, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One backlog, embedded."""

    rate: float
    #: Part of their time that the embed threads waited for the provider, 0 to 1.
    busy: float
    #: Cores that the store worker took.
    store_cores: float
    peak_mb: float


@needs_redis
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


def _embed_all(bench: Bench, *, processes: int, threads: int, rows: int) -> _Run:
    with fleet_provider.serving(latency_ms=_LATENCY_MS, dims=_DIMS) as url:
        place = backlog(bench, url, rows)
        with FleetProcesses(place) as fleet:
            fleet.start("embed", processes=processes, threads=threads)
            fleet.start("store")
            _until_ready(place, 0.1)
            began, first, cpu = time.monotonic(), _ready(place), fleet.cpu_s("store")
            _until_ready(place, 0.9)
            took, last, cpu = time.monotonic() - began, _ready(place), fleet.cpu_s("store") - cpu
            _until_ready(place, 1.0)
            rate = (last - first) / took
            return _Run(
                rate=rate,
                busy=rate * _LATENCY_MS / (1_000 * processes * threads * rows),
                store_cores=cpu / took,
                peak_mb=fleet.peak_memory() / 2**20,
            )


def _until_ready(place: Place, part: float) -> None:
    wait_until(lambda: _ready(place) >= part * _TEXTS, f"{part:.0%} of the vectors")


def backlog(bench: Bench, url: str, rows: int) -> Place:
    """A place whose index holds so many texts, all of them wanted."""
    filled = bench.folder / f"texts-{_TEXTS}"
    if not (filled / ".filled").exists():
        _fill(bench.place(filled.name, bench.notes(1, 1)))
        (filled / ".filled").touch()
    shutil.rmtree(bench.folder / "backlog", ignore_errors=True)
    shutil.copytree(filled, bench.folder / "backlog")
    place = bench.place("backlog", bench.notes(1, 1), base_url=url)
    text = place.config.read_text().replace('"remote": {', f'"remote": {{"maxRows": {rows}, ')
    place.config.write_text(text)
    from memline.shared.embedders.choice import choose
    from memline.shared.index_writer import IndexWriter
    from memline.shared.scheduling import model_change

    settings = place.settings()
    choice = choose(settings)
    with closing(IndexWriter.of(settings)) as writer:
        model_change.use(writer.accounts, choice, time.time())
    return place


def _fill(place: Place) -> None:
    from memline.shared.index.rows import Chunk, FileRow
    from memline.shared.index_writer import IndexWriter

    words = Words()
    sections = [words.section() for _ in range(500)]
    with closing(IndexWriter.of(place.settings())) as writer:
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


def _ready(place: Place) -> int:
    from memline.shared.index import driver

    with closing(driver.open_reader(place.settings().index_path)) as reader:
        row = reader.execute("SELECT count(*) FROM vectors WHERE state = 'ready'").fetchone()
        return int(row[0])
