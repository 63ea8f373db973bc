"""The dispatcher's part for batches: which texts wait for one, and when it is made.

A batch takes minutes to a day, so a few texts never wait for one: they go out in requests. A backlog does. It
is gathered while it grows, and becomes batches when nothing was added for a moment, or when one is full. The
*mark* is the highest row id that was decided to go by batch: texts up to it wait for a place among the open
batches, texts above it are decided on when they stop coming.
"""

from __future__ import annotations

import sys
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shared.index import batches, breaker, health, meta
from shared.index.backfill import BACKFILL, LIVE
from shared.index.driver import transaction
from shared.index.identity import IdentityRow
from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Seconds without a new text after which a backlog counts as whole. Files of a run that are still on their
#: way are told by `is_feeding`; this covers the moment between two windows of them (30 ms to 0.3 s).
LINGER_S = 1.0

#: Seconds a few texts are held back at most to see whether more come; a saved note is in no such hurry.
FEW_HOLD_S = 2.0

#: Seconds after which a backlog that never stops growing becomes a batch.
GROWING_HOLD_S = 60.0

#: Seconds for which "everything waits" is believed without another look: hundreds of files come in a second.
LOOK_EVERY_S = 0.1

#: Texts leased in one transaction, some 10 ms: another process's write waits no longer.
SLICE_ROWS = 1_000

#: Bytes of the uploaded file by the estimate of tokens. English has 4 bytes a token, Cyrillic 8. The
#: provider's client counts what it sends; a batch that turns out too big is halved.
BYTES_PER_TOKEN, BYTES_PER_ROW = 6, 256

#: For `Gathered.above`: no text waits for a batch; all texts wait to be decided on.
NONE_HELD, ALL_HELD = -1, 2**62


@value
class BatchRules:
    """What the settings and the provider say of batches."""

    #: Batches open at a time.
    concurrency: int
    #: Texts that are worth one.
    min_texts: int
    #: The largest batch.
    max_rows: int
    max_bytes: int
    #: Of all open ones together; 0: no limit is known.
    max_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class Growth:
    """What this process has seen of the backlog of one index: whether texts are still coming."""

    last_id: int = -1
    #: When the last one came, and the first that is not decided on (seconds since the epoch).
    grew_at: float = 0.0
    since: float = 0.0
    #: When a batch became full last, while texts were still coming.
    full_at: float = 0.0

    def look(self, last_id: int, now: float, *, is_waiting: bool) -> None:
        """Learn which row id was given last, and whether any text is undecided."""
        if last_id != self.last_id:
            self.last_id, self.grew_at = last_id, now
        self.since = (self.since or now) if is_waiting else 0.0

    def held_s(self, now: float) -> float:
        """For how long the first undecided text has been held back."""
        return now - self.since if self.since else 0.0

    def is_growing(self, now: float) -> bool:
        return now - self.grew_at < LINGER_S and self.held_s(now) < GROWING_HOLD_S


@value
class Gathered:
    """What the dispatcher may do now."""

    #: Only texts with a higher row id go out in requests, beside those that a batch could not bring.
    above: int
    #: Seconds until it should look again; 0: when something happens.
    again_s: float = 0.0
    #: Batches made just now.
    made: int = 0


