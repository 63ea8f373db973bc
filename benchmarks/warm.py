"""Searches of a long-lived process, by themselves and over HTTP, and the ways to compare vectors."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from sqlite3 import Connection
from unittest.mock import patch
from urllib.parse import quote

import numpy as np
from msgspec.structs import replace

from benchmarks.bench import DIMS, Bench, Place, timed_ms, unit_vectors
from benchmarks.children import ROOT, cpu_s, environment
from benchmarks.corpus import Words, questions
from benchmarks.figures import Figure, at_least, at_most
from memline.shared.findings.answerer import Answerer
from memline.shared.index import driver
from memline.shared.scheduling.questions import QueryEmbedder
from memline.shared.search.request import SearchRequest

_QUESTIONS, _CHUNKS = 40, 50_000
_FTS = (
    "SELECT rowid, bm25(chunks_fts) AS rank FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY rank LIMIT 200"
)

#: Clients that ask at the same time; content words of a question; different questions.
_CLIENTS = 8
_WORDS = 3
_DISTINCT = 800

_DIRECT = """
import json, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from memline.shared.config.load import Options, load
from memline.shared.search.request import SearchRequest
from memline.shared.findings.answerer import Answerer
config, home, clients = sys.argv[1:4]
questions = json.load(sys.stdin)
memory = Answerer(load(Options(config=Path(config), home=Path(home))).agent(), long_lived=True)
def ask(question):
    began = time.perf_counter()
    json.dumps(memory.ask(SearchRequest(query=question)).to_json())
    return time.perf_counter() - began
for question in questions[:20]:
    ask(question)
cpu = time.process_time()
with ThreadPoolExecutor(int(clients)) as pool:
    took = list(pool.map(ask, questions))
