"""Compare the model that the settings choose with the one that an index embeds with.

Until a run has taken up the settings an index knows nothing of them: nothing waits in it, and it would
look complete.
"""

from __future__ import annotations

from sqlite3 import Connection

import msgspec

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
    if target is not None and _is_in_use(connection, target, wanted):
        return ModelState(missing=pending)
    known = identities.by_key(connection, wanted.key)
    missing, size = connection.execute(_MISSING, (known.id if known else 0,)).fetchone()
    before = target or identities.active(connection)
    if not missing and target is None:
        return ModelState()
    what = _difference(before, wanted, choice) if before else "nothing is embedded yet"
    price = price_of(wanted.provider, wanted.model, public=not wanted.endpoint, own=settings.content.prices)
    cost = price and price.words(price.cost(-(-size // CHARS_PER_TOKEN), by_batch=False))
    texts = f"{counted(missing, 'text')} to embed with {wanted.provider} {wanted.model}"
    return ModelState(missing=missing, reason=f"{what}: {texts}, {cost or 'no price known'}")


def _is_in_use(connection: Connection, target: IdentityRow, wanted: Identity) -> bool:
    """Tell whether texts are embedded as the settings want: with this model, or with its fallback for now."""
    if target.identity.key == wanted.key:
        return True
    stopped = meta.get(connection, meta.FALLBACK) or {}
    primary = identities.by_id(connection, stopped.get("identity", 0))
    return primary is not None and primary.identity.key == wanted.key


def _difference(before: IdentityRow, wanted: Identity, choice: Choice) -> str:
    what = f"the settings choose {wanted.provider} {wanted.model}"
    if choice.base_url:
        what += f" at {choice.base_url}"
    if _name(before) != f"{wanted.provider} {wanted.model}":
        return f"{what}, the index has vectors of {_name(before)}"
    return f"{what}, the index has its vectors with another {before.identity.differences(wanted)}"


def _name(row: IdentityRow) -> str:
    return f"{row.identity.provider} {row.identity.model}".strip()
