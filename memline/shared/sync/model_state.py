"""Compare the model that the settings choose with the one that an index embeds with.

Until a run has taken up the settings an index knows nothing of them: nothing waits in it, and it would
look complete.
"""

from __future__ import annotations

from sqlite3 import Connection

import msgspec
from msgspec.structs import replace

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import NONE, Choice
from memline.shared.embedders.protocol import Identity
from memline.shared.index import identities, meta, vectors
from memline.shared.index.identities import IdentityRow
from memline.shared.providers import price_of
from memline.shared.sources.tokens import CHARS_PER_TOKEN
from memline.shared.words import counted

#: Bytes stand for characters: three of a dense character are nearly the one token that it is.
_MISSING = (
    "SELECT count(*), coalesce(sum(size), 0) FROM (SELECT max(length(CAST(text AS BLOB))) AS size FROM chunks"
    " WHERE NOT EXISTS (SELECT 1 FROM vectors WHERE identity_id = ?"
    " AND vectors.text_hash = chunks.text_hash AND state = 'ready') GROUP BY text_hash)"
)


class ModelState(msgspec.Struct, frozen=True, kw_only=True):
    """How far an index is from the model that the settings choose."""

    #: Vectors of that model that are missing.
    missing: int = 0
    #: What differs, and what `memline index` would do about it and cost; empty when nothing differs.
    reason: str = ""


def model_state(connection: Connection, settings: AgentSettings, choice: Choice) -> ModelState:
    """Count the missing vectors of the chosen model, and say how it differs from that of the index.

    Cheap when nothing differs; else it reads all texts.
    """
    target, wanted = identities.target(connection), choice.identity
    pending = vectors.count_pending(connection, target.id) if target else 0
    if wanted is None:
        if target is None or choice.requested != NONE:
            return ModelState(missing=pending)
        return ModelState(reason=f"the settings embed nothing, the index has vectors of {_name(target)}")
    if target is not None and _is_meant(connection, target, wanted):
        return ModelState(missing=pending)
    known = identities.by_key(connection, wanted.key)
    missing, size = connection.execute(_MISSING, (known.id if known else 0,)).fetchone()
    if not missing and target is None:
        return ModelState()
    before = identities.active(connection) if target is None else target
    what = "nothing is embedded yet"
    is_same = before is not None and before.identity.key == wanted.key
    if (
        before is not None
        and not is_same
        and replace(before.identity, scheme=wanted.scheme).key == wanted.key
    ):
        how = "input type, prompt or windows"
        what = f"{_name(before)} reads texts otherwise than when those of the index were embedded ({how})"
    elif before is not None:
        what = f"the settings choose {_place(choice)}, the index has vectors of {_name(before)}"
        if before.base_url and (before.identity.provider, before.identity.model) == (
            wanted.provider,
            wanted.model,
        ):
            what += f" at {before.base_url}{_difference(before, choice, wanted)}"
    price = price_of(wanted.provider, wanted.model, public=not wanted.endpoint, own=settings.prices)
    tokens = -(-size // CHARS_PER_TOKEN)
    money = "no price known" if price is None else price.words(price.cost(tokens, by_batch=False))
    texts = counted(missing, "text")
    return ModelState(
        missing=missing, reason=f"{what}: {texts} to embed with {wanted.provider} {wanted.model}, {money}"
    )


def _is_meant(connection: Connection, target: IdentityRow, wanted: Identity) -> bool:
    """Tell whether texts are embedded as the settings want: with this model, or with its fallback for now."""
    if target.identity.key == wanted.key:
        return True
    stopped = meta.get(connection, meta.FALLBACK) or {}
    primary = identities.by_id(connection, stopped.get("identity", 0))
    return primary is not None and primary.identity.key == wanted.key


def _name(row: IdentityRow) -> str:
    return f"{row.identity.provider} {row.identity.model}".strip()


def _difference(before: IdentityRow, choice: Choice, wanted: Identity) -> str:
    """Say what else differs where provider and model are the same."""
    if before.identity.dims != wanted.dims:
        had, asked = (dims or "the model's own" for dims in (before.identity.dims, wanted.dims))
        return f" with other dimensions ({had}, the settings ask for {asked})"
    is_same = before.base_url == choice.base_url and before.identity.endpoint != wanted.endpoint
    return " with other headers (remote.headers)" if is_same else ""


def _place(choice: Choice) -> str:
    return f"{choice.provider} {choice.model} at {choice.base_url}"
