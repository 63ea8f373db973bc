"""Lease wanted vectors, one provider request a lease, and store what came of it.

A lease is the right to send some texts until a time. A worker begins no call that cannot end before it, and
the texts of a lease that is over are wanted again. A vector that is stored is never leased again.
"""

from __future__ import annotations

import math
import uuid
from collections import Counter
from sqlite3 import Connection

import msgspec
from msgspec.structs import replace

from memline.shared.embedders.protocol import Identity
from memline.shared.index import batches, identities, meta, vectors
from memline.shared.index.accounts import Accounts
from memline.shared.index.driver import json_ids, scalar, transaction
from memline.shared.index.identities import IdentityRow
from memline.shared.index.rows import TextRow, VectorRow
from memline.shared.index.vectors import TEXT_ATTEMPTS
from memline.shared.providers import PROVIDERS, RequestCaps
from memline.shared.scheduling import health, jobs
from memline.shared.scheduling.budget import Budget, Charge, day_of
from memline.shared.scheduling.health import Failure, Health

#: Seconds of a lease at least.
LEASE_S = 300.0

#: Seconds of a lease for what is not the provider's: waits for a place within limits, the way of messages.
MARGIN_S = 60.0

#: Seconds before its deadline at which a lease is over for a worker: the clocks of two hosts may differ.
CLOCKS_S = 30.0

