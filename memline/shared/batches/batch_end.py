"""Sort what a batch brought, tell the breaker how it ended, and make the other texts wanted again.

    outcome                     the breaker of batches         the texts it did not bring
    done, partial               worked: closes after a probe   requests
    failed                      counts a failure               another batch, then requests
    expired, timed out, lost    counts a failure               requests
    cancelled                   nothing                        requests

A failure is more when the provider refused for good: a bad key or an empty account pauses the provider
for requests as well, and any other definite no opens the breaker of batches at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from memline.shared.batches.job_rows import BatchResult
from memline.shared.config.schema import Batch as BatchSettings
from memline.shared.embedders.provider_errors import is_bad_key
from memline.shared.errors import ProviderError
from memline.shared.index import vectors
from memline.shared.index.accounts import Accounts
from memline.shared.index.batches import (
    FAILURES,
    LOST,
    PARTIAL,
    TIMED_OUT,
    Batch,
    texts_left,
    tokens_left,
)
from memline.shared.index.driver import transaction
from memline.shared.index.rows import VectorRow
from memline.shared.scheduling import breaker, health
from memline.shared.scheduling.health import BATCH

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Rows stored, and texts given back, in one transaction.
STORE_ROWS = 200
GIVE_BACK_ROWS = 1_000

#: Kinds of errors that are the text's own.
_OF_THE_TEXT = ("refused", "too_big")

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
        health.update(accounts, provider, BATCH, now, lambda was: breaker.after_success(was, probe=tag))
    elif cause is not None and is_stop and (cause.status in _OF_THE_ACCOUNT or is_bad_key(cause)):
        health.update(accounts, provider, BATCH, now, lambda was: breaker.after_lost_probe(was, tag, now))
        rules = breaker.REQUEST_RULES
        stop = partial(breaker.after_stop, rules=rules, error=error, action=action, now=now)
        health.update(accounts, provider, health.REQUESTS, now, stop)
    elif batch.outcome in FAILURES:
        # A definite no: the provider has no Batch API here, or refuses it.
        follow = breaker.after_stop if is_stop else breaker.after_failure
        fail = partial(follow, rules=breaker.batch_rules(settings), error=error, action=action, now=now)
        health.update(accounts, provider, BATCH, now, partial(fail, probe=tag))
    else:
        health.update(accounts, provider, BATCH, now, lambda was: breaker.after_lost_probe(was, tag, now))


def sort_results(
    results: Iterable[BatchResult],
    left: dict[str, bytes],
    *,
    is_done: bool,
    keep: Callable[[list[VectorRow]], None],
    renew: Callable[[], None],
) -> tuple[int, dict[tuple[str, str, str], list[bytes]]]:
    """Keep the vectors of a job's results a piece at a time; count the good ones, and gather the errors.

    `left`: key -> text hash of the texts that are awaited; those that are found are taken out of it. An error
    is its kind, words and action -> the text hashes that have it. `is_done`: the job did all that it could.
    """
    good = 0
    piece: list[VectorRow] = []
    errors: dict[tuple[str, str, str], list[bytes]] = {}
    for result in results:
        good += result.vector is not None
        renew()
        error = result.error
        if not is_done and error and error.kind not in _OF_THE_TEXT:
            # The row only says that its job ended first: nothing is wrong with the text.
            continue
        digest = left.pop(result.key, None)
        if digest is not None and result.vector is not None:
            piece.append(VectorRow(hash=digest, vector=result.vector))
            if len(piece) >= STORE_ROWS:
                keep(piece)
                piece = []
        elif digest is not None and error is not None:
            # A row that may work later is sent in a request, whatever kept it.
            kind = error.kind if error.kind in _OF_THE_TEXT else "broken"
            errors.setdefault((kind, error.message, error.hint), []).append(digest)
    if piece:
        keep(piece)
    return good, errors


def paid_tokens(connection: Connection, batch: Batch, outcome: str, reserved: int) -> int:
    """Count the tokens of a batch that ends so, without what its provider says that it did not do.

    `reserved`: the tokens of all its texts. Before `give_back`: those that did not come have its lease.
    """
    is_in_doubt = bool(batch.call_started_at and batch.file_id)
    if outcome in (LOST, TIMED_OUT) or is_in_doubt:
        return reserved
    if outcome in ("done", PARTIAL):
        # A row that the provider says has failed is not charged; an answer of no use is.
        failed = min(batch.failed, batch.rows_failed)
        return reserved * max(batch.rows - failed, 0) // max(batch.rows, 1)
    # What came counts with its own tokens, since texts differ a hundredfold. Of what a job did besides, only
    # the number is known, and not every server says it.
    answered = batch.rows - texts_left(connection, batch.token)
    their_tokens = max(reserved - tokens_left(connection, batch.token), 0)
    stored = their_tokens * min(batch.stored, answered) // max(answered, 1)
    others = max(batch.rows - batch.stored, 0)
    more = min(max(batch.rows_done - batch.stored, 0), others)
    return stored + (reserved - stored) * more // max(others, 1)


def give_back(connection: Connection, batch: Batch, now: float) -> None:
    """Make the texts wanted again that a finished batch did not bring, a slice a transaction."""
    by_request = int(batch.outcome != "failed")
    # A text that is missing in an answer that is otherwise good counts an attempt, or it could be for ever.
    counts = int(batch.outcome in ("done", PARTIAL))
    limits = (vectors.TEXT_ATTEMPTS, now + vectors.FAILED_RETRY_S)
    while True:
        with transaction(connection):
            given = connection.execute(
                "UPDATE vectors SET state = iif(attempts + ?1 >= ?2, 'failed', 'wanted'), lease = NULL,"
                " due = iif(attempts + ?1 >= ?2, ?3, 0), attempts = attempts + ?1,"
                " error = iif(?1, 'the batch brought no row for this text', error),"
                # Those of a cancelled job may go out in another batch once they are asked for again.
                f" by_request = max(by_request, iif(priority = {vectors.CANCELLED}, 0, ?4))"
                " WHERE id IN (SELECT id FROM vectors WHERE lease = ?5 LIMIT ?6)",
                (counts, *limits, by_request, batch.token, GIVE_BACK_ROWS),
            ).rowcount
            vectors.drop_unneeded(connection)
        if not given:
            return