def gather(
    connection: Connection,
    identity: IdentityRow,
    rules: BatchRules,
    growth: Growth,
    *,
    is_feeding: bool,
    owner: str,
    now: float,
) -> Gathered:
    """Decide which texts wait for a batch, and make the batches there are texts and places for.

    `is_feeding`: files whose texts are not counted yet are on their way.
    """
    provider = identity.identity.provider
    state = health.read(connection, provider, health.BATCH)
    is_probing = state.state == breaker.OPEN and state.probe_at <= now
    if state.by_hand or not (state.state == breaker.CLOSED or is_probing):
        forget_mark(connection)
        return Gathered(above=NONE_HELD)
    most = health.tighter(rules.max_rows, state.max_rows)
    if state.max_tokens:
        # A limit of all that is open together: one after another.
        rules = replace(rules, concurrency=1, max_tokens=state.max_tokens)
    mark = int(meta.get(connection, meta.BATCH_MARK, 0))
    last = _last_id(connection)
    growth.look(last, now, is_waiting=_is_any(connection, identity.id, above=mark, mark=last))
    is_growing = growth.is_growing(now) or (is_feeding and growth.held_s(now) < GROWING_HOLD_S)
    if growth.since and is_growing:
        if last - mark >= most and _count(connection, identity.id, mark=last) >= most:
            mark = _decide(connection, last)
            growth.full_at = now
        is_few = last - mark < rules.min_texts and not is_feeding and growth.held_s(now) >= FEW_HOLD_S
        above = mark if is_few else ALL_HELD
    else:
        if growth.since and _count(connection, identity.id, above=mark, mark=last) >= rules.min_texts:
            mark = _decide(connection, last)
        growth.since = 0.0
        above = mark
    # What a full one left over waits for what is still coming; alone it would be a small batch.
    is_coming = is_feeding or now - growth.grew_at < LINGER_S
    only_full = above == ALL_HELD or (is_coming and now - growth.full_at < GROWING_HOLD_S)
    made = 0
    if _is_place_and_text(connection, identity.id, rules, mark):
        made = _make(connection, identity, rules, most, mark=mark, only_full=only_full, owner=owner, now=now)
    return Gathered(above=above, again_s=LINGER_S if only_full else 0.0, made=made)


def finish_filling(connection: Connection, token: str, now: float) -> None:
    """Let a batch go out with the texts it has; one without any is dropped. Safe twice."""
    with transaction(connection):
        rows = batches.texts_left(connection, token)
        if rows:
            connection.execute(
                "UPDATE batches SET state = 'intent', rows = ?, due = ?, owner = '', owner_until = 0"
                " WHERE token = ? AND state = 'filling'",
                (rows, now, token),
            )
            return
        dropped = connection.execute(
            "DELETE FROM batches WHERE token = ? AND state = 'filling' RETURNING identity_id", (token,)
        ).fetchone()
        if dropped:
            provider = connection.execute("SELECT provider FROM identities WHERE id = ?", dropped).fetchone()[
                0
            ]
            health.batch_lost(connection, provider, now, tag=token)


def _is_place_and_text(connection: Connection, identity_id: int, rules: BatchRules, mark: int) -> bool:
    """Whether a batch may be made, seen without a transaction: this is asked at every message."""
    return (
        _is_any(connection, identity_id, above=0, mark=mark)
        and batches.unfinished(connection) < rules.concurrency
    )


def _make(
    connection: Connection,
    identity: IdentityRow,
    rules: BatchRules,
    most: int,
    *,
    mark: int,
    only_full: bool,
    owner: str,
    now: float,
) -> int:
    """Make the batches there are texts and places for; returns how many."""
    made = 0
    while token := _begin(
        connection, identity, rules, most, mark=mark, only_full=only_full, owner=owner, now=now
    ):
        _fill(connection, identity.id, token, rules, mark=mark, max_rows=most)
        finish_filling(connection, token, now)
        made += 1
    return made


def _begin(
    connection: Connection,
    identity: IdentityRow,
    rules: BatchRules,
    most: int,
    *,
    mark: int,
    only_full: bool,
    owner: str,
    now: float,
) -> str | None:
    """Write down that a batch is made, if there is a place for one and texts for it."""
    with transaction(connection):
        if batches.unfinished(connection) >= rules.concurrency:
            return None
        waiting = _count(connection, identity.id, mark=mark)
        if not waiting or (only_full and waiting < most):
            return None
        token = uuid.uuid4().hex
        if not health.may_batch(connection, identity.identity.provider, now, tag=token):
            return None
        connection.execute(
            "INSERT INTO batches (token, identity_id, state, created_at, owner, owner_until)"
            " VALUES (?, ?, 'filling', ?, ?, ?)",
            (token, identity.id, now, owner, now + 60),
        )
        return token


