"""The wire contract between producers and workers.

One message is one value below, sent as the only argument of its actor, in MessagePack: as JSON numbers a
vector costs thirty times more. One of another version is refused, so that none is ever half-understood.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import msgspec

from memline.shared.errors import QueueError
from memline.shared.index.rows import FileRow
from memline.shared.scheduling.leases import Answer, Request

#: Version of the contract. Raised when a worker of another release could misread a message.
VERSION = 3


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all messages; what a kind says of its actor is not sent."""

    #: The queue and the name of the actor that works on it.
    queue: ClassVar[str]
    actor: ClassVar[str]
    #: Whether one that failed is tried again, and becomes a dead letter; else the failure is only logged.
    is_kept: ClassVar[bool] = True
    #: Whether it is tried until the disk takes it: an answer that was paid for.
    waits_for_disk: ClassVar[bool] = False

    v: int = VERSION


class ChunkFiles(Wire, frozen=True, kw_only=True):
    """Look at these paths. Never content, so a late or repeated message is harmless."""

    queue, actor = "chunk", "chunk_files"

    agent: str
    #: Paths as in the ledger (relative to the workspace, or absolute for `extraPaths` outside it).
    paths: tuple[str, ...]
    #: Chunk again even when the hash is the one in the ledger.
    force: bool = False
    #: Token of the job that asked for them: its vectors wait behind those of live edits, for which it is "".
    job: str = ""
    #: File name of the index that is meant: an agent has one for each workspace. Empty: not said.
    index: str = ""


class StoreFiles(Wire, frozen=True, kw_only=True):
    """Files as chunk workers have read them."""

    queue, actor = "store", "store_files"

    agent: str
    files: tuple[FileRow, ...]
    #: As in `ChunkFiles`.
    job: str = ""
    index: str = ""


class EmbedTexts(Wire, frozen=True, kw_only=True):
    """At most one provider request. All an embed worker needs besides its own key.

    Not tried again: a request has told the rows of its failure, and they send it again.
    """

    queue, actor = "embed", "embed_texts"
    is_kept = False

    agent: str
    request: Request


class StoreVectors(Wire, frozen=True, kw_only=True):
    """What came of a request: vectors, an upsert by text hash and identity, and texts without one.

    A failure counts only while the lease still holds.
    """

    queue, actor = "store", "store_vectors"
    waits_for_disk = True

    agent: str
    answer: Answer


class AdvanceBatches(Wire, frozen=True, kw_only=True):
    """Do the next step of each batch of the index that is due. Its row says when that is."""

    queue, actor = "batch", "advance_batches"
    is_kept = False

    agent: str


class Sweep(Wire, frozen=True, kw_only=True):
    """Send what waits. Kept, a full disk would make a dead letter of every sweep of the night."""

    queue, actor = "store", "sweep"
    is_kept = False

    agent: str
    #: Also free overdue leases, try failed texts again, prune the cache.
    deep: bool = False


class RunQuery(Wire, frozen=True, kw_only=True):
    """Answer a search, until its caller has given up."""

    queue, actor = "query", "run_query"
    is_kept = False

    agent: str
    query: str
    reply_to: str
    #: When the caller gives up (seconds since the epoch).
    until: float
    #: Options of `shared.search.results.SearchRequest`, by name.
    options: dict[str, Any] = {}
    #: As in `ChunkFiles`.
    index: str = ""


#: Message type by the name of its actor.
KINDS = {kind.actor: kind for kind in Wire.__subclasses__()}


class Envelope(msgspec.Struct, frozen=True):
    """A message of dramatiq, as it lies in Redis; its only argument is one of the above."""

    queue_name: str
    actor_name: str
    args: list[Any]
    kwargs: dict[str, Any]
    options: dict[str, Any]
    message_id: str
    message_timestamp: int


# msgspec shows the shape of a kind to other threads before its fields are whole, and one that decodes by it
# then ends the process (0.22). So all shapes are made here, by the one thread that imports this.
_SHAPES = [msgspec.msgpack.Decoder(kind) for kind in KINDS.values()]
ENVELOPES = msgspec.msgpack.Decoder(Envelope)

M = TypeVar("M", bound=Wire)


class MessageRefused(QueueError):
    """The message is of another version or shape, or about what this process does not work on."""


def decode(raw: object, kind: type[M]) -> M:
    """Decode the argument of an actor. Raises MessageRefused for another version or shape."""
    version = raw.get("v", VERSION) if isinstance(raw, dict) else None
    if isinstance(version, int) and version != VERSION:
        which = "this worker" if version > VERSION else "the process that sent it"
        raise MessageRefused(
            f"{kind.__name__} has version {version}; this worker speaks version {VERSION}",
            hint=f"install the same Memline for {which} as for the other",
        )
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise MessageRefused(f"not a valid {kind.__name__} message: {error}") from error


def agent_of(arguments: Any) -> str:
    """Name the agent that the arguments of an actor are about; empty when they do not say."""
    first = arguments[0] if isinstance(arguments, list | tuple) and arguments else None
    return str(first.get("agent", "") if isinstance(first, dict) else getattr(first, "agent", ""))