print(json.dumps([took, time.process_time() - cpu]))
"""


def search(bench: Bench) -> list[Figure]:
    """A warm hybrid search over 50,000 chunks against its two unavoidable parts."""
    place = bench.vector_place(10_000, 5)
    asked = questions(_QUESTIONS)
    vectors = dict(zip(asked, unit_vectors(_QUESTIONS, seed=9), strict=True))
    matrix = np.frombuffer(b"".join(unit_vectors(_CHUNKS)), "<f4").reshape(-1, DIMS)
    at_hand = patch.object(QueryEmbedder, "embed", lambda self, text, active, state: vectors[text])
    with (
        at_hand,
        closing(driver.open_reader(place.agent.index_path)) as reader,
        closing(Answerer(place.agent, long_lived=True)) as memory,
    ):
        searches, products, queries = [], [], []
        for question in asked:
            request = SearchRequest(query=question)
            answer = memory.ask(request)
            if answer.mode != "hybrid" or not answer.hits:
                raise RuntimeError(f"not a hybrid search: {answer.to_json()}")
            match = " OR ".join(f'"{word}"' for word in question.split())
            vector = np.frombuffer(vectors[question], "<f4")
            # An answer is kept: each time another number of hits is asked for.
            others = (replace(request, max_results=most) for most in range(7, 12))
            searches.append(timed_ms(5, partial(next, map(memory.ask, others))))
            products.append(timed_ms(5, partial(np.matmul, matrix, vector)))
            queries.append(timed_ms(5, partial(_rows, reader, match)))
    took, product, query = (sum(values) / _QUESTIONS for values in (searches, products, queries))
    return [
        at_most(
            f"warm hybrid search, 50,000 chunks x {DIMS}",
            took / (product + query),
            2,
            "x its parts",
            detail=f"search {took:.1f} ms, product {product:.1f} ms, FTS query {query:.1f} ms"
            f" (mean over {_QUESTIONS} questions)",
        )
    ]


def _rows(reader: Connection, match: str) -> list[tuple[int, float]]:
    return list(reader.execute(_FTS, (match,)))


def http(bench: Bench) -> list[Figure]:
    """Keyword searches over HTTP at 50,000 chunks, against the direct call."""
    place = bench.keyword_place(10_000, 5)
    words = Words(seed=5)
    asked = [words.question(_WORDS) for _ in range(_DISTINCT)]
    direct, direct_cpu_s = _direct(place, asked)
    with _server_of(place) as server:
        server.ask(asked[:20], clients=1)
        used_s = server.cpu_s
        took, wall_s = server.ask(asked[20:], clients=_CLIENTS)
        each_ms = 1000 * (server.cpu_s - used_s) / len(took)
        again, again_s = server.ask(asked[-50:] * 40, clients=_CLIENTS)
    p95, direct_p95 = (statistics.quantiles(times, n=20)[-1] for times in (took, direct))
    return [
        at_least(
            "searches over HTTP, 50,000 chunks, one core, 8 clients",
            1000 / each_ms,
            200,
            "a second of CPU",
            detail=f"{each_ms:.1f} ms CPU each, {1000 * direct_cpu_s / len(direct):.1f} of them the search;"
            f" {len(took) / wall_s:.0f} a second by the clock;"
            f" {_DISTINCT - 20} different questions of {_WORDS} words",
        ),
        at_most(
            "p95 of these, over the direct call by 8 threads",
            p95 / direct_p95,
            3,
            "x",
            detail=f"{1000 * p95:.0f} and {1000 * direct_p95:.0f} ms",
        ),
        Figure(
            what="the same, questions that were asked before",
            target="",
            measured=f"{len(again) / again_s:.0f} a second",
        ),
    ]


class _Server:
    """A running `memline serve`, and clients of it."""

    def __init__(self, process: subprocess.Popen[str], host: str, port: int) -> None:
        self._process = process
        self._address = host, port

    @property
    def cpu_s(self) -> float:
        return cpu_s(self._process.pid)

    def ask(self, questions: Sequence[str], *, clients: int) -> tuple[list[float], float]:
        """The seconds of each request, and of all together."""
        kept = threading.local()

        def one(question: str) -> float:
            if not hasattr(kept, "connection"):
                kept.connection = HTTPConnection(*self._address, timeout=60)
            began = time.perf_counter()
            kept.connection.request("GET", f"/search?query={quote(question)}")
            answer = kept.connection.getresponse()
            body = answer.read()
            took = time.perf_counter() - began
            if answer.status != 200 or not json.loads(body)["results"]:
                raise RuntimeError(f"{answer.status}: {body[:200]!r}")
            return took

        began = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            took = list(pool.map(one, questions))
        return took, time.perf_counter() - began


@contextmanager
def _server_of(place: Place) -> Iterator[_Server]:
    """A server on a core of its own, where there is more than one."""
    command = place.command("serve", "--port", "0")
    with (
        subprocess.Popen(command, env=environment(), cwd=ROOT, stderr=subprocess.PIPE, text=True) as process,
        _cores(process.pid),
    ):
        assert process.stderr
        host, port = re.findall(r"http://([\d.]+):(\d+)", process.stderr.readline())[0]
        # It writes a line for each request, and waits once the pipe is full.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield _Server(process, host, int(port))
        finally:
            process.terminate()


@contextmanager
def _cores(pid: int) -> Iterator[None]:
    """The process alone on the first core, this one on the others."""
    ours = os.sched_getaffinity(0)
    first, *others = sorted(ours)
    os.sched_setaffinity(pid, {first})
    os.sched_setaffinity(0, others or ours)
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


def _direct(place: Place, questions: Sequence[str]) -> tuple[list[float], float]:
    """Seconds of each direct call by as many threads, and CPU seconds of all, in a process on one core."""
    command = [
        sys.executable, "-c", _DIRECT, str(place.config), str(place.home), str(_CLIENTS)
    ]  # fmt: skip
    with (
        subprocess.Popen(
            command, env=environment(), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
        _cores(process.pid),
    ):
        out, _ = process.communicate(json.dumps(questions))
    took, cpu_s = json.loads(out)
    return took, cpu_s
