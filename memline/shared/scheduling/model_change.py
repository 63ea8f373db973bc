"""Change the model of an index: build the vectors of the new one next to the old, then switch search.

Every step is a short transaction that may be repeated: a crash anywhere leaves a usable index, and the next
start goes on. A fallback is such a change. It takes over when the primary fails for good, until a dispatcher
starts after the rest of the primary's breaker, or an operator asks (`memline index`, `memline queue resume`).
The vectors of both are kept, so no text is paid for twice.
"""

from __future__ import annotations

from sqlite3 import Connection
from typing import Any

from msgspec.structs import replace

from memline.shared.embedders.choice import NONE, Choice
from memline.shared.embedders.protocol import Identity
from memline.shared.index import batches, identities, meta, vectors
from memline.shared.index.accounts import Accounts
from memline.shared.index.driver import json_ids, scalar, transaction
from memline.shared.index.identities import IdentityRow
from memline.shared.index.vectors import SLICE_ROWS
from memline.shared.scheduling import health, jobs
from memline.shared.sources.tokens import estimate_tokens

#: Share of the texts that may have failed under a new model for search to switch to it all the same.
MAX_FAILED_SHARE = 0.05


def start(accounts: Accounts, primary: Choice, fallback: Choice | None, now: float) -> None:
    """Embed with the primary from this start on, or with its fallback while the primary rests."""
    is_away = is_target(accounts.index, fallback)
    if is_away and fallback and health.read(accounts, primary.provider).is_stuck(now):
        # Again: a process may have been killed before it wanted all texts of the fallback.
        use(accounts, fallback, now, stands_in_for=primary)
    elif is_away:
        switch_back(accounts, primary, now)
    else:
        use(accounts, primary, now)
        switch_if_needed(accounts, primary, fallback, now)


def switch_if_needed(accounts: Accounts, primary: Choice, fallback: Choice | None, now: float) -> None:
    """Change over to the fallback when the primary fails for good."""
    if fallback is None or not is_target(accounts.index, primary):
        return
    if health.read(accounts, primary.provider).has_given_up:
        use(accounts, fallback, now, stands_in_for=primary)


def is_target(connection: Connection, choice: Choice | None) -> bool:
    """Tell whether texts are embedded with the provider that was chosen."""
    target, identity = identities.target(connection), choice.identity if choice else None
    return target is not None and identity is not None and target.identity.key == identity.key


def switch_back(accounts: Accounts, primary: Choice, now: float) -> None:
    """Embed with the primary again and put it on trial, whatever that costs."""
    use(accounts, primary, now)
    if primary.identity is not None:
        health.resume(accounts, primary.identity.provider)


def use(accounts: Accounts, choice: Choice, now: float, *, stands_in_for: Choice | None = None) -> None:
    """Embed with the provider that was chosen from now on; a call that changes nothing is cheap.

    `stands_in_for`: another one that stopped. A process that merely lacks a key changes nothing for those
    that have it: its texts wait.
    """
    connection, wanted = accounts.index, choice.identity
    if wanted is None:
        if choice.requested == NONE:
            with transaction(connection):
                meta.put(connection, meta.TARGET, None)
        return
    with transaction(connection):
        before = identities.target(connection)
        row = identities.ensure(connection, wanted, base_url=choice.base_url)
        owners = meta.get(connection, meta.HEALTH_OF, {})
        owners[wanted.provider] = (wanted.model, choice.mark)
        meta.put(connection, meta.HEALTH_OF, owners)
        meta.put(connection, meta.TARGET, row.id)
        meta.put(connection, meta.FALLBACK, stands_in_for and _stopped(accounts, stands_in_for))
        active = identities.active(connection)
        if active is None or not vectors.backlog(connection, active.id).ready:
            # Nothing to blind: the first vectors are searched as they come.
            meta.put(connection, meta.ACTIVE, row.id)
        if before and _is_repaired(before.identity, wanted):
            health.resume(accounts, wanted.provider)
    # Also after a crash half-way through, and after a time without any provider.
    if is_any_text_missing(connection, row.id):
        _want_all(connection, row, jobs.MODEL, now)
    switch_when_complete(connection)


def _is_repaired(before: Identity, now: Identity) -> bool:
    """Tell whether the same model is asked in another way, as with a number of dimensions that it has."""
    return (before.provider, before.model) == (now.provider, now.model) and before.key != now.key


def _stopped(accounts: Accounts, primary: Choice) -> dict[str, Any]:
    """Say which provider stopped, and why; its vectors are kept (`cache_retired`)."""
    row = identities.by_key(accounts.index, primary.identity.key) if primary.identity else None
    reason = health.read(accounts, primary.provider).reason
    return {"from": primary.provider, "reason": reason, "identity": row.id if row else None}


