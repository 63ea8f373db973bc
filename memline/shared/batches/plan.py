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

#: The largest job: OpenAI's own caps. Voyage takes twice the rows and Gemini ten times the bytes, but a job
#: is lost, late or looked for as a whole.
MAX_ROWS, MAX_BYTES = 50_000, 200_000_000

#: Bytes of the uploaded file by the estimate of tokens: English has 4 bytes a token, Cyrillic 8.
BYTES_PER_TOKEN, BYTES_PER_ROW = 6, 256


def plan(
    accounts: Accounts, budget: Budget, target: IdentityRow, settings: BatchSettings, now: float
) -> bool:
    """Make the batches there are texts and places for; tell whether texts of jobs wait for one."""
    index = accounts.index
    state = health.read(accounts, target.identity.provider, health.BATCH)
    # A probe of the provider is a request.
    if state.is_stuck(now) or health.read(accounts, target.identity.provider).paused:
        return False
    is_read = jobs.next_to_read(index) is None
    fewest = min(settings.min_texts, MAX_ROWS)
    while (count := sum(1 for _ in vectors.texts_for_batch(index, target.id, MAX_ROWS))) >= fewest:
        is_full = sum(each.is_unfinished for each in batches.open_batches(index)) >= settings.concurrency
        if is_full or not (is_read or count == MAX_ROWS):
            return True
        # Where this one is a probe, the others do not wait for it.
        if not _make(accounts, budget, target, now, is_probe=state.paused) or state.paused:
            return False
    return not is_read


def _make(accounts: Accounts, budget: Budget, target: IdentityRow, now: float, *, is_probe: bool) -> bool:
    """Write down the intent of a batch with its texts, and count what it costs; False when none may be made.

    A process that dies between the two leaves it counted for good, never the other way round.
    """
    index, provider = accounts.index, target.identity.provider
    charge = Charge(identity=target.identity, account=accounts.of(provider), mode=BATCH)
    with transaction(index):
        left, _ = budget.left(charge, now)
        ids, total, size = list[int](), 0, 0
        for row_id, tokens in vectors.texts_for_batch(index, target.id, MAX_ROWS):
            size += tokens * BYTES_PER_TOKEN + BYTES_PER_ROW
            if total + tokens > left or (size > MAX_BYTES and ids):
                break
            total += tokens
            ids.append(row_id)
        if not ids or (is_probe and not health.take_probe(accounts, provider, BATCH, now, now + LONGEST_S)):
            return False
        if budget.take(charge, total, now):
            return False
        token = uuid.uuid4().hex
        index.execute(
            "INSERT INTO batches (token, identity_id, state, rows, tokens, created_at, due)"
            " VALUES (?, ?, 'intent', ?, ?, ?, ?)",
            (token, target.id, vectors.lease_texts(index, token, ids), total, now, now),
        )
    return True


def waiting(
    connection: Connection, identity_id: int, settings: BatchSettings, *, since: float
) -> tuple[int, bool]:
    """Count the texts of an identity that a command may leave to batches, open ones and the next.

    Also tell whether a batch is on its way to its provider or is being stored: a matter of moments. `since`:
    when the command began.
    """
    ours = [batch for batch in batches.open_batches(connection) if batch.identity_id == identity_id]
    resting = [
        batch
        for batch in ours
        if batch.action or (batch.state == "submitted" and max(batch.submitted_at, batch.polled_at) >= since)
    ]
    is_busy = len(resting) < len(ours)
    if settings.wait and not any(batch.action for batch in ours):
        return 0, is_busy
    texts = sum(batches.texts_left(connection, batch.token, needed=True) for batch in resting)
    if sum(batch.is_unfinished for batch in ours) >= settings.concurrency:
        count = sum(1 for _ in vectors.texts_for_batch(connection, identity_id, 2**62))
        texts += count if count >= settings.min_texts else 0
    return texts, is_busy
