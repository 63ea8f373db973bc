"""Bringing an index up to date with the disk, and waiting until every vector is ready or failed.

What is waited for is read from rows, never from messages: the same loop watches threads of this process or a
fleet on other machines.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.embedders.choice import choose, choose_fallback
from shared.index import batch_waiting, chunks, fallback, health, identity, ledger, meta, vectors
from shared.index.batch_waiting import Waiting
from shared.index.batches import Batch
from shared.index.driver import faults, open_reader
from shared.index.health import Health
from shared.index.plan import Plan, ledger_of, look
from shared.index.vectors import Backlog
from shared.index.writer import IndexWriter

if TYPE_CHECKING:
    from producers.feed import Feed

#: Seconds between two looks at the rows while waiting.
LOOK_EVERY_S = 0.03

#: Seconds in which a fallback takes over; a run that waits does not end for a provider that stopped before.
TAKE_OVER_S = 5.0

#: Failed texts and files named in a report at most; the counts are always whole.
MAX_FAILURES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is, for a progress bar."""

    files_done: int = 0
    files: int = 0
    vectors_done: int = 0
    vectors: int = 0
    #: Why nothing moves, when it is known: a rate limit and until when, or a batch and how far it is.
    waiting: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a run for one agent: the JSON contract of `memline index`."""

    agent: str
    files: dict[str, int]
    chunks: int
    vectors: dict[str, int]
    provider: str
    model: str
    seconds: float
    failures: list[dict[str, str]]
    #: One line for a person when vectors are missing or nothing embeds; and what to do.
    warning: str = ""
    action: str = ""
    issues: tuple[str, ...] = field(default=())
    #: Whether a provider was named and none can be used.
    provider_missing: bool = False
    #: Open batches whose texts come later, and how many texts wait with them.
    batches: tuple[dict[str, object], ...] = ()
    in_batches: int = 0
    #: Whether this run could embed; else vectors that wait do so for another process, or another day.
    is_embedding: bool = True

    @property
    def failed(self) -> bool:
        """Whether the command ends with 1: something the user asked for is not there."""
        is_missing = self.vectors["pending"] > self.in_batches
        is_short = (is_missing and self.is_embedding) or self.vectors["failed"]
        return bool(self.failures or is_short or self.provider_missing)

    def to_json(self) -> dict[str, object]:
        return {
            "agentId": self.agent,
            "files": self.files,
            "chunks": self.chunks,
            "vectors": self.vectors,
            "batches": list(self.batches),
            "provider": self.provider,
            "model": self.model,
            "seconds": round(self.seconds, 3),
            "failures": self.failures,
            "warning": self.warning,
            "action": self.action,
        }


def prepare(
    settings: AgentSettings,
    *,
    re_embed: bool = False,
    is_asked: bool = True,
    clock: Clock | None = None,
) -> Plan:
    """Open (or make) the index, set its provider, and see what is to be done.

    `is_asked`: a person waits for it, so a provider that stopped is tried again at once.

    Raises an IndexFault when the index cannot be used.
    """
    clock = clock or SystemClock()
    choice = choose(settings)
    with closing(IndexWriter.of(settings, clock=clock)) as writer:
        writer.recover()
        if is_asked:
            fallback.come_back(writer, choice)
        else:
            fallback.begin(writer, choice, choose_fallback(settings, choice, reason="", action=""))
            writer.start_over(is_asked=False)
        writer.batches.sweep(choice.identity)
        writer.take_up_backfill()
        if re_embed:
            writer.forget_vectors()
        was = str(writer.meta(meta.WORKSPACE, "") or "")
        here = str(settings.workspace)
        if was != here:
            writer.put_meta(meta.WORKSPACE, here)
        with faults(settings.index_path):
            plan = look(settings, choice, ledger_of(writer.connection))
        return replace(plan, moved_from=was if was not in ("", here) else "")


class Run:
    """Waits for one agent's run, from its plan to its report."""

    def __init__(
        self,
        settings: AgentSettings,
        plan: Plan,
        *,
        started_ns: int,
        is_fleet: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """`is_fleet`: other processes embed, whatever this one could."""
        self._is_embedding = is_fleet or plan.choice.identity is not None
        self._settings = settings
        self._plan = plan
        self._clock = clock or SystemClock()
        self._started_ns = started_ns
        self._reader = open_reader(settings.index_path)
        #: Since when nothing goes out (monotonic seconds).
        self._stuck_since = math.inf
        with faults(settings.index_path):
            self._embedded_before = meta.get(self._reader, meta.EMBEDDED_TOTAL, 0)
            self._cached_before = meta.get(self._reader, meta.CACHED_TOTAL, 0)

    def close(self) -> None:
        self._reader.close()

    def wait(
        self,
        feed: Feed,
        *,
        on_progress: Callable[[Progress], None] = lambda _: None,
        fault: Callable[[], BaseException | None] = lambda: None,
    ) -> None:
        """Feed the workers; return when no vector is pending, or the provider cannot go on.

        Raises what `fault` gives: an error that ended an actor.
        """
        while True:
            began = time.monotonic()
            error = fault()
            if error is not None:
                raise error
            with faults(self._settings.index_path):
                feed.advance(self._reader)
                progress, is_over = self._look(feed)
            on_progress(progress)
            if is_over:
                return
            # In a large index a look is not free: never spend more than a tenth of the time on looking.
            self._clock.sleep(max(LOOK_EVERY_S, 9 * (time.monotonic() - began)))

    def report(self) -> Report:
        """What happened, from the rows."""
        connection = self._reader
        changes = self._plan.changes
        choice = self._plan.choice
        with faults(self._settings.index_path):
            target = identity.target(connection)
            backlog = vectors.backlog(connection, target.id) if target else Backlog()
            entries = ledger.entries(connection)
            bad = [entry for entry in entries.values() if entry.outcome in ledger.PROBLEMS]
            failures = [{"path": entry.path, "reason": entry.reason or entry.outcome} for entry in bad]
            if target:
                for digest, error, path in vectors.failures(connection, target.id, MAX_FAILURES):
                    failures.append({"textHash": digest, "path": path or "", "reason": error})
            waiting = self._waiting(target.id) if target else Waiting()
            warning, action = self._trouble(backlog, waiting)
            return Report(
                agent=self._settings.agent,
                files={
                    "seen": len(self._plan.discovery.found),
                    "added": len(changes.added),
                    "changed": len(changes.changed) + len(changes.growing),
                    "removed": len(changes.removed),
                    "unchanged": len(changes.unchanged),
                    "failed": len(bad),
                },
                chunks=chunks.count(connection),
                vectors={
                    "embedded": meta.get(connection, meta.EMBEDDED_TOTAL, 0) - self._embedded_before,
                    "cached": meta.get(connection, meta.CACHED_TOTAL, 0) - self._cached_before,
                    "pending": backlog.pending,
                    "failed": backlog.failed,
                },
                provider=target.identity.provider if target else "none",
                model=target.identity.model if target else "",
                seconds=(self._clock.now_ns() - self._started_ns) / 1e9,
                failures=failures,
                warning=warning,
                action=action,
                issues=self._plan.discovery.issues,
                provider_missing=not self._is_embedding and choice.requested not in ("auto", "none"),
                is_embedding=self._is_embedding,
                batches=tuple(_shown(batch) for batch in waiting.parked),
                # With one in trouble, what the user asked for is not there, and will not come by itself.
                in_batches=0 if waiting.trouble else waiting.texts + waiting.in_line,
            )

    def _waiting(self, identity_id: int) -> Waiting:
        settings = self._settings.memory.remote.batch
        return batch_waiting.waiting(self._reader, identity_id, settings, since=self._started_ns / 1e9)

    def _look(self, feed: Feed) -> tuple[Progress, bool]:
        connection = self._reader
        is_read = feed.done == feed.total
        target = identity.target(connection)
        if target is None:
            return Progress(files_done=feed.done, files=feed.total), is_read
        backlog = vectors.backlog(connection, target.id)
        state = health.read(connection, target.identity.provider)
        now = self._clock.now()
        waiting = ""
        if backlog.pending and state.hold_until > now:
            waiting = f"{state.reason}; goes on in {state.hold_until - now:.0f} s"
        in_batches = self._waiting(target.id)
        if in_batches.delayed and backlog.coming:
            waiting = f"a batch is tried again: {in_batches.delayed}"
        elif in_batches.parked and backlog.coming:
            waiting = _words(in_batches, target.identity.provider)
        progress = Progress(
            files_done=feed.done,
            files=feed.total,
            vectors_done=backlog.ready + backlog.failed,
            vectors=backlog.ready + backlog.failed + backlog.pending,
            waiting=waiting,
        )
        left = in_batches.are_left(self._settings.memory.remote.batch)
        parked = in_batches.texts if left else 0
        in_line = in_batches.in_line if left else 0
        is_stopped = backlog.leased <= parked and self._is_stopped(state, target.identity.key, now)
        is_stuck = not self._is_embedding or is_stopped
        is_over = backlog.coming <= parked + in_line and not in_batches.is_busy
        return progress, is_read and (is_over or is_stuck)

    def _is_stopped(self, state: Health, target: str, now: float) -> bool:
        """Whether nothing goes out any more until somebody acts, or until a time that is far."""
        if meta.get(self._reader, meta.PAUSED, False):
            return True
        if not state.is_stuck(now):
            self._stuck_since = math.inf
            return False
        self._stuck_since = min(self._stuck_since, time.monotonic())
        choice = self._plan.choice
        is_first = choice.identity is not None and choice.identity.key == target
        if not is_first or choose_fallback(self._settings, choice, reason="", action="") is None:
            return True
        # The store worker is about to give the texts to the fallback.
        return time.monotonic() - self._stuck_since > TAKE_OVER_S

    def _trouble(self, backlog: Backlog, waiting: Waiting) -> tuple[str, str]:
        target = identity.target(self._reader)
        if target is None:
            choice = self._plan.choice
            if self._plan.known.open_batches:
                return "batches are open at a provider that is switched off now", "memline batch ls"
            if choice.requested in ("auto", "none"):
                return "", ""
            return choice.reason, choice.action
        state = health.read(self._reader, target.identity.provider)
        choice = self._plan.choice
        if not self._is_embedding and backlog.pending:
            return f"{backlog.pending} vectors wait: {choice.reason}", choice.action
        if backlog.pending and (state.by_hand or meta.get(self._reader, meta.PAUSED, False)):
            return f"paused by hand; {backlog.pending} vectors wait", "memline queue resume"
        if state.paused and backlog.pending:
            return f"{state.reason}; {backlog.pending} vectors wait", state.action
        if backlog.cancelled:
            return f"{backlog.cancelled} vectors were cancelled with their backfill", "memline index"
        if (batch := waiting.trouble) is not None:
            return f"batch {batch.token[:8]} cannot be collected: {batch.error}", batch.action
        if waiting.texts and backlog.pending:
            return _words(waiting, target.identity.provider), "memline batch ls"
        was = meta.get(self._reader, meta.FALLBACK)
        if was:
            return (
                f"{was['from']} stopped: {was['reason']}; {target.identity.provider} has taken over",
                self._plan.choice.action,
            )
        failed = batch_waiting.failed_since(self._reader, target.id, self._started_ns / 1e9)
        if failed is not None:
            what = f"batch {failed.token[:8]} failed, what it did not bring went out in requests"
            return f"{what}: {failed.error}", failed.action
        return "", ""


def _shown(batch: Batch) -> dict[str, object]:
    return {
        "token": batch.token,
        "job": batch.job_id,
        "state": batch.said or batch.state,
        "texts": batch.rows,
        "error": batch.error,
    }


def _words(waiting: Waiting, provider: str) -> str:
    """How far the batches are, in a line."""
    done = sum(batch.rows_done for batch in waiting.parked)
    jobs = ", ".join(f"{batch.job_id} {batch.said}" for batch in waiting.parked)
    count = f"{len(waiting.parked)} batch" + "es" * (len(waiting.parked) > 1)
    line = f" ({done} done there)" if done else ""
    more = f"; {waiting.in_line} more wait for a place" if waiting.in_line else ""
    return f"{waiting.texts} texts wait in {count} at {provider}{line}: {jobs}{more}"
