"""The end of a batch: its texts that did not come back go out again, and the breaker hears how it went.

Done by the store worker, behind everything that the batch brought: messages are processed in order, so what
is still leased by then never came.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.index import batches, breaker, health, identity, vectors
from shared.index.backfill import SET_ASIDE
from shared.index.batches import Batch, Verdict
from shared.index.breaker import Rules
from shared.index.driver import transaction

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.embedders.protocol import Identity

#: Times a batch is read again because what it brought was lost on the way.
MAX_LOST = 3

#: Texts given back in one transaction.
SLICE_ROWS = 1_000

#: Closed batches that are kept to be shown.
KEPT = 100

_MODEL_CHANGED = "the model was changed"

#: Outcomes whose texts do not wait for a second batch.
_NOT_AGAIN = frozenset({"done", "partial", "expired", "cancelled", "timed out", "lost"})


def settle(
    connection: Connection,
    token: str,
    *,
    missing: int,
    now: float,
    rules: Rules = health.BATCH_RULES,
    min_texts: int = 1,
) -> Batch | None:
    """End a batch of which all but `missing` texts have been sent to the store worker.

    Returns the batch when that ended it; None when it had ended before, or when more texts are missing than
    that: then a message was lost, and the batch is read again. `min_texts`: fewer are not worth a batch.
    """
    batch = batches.get(connection, token)
    if batch is None or batch.state != "collecting":
        return None
    if batch.verdict == Verdict.TOO_BIG and batch.rows // 2 < min_texts:
        # Halves would not be worth a batch, so there is none that fits.
        batch = replace(batch, verdict=Verdict.FAILED)
    if batches.texts_left(connection, token) > missing and batch.attempts < MAX_LOST:
        with transaction(connection):
            connection.execute(
                "UPDATE batches SET due = ?, attempts = attempts + 1"
                " WHERE token = ? AND state = 'collecting'",
                (now, token),
            )
        return None
    outcome = batch.outcome
    if outcome == "done" and batches.texts_left(connection, token) + batch.failed:
        outcome = "partial"
    _give_back(connection, batch, now)
    provider = _provider(connection, batch)
    # One that never called its provider has left nothing there.
    state, closed_at = ("cleaning", 0.0) if batch.uploads else ("closed", now)
    with transaction(connection):
        ended = connection.execute(
            "UPDATE batches SET state = ?, closed_at = ?, outcome = ?, due = ?, attempts = 0, wait_s = 0"
            " WHERE token = ? AND state = 'collecting'",
            (state, closed_at, outcome, now, token),
        )
        if not ended.rowcount:
            return None
        _tell_breaker(connection, batch, provider, now, rules)
    return batches.get(connection, token)


def recall(connection: Connection, now: float) -> int:
    """Give back the texts of batches that never called their provider; returns how many batches."""
    recalled = 0
    for batch in batches.open_batches(connection):
        with transaction(connection):
            taken = connection.execute(
                "UPDATE batches SET state = 'collecting', outcome = 'cancelled', verdict = ?, error = ?"
                " WHERE token = ? AND state = 'intent' AND uploads = 0 AND owner = ''",
                (Verdict.NONE, "no batch worker is there", batch.token),
            )
        if taken.rowcount:
            settle(connection, batch.token, missing=batch.rows, now=now)
            recalled += 1
    return recalled


def prune(connection: Connection) -> None:
    """Forget the oldest of the batches that are over, inside the caller's transaction."""
    connection.execute(
        "DELETE FROM batches WHERE state = 'closed' AND token NOT IN"
        " (SELECT token FROM batches WHERE state = 'closed' ORDER BY closed_at DESC, token LIMIT ?)",
        (KEPT,),
    )


