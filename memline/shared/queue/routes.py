"""Name every queue and every process of a fleet: messages, actors, threads, and what else is said of them.

The one table of queues. A new queue is a row here, its messages in `shared.queue.messages`, and the module of
its name in `workers`; the processes of a fleet, their files and the dashboard follow from the row.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexFault, IndexUnwritable, ModelMismatch
from memline.shared.index.batches import open_batches
from memline.shared.index.driver import reading_if_any
from memline.shared.queue import messages
from memline.shared.queue.messages import MessageRefused, Wire

#: Tries after the first for an actor that raises. Few: what matters is in rows and is swept again, and an
#: error that repeats is a bug, which a hundred tries do not mend.
MESSAGE_RETRIES = 3

#: Milliseconds before the first retry, and at most: a full disk or a locked file may pass in seconds. Each
#: wait is twice the one before, and up to twice as long by chance.
MIN_BACKOFF_MS = 200
MAX_BACKOFF_MS = 5_000


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """What works on one type of message."""

    name: str
    #: Whether a message that failed for good becomes a dead letter; else the failure is only logged.
    is_kept: bool = True
    #: Whether it is tried again before that.
    is_retried: bool = True
    #: Whether it is tried until the disk takes it: an answer that was paid for.
    waits_for_disk: bool = False


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue, served by the worker role of the same name."""

    #: Messages a worker process works on at a time. Reading and splitting hold the interpreter lock: two
    #: threads hide the disk, more do not help.
    threads: int
    actors: dict[type[Wire], Actor]
    #: Whether other threads would break what the actors rely on.
    is_single: bool = False
    #: Whether its workers work on the index itself: they are of its home.
    is_beside_index: bool = False
    #: Whether its work is done without a worker too: one is missed only where a message waits for it.
    is_optional: bool = False
    #: Whether `memline index` needs it where one process does the work.
    is_indexing: bool = False


QUEUES = {
    "chunk": Queue(
        threads=2,
        is_indexing=True,
        actors={messages.ChunkFiles: Actor(name="chunk_files")},
    ),
    "embed": Queue(
        threads=4,
        is_indexing=True,
        # Fails at once: a request has told the rows of its failure, and they send it again.
        actors={messages.EmbedTexts: Actor(name="embed_texts", is_retried=False)},
    ),
    # Two threads, so that a large upload holds up no other job.
    "batch": Queue(
        threads=2,
        is_beside_index=True,
        # Its row says when it is polled again.
        actors={messages.AdvanceBatch: Actor(name="advance_batch", is_kept=False)},
    ),
    "store": Queue(
        threads=1,
        is_single=True,
        is_beside_index=True,
        is_indexing=True,
        actors={
            messages.StoreFiles: Actor(name="store_files"),
            messages.StoreVectors: Actor(name="store_vectors", waits_for_disk=True),
            messages.EmbedFailed: Actor(name="embed_failed", waits_for_disk=True),
            # The timer sends the next in seconds. Kept, a full disk would make a dead letter of every sweep
            # of the night.
            messages.Sweep: Actor(name="sweep", is_kept=False),
        },
    ),
    "query": Queue(
        threads=2,
        is_beside_index=True,
        is_optional=True,
        # The caller has given up an old question.
        actors={messages.RunQuery: Actor(name="run_query", is_kept=False)},
    ),
}

#: Message type -> (queue, actor).
ROUTES = {kind: (name, actor) for name, queue in QUEUES.items() for kind, actor in queue.actors.items()}

_ACTORS = {actor.name: actor for _, actor in ROUTES.values()}

#: What is said of an actor that has no row, as in another release.
_UNKNOWN = Actor(name="")


def actor_of(name: str) -> Actor:
    """Return the row of an actor."""
    return _ACTORS.get(name, _UNKNOWN)


def is_retried(actor: str, tries: int, error: BaseException) -> bool:
    """Tell whether a message is tried again after this error, when it was so often already."""
    row = actor_of(actor)
    if isinstance(error, MessageRefused):
        return False
    if isinstance(error, ModelMismatch) or (isinstance(error, IndexUnwritable) and row.waits_for_disk):
        # Another worker may be set up for its model; the disk may have room again.
        return True
    return row.is_retried and tries < MESSAGE_RETRIES


def needed_roles(agents: Iterable[AgentSettings]) -> tuple[str, ...]:
    """Name the roles that a fleet of these agents needs."""
    known = [*agents]
    needed = {"embed": any(map(embeds, known)), "batch": any(map(uses_batches, known))}
    return tuple(role for role in QUEUES if needed.get(role, True))


def embeds(agent: AgentSettings) -> bool:
    """Tell whether texts of an agent are embedded at all."""
    return choose(agent).identity is not None


def uses_batches(agent: AgentSettings) -> bool:
    """Tell whether an agent sends batches, or has left one open."""
    if agent.memory.remote.batch.enabled:
        return True
    try:
        with reading_if_any(agent.index_path) as reader:
            return reader is not None and bool(open_batches(reader))
    except IndexFault:
        # The run that opens it to work says what is wrong with it.
        return False
