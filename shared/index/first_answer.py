"""The dimensions of an identity's vectors, believed when a second answer has confirmed the first.

Where nobody said how many dimensions there are, the first answer does. If that very one was wrong, a proxy's
or that of a server with another model still loaded, every right answer after it would be refused for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.index import meta
from shared.index.vec import VecTables

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Times that two answers may contradict each other; a server that never agrees with itself is not asked on.
MAX_DOUBTS = 3


def came(connection: Connection, identity_id: int, lease: str) -> None:
    """Note the answer that said how many dimensions there are, inside the caller's transaction."""
    doubts = meta.get(connection, meta.FIRST_ANSWER, {}).get("doubts", 0)
    meta.put(connection, meta.FIRST_ANSWER, {"identity": identity_id, "lease": lease, "doubts": doubts})


def confirmed(connection: Connection, identity_id: int, lease: str) -> None:
    """Another answer had as many, inside the caller's transaction."""
    if _is_unconfirmed(connection, identity_id, lease):
        meta.put(connection, meta.FIRST_ANSWER, None)


def contradicted(connection: Connection, vec: VecTables, identity_id: int, lease: str) -> bool:
    """Another answer had other dimensions, inside the caller's transaction; whether the first is forgotten.

    Nobody knows which of the two was right: the texts of both go out again, and the next answer decides.
    """
    first = meta.get(connection, meta.FIRST_ANSWER, {})
    if not _is_unconfirmed(connection, identity_id, lease) or first["doubts"] >= MAX_DOUBTS:
        return False
    meta.put(connection, meta.FIRST_ANSWER, {"doubts": first["doubts"] + 1})
    connection.execute(
        "UPDATE vectors SET state = 'wanted', embedding = NULL, due = 0"
        " WHERE identity_id = ? AND state = 'ready' AND live = 1",
        (identity_id,),
    )
    connection.execute("DELETE FROM vectors WHERE identity_id = ? AND state = 'ready'", (identity_id,))
    connection.execute("UPDATE identities SET vector_dims = 0 WHERE id = ?", (identity_id,))
    vec.drop(identity_id)
    meta.bump(connection)
    return True


def _is_unconfirmed(connection: Connection, identity_id: int, lease: str) -> bool:
    first = meta.get(connection, meta.FIRST_ANSWER, {})
    return bool(first.get("identity") == identity_id and first["lease"] != lease)
