"""What a page of the dashboard costs the server that has it, while it is open and when it is asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException

from benchmarks.bench import Bench
from benchmarks.faces import server_of
from benchmarks.figures import Figure, at_most

#: Seconds for which streams are open, and those after which the first looks of a server are over.
WATCHED_S, SETTLED_S = 20.0, 10.0

#: Tabs of browsers that each have a stream of their own: those of one browser share one.
STREAMS = 10

#: Notes, and chunks of each: of a few years, and of many agents' work.
NOTES, SECTIONS = 300, 5
MANY_NOTES = 2_000


def pages(bench: Bench) -> list[Figure]:
    """Open pages: processor of `serve` with one stream and with ten, and to plan a new embedding."""
    place = bench.keyword_place(NOTES, SECTIONS)
    with server_of(place) as server:

        def share(streams: int) -> float:
            """Percent of a core that the server takes."""
            with _watching(server.address, streams):
                time.sleep(SETTLED_S)
                cpu_s, began = server.cpu_s, time.monotonic()
                time.sleep(WATCHED_S)
                return 100 * (server.cpu_s - cpu_s) / (time.monotonic() - began)

        rest, one, many = share(0), share(1), share(STREAMS)
    return [
        at_most("an open page, 300 notes", one, 1, "% of a core", detail=f"{rest:.2f} % without any"),
        at_most(f"{STREAMS} open pages of as many browsers", many, 2, "% of a core"),
        *_plan(bench),
    ]


def _plan(bench: Bench) -> list[Figure]:
    place = bench.vector_place(MANY_NOTES, SECTIONS)
    with server_of(place) as server:
        _get(server.address, "/ui/re-embed")
        took = []
        for _ in range(5):
            cpu_s = server.cpu_s
            _get(server.address, "/ui/re-embed")
            took.append(server.cpu_s - cpu_s)
    detail = f"{min(took):.2f}-{max(took):.2f} s"
    what = f"/ui/re-embed, {MANY_NOTES * SECTIONS:,} chunks"
    return [at_most(what, sorted(took)[len(took) // 2], 0.3, "s CPU", detail=detail)]


def _get(address: tuple[str, int], path: str) -> None:
    """Ask for a page. Raises RuntimeError when there is none."""
    with closing(HTTPConnection(*address, timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}: {body[:200]!r}")


@contextmanager
def _watching(address: tuple[str, int], streams: int) -> Iterator[None]:
    """Read so many streams of events while a block runs, each after the page that it is of."""
    connections = [HTTPConnection(*address, timeout=60) for _ in range(streams)]

    def read(connection: HTTPConnection) -> None:
        # The end of the block closes it.
        with suppress(OSError, HTTPException, ValueError, AttributeError):
            connection.request("GET", "/ui/events")
            answer = connection.getresponse()
            while answer.readline():
                pass

    readers = [threading.Thread(target=read, args=(each,), daemon=True) for each in connections]
    for reader in readers:
        _get(address, "/ui/")
        reader.start()
    try:
        yield
    finally:
        for connection in connections:
            if connection.sock is not None:
                connection.sock.close()
