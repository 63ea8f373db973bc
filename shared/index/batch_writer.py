"""The store worker's side of batches: made out of the backlog, handed to the batch worker, settled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared.clock import Clock
from shared.embedders.protocol import Identity
from shared.index import (
    batch_claims,
    batch_dispatch,
    batch_settle,
    batches,
    dispatch,
    health,
    identity,
    meta,
)
from shared.index.batch_dispatch import (
    ALL_HELD,
    LOOK_EVERY_S,
    NONE_HELD,
    BatchRules,
    Gathered,
    Growth,
)
from shared.index.batches import Batch
from shared.index.breaker import Rules
from shared.index.driver import faults, transaction

if TYPE_CHECKING:
    from pathlib import Path
    from sqlite3 import Connection


class BatchWriter:
    """Batches of one open index. For the thread of its writer."""

    def __init__(self, connection: Connection, path: Path, clock: Clock) -> None:
        self._connection = connection
        self._path = path
        self._owner = dispatch.this_owner()
        self._clock = clock
        self._growth = Growth()
        #: What was found at the last look, and when that was.
        self._gathered = Gathered(above=NONE_HELD)
        self._looked = 0.0

    def gather(self, rules: BatchRules | None, *, only: Identity, is_feeding: bool) -> Gathered:
        """What goes by batch, and what may go in requests now; see `shared.index.batch_dispatch.gather`.

        `rules`: None when nothing goes by batch. `only`: as in `IndexWriter.lease`.
        """
        now = self._clock.now()
        if self._gathered.above == ALL_HELD and 0 <= now - self._looked < LOOK_EVERY_S:
            return self._gathered
        self._gathered = Gathered(above=NONE_HELD)
        with faults(self._path):
            target = identity.target(self._connection)
            if target is None or target.identity.key != only.key:
                return Gathered(above=NONE_HELD)
            if rules is None:
                batch_dispatch.forget_mark(self._connection)
                return Gathered(above=NONE_HELD)
            state = health.read(self._connection, target.identity.provider)
            if state.paused or meta.get(self._connection, meta.PAUSED, False):
                # Nothing goes out; a probe of the provider is a request.
                return Gathered(above=NONE_HELD)
            self._gathered = batch_dispatch.gather(
                self._connection,
                target,
                rules,
                self._growth,
                is_feeding=is_feeding,
                owner=self._owner,
                now=now,
            )
            self._looked = now
        return self._gathered

    def hand_out(self) -> tuple[Sequence[Batch], float | None]:
        """Batches somebody should work on now, and seconds until the next one is due; None: none is open."""
        now = self._clock.now()
        with faults(self._path):
            is_paused = bool(meta.get(self._connection, meta.PAUSED, False))
            given, next_due = batch_claims.hand_out(self._connection, now, is_paused=is_paused)
        return given, None if next_due is None else max(next_due - now, 0.0)

    def settle(
        self, token: str, *, missing: int, rules: Rules = health.BATCH_RULES, min_texts: int = 1
    ) -> Batch | None:
        """End a batch, and tell its breaker, by `rules`; see `shared.index.batch_settle.settle`."""
        now = self._clock.now()
        with faults(self._path):
            return batch_settle.settle(
                self._connection, token, missing=missing, now=now, rules=rules, min_texts=min_texts
            )

    def recall(self) -> int:
        """Let the texts of batches nobody has begun with go out otherwise; returns how many batches."""
        with faults(self._path):
            return batch_settle.recall(self._connection, self._clock.now())

    def cancel_set_aside(self) -> int:
        """Ask for the end of batches all of whose texts belong to a backfill that was cancelled; how many."""
        with faults(self._path):
            return batch_settle.cancel_set_aside(self._connection, self._clock.now())

    def sweep(self, chosen: Identity | None = None) -> None:
        """Go on with what a dead process left, and end what nobody wants any more.

        `chosen`: the identity of the settings, also while a fallback stands in.
        """
        now = self._clock.now()
        with faults(self._path):
            for batch in batches.open_batches(self._connection):
                # Of this thread none can be under way now: what it began was broken off by an error.
                is_ours = batch.owner == self._owner
                if batch.state == "filling" and (is_ours or not batch_claims.is_at_work(batch)):
                    batch_dispatch.finish_filling(self._connection, batch.token, now)
            batch_claims.free_dead(self._connection, now)
            batch_settle.cancel_foreign(self._connection, chosen, now)
            with transaction(self._connection):
                batch_settle.prune(self._connection)
