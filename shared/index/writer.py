"""The writer: every change of an agent's index, each a short transaction.

Used by the store worker, and by one-shot commands that bring a few files in before they answer. Two
writers on one file are right as well: the ledger's `observed_ns`, text hashes and leases decide, not
who came first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.embedders.choice import NONE, Choice
from shared.embedders.protocol import Identity, RequestCaps
from shared.index import backfill as turns
from shared.index import (
    batch_claims,
    chunks,
    dispatch,
    health,
    identity,
    ledger,
    meta,
    model_change,
    results,
    vectors,
)
from shared.index.batch_dispatch import NONE_HELD
from shared.index.batch_writer import BatchWriter
from shared.index.driver import BUSY_TIMEOUT_MS, faults, load_vec, open_writer, transaction
from shared.index.fts import FullText
from shared.index.health import Health, tighter
from shared.index.rows import FileRow, LearnedCaps, VectorRow
from shared.index.vec import VecTables
from shared.sources.tokens import estimate_tokens

if TYPE_CHECKING:
    from pathlib import Path
    from sqlite3 import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What storing one file did."""

    path: str
    #: See `shared.index.chunks.Replaced.change`.
    change: str
    outcome: str
    reason: str
    #: Vectors its texts needed that were at hand already.
    cached: int = 0


