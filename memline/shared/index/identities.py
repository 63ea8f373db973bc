"""Keep identities as rows: which vectors can be compared, which are searched and which are built."""

from __future__ import annotations

from sqlite3 import Connection

import msgspec
from msgspec.structs import asdict

from memline.shared.embedders.protocol import Identity
from memline.shared.index import meta


class IdentityRow(msgspec.Struct, frozen=True, kw_only=True):
    """An identity this index has vectors of, or wants vectors of."""

    id: int
    identity: Identity
    #: Base address it was reached at; to embed questions for it while another model is being built.
    base_url: str
    #: Dimensions of its vectors; 0 until the first is stored.
    vector_dims: int


def ensure(
    connection: Connection, identity: Identity, *, base_url: str = "", vector_dims: int = 0
) -> IdentityRow:
    """Return the row of `identity`, inserted when it is new, inside the caller's transaction.

    It takes a new address. Dimensions that are known stay: the caller has compared them.
    """
    connection.execute(
        "INSERT INTO identities (key, provider, model, endpoint, dims, scheme, base_url, vector_dims)"
        " VALUES (:key, :provider, :model, :endpoint, :dims, :scheme, :base_url, :vector_dims)"
        " ON CONFLICT (key) DO UPDATE SET base_url = ifnull(nullif(excluded.base_url, ''), base_url),"
        " vector_dims = iif(vector_dims, vector_dims, excluded.vector_dims)",
        {**asdict(identity), "key": identity.key, "base_url": base_url, "vector_dims": vector_dims},
    )
    row = by_key(connection, identity.key)
    assert row is not None
    return row


def by_key(connection: Connection, key: str) -> IdentityRow | None:
    """Return the row of the identity with this key, if there is one."""
    return _select(connection, "key = ?", key)


def by_id(connection: Connection, row_id: int) -> IdentityRow | None:
    """Return the row of an identity by its id."""
    return _select(connection, "id = ?", row_id)


def active(connection: Connection) -> IdentityRow | None:
    """Return the identity that is searched; None while there are no vectors."""
    return by_id(connection, meta.get(connection, meta.ACTIVE, 0))


def target(connection: Connection) -> IdentityRow | None:
    """Return the identity that texts are embedded with; None without a provider."""
    return by_id(connection, meta.get(connection, meta.TARGET, 0))


def _select(connection: Connection, where: str, parameter: object) -> IdentityRow | None:
    columns = ", ".join(Identity.__struct_fields__)
    query = f"SELECT id, base_url, vector_dims, {columns} FROM identities WHERE {where}"
    for row_id, base_url, dims, *parts in connection.execute(query, (parameter,)):
        identity = Identity(**dict(zip(Identity.__struct_fields__, parts, strict=True)))
        return IdentityRow(id=row_id, identity=identity, base_url=base_url, vector_dims=dims)
    return None
