"""End batches: record the outcome, tell the breaker, make the texts wanted again, cancel what has no use.

    outcome                     the breaker of batches         the texts it did not bring
    done, partial               worked: closes after a probe   requests
    failed                      counts a failure               another batch, then requests
    too big                     nothing                        batches of half the size
    expired, timed out, lost    counts a failure               requests
    cancelled                   nothing                        requests

A failure is more when the provider refused for good: a bad key or an empty account pauses the provider
for requests as well, and any other definite no opens the breaker of batches at once.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memline.shared.config.schema import Batch as BatchSettings
from memline.shared.embedders.protocol import Identity
from memline.shared.embedders.provider_errors import is_bad_key
from memline.shared.errors import ProviderError
from memline.shared.index import batches, identities, vectors
from memline.shared.index.accounts import Accounts
from memline.shared.index.batches import FAILURES, PARTIAL, TOO_BIG, Batch
from memline.shared.index.driver import transaction
from memline.shared.index.vectors import CANCELLED
from memline.shared.scheduling import health
from memline.shared.scheduling.health import BATCH

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Texts given back in one transaction.
GIVE_BACK_ROWS = 1_000

#: Closed batches that are kept to be shown.
KEPT = 100

#: HTTP statuses of errors that speak of the account, so of requests as well.
_OF_THE_ACCOUNT = frozenset({402, 429})


def tell_breaker(
    accounts: Accounts,
    provider: str,
    batch: Batch,
    cause: ProviderError | None,
    settings: BatchSettings,
    now: float,
) -> None:
    """Tell the breaker how a batch ended, inside the transaction that records it.

    `cause` is the provider's refusal, if that is what ended it.
    """
    error, action, tag = batch.error, batch.action, batch.token
    # Without a status the provider was not asked: this process's settings do not lead to it.
    is_stop = cause is not None and cause.kind == "stop" and cause.status is not None
    if batch.outcome in ("done", PARTIAL):
        health.update(accounts, provider, BATCH, now, lambda was: health.after_success(was, probe=tag))
    elif cause is not None and is_stop and (cause.status in _OF_THE_ACCOUNT or is_bad_key(cause)):
        health.update(accounts, provider, BATCH, now, lambda was: health.after_lost_probe(was, tag, now))
        rules = health.REQUEST_RULES
        stop = partial(health.after_stop, rules=rules, error=error, action=action, now=now)
        health.update(accounts, provider, health.REQUESTS, now, stop)
    elif batch.outcome in FAILURES:
        # A definite no: the provider has no Batch API here, or refuses it.
        follow = health.after_stop if is_stop else health.after_failure
        fail = partial(follow, rules=health.batch_rules(settings), error=error, action=action, now=now)
        health.update(accounts, provider, BATCH, now, partial(fail, probe=tag))
    else:
        health.update(accounts, provider, BATCH, now, lambda was: health.after_lost_probe(was, tag, now))


def give_back(connection: Connection, batch: Batch, now: float) -> None:
    """Make the texts wanted again that a finished batch did not bring, a slice a transaction."""
    by_request = int(batch.outcome not in ("failed", TOO_BIG))
    # A text that is missing in an answer that is otherwise good counts an attempt, or it could be for ever.
    counts = int(batch.outcome in ("done", PARTIAL))
    limits = (vectors.TEXT_ATTEMPTS, now + vectors.FAILED_RETRY_S)
    while True:
        with transaction(connection):
            given = connection.execute(
                "UPDATE vectors SET state = iif(attempts + ?1 >= ?2, 'failed', 'wanted'), lease = NULL,"
                " due = iif(attempts + ?1 >= ?2, ?3, 0), attempts = attempts + ?1,"
                " error = iif(?1, 'the batch brought no row for this text', error),"
                " by_request = max(by_request, ?4)"
                " WHERE id IN (SELECT id FROM vectors WHERE lease = ?5 LIMIT ?6)",
                (counts, *limits, by_request, batch.token, GIVE_BACK_ROWS),
            ).rowcount
            vectors.drop_unneeded(connection)
        if not given:
            return


def recall(accounts: Accounts, now: float) -> list[str]:
    """Close batches that never called their provider, as no batch worker is there; returns their tokens.

    A lease without an open batch ends with the next sweep (`shared.scheduling.leases`).
    """
    connection, recalled = accounts.index, list[str]()
    for batch in batches.open_batches(connection):
        with transaction(connection):
            closed = connection.execute(
                "UPDATE batches SET state = 'closed', outcome = 'cancelled', closed_at = ?, error = ?"
                " WHERE token = ? AND state = 'intent' AND uploads = 0 AND owner = ''",
                (now, "no batch worker is there", batch.token),
            ).rowcount
            row = identities.by_id(connection, batch.identity_id)
            if closed and row is not None:
                lost = partial(health.after_lost_probe, probe=batch.token, now=now)
                health.update(accounts, row.identity.provider, BATCH, now, lost)
                recalled.append(batch.token)
    return recalled


def cancel_unwanted(connection: Connection, chosen: Identity | None, now: float) -> None:
    """Ask for the cancellation of batches whose model is neither chosen, searched nor built.

    Not before the model that is built has brought a vector: a name may be misspelt for a day. `chosen` is the
    identity of the settings, also while a fallback is active.
    """
    target = identities.target(connection)
    by_settings = identities.by_key(connection, chosen.key) if chosen else None
    wanted = [row.id for row in (identities.active(connection), target, by_settings) if row]
    if target is None or not vectors.is_any_ready(connection, target.id):
        return
    for other in {batch.identity_id for batch in batches.open_batches(connection)}.difference(wanted):
        batches.cancel_identity(connection, other, reason="the model was changed", now=now)


def cancel_idle(connection: Connection, now: float) -> int:
    """Ask for the cancellation of batches that hold only texts of cancelled jobs; how many."""
    idle = connection.execute(
        "SELECT token FROM batches WHERE state IN ('intent', 'uploaded', 'submitted') AND NOT EXISTS"
        " (SELECT 1 FROM vectors WHERE lease = token AND priority <> ?)",
        (CANCELLED,),
    ).fetchall()
    reason = "its job was cancelled"
    return sum(batches.request_cancel(connection, token, reason=reason, now=now) for (token,) in idle)


def prune(connection: Connection) -> None:
    """Forget the oldest closed batches, inside the caller's transaction."""
    connection.execute(
        "DELETE FROM batches WHERE state = 'closed' AND token NOT IN"
        " (SELECT token FROM batches WHERE state = 'closed' ORDER BY closed_at DESC, token LIMIT ?)",
        (KEPT,),
    )
