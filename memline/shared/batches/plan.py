"""Decide which wanted texts wait for a batch, and make the batches; and say what an open batch keeps waiting.

A batch takes minutes to a day, so only texts of jobs go by batch, in their first attempt, once no file
of a job is left to be read. What a batch did not bring, live edits, and fewer texts than `minTexts` are sent
in requests.
"""

from __future__ import annotations

import uuid
from sqlite3 import Connection

from memline.shared.config.schema import Batch as BatchSettings
from memline.shared.index import batches, vectors
from memline.shared.index.accounts import Accounts
from memline.shared.index.driver import transaction
from memline.shared.index.identities import IdentityRow
from memline.shared.scheduling import health, jobs
from memline.shared.scheduling.budget import BATCH, Budget, Charge
from memline.shared.scheduling.health import LONGEST_S

#: The largest job: OpenAI's cap of rows, and what fits into its 200 MB when a token has 6 bytes, between
#: English (4) and Cyrillic (8). Others take more, but a job is lost, late or looked for as a whole.
MAX_ROWS, MAX_TOKENS = 50_000, 30_000_000


def plan(
    accounts: Accounts, budget: Budget, target: IdentityRow, settings: BatchSettings, now: float
) -> bool:
    """Make the batches there are texts and places for; tell whether texts of jobs wait for one.

    A process that dies between count and intent leaves a batch counted for good, never the other way round.
    """
    index, provider = accounts.index, target.identity.provider
    state = health.read(accounts, provider, BATCH)
    # A probe of the provider is a request.
    if state.is_stuck(now) or health.read(accounts, provider).paused:
        return False
    fewest, is_read = min(settings.min_texts, MAX_ROWS), jobs.next_to_read(index) is None
    is_full = sum(each.is_unfinished for each in batches.open_batches(index)) >= settings.concurrency
    texts = list(vectors.texts_for_batch(index, target.id, fewest if is_full else MAX_ROWS))
    if len(texts) < fewest:
        return not is_read
    if is_full or not (is_read or len(texts) == MAX_ROWS):
        return True
    charge = Charge(identity=target.identity, account=accounts.of(provider), mode=BATCH)
    with transaction(index):
        room, total, ids = min(budget.left(charge, now)[0], MAX_TOKENS), 0, list[int]()
        for row_id, tokens in texts:
            if total + tokens > room:
                break
            total += tokens
            ids.append(row_id)
        if not ids or (
            state.paused and not health.take_probe(accounts, provider, BATCH, now, now + LONGEST_S)
        ):
            return False
        if budget.take(charge, total, now):
            return False
        token = uuid.uuid4().hex
        index.execute(
            "INSERT INTO batches (token, identity_id, state, rows, tokens, created_at, due)"
            " VALUES (?, ?, 'intent', ?, ?, ?, ?)",
            (token, target.id, vectors.lease_texts(index, token, ids), total, now, now),
        )
    # Where this one is a probe, the others do not wait for it.
    return not state.paused and plan(accounts, budget, target, settings, now)


def waiting(
    connection: Connection, identity_id: int, settings: BatchSettings, *, since: float
) -> tuple[int, bool]:
    """Count the texts of an identity that a command may leave to batches, open ones and the next.

    Also tell whether a batch is on its way to its provider or is being stored: a matter of moments. `since`:
    when the command began.
    """
    ours = [batch for batch in batches.open_batches(connection) if batch.identity_id == identity_id]
    polled = [each for each in ours if each.state == "submitted" and each.polled_at >= since]
    resting = [each for each in ours if each.action or each in polled]
    is_busy = len(resting) < len(ours)
    if settings.wait and not any(batch.action for batch in ours):
        return 0, is_busy
    texts = sum(batches.texts_left(connection, batch.token, needed=True) for batch in resting)
    if sum(batch.is_unfinished for batch in ours) >= settings.concurrency:
        count = sum(1 for _ in vectors.texts_for_batch(connection, identity_id, 2**62))
        texts += count if count >= settings.min_texts else 0
    return texts, is_busy
