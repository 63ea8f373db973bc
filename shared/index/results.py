"""What comes back from a provider, written down: vectors, or why there are none.

Each function is one transaction. Both are safe twice, late and out of order: a vector that is there stays,
and a failure counts only while its lease still holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.embedders.protocol import Identity
from shared.index import batches, breaker, dispatch, first_answer, health, identity, meta, vectors
from shared.index.driver import transaction
from shared.index.health import Health, tighter
from shared.index.rows import LearnedCaps, VectorRow
from shared.index.vec import VecTables
from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: The kind of a failure that is the worker's: it is set up for another model than the index wants.
MISFIT = "misfit"

#: Requests in a row that only such workers took; then there is no other, and the provider counts as stopped.
MAX_MISFITS = 20

_MODEL_CHANGED = "if the server changed its model: memline index --re-embed"


@value
class Failure:
    """Why texts got no vector."""

    #: later, too_big, refused, stop, broken (`shared.errors.ProviderError.kind`) or MISFIT.
    kind: str
    error: str
    #: What a person can do about it.
    action: str
    #: Seconds the provider asked for; None when it did not.
    retry_after_s: float | None
    #: Nothing at all came out of the request, so the provider may be what is broken.
    fruitless: bool


def keep(
    connection: Connection,
    vec: VecTables,
    of: Identity,
    lease: str,
    rows: Sequence[VectorRow],
    learned: LearnedCaps,
    now: float,
) -> int:
    """Keep vectors; returns how many were new.

    Vectors of other dimensions than those before are refused as a broken answer: the server changed its
    model behind the same name, and mixing the two would spoil every search.
    """
    with transaction(connection):
        row = identity.by_key(connection, of.key) or identity.ensure(connection, of, "", now)
        dims = row.vector_dims or (len(rows[0].vector) // 4 if rows else 0)
        if rows and not row.vector_dims:
            connection.execute("UPDATE identities SET vector_dims = ? WHERE id = ?", (dims, row.id))
            first_answer.came(connection, row.id, lease)
        good = [vector for vector in rows if len(vector.vector) == 4 * dims]
        stored = vectors.store(connection, vec, row, good, now)
        odd = [vector for vector in rows if len(vector.vector) != 4 * dims]
        was = health.read(connection, of.provider)
        after = _with_caps(connection, of, was, learned, now)
        failed = 0
        if odd:
            error = f"{len(odd[0].vector) // 4} dimensions came, the index has {dims}"
            hashes = [vector.hash for vector in odd]
            failed = retry_or_give_up(connection, row.id, lease, hashes, f"{error}; {_MODEL_CHANGED}", now)
            after = health.put_off(after, error, _MODEL_CHANGED, None, now, probe=lease)
            first_answer.contradicted(connection, vec, row.id, lease)
        elif good:
            after = breaker.worked(after, probe=lease)
            first_answer.confirmed(connection, row.id, lease)
            if meta.get(connection, meta.MISFITS):
                meta.put(connection, meta.MISFITS, None)
        if batches.count(connection, lease, stored=stored, failed=failed):
            # What a batch brings says nothing of requests.
            after = was
        dispatch.settle(connection, lease)
        if after != was:
            health.write(connection, of.provider, after, now)
        if stored:
            meta.bump(connection)
            meta.add(connection, meta.EMBEDDED_TOTAL, stored)
            meta.count_lately(connection, stored, now)
    return stored


def note_failure(
    connection: Connection,
    of: Identity,
    lease: str,
    hashes: Sequence[bytes],
    failure: Failure,
    learned: LearnedCaps,
    now: float,
) -> None:
    """Put texts off, pause the provider, or mark the texts failed, by the kind of the failure."""
    with transaction(connection):
        row = identity.by_key(connection, of.key)
        if row is None:
            return
        was = health.read(connection, of.provider)
        after = _with_caps(connection, of, was, learned, now)
        error, action = failure.error, failure.action
        failed = 0
        if failure.kind == "stop":
            after = breaker.stopped(after, health.REQUEST_RULES, error, action, now, probe=lease)
            vectors.put_back(connection, row.id, lease, hashes, due=0.0, error=error, counts=False)
        elif failure.kind == MISFIT:
            # Another worker may fit: the texts go out again, and nobody else is held up.
            seen = meta.get(connection, meta.MISFITS, {}).get("count", 0) + 1
            if seen >= MAX_MISFITS or after.paused:
                after = breaker.stopped(after, health.REQUEST_RULES, error, action, now, probe=lease)
            meta.put(connection, meta.MISFITS, {"count": seen, "error": error, "action": action})
            vectors.put_back(connection, row.id, lease, hashes, due=0.0, error=error, counts=False)
        elif failure.kind == "later":
            after = health.put_off(after, error, action, failure.retry_after_s, now, probe=lease)
            # The hold of the provider is what keeps them back; it may end before its time.
            vectors.put_back(connection, row.id, lease, hashes, due=0.0, error=error, counts=False)
        elif failure.kind == "broken":
            if failure.fruitless:
                # A provider that answers nothing but nonsense is not asked for a whole backlog.
                after = health.put_off(after, error, action, None, now, probe=lease)
            reason = f"{error}; {action}" if action else error
            failed = retry_or_give_up(connection, row.id, lease, hashes, reason, now)
        else:
            # Who judges a text is well.
            after = breaker.answered(after, probe=lease)
            failed = vectors.give_up(connection, row.id, lease, hashes, error=error, now=now)
        if batches.count(connection, lease, failed=failed):
            after = was
        dispatch.settle(connection, lease)
        if after != was:
            health.write(connection, of.provider, after, now)


def _with_caps(connection: Connection, of: Identity, was: Health, learned: LearnedCaps, now: float) -> Health:
    after = replace(
        was,
        max_rows=tighter(was.max_rows, learned.max_rows),
        max_tokens=tighter(was.max_tokens, learned.max_tokens),
    )
    if after != was:
        health.note_caps(connection, of.provider, now)
    return after


def retry_or_give_up(
    connection: Connection, identity_id: int, lease: str, hashes: Sequence[bytes], error: str, now: float
) -> int:
    """Texts whose answers are broken go out again, or fail after some times; returns how many it were."""
    done = 0
    for digest in hashes:
        tries = vectors.attempts(connection, identity_id, digest) + 1
        if tries >= vectors.MAX_ATTEMPTS:
            done += vectors.give_up(connection, identity_id, lease, [digest], error=error, now=now)
        else:
            due = now + vectors.FIRST_RETRY_S * 2.0 ** (tries - 1)
            done += vectors.put_back(
                connection, identity_id, lease, [digest], due=due, error=error, counts=True
            )
    return done