def switch_when_complete(connection: Connection) -> None:
    """Search the target from now on, once nothing of it is pending.

    Not when many of its texts failed: then the old vectors find more. A few never delay the rest.
    """
    if meta.get(connection, meta.TARGET) == meta.get(connection, meta.ACTIVE):
        return
    with transaction(connection):
        target, active = identities.target(connection), identities.active(connection)
        if (
            target is None
            or vectors.is_pending(connection, target.id)
            or is_any_text_missing(connection, target.id)
        ):
            return
        new = vectors.backlog(connection, target.id)
        old = vectors.backlog(connection, active.id) if active else new
        if new.failed <= MAX_FAILED_SHARE * (new.failed + new.ready) or new.ready >= old.ready:
            meta.put(connection, meta.ACTIVE, target.id)


def cache_retired(connection: Connection, now: float) -> None:
    """Turn the vectors of identities that are neither searched nor built into cache, inside the
    caller's transaction.

    What is in flight becomes cache by a later sweep. A change to such a model is cancelled.
    """
    # That of a provider whose fallback embeds may come back.
    stopped = meta.get(connection, meta.FALLBACK) or {}
    kept = (meta.get(connection, meta.ACTIVE), meta.get(connection, meta.TARGET), stopped.get("identity"))
    known = connection.execute("SELECT id FROM identities").fetchall()
    retired = json_ids([row_id for (row_id,) in known if row_id not in kept])
    of_retired = "identity_id IN (SELECT value FROM json_each(?1))"
    # The rest goes with the next sweep: of a million the others would wait for too long.
    rows, some = f"SELECT id FROM vectors WHERE {of_retired} AND active = 1 AND state", 10 * SLICE_ROWS
    ready, unmade = f"{rows} = 'ready' LIMIT {some}", f"{rows} IN ('wanted', 'failed') LIMIT {some}"
    connection.execute(f"UPDATE vectors SET active = 0 WHERE id IN ({ready})", (retired,))
    connection.execute(f"DELETE FROM vectors WHERE id IN ({unmade})", (retired,))
    connection.execute(
        "UPDATE jobs SET state = 'cancelled', ended_at = ?2"
        f" WHERE kind = 'model' AND ended_at = 0 AND {of_retired}",
        (retired, now),
    )


def forget_vectors(connection: Connection, now: float) -> None:
    """Drop every vector of the target, so that all texts are embedded and paid for again."""
    target = identities.target(connection)
    if target is None:
        return
    # Their results are vectors of the kind that is dropped.
    for batch in batches.open_batches(connection):
        if batch.identity_id == target.id:
            batches.request_cancel(connection, batch.token, reason="all vectors are made again", now=now)
    with transaction(connection):
        connection.execute("DELETE FROM vectors WHERE identity_id = ?", (target.id,))
        connection.execute("DELETE FROM leases WHERE identity_id = ?", (target.id,))
        connection.execute("UPDATE identities SET vector_dims = 0, centre = NULL WHERE id = ?", (target.id,))
    _want_all(connection, replace(target, vector_dims=0), jobs.REINDEX, now)


def _want_all(connection: Connection, row: IdentityRow, kind: str, now: float) -> None:
    """Make every text of a chunk wanted for this identity, as a job; what is cached is used."""
    last = 0
    what = f"{row.identity.provider} {row.identity.model}".strip()
    job: jobs.Job | None = None
    while True:
        with transaction(connection):
            rows = connection.execute(
                "SELECT id, text_hash, text FROM chunks WHERE id > ? ORDER BY id LIMIT ?", (last, SLICE_ROWS)
            ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            texts = {digest: estimate_tokens(text) for _, digest, text in rows}
            if job is None:
                job = jobs.for_model(connection, what, row.id, kind=kind, now=now)
            # Between two slices it may have been paused, or seem done because all so far was cached.
            jobs.reopen(connection, job.id)
            vectors.want(connection, row, texts, job=job.id, now=now)


#: Two questions that indexes answer: whether a row is active stands in the row, with its embedding. As one
#: question it took 1 s for 219,000 texts, and 5.5 s from a cold disk; this takes .07 s.
_MISSING = """SELECT 1 FROM chunks WHERE NOT EXISTS (
    SELECT 1 FROM vectors WHERE identity_id = ?1 AND vectors.text_hash = chunks.text_hash)
UNION ALL SELECT 1 FROM vectors WHERE identity_id = ?1 AND active = 0 AND EXISTS (
    SELECT 1 FROM chunks WHERE chunks.text_hash = vectors.text_hash)
LIMIT 1"""


def is_any_text_missing(connection: Connection, identity_id: int) -> bool:
    """Tell whether some chunk's text has no active row for the identity."""
    return bool(scalar(connection, _MISSING, identity_id))
