"""Lease wanted vectors and pack them into requests, one provider request a lease.

A lease is a deadline: the right to send some texts until a time. The process that holds the lock of an index
(`shared.index.hold`) leases its texts. A worker begins no call that cannot end before the deadline, and the
texts of a lease that is over are wanted again. A vector that is stored is never leased again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable
from sqlite3 import Connection

import msgspec
from msgspec.structs import replace

from memline.shared.embedders.protocol import Identity
from memline.shared.index import vectors
from memline.shared.index.accounts import Accounts
from memline.shared.index.driver import scalar, transaction
from memline.shared.index.identities import IdentityRow
from memline.shared.index.rows import TextRow
from memline.shared.index.vectors import BACKFILL, CANCELLED, LIVE_EDIT
from memline.shared.providers import RequestCaps
from memline.shared.scheduling import health
from memline.shared.scheduling.budget import Budget, Charge, Refusal, day_of

#: Seconds of a lease at least.
LEASE_S = 300.0

#: Seconds of a lease for what is not the provider's: waits for a place within limits, the way of messages.
MARGIN_S = 60.0

#: Seconds before its deadline at which a lease is over for a worker: the clocks of two hosts may differ.
CLOCKS_S = 30.0


#: Counts the tokens of a lease before it is made; False when a limit of the day would be passed.
Reserve = Callable[[int], bool]


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

    A request lasts two such times at most (`shared.embedders.request`), and waits for one other before it in
    its worker (`shared.queue.in_flight.PER_THREAD`).
    """
    return max(LEASE_S, 4 * timeout_s + MARGIN_S)


def may_call(left_s: float, timeout_s: float) -> bool:
    """Tell whether a call that may take `timeout_s` ends within a lease that lasts for `left_s` more."""
    return left_s - CLOCKS_S >= timeout_s


def lease(
    connection: Connection,
    identity: IdentityRow,
    caps: RequestCaps,
    now: float,
    until: float,
    *,
    credits: int,
    only_full: bool,
    held: Collection[int],
    reserve: Reserve = lambda _: True,
) -> list[Request]:
    """Lease as many requests as `credits` allow; live edits first, then the jobs, the oldest first.

    `credits` bounds the requests in flight over all processes, so the queue of work stays in the rows and
    a live edit waits behind seconds of work, not hours. With `only_full`, texts that would make a small
    request wait while another request is in flight (Nagle's rule): more texts may join them meanwhile.
    `held`: priorities whose texts wait for a batch (`shared.batches.plan`), but for those that a batch
    could not embed. `reserve`: counts what a request costs before it is leased.
    """
    requests: list[Request] = []
    while True:
        with transaction(connection):
            in_flight = _in_flight(connection, identity.id)
            if in_flight >= credits:
                return requests
            ids, row_tokens, is_full = _next_rows(connection, identity.id, caps, now, held)
            if not ids or (only_full and not is_full and in_flight):
                return requests
            if not reserve(row_tokens):
                return requests
            token = uuid.uuid4().hex
            texts = _mark_leased(connection, ids, token)
            requests.append(_open_lease(connection, identity, texts, token, now, until, row_tokens))


def lease_within(
    budget: Budget,
    accounts: Accounts,
    target: IdentityRow,
    caps: RequestCaps,
    now: float,
    until: float,
    *,
    credits: int,
    only_full: bool,
    held: Collection[int],
) -> list[Request]:
    """Lease what the health of the provider and the budget let go: a probe alone, or as `lease` does."""
    provider = target.identity.provider
    state = health.read(accounts, provider)
    if state.manual or state.wait_s(now):
        return []
    caps = replace(
        caps,
        max_rows=1 if state.paused else health.tighter(caps.max_rows, state.max_rows),
        max_tokens=health.tighter(caps.max_tokens, state.max_tokens),
    )
    # After a failure one request goes ahead of the others, not all of them into the same wall. A server that
    # is slow with a single text gets one at a time.
    is_single = state.paused or state.failures > 0
    if is_single or state.limited_rows or state.max_rows == 1:
        credits = min(credits, 1)
    charge = Charge(identity=target.identity, account=accounts.of(provider))
    requests: list[Request] = []
    is_refused = False

    def reserve(tokens: int) -> bool:
        nonlocal is_refused
        if state.paused and not health.take_probe(accounts, provider, health.REQUESTS, now, until):
            return False
        is_refused = isinstance(budget.take(charge, tokens, now), Refusal)
        return not is_refused

    while True:
        # What the limits leave may be less than a request: then it is as large as that.
        left = budget.left(charge, now)
        if isinstance(left, Refusal):
            return requests
        more = lease(
            accounts.index,
            target,
            replace(caps, max_tokens=max(1, int(min(caps.max_tokens, left)))),
            now,
            until,
            credits=credits,
            only_full=only_full,
            held=() if state.paused else held,
            reserve=reserve,
        )
        requests += [replace(each, is_probe=is_single) for each in more]
        if not more or not is_refused:
            return requests


def tokens(connection: Connection) -> list[str]:
    """Return the tokens of the leases: requests sent and not answered yet."""
    return [token for (token,) in connection.execute("SELECT token FROM leases ORDER BY token")]


