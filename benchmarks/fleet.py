"""A fleet beside one process: searches through the queue, the cost of idleness, an index run."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from benchmarks.backfill import backlog, fleet_of
from benchmarks.bench import Bench, Place
from benchmarks.children import run
from benchmarks.corpus import questions
from benchmarks.figures import Figure, at_least, at_most
from benchmarks.provider import serving
from memline.shared.findings.answerer import Answerer
from memline.shared.queue.replies import QueryClient, ask_fleet
from memline.shared.search.request import SearchRequest
from tests.support.fleet import Fleet

_FILES, _SECTIONS = 2_000, 5
_TIMES = 3


def search(bench: Bench) -> list[Figure]:
    """A keyword search through the queue as the product asks it, against the direct call; idle and busy."""
    place = bench.keyword_place(2_000, 5)
    with fleet_of(place, query=2) as (fleet, _):
        figures = _compare(
            fleet, "search through an idle queue over the direct call", asked=300, limits=(15, 50)
        )
    with serving(latency_ms=60, dims=256) as url:
        # One thread and small requests, so that the backlog lasts longer than the questions.
        busy = backlog(bench, url, rows=8)
        with fleet_of(busy, query=2, embed=1, store=1) as (fleet, _):
            figures += _compare(fleet, "the same under a backlog of embed work", asked=100, limits=(15, 50))
            if not busy.vector_states().get("wanted"):
                raise RuntimeError("the backlog was done before the last question")
    return figures


def _compare(fleet: Fleet, what: str, *, asked: int, limits: tuple[float, float]) -> list[Figure]:
    """The time a question takes longer through the queue; the ways take turns.

    `memline search` connects for its one question; a long-lived caller keeps its client.
    """
    took: dict[str, list[float]] = {"direct": [], "queue": [], "kept client": []}
    with (
        closing(Answerer(fleet.place.agent, long_lived=True)) as memory,
        closing(QueryClient(fleet.address)) as client,
    ):
        for number, question in enumerate(_repeated(questions(40), asked + 40)):
            request = SearchRequest(query=question)
            ways: dict[str, Callable[[], Any]] = {
                "direct": partial(memory.ask, request),
                "queue": partial(ask_fleet, fleet.address, "main", request),
                "kept client": partial(client.ask, "main", request, timeout_s=30),
            }
            for way, ask in ways.items():
                ms = _ms(ask)
                # The first round warms all: connections, caches, pages.
                if number >= 40:
                    took[way].append(ms)
    detail = ", ".join(f"{way} {_p(ms, 50):.1f} / {_p(ms, 95):.1f} ms" for way, ms in took.items())
    direct, queued, kept = took.values()
    return [
        at_most(f"{what}, p50", _p(queued, 50) - _p(direct, 50), limits[0], "ms", detail=detail),
        at_most(f"{what}, p95", _p(queued, 95) - _p(direct, 95), limits[1], "ms"),
        at_most(f"{what}, client kept, p50", _p(kept, 50) - _p(direct, 50), limits[0], "ms"),
    ]


def files(bench: Bench) -> list[Figure]:
    """A first index of 2,000 notes, 10,000 chunks with vectors: through a fleet against one process."""
    alone: list[float] = []
    together: list[float] = []
    with serving() as url:
        for _ in range(_TIMES):
            place = _fresh(bench, "one-process", url)
            alone.append(_seconds(run(place.command("index", "--json")).stdout))
            place = _fresh(bench, "through-fleet", url)
            with fleet_of(place, chunk=2, embed=4, store=1) as (fleet, _):
                together.append(_seconds(fleet.run("index", "--json").stdout))
    one, fleet_s = statistics.median(alone), statistics.median(together)
    return [
        at_least(
            f"index of {_FILES:,} notes through a fleet, provider at zero latency",
            one / fleet_s,
            0.6,
            "x one process",
            detail=f"one process {one:.1f} s, fleet {fleet_s:.1f} s",
        )
    ]


def _fresh(bench: Bench, name: str, url: str) -> Place:
    shutil.rmtree(bench.folder / name, ignore_errors=True)
    return bench.place(name, bench.notes(_FILES, _SECTIONS), base_url=url)


def _seconds(output: str) -> float:
    report = json.loads(output)[0]
    if report["failures"] or report["vectors"]["pending"]:
        raise RuntimeError(f"not all was indexed: {report}")
    return float(report["seconds"])


def _repeated(asked: Sequence[str], count: int) -> list[str]:
    return [asked[number % len(asked)] for number in range(count)]


def _ms(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    if call() is None:
        raise RuntimeError("no answer")
    return 1000 * (time.perf_counter() - began)


def _p(values: Sequence[float], percent: int) -> float:
    return sorted(values)[len(values) * percent // 100]