def _fill(
    connection: Connection, identity_id: int, token: str, rules: BatchRules, *, mark: int, max_rows: int
) -> None:
    """Lease texts up to the caps, a slice a transaction; live edits first, oldest first."""
    room, room_bytes, room_tokens = max_rows, rules.max_bytes, rules.max_tokens or sys.maxsize
    for turn in (LIVE, BACKFILL):
        while room > 0:
            with transaction(connection):
                found = connection.execute(
                    "SELECT id, tokens FROM vectors WHERE identity_id = ? AND state = 'wanted'"
                    " AND state <> 'ready' AND backfill = ? AND id <= ? AND by_request = 0"
                    " ORDER BY id LIMIT ?",
                    (identity_id, turn, mark, min(room, SLICE_ROWS)),
                ).fetchall()
                last, taken = 0, 0
                for row_id, tokens in found:
                    size = tokens * BYTES_PER_TOKEN + BYTES_PER_ROW
                    is_above = size > room_bytes or tokens > room_tokens
                    if is_above and taken + max_rows - room > 0:
                        break
                    last, taken = row_id, taken + 1
                    room_bytes, room_tokens = room_bytes - size, room_tokens - tokens
                # One statement for all of them: by their ids one by one it took three times as long.
                connection.execute(
                    "UPDATE vectors SET state = 'leased', lease = ? WHERE identity_id = ?"
                    " AND state = 'wanted' AND state <> 'ready' AND backfill = ? AND id <= ?"
                    " AND by_request = 0",
                    (token, identity_id, turn, last),
                )
            room = 0 if taken < len(found) else room - taken
            if not found:
                break


def in_line(connection: Connection, identity_id: int) -> int:
    """Texts that go by batch as soon as there is a place for one more."""
    return _count(connection, identity_id, mark=int(meta.get(connection, meta.BATCH_MARK, 0)))


def forget_mark(connection: Connection) -> None:
    """No text waits for a batch any more; if batches come back, what is there then is decided on anew."""
    if meta.get(connection, meta.BATCH_MARK) is not None:
        with transaction(connection):
            meta.put(connection, meta.BATCH_MARK, None)


def _decide(connection: Connection, last: int) -> int:
    """From now on all texts so far go by batch."""
    with transaction(connection):
        meta.put(connection, meta.BATCH_MARK, last)
    return last


def _last_id(connection: Connection) -> int:
    """The row id given last; it grows with every text that is wanted for the first time."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'").fetchone()
    return int(row[0]) if row else 0


def _is_any(connection: Connection, identity_id: int, *, above: int, mark: int) -> bool:
    """Whether any text is wanted between two row ids."""
    return any(
        connection.execute(
            "SELECT 1 FROM vectors WHERE identity_id = ? AND state = 'wanted' AND state <> 'ready'"
            " AND backfill = ? AND id > ? AND id <= ? LIMIT 1",
            (identity_id, turn, above, mark),
        ).fetchone()
        for turn in (LIVE, BACKFILL)
    )


def _count(connection: Connection, identity_id: int, *, mark: int, above: int = 0) -> int:
    """Texts between two row ids that may go by batch."""
    total = 0
    for turn in (LIVE, BACKFILL):
        # Both by an index alone: a backlog has a million rows.
        wanted = connection.execute(
            "SELECT count(*) FROM vectors WHERE identity_id = ? AND state = 'wanted' AND state <> 'ready'"
            " AND backfill = ? AND id > ? AND id <= ?",
            (identity_id, turn, above, mark),
        ).fetchone()[0]
        by_request = connection.execute(
            # The + keeps SQLite from the index of all that is wanted: it would read every row of it.
            "SELECT count(*) FROM vectors WHERE identity_id = ? AND by_request = 1 AND state <> 'ready'"
            " AND +state = 'wanted' AND backfill = ? AND id > ? AND id <= ?",
            (identity_id, turn, above, mark),
        ).fetchone()[0]
        total += wanted - by_request
    return total