def settle(connection: Connection, token: str) -> tuple[int, str] | None:
    """Return once, for the first answer of a lease, its (tokens, day) as counted; else None."""
    row: tuple[int, str] | None = connection.execute(
        "SELECT tokens, day FROM leases WHERE token = ? AND day <> ''", (token,)
    ).fetchone()
    if row:
        connection.execute("UPDATE leases SET day = '' WHERE token = ?", (token,))
    return row


def close_lease(connection: Connection, token: str) -> None:
    """End a lease that no row holds any more, inside the caller's transaction."""
    connection.execute(
        "DELETE FROM leases WHERE token = ? AND NOT EXISTS (SELECT 1 FROM vectors"
        " WHERE lease = leases.token)",
        (token,),
    )


def end(connection: Connection, tokens: Iterable[str]) -> None:
    """End these leases inside the caller's transaction; their texts are wanted again."""
    connection.executemany("DELETE FROM leases WHERE token = ?", ((token,) for token in tokens))
    _free_texts(connection)


def end_overdue(connection: Connection, now: float, longest_s: float) -> list[str]:
    """End the leases whose deadline is over inside the caller's transaction; return their tokens.

    A deadline further ahead than the longest lease was written before the clock was set back.
    """
    change = "DELETE FROM leases WHERE until <= ? OR until > ? RETURNING token"
    over = [token for (token,) in connection.execute(change, (now, now + longest_s + MARGIN_S))]
    _free_texts(connection)
    return over


def _free_texts(connection: Connection) -> None:
    freed = connection.execute(_TOKENS_WITHOUT_LEASE).fetchall()
    connection.executemany("UPDATE vectors SET state = 'wanted', lease = NULL WHERE lease = ?", freed)
    if freed:
        vectors.drop_unneeded(connection)


#: Tokens that rows hold and that name neither a lease nor an open batch. From token to token through the
#: index: an open batch holds tens of thousands of rows, and this is asked every few seconds.
_TOKENS_WITHOUT_LEASE = """
WITH RECURSIVE held (token) AS (
    SELECT min(lease) FROM vectors WHERE lease IS NOT NULL
    UNION ALL
    SELECT (SELECT min(lease) FROM vectors WHERE lease > held.token) FROM held WHERE held.token IS NOT NULL
)
SELECT token FROM held WHERE token IS NOT NULL
    AND token NOT IN (SELECT token FROM leases)
    AND token NOT IN (SELECT token FROM batches WHERE state <> 'closed')
"""


def _next_rows(
    connection: Connection, identity_id: int, caps: RequestCaps, now: float, held: Collection[int]
) -> tuple[list[int], int, bool]:
    """Select the rows of the next request; also their tokens, and whether it is as large as may be."""
    # Each priority by itself, and by the index of later attempts (the +): SQLite would walk over
    # all texts that wait for a batch. The second condition on the state lets it use the partial indexes.
    parts = [f"attempts > 0 AND +state = 'wanted' AND priority < {CANCELLED}"]
    for priority in {LIVE_EDIT, BACKFILL}.difference(held):
        parts.append(f"attempts = 0 AND state = 'wanted' AND priority = {priority}")
    rows: list[tuple[int, int, int, int]] = []
    for part in parts:
        rows += connection.execute(
            "SELECT priority, job, id, tokens FROM vectors"
            f" WHERE identity_id = ? AND state <> 'ready' AND {part}"
            " AND due <= ? ORDER BY priority, job, id LIMIT ?",
            (identity_id, now, caps.max_rows),
        )
    ids: list[int] = []
    tokens = 0
    for _, _, row_id, row_tokens in sorted(rows)[: caps.max_rows]:
        if ids and tokens + row_tokens > caps.max_tokens:
            return ids, tokens, True
        ids.append(row_id)
        tokens += row_tokens
    return ids, tokens, len(ids) >= caps.max_rows


def _mark_leased(connection: Connection, ids: list[int], token: str) -> list[TextRow]:
    numbers = json.dumps(ids)
    connection.execute(
        "UPDATE vectors SET state = 'leased', lease = ? WHERE id IN (SELECT value FROM json_each(?))",
        (token, numbers),
    )
    rows = connection.execute(
        "SELECT text_hash, (SELECT text FROM chunks WHERE chunks.text_hash = vectors.text_hash LIMIT 1)"
        " FROM json_each(?) AS each JOIN vectors ON vectors.id = each.value ORDER BY each.key",
        (numbers,),
    )
    return [TextRow(hash=digest, text=text) for digest, text in rows]


def _open_lease(
    connection: Connection,
    identity: IdentityRow,
    texts: list[TextRow],
    token: str,
    now: float,
    until: float,
    row_tokens: int,
) -> Request:
    connection.execute(
        "INSERT INTO leases (token, identity_id, tokens, day, until) VALUES (?, ?, ?, ?, ?)",
        (token, identity.id, row_tokens, day_of(now), until),
    )
    return Request(lease=token, identity=identity.identity, texts=tuple(texts), until=until)


def _in_flight(connection: Connection, identity_id: int) -> int:
    return int(scalar(connection, "SELECT count(*) FROM leases WHERE identity_id = ?", identity_id))
