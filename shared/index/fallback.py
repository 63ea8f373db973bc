"""Which of two providers embeds the texts of an index: the first one, or the fallback that stands in for it.

The rows say it, so that a restart, a second process and a worker on another host all go on with the same one.

- The fallback takes over when the breaker of the first one opens.
- While it stands in, the first one gets its probes. Once it is well, it comes back by itself if that costs
  no more than going on (`RETURN_TEXTS`); else when somebody asks for it: `memline index`, `queue resume`.
- The vectors of both are kept meanwhile, so no text is paid for twice at either of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.embedders.choice import Choice
from shared.index import dispatch, health, identity, meta
from shared.index.driver import faults, transaction
from shared.index.writer import IndexWriter

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Texts that the first provider may lack beyond those the fallback lacks, for it to come back by itself:
#: what a few saved notes make, a hundredth of a cent.
RETURN_TEXTS = 200


def begin(writer: IndexWriter, first: Choice, second: Choice | None) -> None:
    """Embed with the provider that was chosen, or with its fallback if that stands in for it already."""
    if not stands_in(writer, first, second):
        writer.use(first)
        with faults(writer.path):
            _forget_other_pairs(writer.connection, first, second)
    turn(writer, first, second)


def turn(writer: IndexWriter, first: Choice, second: Choice | None) -> bool:
    """Change over if the health of the first provider asks for it; returns whether it did."""
    if first.identity is None or second is None or second.identity is None:
        return False
    with faults(writer.path):
        state = health.read(writer.connection, first.identity.provider)
        target = identity.target(writer.connection)
    if stands_in(writer, first, second):
        if state.paused or not _is_return_cheap(writer, first, second):
            return False
        writer.use(first)
        return True
    if not state.paused or target is None or target.identity.key != first.identity.key:
        return False
    writer.use(second)
    with faults(writer.path), transaction(writer.connection):
        now_target = identity.target(writer.connection)
        assert now_target is not None
        meta.put(writer.connection, meta.FALLBACK, {"from": first.provider, "reason": state.reason})
        meta.put(writer.connection, meta.FALLBACK_PAIR, [target.id, now_target.id])
    return True


def stands_in(writer: IndexWriter, first: Choice, second: Choice | None) -> bool:
    """Whether texts are embedded by the fallback `second` because `first` stopped."""
    if first.identity is None or second is None or second.identity is None:
        return False
    connection = writer.connection
    with faults(writer.path):
        if meta.get(connection, meta.FALLBACK) is None:
            return False
        target = identity.target(connection)
        pair = _pair(connection)
    return (
        target is not None
        and target.identity.key == second.identity.key
        and pair == (first.identity.key, second.identity.key)
    )


def come_back(writer: IndexWriter, first: Choice) -> None:
    """Somebody asked for work now: the first provider gets a new chance at once, whatever it costs."""
    writer.use(first)
    writer.start_over()


def probe(writer: IndexWriter, first: Choice, second: Choice | None) -> dispatch.Request | None:
    """The request that finds out whether the first provider is well, while the fallback stands in."""
    if first.identity is None or first.caps is None or not stands_in(writer, first, second):
        return None
    return writer.probe(first.identity, first.caps)


def _pair(connection: Connection) -> tuple[str, str] | None:
    """The keys of the first provider's identity and of the fallback's."""
    ids = meta.get(connection, meta.FALLBACK_PAIR) or []
    rows = [identity.by_id(connection, row_id) for row_id in ids]
    keys = tuple(row.identity.key for row in rows if row)
    return (keys[0], keys[1]) if len(keys) == 2 else None


def _forget_other_pairs(connection: Connection, first: Choice, second: Choice | None) -> None:
    """Vectors of a provider that is configured no more are like those of any former model."""
    pair = _pair(connection)
    wanted = tuple(choice.identity.key for choice in (first, second) if choice and choice.identity)
    if pair is not None and pair != wanted and first.identity is not None:
        with transaction(connection):
            meta.put(connection, meta.FALLBACK_PAIR, None)


def _is_return_cheap(writer: IndexWriter, first: Choice, second: Choice) -> bool:
    with faults(writer.path):
        lacking = [
            _texts_missing(writer.connection, choice.identity.key)
            for choice in (first, second)
            if choice.identity is not None
        ]
    return lacking[0] <= lacking[1] + RETURN_TEXTS


def _texts_missing(connection: Connection, key: str) -> int:
    """Texts of the index that have no vector of an identity."""
    row = identity.by_key(connection, key)
    found = connection.execute(
        "SELECT count(DISTINCT text_hash) FROM chunks WHERE NOT EXISTS (SELECT 1 FROM vectors"
        " WHERE identity_id = ? AND vectors.text_hash = chunks.text_hash AND state = 'ready')",
        (row.id if row else 0,),
    ).fetchone()
    return int(found[0])
