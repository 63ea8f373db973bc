"""Keep the token vectors of texts beside their vectors, reduced to axes that fit the first tokens of a model.

Until then rows keep all their dimensions; a search reduces what it reads, so that both kinds answer alike.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from sqlite3 import Connection
from typing import Any

from memline.shared.index.driver import json_ids, scalar, transaction

#: Tokens that the axes are fitted to: 28 notes of a page each. 15,000 measured alike.
FIT_TOKENS = 4_000


def _token_vectors() -> Any:
    # Imports numpy, 110 ms, for the texts of local models alone.
    from memline.shared.embedders import token_vectors

    return token_vectors


def store(connection: Connection, identity_id: int, rows: Sequence[tuple[int, bytes]]) -> None:
    """Store (vectors.id, packed tokens), inside the caller's transaction."""
    if rows and (fitted := projection(connection, identity_id)):
        project = _token_vectors().project
        rows = [(vector_id, project(tokens, fitted)) for vector_id, tokens in rows]
    connection.executemany(
        "INSERT OR REPLACE INTO token_vectors (vector_id, identity_id, tokens) VALUES (?, ?, ?)",
        ((vector_id, identity_id, tokens) for vector_id, tokens in rows),
    )


def set_projection(connection: Connection, identity_id: int, fitted: bytes) -> None:
    """Set what the tokens of an identity are reduced with, inside the caller's transaction.

    The first one counts: rows of two could not be compared.
    """
    change = "UPDATE identities SET projection = ? WHERE id = ? AND projection IS NULL"
    connection.execute(change, (fitted, identity_id))


def projection(connection: Connection, identity_id: int) -> bytes:
    """Return the projection of an identity's tokens; empty while none is fitted."""
    return scalar(connection, "SELECT projection FROM identities WHERE id = ?", identity_id) or b""


def read(connection: Connection, vector_ids: Collection[int]) -> dict[int, bytes]:
    """Return vectors.id -> packed tokens, for those of `vector_ids` that have token vectors."""
    given = "WHERE vector_id IN (SELECT value FROM json_each(?))"
    query = f"SELECT vector_id, tokens FROM token_vectors {given}"
    return dict(connection.execute(query, (json_ids(vector_ids),)))


def fit(connection: Connection, identity_id: int) -> None:
    """Fit the axes once there are tokens enough; those that came before keep all their dimensions."""
    if projection(connection, identity_id):
        return
    query = "SELECT tokens FROM token_vectors WHERE identity_id = ? ORDER BY vector_id"
    rows = [tokens for (tokens,) in connection.execute(query, (identity_id,))]
    dims = int.from_bytes(rows[0][:2], "little") if rows else 0
    if not rows or sum(map(len, rows)) < FIT_TOKENS * (dims + 2):
        return
    first = []
    for tokens in rows:
        first.append(_token_vectors().unpack(tokens)[1])
        if sum(map(len, first)) >= FIT_TOKENS:
            break
    with transaction(connection):
        set_projection(connection, identity_id, _token_vectors().fit(first))
