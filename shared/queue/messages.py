"""The wire contract between producers and workers.

One message is one value below, sent as the only argument of its actor, in MessagePack (vectors and texts
stay bytes: as JSON numbers a vector costs thirty times more). Fields are only ever added, with a default;
a message whose `v` is newer than `VERSION` is refused, so that an old worker never half-understands it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from shared.embedders.protocol import Identity
from shared.errors import QueueError
from shared.index.rows import FileRow, LearnedCaps, TextRow, VectorRow

#: Version of the contract. Raised only when an old worker could misread a new message.
VERSION = 1


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages."""

    v: int = VERSION


class ChunkFiles(Wire, frozen=True, kw_only=True):
    """Queue `chunk`: look at these paths. Never content, so a late or repeated message is harmless."""

    agent: str
    source: str
    #: Paths as in the ledger (relative to the workspace, or absolute for `extraPaths` outside it).
    paths: tuple[str, ...]
    #: Chunk again even when the hash is the one in the ledger.
    force: bool = False
    #: True for a reindex: its vectors wait behind those of live edits.
    backfill: bool = False
    #: When the reindex was asked for (ns since the epoch): one that was cancelled later embeds nothing more.
    asked_ns: int = 0


class StoreFiles(Wire, frozen=True, kw_only=True):
    """Queue `store`: what chunk workers found."""

    agent: str
    files: tuple[FileRow, ...]
    backfill: bool = False
    #: As in `ChunkFiles`.
    asked_ns: int = 0


class EmbedTexts(Wire, frozen=True, kw_only=True):
    """Queue `embed`: at most one provider request. All an embed worker needs besides its own key."""

    agent: str
    identity: Identity
    #: Token of the lease on these rows.
    lease: str
    texts: tuple[TextRow, ...]
    #: The one request to a provider that has stopped: it is tried once.
    is_probe: bool = False


class StoreVectors(Wire, frozen=True, kw_only=True):
    """Queue `store`: vectors that came back. An upsert by text hash and identity."""

    agent: str
    identity: Identity
    lease: str
    vectors: tuple[VectorRow, ...]
    learned: LearnedCaps = LearnedCaps()


class EmbedFailed(Wire, frozen=True, kw_only=True):
    """Queue `store`: these texts got no vector, and why. Counts only while its lease still holds."""

    agent: str
    identity: Identity
    lease: str
    hashes: tuple[bytes, ...]
    #: later, too_big, refused, stop, broken (`shared.errors.ProviderError.kind`) or misfit.
    kind: str
    error: str
    #: What a person can do about it.
    action: str = ""
    #: Seconds the provider asked for; None when it did not.
    retry_after_s: float | None = None
    #: Nothing at all came out of the request; said in one message of it.
    fruitless: bool = False
    learned: LearnedCaps = LearnedCaps()


class SubmitBatch(Wire, frozen=True, kw_only=True):
    """Queue `batch`: bring a batch, whose texts are leased, to its provider."""

    agent: str
    #: The batch's token; its row in the index says the rest.
    token: str


class PollBatch(Wire, frozen=True, kw_only=True):
    """Queue `batch`: look at a batch the provider has; take in what it brought; clean up behind it."""

    agent: str
    token: str


class SettleBatch(Wire, frozen=True, kw_only=True):
    """Queue `store`: all that a batch brought lies before this message; what it did not bring goes again."""

    agent: str
    token: str
    #: Texts nothing came for. When more are still leased, a message was lost and the batch is read again.
    missing: int


class Sweep(Wire, frozen=True, kw_only=True):
    """Queue `store`: send out what waits. Sent by a timer beside the store worker."""

    agent: str
    #: Also free overdue leases, try failed texts again, prune the cache.
    deep: bool = False
    #: When it was sent (seconds since the epoch, clock of the store process).
    sent: float = 0.0


class FlushMemory(Wire, frozen=True, kw_only=True):
    """Queue `flush`: write down what is worth keeping of a session before it is compacted."""

    agent: str
    #: File name of its transcript.
    session: str
    #: Name of its compaction cycle: a flush belongs to one, and a message of an older one is nothing.
    cycle: str


class RunQuery(Wire, frozen=True, kw_only=True):
    """Queue `query`: answer a search. Past `deadline` (s since the epoch) nobody waits any more."""

    agent: str
    query: str
    reply_to: str
    deadline: float
    #: Options of `shared.search.answer.SearchRequest`, by name.
    options: dict[str, Any] = {}


M = TypeVar("M", bound=Wire)


class MessageRefused(QueueError):
    """The message is of another version or shape, or about an agent that this process does not know."""


def decode(raw: object, kind: type[M]) -> M:
    """The message in the argument of an actor. Raises MessageRefused for another version or shape."""
    version = raw.get("v", VERSION) if isinstance(raw, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise MessageRefused(
            f"{kind.__name__} has version {version}; this worker speaks {VERSION}",
            hint="upgrade this worker: pip install -U memline",
        )
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise MessageRefused(f"not a {kind.__name__} message: {error}") from error


def encode(message: Wire) -> dict[str, Any]:
    """The argument an actor is sent: plain maps, lists, text and bytes."""
    plain = msgspec.to_builtins(message, builtin_types=(bytes,))
    assert isinstance(plain, dict)
    return plain
