"""Store what a provider returned: vectors, or why there are none.

Each function is one transaction. Both are safe twice, late and out of order: a vector that is there stays,
and a failure counts only while its lease still holds.

Where no setting says how many dimensions a model has, its first answer does. An answer of other dimensions is
refused, and its error names `memline index --re-embed`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from memline.shared.embedders.protocol import Identity
from memline.shared.index import batches, identities, jobs, meta, vectors
from memline.shared.index.accounts import Accounts
from memline.shared.index.driver import transaction
from memline.shared.index.rows import LearnedCaps, VectorRow
from memline.shared.index.vectors import TEXT_ATTEMPTS
from memline.shared.providers import PROVIDERS
from memline.shared.scheduling import health, leases
from memline.shared.scheduling.health import Health

_MODEL_CHANGED = "if the server changed its model: memline index --re-embed"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why texts got no vector."""

    #: later, split, too_big, refused, stop, broken (`shared.errors.ProviderError.kind`), or unsent.
    kind: str
    error: str
    #: What an operator can do about it.
    action: str = ""
    #: Seconds the provider asked for; None when it did not.
    retry_after_s: float | None = None
    #: The request returned no vector at all, so the provider may be what is broken. Said once a request.
    no_results: bool = False
    #: It was the one request to a provider that had failed before.
    is_probe: bool = False


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of a request cost, as far as it is known; by default it was not sent."""

    #: Tokens and calls that were perhaps paid for.
    tokens: int = 0
    paid_calls: int = 0


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
    connection, error = accounts.index, ""
    with transaction(connection):
        dims = len(rows[0].vector) // 4 if rows else 0
        row = identities.ensure(connection, identity, vector_dims=dims)
        good = [vector for vector in rows if len(vector.vector) == 4 * row.vector_dims]
        done = vectors.store(connection, row, good, now)
        stored = done.total() - done[vectors.UNWANTED]
        if odd := [vector for vector in rows if len(vector.vector) != 4 * row.vector_dims]:
            error = f"{len(odd[0].vector) // 4} dimensions came, the index has {row.vector_dims}"
            hashes, why = [vector.hash for vector in odd], f"{error}; {_MODEL_CHANGED}"
            vectors.take_back(connection, row.id, lease, hashes, why, now, attempts=1)
        # The result of a batch says nothing about requests.
        is_batch = batches.count(connection, lease, stored=stored)
        jobs.add_done(connection, done)
        leases.close_lease(connection, lease)

        def change(was: Health) -> Health:
            after = health.learned(was, learned)
            if error:
                return health.failed(after, health.REQUEST_RULES, error, _MODEL_CHANGED, now)
            return health.worked(after) if good else after

        if not is_batch:
            health.update(accounts, identity.provider, health.REQUESTS, change)
        if stored:
            meta.count_embedded(connection, stored, now)
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
    connection = accounts.index
    with transaction(connection):
        row = identities.by_key(connection, identity.key)
        if row is None:
            return
        # Where none is counted, the health of the provider is what keeps them back.
        attempts = {"broken": 1, "refused": TEXT_ATTEMPTS, "too_big": TEXT_ATTEMPTS}.get(failure.kind, 0)
        is_told = failure.kind == "broken" and failure.action
        reason = f"{failure.error}; {failure.action}" if is_told else failure.error
        vectors.take_back(connection, row.id, lease, hashes, reason, now, attempts=attempts)
        leases.close_lease(connection, lease)
        limited_rows = learned.error_rows if PROVIDERS[identity.provider].counts_texts else 0

        def change(was: Health) -> Health:
            return _after(health.learned(was, learned), failure, learned.error_rows, limited_rows, now)

        if not batches.count(connection, lease):
            health.update(accounts, identity.provider, health.REQUESTS, change)


def _after(was: Health, failure: Failure, rows: int, limited_rows: int, now: float) -> Health:
    """Return the health of a provider after a failure of a request of so many texts."""
    error, action, wait_s = failure.error, failure.action, failure.retry_after_s
    match failure.kind:
        case "stop":
            return health.stopped(was, health.REQUEST_RULES, error, action, now, is_probe=failure.is_probe)
        case "later" if wait_s is not None and wait_s >= health.FIRST_PAUSE_S:
            return health.asked_to_wait(was, wait_s, error, now, rows=limited_rows, is_probe=failure.is_probe)
        case "split" | "unsent":
            return health.unsent(was, wait_s or 0.0, error, now, is_probe=failure.is_probe)
        case "later" | "broken" if failure.kind == "later" or failure.no_results:
            # A provider that answers nothing but nonsense is not asked for a whole backlog.
            return health.failed(
                was, health.REQUEST_RULES, error, action, now, rows=rows, is_probe=failure.is_probe
            )
    # A provider that judges texts works.
    return health.worked(was) if failure.is_probe and was.paused else was
