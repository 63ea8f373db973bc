"""Run reindex jobs on a fleet: hand files over window by window, tell progress, cancel and resume."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from memline.producers.reports.fleet_state import agent_state, eta_s
from memline.producers.runs.feed import FileFeeder
from memline.producers.runs.fleet import Fleet
from memline.producers.runs.index_run import STALLED_S
from memline.shared.batches import outcomes
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import QueueError
from memline.shared.index import vectors
from memline.shared.index.driver import file_id, reading_if_any
from memline.shared.queue.cancel import cancel_backfill
from memline.shared.store import IndexWriter
from memline.shared.sync.plan import plan_of

#: Seconds between two counts of how many of the enqueued files have arrived.
POLL_S = 0.05


def start(
    settings: AgentSettings,
    url: str,
    *,
    force: bool = False,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
    clock: Clock | None = None,
) -> dict[str, Any]:
    """Hand the files of an agent to the fleet as a backfill; return when the last of them is enqueued.

    A long list is enqueued as the files before it arrive in the index, so that neither Redis nor a live edit
    has to bear all of it. Safe when run twice, also at the same time. Raises QueueError when no worker takes
    the files or none arrives for `STALLED_S`, when the backfill is cancelled meanwhile, and when the index is
    deleted or replaced.
    """
    clock = clock or SystemClock()
    asked_ns = clock.now_ns()
    resumed = 0
    if settings.index_path.exists():
        with closing(IndexWriter.of(settings, clock=clock)) as writer, writer.session() as (connection, _):
            writer.begin_run()
            resumed = vectors.resume_backfill(connection)
    files = plan_of(settings).files(force=force)
    feeder = FileFeeder(
        settings.agent,
        files,
        scanned_ns=asked_ns,
        index=settings.index_path.name,
        force=force,
        backfill=True,
    )
    index_file = file_id(settings.index_path)
    done, arrived_at, reason = 0, time.monotonic(), ""
    with Fleet(url) as fleet:
        while not reason:
            # The store worker makes an index where there is none; one that is replaced lacks what arrived.
            if (now := file_id(settings.index_path)) != index_file and index_file is not None:
                reason = "the index was deleted or replaced"
                break
            index_file = now
            with reading_if_any(settings.index_path) as reader:
                if reader and vectors.is_backfill_cancelled(reader, asked_ns):
                    reason = "the reindex was cancelled"
                    break
                feeder.advance(reader)
            on_progress(feeder.done, feeder.total)
            if not feeder.has_pending_files:
                fleet.wake(settings.agent)
                return {"agentId": settings.agent, "files": len(files), "takenUp": resumed}
            if (error := fleet.fault()) is not None:
                raise error
            if feeder.done > done:
                done, arrived_at = feeder.done, time.monotonic()
            elif time.monotonic() - arrived_at > STALLED_S:
                reason = f"no file arrived for {STALLED_S / 60:.0f} min"
            clock.sleep(POLL_S)
    raise QueueError(
        f"{settings.agent}: {reason} after {feeder.done} of {feeder.total} files",
        hint="memline reindex   (goes on with what is missing)",
    )


def cancel(settings: AgentSettings, url: str, *, clock: Clock | None = None) -> dict[str, Any]:
    """Stop the backfill of an agent: nothing more of it is sent to the provider.

    What is indexed stays, vectors of requests in flight are kept, live edits go on. Batches that hold nothing
    else are cancelled at the provider; the rows it has finished are kept. The texts stay known as missing;
    `memline reindex` or `memline index` resumes them.
    """
    vectors = batches = 0
    if settings.index_path.exists():
        with closing(IndexWriter.of(settings, clock=clock)) as writer:
            vectors = writer.cancel_backfill()
            with writer.session() as (connection, now):
                batches = outcomes.cancel_idle(connection, now)
    messages, files = cancel_backfill(url, settings.agent) if url else (0, 0)
    counts = {"vectors": vectors, "batches": batches, "messages": messages, "files": files}
    return {"agentId": settings.agent, **counts}


def progress(settings: AgentSettings) -> dict[str, Any]:
    """Report how far files and vectors of an agent are, with the time left. Only reads."""
    state = agent_state(settings)
    if state is None:
        return {"agentId": settings.agent, "vectors": None, "etaSeconds": None, "paused": False}
    rate = state["vectorsPerSecond"]
    is_paused = bool(state["providers"]) and state["providers"][0]["state"] == "paused"
    return {
        "agentId": settings.agent,
        # Files whose texts are not counted below yet: without them a reindex that has begun looks complete.
        "filesBehind": plan_of(settings).changes.count,
        "vectors": state["vectors"],
        "vectorsPerSecond": rate,
        "etaSeconds": None if is_paused else eta_s(state["vectors"], rate),
        "paused": is_paused,
    }