class IndexWriter:
    """One agent's index, open for writing. Not for use by two threads at once."""

    def __init__(
        self,
        path: Path,
        *,
        extension_path: str = "",
        vector_enabled: bool = True,
        cache_entries: int = 50_000,
        clock: Clock | None = None,
        owner: str = "",
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    ) -> None:
        """Opens or makes the file; see `driver.open_writer` for what it raises."""
        self.path = path
        self.connection: Connection = open_writer(path, busy_timeout_ms=busy_timeout_ms)
        self._file_id = _file_id(path)
        self._clock = clock or SystemClock()
        self._cache_entries = cache_entries
        self.vec_error = "switched off" if not vector_enabled else load_vec(self.connection, extension_path)
        self.vec = VecTables(self.connection, available=not self.vec_error)
        self._full_text = FullText(self.connection)
        self._owner = owner or dispatch.this_owner()
        self.batches = BatchWriter(self.connection, path, self._clock)
        #: Seconds its requests may be out.
        self.lease_s = dispatch.LEASE_S

    @classmethod
    def of(
        cls,
        settings: AgentSettings,
        *,
        clock: Clock | None = None,
        owner: str = "",
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    ) -> IndexWriter:
        """The index of an agent, by its settings."""
        memory = settings.memory
        return cls(
            settings.index_path,
            extension_path=memory.store.vector.extension_path,
            vector_enabled=memory.store.vector.enabled,
            cache_entries=memory.cache.max_entries if memory.cache.enabled else 0,
            clock=clock,
            owner=owner,
            busy_timeout_ms=busy_timeout_ms,
        )

    @property
    def is_replaced(self) -> bool:
        """Whether the file is no longer at its path: moved aside, deleted, built again by another process."""
        return _file_id(self.path) != self._file_id

    def close(self) -> None:
        self.connection.close()

    def recover(self) -> None:
        """After a start: free what a dead process of this host held, mend full-text index and vec0 tables."""
        with faults(self.path):
            batch_claims.free_dead(self.connection, self._clock.now())
            with transaction(self.connection):
                dispatch.free_orphans(self.connection, self._clock.now())
            self._full_text.mend()
            searched = [
                row for row in (identity.active(self.connection), identity.target(self.connection)) if row
            ]
            self.vec.tidy({(row.id, row.vector_dims) for row in searched})

    def store_file(self, row: FileRow, *, backfill: bool = False, asked_ns: int = 0) -> Stored:
        """Make the index agree with one file: old chunks out, new chunks in, their vectors wanted.

        `asked_ns` is when a backfill was asked for (ns since the epoch): it may have been cancelled since.
        """
        now = self._clock.now()
        cached = 0
        with faults(self.path), transaction(self.connection):
            done = chunks.apply_file(self.connection, self._full_text, row)
            target = identity.target(self.connection)
            if target is not None and done.texts:
                wanted = {digest: estimate_tokens(text) for digest, text in done.texts.items()}
                turn = turns.turn_of(self.connection, is_backfill=backfill, asked_ns=asked_ns)
                cached = vectors.want(self.connection, self.vec, target, wanted, backfill=turn, now=now)
            vectors.release(self.connection, self.vec, done.orphans, now)
            if done.texts or done.orphans:
                meta.bump(self.connection)
            if cached:
                meta.add(self.connection, meta.CACHED_TOTAL, cached)
        return Stored(
            path=row.path, change=done.change, outcome=row.outcome, reason=row.reason, cached=cached
        )

    def retarget(self, wanted: Identity | None, base_url: str = "", *, secrets_mark: str = "") -> None:
        """From now on texts are embedded with `wanted`; search keeps the old vectors until it is complete.

        `secrets_mark` tells one key from another: with a new one a provider's troubles are forgotten.
        """
        now = self._clock.now()
        with faults(self.path):
            model_change.retarget(self.connection, self.vec, wanted, base_url, now, secrets_mark)

    def use(self, choice: Choice) -> None:
        """Embed with the provider that was chosen.

        A process that merely lacks a key changes nothing for those that have it: its texts wait.
        """
        if choice.identity is not None or choice.requested == NONE:
            mark = choice.endpoint.secrets_mark if choice.endpoint is not None else ""
            self.retarget(choice.identity, choice.base_url, secrets_mark=mark)

    def store_vectors(self, of: Identity, lease: str, rows: Sequence[VectorRow], learned: LearnedCaps) -> int:
        """Keep vectors that came back; returns how many were new. See `shared.index.results.keep`."""
        with faults(self.path):
            now = self._clock.now()
            stored = results.keep(self.connection, self.vec, of, lease, rows, learned, now)
            model_change.switch_when_complete(self.connection, self.vec)
        return stored

    def embed_failed(
        self,
        of: Identity,
        lease: str,
        hashes: Sequence[bytes],
        *,
        kind: str,
        error: str,
        action: str,
        retry_after_s: float | None,
        learned: LearnedCaps,
        fruitless: bool = False,
    ) -> None:
        """These texts got no vector. See `shared.index.results.note_failure`."""
        with faults(self.path):
            results.note_failure(
                self.connection,
                of,
                lease,
                hashes,
                results.Failure(
                    kind=kind,
                    error=error,
                    action=action,
                    retry_after_s=retry_after_s,
                    fruitless=fruitless,
                ),
                learned,
                self._clock.now(),
            )
            model_change.switch_when_complete(self.connection, self.vec)

    def lease(
        self,
        caps: RequestCaps,
        *,
        credits: int,
        only_full: bool,
        only: Identity | None = None,
        above: int = NONE_HELD,
    ) -> list[dispatch.Request]:
        """Requests to send out now; none while the provider is on hold or paused.

        `only`: the identity this process's workers can embed; texts that wait for another are left alone.
        `above`: as in `dispatch.lease`.
        """
        now = self._clock.now()
        with faults(self.path):
            target = identity.target(self.connection)
            if target is None or meta.get(self.connection, meta.PAUSED, False):
                return []
            if only is not None and only.key != target.identity.key:
                return []
            state = health.read(self.connection, target.identity.provider)
            if state.is_stuck(now) or state.hold_until > now:
                return []
            caps = replace(
                caps,
                max_rows=tighter(caps.max_rows, state.max_rows),
                max_tokens=tighter(caps.max_tokens, state.max_tokens),
            )
            if state.paused:
                request = self.probe(target.identity, caps)
                return [request] if request else []
            if state.failures:
                # After a failure one request goes ahead of the others, not all of them into the same wall.
                credits = min(credits, 1)
            return dispatch.lease(
                self.connection,
                target,
                caps,
                credits=credits,
                owner=self._owner,
                now=now,
                only_full=only_full,
                lease_s=self.lease_s,
                above=above,
            )

    def probe(self, of: Identity, caps: RequestCaps) -> dispatch.Request | None:
        """The one request that may go to a provider whose breaker is open; None when none may go now."""
        now = self._clock.now()
        with faults(self.path):
            row = identity.by_key(self.connection, of.key)
            if row is None or meta.get(self.connection, meta.PAUSED, False):
                return None
            owner, lease_s = self._owner, self.lease_s
            return dispatch.probe(self.connection, row, caps, owner=owner, now=now, lease_s=lease_s)

    def next_try_s(self) -> float:
        """Seconds until something that was put off may go out; 0 when nothing is, or somebody must act."""
        now = self._clock.now()
        with faults(self.path):
            target = identity.target(self.connection)
            state = health.read(self.connection, target.identity.provider) if target else Health()
            if target is None or state.by_hand or self.lease_tokens():
                # While something is out, its answer brings the next try.
                return 0.0
            due = max(state.hold_until, state.probe_at, vectors.next_due(self.connection, target.id) or 0.0)
        return max(due - now, 0.0)

    def sweep(self) -> None:
        """Free what is overdue, try failed texts again, prune the cache."""
        now = self._clock.now()
        with faults(self.path):
            target = identity.target(self.connection)
            with transaction(self.connection):
                dispatch.free_orphans(self.connection, now)
                ledger.forget_removed(self.connection, self._clock.now_ns() - ledger.TOMBSTONE_NS)
                health.forget_old_caps(self.connection, now)
                if target is not None:
                    vectors.retry_failed(self.connection, target.id, due_before=now)
            model_change.switch_when_complete(self.connection, self.vec)
            model_change.rest_retired(self.connection)
            while True:
                with transaction(self.connection):
                    if not vectors.prune(self.connection, self._cache_entries, model_change.SLICE_ROWS):
                        break

    def lease_tokens(self) -> list[str]:
        """Requests that are out, by the token of their lease."""
        with faults(self.path):
            return [row[0] for row in self.connection.execute("SELECT token FROM leases ORDER BY token")]

    def free_leases(self, tokens: Sequence[str]) -> None:
        """These requests were lost on the way: their texts are wanted again."""
        if tokens:
            with faults(self.path), transaction(self.connection):
                dispatch.free(self.connection, tokens, self._clock.now())

    def start_over(self, *, is_asked: bool = True) -> None:
        """Failed texts get a new chance and open batches are looked at; if asked, so does the provider."""
        now = self._clock.now()
        with faults(self.path), transaction(self.connection):
            target = identity.target(self.connection)
            if target is not None:
                vectors.retry_failed(self.connection, target.id, due_before=None)
                if is_asked:
                    health.try_again(self.connection, target.identity.provider, now)
            batch_claims.look_now(self.connection, now)

    def cancel_backfill(self) -> int:
        """Send nothing more of what a reindex or a new model wants; see `shared.index.backfill.cancel`."""
        with faults(self.path):
            return turns.cancel(self.connection, self._clock.now_ns())

    def take_up_backfill(self) -> int:
        """Go on with a backfill that was cancelled; returns how many texts are wanted again."""
        with faults(self.path):
            return turns.take_up(self.connection)

    def forget_vectors(self) -> None:
        """Drop every vector of the target, so that all texts are embedded and paid for again."""
        with faults(self.path):
            model_change.forget_vectors(self.connection, self.vec, self._clock.now())

    def meta(self, key: str, default: object = None) -> Any:
        """A single value of the index; the keys are in `shared.index.meta`."""
        with faults(self.path):
            return meta.get(self.connection, key, default)

    def put_meta(self, key: str, value: object) -> None:
        """Set a single value of the index."""
        with faults(self.path), transaction(self.connection):
            meta.put(self.connection, key, value)


def _file_id(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
