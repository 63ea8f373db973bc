"""The change of the model: the new identity is built beside the old one, and search switches at the end.

While the target is being built the active identity is searched as it is. Every step is a short transaction,
and each may be repeated: a crash anywhere leaves a usable index, and the next start goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.embedders.protocol import Identity
from shared.index import batch_settle, health, identity, meta, vectors
from shared.index.driver import transaction
from shared.index.identity import IdentityRow
from shared.index.vec import VecTables
from shared.sources.tokens import estimate_tokens

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Rows a transaction of background work touches at most, so that a live edit never waits long.
SLICE_ROWS = 200

#: Share of the texts that may have failed under a new model for search to change over to it all the same.
MAX_FAILED_SHARE = 0.05


def retarget(
    connection: Connection,
    vec: VecTables,
    wanted: Identity | None,
    base_url: str,
    now: float,
    secrets_mark: str = "",
) -> None:
    """Embed texts with `wanted` from now on (None: with nothing); nothing happens when it is so already."""
    with transaction(connection):
        if wanted is None:
            meta.put(connection, meta.TARGET, None)
            return
        row = identity.ensure(connection, wanted, base_url, now)
        known: dict[str, str] = meta.get(connection, meta.HEALTH_OF, {})
        now_known = f"{wanted.key} {secrets_mark}".strip()
        if known.get(wanted.provider) != now_known:
            if wanted.provider in known:
                # Trouble and caps are those of a model behind an address, and of a key: others begin anew.
                health.forget(connection, wanted.provider)
            meta.put(connection, meta.HEALTH_OF, {**known, wanted.provider: now_known})
        meta.put(connection, meta.TARGET, row.id)
        meta.put(connection, meta.FALLBACK, None)
        active = identity.active(connection)
        if active is None or not vectors.backlog(connection, active.id).ready:
            # Nothing to blind: the first vectors are searched as they come.
            meta.put(connection, meta.ACTIVE, row.id)
    # Also after a crash half-way through, and after a time without any provider.
    if _is_any_text_missing(connection, row.id):
        _want_all(connection, vec, row, now)
    switch_when_complete(connection, vec)


def switch_when_complete(connection: Connection, vec: VecTables) -> bool:
    """Search the target from now on, once nothing of it is pending; returns whether it switched.

    Not when many of its texts failed: then the old vectors find more. A few never hold up the rest.
    """
    if not _is_complete(connection):
        return False
    with transaction(connection):
        # Again, now that nobody else can write: another process may have changed its mind meanwhile.
        if not _is_complete(connection):
            return False
        target = identity.target(connection)
        active = identity.active(connection)
        assert target is not None
        meta.put(connection, meta.ACTIVE, target.id)
        if active is not None:
            vec.drop(active.id)
        meta.bump(connection)
    return True


def _is_complete(connection: Connection) -> bool:
    target = identity.target(connection)
    active = identity.active(connection)
    if target is None or (active is not None and active.id == target.id):
        return False
    if vectors.is_pending(connection, target.id) or _is_any_text_missing(connection, target.id):
        return False
    new = vectors.backlog(connection, target.id)
    old = vectors.backlog(connection, active.id) if active else new
    return new.failed <= MAX_FAILED_SHARE * (new.failed + new.ready) or new.ready >= old.ready


def rest_retired(connection: Connection) -> None:
    """Vectors of identities that are neither searched nor built rest in the cache, in slices.

    So do those that are still out, when they come.
    """
    # Asked again in every statement: another process may take an identity up again at any time.
    retired = (
        "identity_id NOT IN (SELECT CAST(value AS INTEGER) FROM meta WHERE key IN (?, ?))"
        # A provider and its fallback may take turns: what was paid for at either is not dropped meanwhile.
        " AND identity_id NOT IN (SELECT json_each.value FROM meta, json_each(meta.value) WHERE meta.key = ?)"
        " AND live = 1"
    )
    kept = (meta.ACTIVE, meta.TARGET, meta.FALLBACK_PAIR)
    while True:
        some = connection.execute(f"SELECT id FROM vectors WHERE {retired} LIMIT 1", kept).fetchone()
        if some is None:
            return
        with transaction(connection):
            connection.execute(
                "UPDATE vectors SET live = 0 WHERE id IN"
                f" (SELECT id FROM vectors WHERE {retired} AND state IN ('ready', 'leased') LIMIT ?)",
                (*kept, SLICE_ROWS),
            )
            connection.execute(
                "DELETE FROM vectors WHERE id IN"
                f" (SELECT id FROM vectors WHERE {retired} AND state IN ('wanted', 'failed') LIMIT ?)",
                (*kept, SLICE_ROWS),
            )


def forget_vectors(connection: Connection, vec: VecTables, now: float) -> None:
    """Drop every vector of the target, so that all texts are embedded and paid for again."""
    target = identity.target(connection)
    if target is None:
        return
    # What they would bring are vectors of the kind that is dropped.
    batch_settle.cancel_of(connection, target.id, reason="all vectors are made anew", now=now)
    with transaction(connection):
        vec.drop(target.id)
        connection.execute("DELETE FROM vectors WHERE identity_id = ?", (target.id,))
        connection.execute("DELETE FROM leases WHERE identity_id = ?", (target.id,))
        connection.execute("UPDATE identities SET vector_dims = 0 WHERE id = ?", (target.id,))
        meta.bump(connection)
    _want_all(connection, vec, replace(target, vector_dims=0), now)


def _want_all(connection: Connection, vec: VecTables, row: IdentityRow, now: float) -> None:
    """Every text that a chunk has is wanted of this identity; what is cached is taken."""
    last = 0
    while True:
        with transaction(connection):
            rows = connection.execute(
                "SELECT id, text_hash, text FROM chunks WHERE id > ? ORDER BY id LIMIT ?", (last, SLICE_ROWS)
            ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            texts = {digest: estimate_tokens(text) for _, digest, text in rows}
            vectors.want(connection, vec, row, texts, backfill=True, now=now)
            meta.bump(connection)


def _is_any_text_missing(connection: Connection, identity_id: int) -> bool:
    """Whether some chunk's text has no live row for the identity."""
    row = connection.execute(
        "SELECT 1 FROM chunks WHERE NOT EXISTS (SELECT 1 FROM vectors"
        " WHERE identity_id = ? AND vectors.text_hash = chunks.text_hash AND live = 1) LIMIT 1",
        (identity_id,),
    ).fetchone()
    return row is not None