def cancel_foreign(connection: Connection, chosen: Identity | None, now: float) -> None:
    """Ask for the end of batches whose model is neither chosen, searched nor built: nobody wants them.

    Not before the model that is built has brought a vector: a name may be misspelt for a day. A batch whose
    model comes back before its provider was told goes on.
    """
    target = identity.target(connection)
    own = identity.by_key(connection, chosen.key) if chosen else None
    wanted = [row.id for row in (identity.active(connection), target, own) if row]
    for batch in batches.open_batches(connection):
        if not batch.is_unfinished or batch.cancelled_at:
            continue
        if batch.identity_id in wanted:
            if batch.cancel_reason == _MODEL_CHANGED:
                with transaction(connection):
                    connection.execute(
                        "UPDATE batches SET cancel_asked = 0, cancel_reason = ''"
                        " WHERE token = ? AND cancelled_at = 0",
                        (batch.token,),
                    )
        elif target is not None and not batch.cancel_asked and vectors.is_any_ready(connection, target.id):
            batches.ask_cancel(connection, batch.token, reason=_MODEL_CHANGED, now=now)


def cancel_set_aside(connection: Connection, now: float) -> int:
    """Ask for the end of batches all of whose texts were set aside; returns how many."""
    asked = 0
    for batch in batches.open_batches(connection):
        needed = connection.execute(
            "SELECT 1 FROM vectors WHERE lease = ? AND backfill <> ? LIMIT 1", (batch.token, SET_ASIDE)
        ).fetchone()
        if needed is None and batch.is_unfinished:
            asked += batches.ask_cancel(connection, batch.token, reason="its backfill was cancelled", now=now)
    return asked


def cancel_of(connection: Connection, identity_id: int, *, reason: str, now: float) -> None:
    """Ask for the end of all batches of an identity."""
    for batch in batches.open_batches(connection):
        if batch.identity_id == identity_id and batch.is_unfinished:
            batches.ask_cancel(connection, batch.token, reason=reason, now=now)


def _give_back(connection: Connection, batch: Batch, now: float) -> None:
    """Its texts are wanted again, a slice a transaction; in requests when one more batch would not help."""
    by_request = int(batch.outcome in _NOT_AGAIN)
    # A text that is missing in an answer that is otherwise good counts an attempt, or it could be for ever.
    counts = int(batch.verdict == Verdict.WORKED and batch.outcome == "done")
    while True:
        with transaction(connection):
            given = connection.execute(
                "UPDATE vectors SET state = iif(attempts + ?1 >= ?2, 'failed', 'wanted'), lease = NULL,"
                " due = iif(attempts + ?1 >= ?2, ?3, 0), attempts = attempts + ?1,"
                " error = iif(?1, 'the batch brought no row for this text', error),"
                " by_request = max(by_request, ?4)"
                " WHERE id IN (SELECT id FROM vectors WHERE lease = ?5 LIMIT ?6)",
                (
                    counts,
                    vectors.MAX_ATTEMPTS,
                    now + vectors.FAILED_RETRY_S,
                    by_request,
                    batch.token,
                    SLICE_ROWS,
                ),
            ).rowcount
            vectors.drop_unneeded(connection)
        if not given:
            return


def _tell_breaker(connection: Connection, batch: Batch, provider: str, now: float, rules: Rules) -> None:
    error, action, tag = batch.error, batch.action, batch.token
    if batch.verdict == Verdict.WORKED:
        health.batch_worked(connection, provider, now, tag=tag)
    elif batch.verdict in (Verdict.FAILED, Verdict.UNAVAILABLE):
        for_good = batch.verdict == Verdict.UNAVAILABLE
        health.batch_failed(connection, provider, error, action, now, tag=tag, for_good=for_good, rules=rules)
    else:
        health.batch_lost(connection, provider, now, tag=tag)
    if batch.verdict == Verdict.STOP:
        was = health.read(connection, provider)
        after = breaker.stopped(was, health.REQUEST_RULES, error, action, now)
        health.write(connection, provider, after, now)
    elif batch.verdict == Verdict.TOO_BIG:
        was = health.read(connection, provider, health.BATCH)
        cap = health.tighter(was.max_rows, max(1, batch.rows // 2))
        health.write(connection, provider, replace(was, max_rows=cap), now, health.BATCH)


def _provider(connection: Connection, batch: Batch) -> str:
    row = identity.by_id(connection, batch.identity_id)
    assert row is not None
    return row.identity.provider
