"""Reindex jobs on a fleet: announced bit by bit, followed by their rows, cancelled and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producers.feed import Feed
from producers.fleet import Fleet
from producers.queue_report import of_agent
from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.embedders.choice import choose
from shared.errors import IndexMissing, QueueError
from shared.index import backfill, driver
from shared.index.plan import Known, ledger_of, look
from shared.index.writer import IndexWriter
from shared.queue.withdraw import Withdrawn, withdraw_backfill

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Seconds between two looks at how many of the announced files have arrived.
LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A reindex that was handed to the fleet."""

    agent: str
    #: Files that were announced.
    files: int
    #: Texts of an earlier, cancelled reindex that are wanted again.
    taken_up: int

    def to_json(self) -> dict[str, Any]:
        return {"agentId": self.agent, "files": self.files, "takenUp": self.taken_up}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """What cancelling a reindex did."""

    agent: str
    #: Texts that are not sent out now.
    vectors: int
    #: Batches whose provider is told to end them; what they have finished is kept.
    batches: int
    withdrawn: Withdrawn

    def to_json(self) -> dict[str, Any]:
        return {
            "agentId": self.agent,
            "vectors": self.vectors,
            "batches": self.batches,
            "messages": self.withdrawn.messages,
            "files": self.withdrawn.files,
        }


def start(
    settings: AgentSettings,
    url: str,
    *,
    force: bool = False,
    on_announced: Callable[[int, int], None] = lambda _done, _all: None,
    clock: Clock | None = None,
) -> Started:
    """Hand the files of an agent to the fleet as a backfill; returns when the last of them is announced.

    A long list goes out as the files before it arrive in the index, so that neither Redis nor a live edit has
    to bear all of it. Safe when run twice, also at the same time. Raises QueueError when nobody takes the
    files, and when somebody cancels the backfill meanwhile.
    """
    clock = clock or SystemClock()
    asked_ns = clock.now_ns()
    taken_up = _take_up(settings, clock)
    with _reader(settings) as reader:
        known = ledger_of(reader) if reader else Known()
    files = look(settings, choose(settings), known).files(force=force)
    feed = Feed(settings.agent, files, looked_ns=asked_ns, force=force, backfill=True)
    with Fleet(url) as fleet:
        while True:
            with _reader(settings) as reader:
                if reader and backfill.is_cancelled(reader, asked_ns):
                    raise QueueError(
                        f"{settings.agent}: somebody cancelled the reindex after"
                        f" {feed.done} of {feed.total} files",
                        hint="memline reindex   (goes on with what is missing)",
                    )
                feed.advance(reader)
            on_announced(feed.done, feed.total)
            if feed.all_announced:
                break
            if (error := fleet.fault()) is not None:
                raise error
            clock.sleep(LOOK_EVERY_S)
        fleet.wake(settings.agent)
    return Started(agent=settings.agent, files=len(files), taken_up=taken_up)


def cancel(settings: AgentSettings, url: str, *, clock: Clock | None = None) -> Cancelled:
    """Stop the backfill of an agent: nothing more of it is sent to the provider.

    What is there stays, requests that are out are kept when they come, live edits go on. Batches that hold
    nothing else are ended at the provider; the rows it has finished are kept. The texts stay known as
    missing; `memline reindex` or `memline index` takes them up.
    """
    clock = clock or SystemClock()
    vectors = batches = 0
    if settings.index_path.exists():
        with closing(IndexWriter.of(settings, clock=clock)) as writer:
            vectors = writer.cancel_backfill()
            batches = writer.batches.cancel_set_aside()
    withdrawn = withdraw_backfill(url, settings.agent) if url else Withdrawn(messages=0, files=0)
    return Cancelled(agent=settings.agent, vectors=vectors, batches=batches, withdrawn=withdrawn)


def progress(settings: AgentSettings) -> dict[str, Any]:
    """How far the vectors of an agent are, from its rows, with the time left at the present rate."""
    rows = of_agent(settings)
    if rows is None:
        return {"agentId": settings.agent, "vectors": None, "etaSeconds": None, "paused": False}
    vectors = rows.json["vectors"]
    coming, rate = vectors["wanted"] + vectors["leased"], rows.json["vectorsPerSecond"]
    is_paused = rows.provider is not None and rows.provider["state"] == "paused"
    return {
        "agentId": settings.agent,
        "vectors": vectors,
        "vectorsPerSecond": rate,
        "etaSeconds": round(coming / rate, 1) if coming and rate and not is_paused else None,
        "paused": is_paused,
    }


def _take_up(settings: AgentSettings, clock: Clock) -> int:
    if not settings.index_path.exists():
        return 0
    with closing(IndexWriter.of(settings, clock=clock)) as writer:
        return writer.take_up_backfill()


@contextmanager
def _reader(settings: AgentSettings) -> Iterator[Connection | None]:
    """A connection to the index as it is now; None while there is none: the store worker makes it."""
    try:
        reader = driver.open_reader(settings.index_path)
    except IndexMissing:
        yield None
        return
    with closing(reader), driver.faults(settings.index_path):
        yield reader
