"""Identities as rows, and the change of the model: build the new one beside the old one, then switch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.embedders.protocol import Identity
from shared.index import meta
from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection


@value
class IdentityRow:
    """An identity this index has vectors of, or wants vectors of."""

    id: int
    identity: Identity
    #: Base address it was reached at; to embed questions for it while another model is being built.
    base_url: str
    #: Dimensions of its vectors; 0 until the first has come.
    vector_dims: int


_COLUMNS = "id, provider, model, endpoint, dims, scheme, base_url, vector_dims"


def ensure(connection: Connection, identity: Identity, base_url: str, now: float) -> IdentityRow:
    """The row of `identity`, made when it is new, inside the caller's transaction."""
    row = connection.execute(
        f"INSERT INTO identities (key, provider, model, endpoint, dims, scheme, base_url, created_at)"
        f" VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        f" ON CONFLICT (key) DO UPDATE SET base_url = excluded.base_url RETURNING {_COLUMNS}",
        (
            identity.key,
            identity.provider,
            identity.model,
            identity.endpoint,
            identity.dims,
            identity.scheme,
            base_url,
            now,
        ),
    ).fetchone()
    return _row(row)


def by_key(connection: Connection, key: str) -> IdentityRow | None:
    """The row of the identity with this key, if the index knows it."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM identities WHERE key = ?", (key,)).fetchone()
    return _row(row) if row else None


def by_id(connection: Connection, row_id: int) -> IdentityRow | None:
    """The row of an identity by its number."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM identities WHERE id = ?", (row_id,)).fetchone()
    return _row(row) if row else None


def active(connection: Connection) -> IdentityRow | None:
    """The identity that is searched; None while there are no vectors."""
    return _by_meta(connection, meta.ACTIVE)


def target(connection: Connection) -> IdentityRow | None:
    """The identity that texts are embedded with; None without a provider."""
    return _by_meta(connection, meta.TARGET)


def _by_meta(connection: Connection, key: str) -> IdentityRow | None:
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM identities"
        " WHERE id = (SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?)",
        (key,),
    ).fetchone()
    return _row(row) if row else None


def _row(row: tuple[int, str, str, str, int, str, str, int]) -> IdentityRow:
    row_id, provider, model, endpoint, dims, scheme, base_url, vector_dims = row
    return IdentityRow(
        id=row_id,
        identity=Identity(provider=provider, model=model, endpoint=endpoint, dims=dims, scheme=scheme),
        base_url=base_url,
        vector_dims=vector_dims,
    )