_MODEL_CHANGED = "if the server changed its model: memline index --re-embed"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Texts leased together: the content of one `EmbedTexts` message."""

    lease: str
    identity: Identity
    texts: tuple[TextRow, ...]
    #: When it ends (seconds since the epoch).
    until: float
    #: Whether it goes alone to a provider that has failed, to show if it works again.
    is_probe: bool = False


def lease_s(timeout_s: float) -> float:
    """Return the seconds a lease holds when a call of the provider may take `timeout_s`.

    A request lasts two such times at most, and waits for one other before it in its worker.
    """
    return max(LEASE_S, 4 * timeout_s + MARGIN_S)


def may_call(left_s: float, timeout_s: float) -> bool:
    """Tell whether a call that may take `timeout_s` ends within a lease that lasts for `left_s` more."""
    return left_s - CLOCKS_S >= timeout_s


def lease(
    accounts: Accounts,
    budget: Budget,
    target: IdentityRow,
    caps: RequestCaps,
    now: float,
    until: float,
    *,
    credits: int,
    only_full: bool,
    for_batch: bool,
) -> list[Request]:
    """Lease as many requests as `credits`, the health of the provider and the limits of the day allow.

    `credits` bounds the requests in flight over all processes, so a live edit waits behind seconds of work,
    not hours. With `only_full`, texts that would make a small request wait while another is in flight
    (Nagle's rule): more may join them meanwhile. `for_batch`: whether texts of jobs that were never tried
    wait for a batch (`shared.batches.plan`).
    """
    provider, connection, requests = target.identity.provider, accounts.index, list[Request]()
    with transaction(connection):
        state = health.read(accounts, provider)
        if state.manual or state.wait_s(now):
            return []
        caps = replace(caps, max_rows=1 if state.paused else health.tighter(caps.max_rows, state.max_rows))
        # After a failure one request goes ahead of the others, not all of them into the same wall. A server
        # that is slow with a single text gets one at a time.
        is_single = state.paused or state.failures > 0
        if is_single or state.max_rows == 1:
            credits = min(credits, 1)
        charge = Charge(identity=target.identity, account=accounts.of(provider))
        in_flight = scalar(connection, "SELECT count(*) FROM leases WHERE identity_id = ?", target.id)
        while in_flight + len(requests) < credits:
            # What the limits leave may be less than a request: then it is as large as that.
            left, _ = budget.left(charge, now)
            room = replace(caps, max_tokens=max(1, int(min(caps.max_tokens, left))))
            rows = vectors.next_texts(connection, target.id, caps.max_rows, now, for_batch=for_batch)
            rows, is_full = _packed(rows, room)
            size = sum(each for _, each in rows)
            if not rows or size > left or (only_full and not is_full and (in_flight or requests)):
                break
            # After the limit of the day: a probe that is not sent would be waited for.
            if state.paused and not health.take_probe(accounts, provider, health.REQUESTS, now, until):
                break
            if budget.take(charge, size, now):
                break
            token, ids = uuid.uuid4().hex, [row_id for row_id, _ in rows]
            connection.execute(
                "INSERT INTO leases (token, identity_id, tokens, day, until) VALUES (?, ?, ?, ?, ?)",
                (token, target.id, size, day_of(now), until),
            )
            vectors.lease_texts(connection, token, ids)
            texts = connection.execute(_TEXTS, (json_ids(ids),))
            rows_of = tuple(TextRow(hash=digest, text=text) for digest, text in texts)
            identity = target.identity
            requests.append(
                Request(lease=token, identity=identity, texts=rows_of, until=until, is_probe=is_single)
            )
    return requests


_TEXTS = """
SELECT text_hash, (SELECT text FROM chunks WHERE chunks.text_hash = vectors.text_hash LIMIT 1)
FROM json_each(?) AS each JOIN vectors ON vectors.id = each.value ORDER BY each.key
"""


def _packed(rows: list[tuple[int, int]], caps: RequestCaps) -> tuple[list[tuple[int, int]], bool]:
    """Cut (id, tokens) down to one request; also tell whether it is as large as may be."""
    tokens = 0
    for place, (_, size) in enumerate(rows):
        tokens += size
        if place and tokens > caps.max_tokens:
            return rows[:place], True
    return rows, len(rows) >= caps.max_rows


def tokens(connection: Connection) -> list[str]:
    """Return the tokens of the leases: requests sent and not answered yet."""
    return [token for (token,) in connection.execute("SELECT token FROM leases ORDER BY token")]


def end_overdue(connection: Connection, now: float = math.inf) -> list[str]:
    """End the leases whose deadline is over, by default all, inside the caller's transaction.

    Their texts are wanted again; returns their tokens.
    """
    over = connection.execute("SELECT token FROM leases WHERE until <= ?", (now,)).fetchall()
    connection.executemany("DELETE FROM leases WHERE token = ?", over)
    connection.executemany(_FREE, over)
    return [token for (token,) in over]


_FREE = "UPDATE vectors SET state = 'wanted', lease = NULL WHERE lease = ?"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request: the content of one `StoreVectors` message."""

    identity: Identity
    lease: str = ""
    vectors: tuple[VectorRow, ...] = ()
    #: Texts without a vector, and why.
    failures: tuple[Failure, ...] = ()
    #: Texts of the largest request that may come next, as far as this one taught it; 0 is nothing.
    learned: int = 0
    #: Tokens and calls that were perhaps paid for; None: what was counted stays as it is.
    used_tokens: int | None = None
    paid_calls: int = 0


def store_answer(accounts: Accounts, answer: Answer, now: float, budget: Budget | None = None) -> str:
    """Store the vectors of a request, and why its other texts got none; returns why vectors were refused.

    Vectors of other dimensions than those before are refused as a broken answer: the server changed its
    model behind the same name, and mixing the two would spoil every search. The first answer ends the lease,
    so it corrects once what the lease was counted with.
    """
    identity, lease, failures = answer.identity, answer.lease, answer.failures
    connection, words = accounts.index, ""
    with transaction(connection):
        # Of a batch single rows may be spoilt.
        sizes = Counter(len(each.vector) // 4 for each in answer.vectors)
        usual = max(sizes, key=sizes.__getitem__, default=0)
        row = identities.ensure(connection, identity, vector_dims=usual)
        good = [each for each in answer.vectors if len(each.vector) == 4 * row.vector_dims]
        if odd := [each for each in answer.vectors if len(each.vector) != 4 * row.vector_dims]:
            words = f"{len(odd[0].vector) // 4} dimensions came, the index has {row.vector_dims}"
            # Of whichever request: a probe that is answered so must not be waited for until its lease ends.
            refused = Failure(
                hashes=tuple(each.hash for each in odd),
                kind="broken",
                error=words,
                action=_MODEL_CHANGED,
                is_probe=True,
                no_results=not good,
            )
            failures = (*failures, refused)
        # Not one that comes twice, or after its deadline: the provider may have worked since.
        held = [each for each in failures if _take_back(connection, row, lease, each, now)]
        done = vectors.store(connection, row, good, now)
        stored = done.total() - done[vectors.UNWANTED]
        # The result of a batch says nothing about requests.
        is_batch = batches.count(connection, lease, stored=stored)
        jobs.add_done(connection, done)
        query = "DELETE FROM leases WHERE token = ? RETURNING tokens, day"
        if counted := connection.execute(query, (lease,)).fetchone():
            connection.execute(_FREE, (lease,))

        def change(was: Health) -> Health:
            after = health.learned(was, answer.learned)
            for failure in held:
                counts_texts = PROVIDERS[identity.provider].counts_texts
                rules = health.REQUEST_RULES
                after = health.after_failure(after, failure, now, rules=rules, counts_texts=counts_texts)
            return health.worked(after, len(good)) if good else after

        if not is_batch:
            health.update(accounts, identity.provider, health.REQUESTS, change)
        if stored:
            meta.count_embedded(connection, stored, now)
    if counted and budget and answer.used_tokens is not None:
        tokens, day = counted
        charge = Charge(identity=identity, account=accounts.of(identity.provider))
        budget.correct(charge, day, answer.used_tokens - tokens, answer.paid_calls - 1)
    return words


def _take_back(connection: Connection, row: IdentityRow, lease: str, failure: Failure, now: float) -> bool:
    """Defer texts, or mark them failed, by the kind of the failure; tell whether the lease held any."""
    # Where no attempt is counted, the health of the provider is what keeps them back.
    attempts = {"broken": 1, "refused": TEXT_ATTEMPTS, "too_big": TEXT_ATTEMPTS}.get(failure.kind, 0)
    has_action = failure.kind == "broken" and failure.action
    reason = f"{failure.error}; {failure.action}" if has_action else failure.error
    return vectors.take_back(connection, row.id, lease, failure.hashes, reason, now, attempts=attempts)
