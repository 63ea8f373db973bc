"""Store what a provider returned: vectors, or why there are none.

Each function is one transaction. Both are safe twice, late and out of order: a vector that is there stays,
and a failure counts only while its lease still holds.

Where no setting says how many dimensions a model has, its first answer does. An answer of other dimensions is
refused, and its error names `memline index --re-embed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memline.shared.embedders.protocol import Identity
from memline.shared.index import batches, identities, jobs, meta, vectors
from memline.shared.index.accounts import Accounts
from memline.shared.index.driver import transaction
from memline.shared.index.rows import LearnedCaps, VectorRow
from memline.shared.index.vectors import LeasedTexts
from memline.shared.scheduling import breaker, health, leases
from memline.shared.scheduling.breaker import Health
from memline.shared.values import value

if TYPE_CHECKING:
    pass

Change = Callable[[Health], Health]

_MODEL_CHANGED = "if the server changed its model: memline index --re-embed"


@value
class Failure:
    """Why texts got no vector."""

    #: later, split, too_big, refused, stop, broken (`shared.errors.ProviderError.kind`).
    kind: str
    error: str
    #: What an operator can do about it.
    action: str = ""
    #: Seconds the provider asked for; None when it did not.
    retry_after_s: float | None = None
    #: The request returned no vector at all, so the provider may be what is broken.
    no_results: bool = False
    #: A stop that is about the model, so that others of the account go on.
    of_model: bool = False


def store_vectors(
    accounts: Accounts,
    identity: Identity,
    lease: str,
    rows: Sequence[VectorRow],
    learned: LearnedCaps,
    now: float,
) -> int:
    """Store vectors; returns how many were new.

    Vectors of other dimensions than those before are refused as a broken answer: the server changed its
    model behind the same name, and mixing the two would spoil every search.
    """
    connection, changes = accounts.index, [_sizes(learned)]
    with transaction(connection):
        row = identities.by_key(connection, identity.key) or identities.ensure(connection, identity, "", now)
        dims = row.vector_dims or (len(rows[0].vector) // 4 if rows else 0)
        if rows and not row.vector_dims:
            connection.execute("UPDATE identities SET vector_dims = ? WHERE id = ?", (dims, row.id))
        good = [vector for vector in rows if len(vector.vector) == 4 * dims]
        new = vectors.store(connection, row, good, now)
        stored = new.count
        odd = [vector for vector in rows if len(vector.vector) != 4 * dims]
        if odd:
            error = f"{len(odd[0].vector) // 4} dimensions came, the index has {dims}"
            texts = LeasedTexts(identity_id=row.id, lease=lease, hashes=[vector.hash for vector in odd])
            vectors.retry_or_fail(connection, texts, f"{error}; {_MODEL_CHANGED}", now)
            changes.append(
                lambda was: breaker.after_trouble(was, error, _MODEL_CHANGED, None, now, probe=lease)
            )
        elif good:
            changes.append(lambda was: breaker.after_success(was, probe=lease))
        is_batch = batches.count(connection, lease, stored=stored)
        jobs.add_done(connection, new.by_job, row.id, by_batch=is_batch, now=now)
        if is_batch:
            # The result of a batch says nothing about requests.
            changes.clear()
        leases.close_lease(connection, lease)
        _tell(accounts, identity, changes, now)
        if stored:
            meta.add(connection, meta.EMBEDDED_TOTAL, stored)
            meta.count_recent(connection, stored, now)
    return stored


def record_failure(
    accounts: Accounts,
    identity: Identity,
    lease: str,
    hashes: Sequence[bytes],
    failure: Failure,
    learned: LearnedCaps,
    now: float,
) -> None:
    """Defer texts, stop the provider, or mark the texts failed, by the kind of the failure."""
    connection, changes = accounts.index, [_sizes(learned)]
    with transaction(connection):
        row = identities.by_key(connection, identity.key)
        if row is None:
            return
        error, action, wait_s = failure.error, failure.action, failure.retry_after_s
        texts = LeasedTexts(identity_id=row.id, lease=lease, hashes=hashes)
        if failure.kind in ("stop", "later", "split", "unsent"):
            if failure.kind == "stop":
                rules = breaker.REQUEST_RULES
                changes.append(lambda was: breaker.after_stop(was, rules, error, action, now, probe=lease))
            elif failure.kind == "later" and (rows := learned.limited_rows):
                changes.append(
                    lambda was: breaker.after_text_limit(was, rows, error, action, wait_s, now, lease)
                )
            elif failure.kind == "later" and (rows := learned.failed_rows):
                changes.append(
                    lambda was: breaker.after_failed_texts(was, rows, error, action, wait_s, now, lease)
                )
            elif failure.kind == "later":
                changes.append(
                    lambda was: breaker.after_trouble(was, error, action, wait_s, now, probe=lease)
                )
            # The cooldown of the provider is what keeps them back; it may end before its time.
            vectors.defer(connection, texts, error)
        elif failure.kind == "broken":
            if failure.no_results:
                # A provider that answers nothing but nonsense is not asked for a whole backlog.
                changes.append(lambda was: breaker.after_trouble(was, error, action, None, now, probe=lease))
            else:
                changes.append(lambda was: breaker.after_refused_text(was, probe=lease))
            reason = f"{error}; {action}" if action else error
            vectors.retry_or_fail(connection, texts, reason, now)
        else:
            changes.append(lambda was: breaker.after_refused_text(was, probe=lease))
            vectors.fail(connection, texts, error, now)
        if batches.count(connection, lease):
            changes.clear()
        leases.close_lease(connection, lease)
        _tell(accounts, identity, changes, now, of_model=failure.of_model)


def _sizes(learned: LearnedCaps) -> Change:
    return lambda was: breaker.after_sizes(was, learned)


def _tell(
    accounts: Accounts, identity: Identity, changes: Sequence[Change], now: float, *, of_model: bool = False
) -> None:
    """Apply all changes to the health of the provider at once."""

    def change(was: Health) -> Health:
        for each in changes:
            was = each(was)
        return was

    health.update(accounts, identity.provider, health.REQUESTS, now, change, of_model=of_model)
