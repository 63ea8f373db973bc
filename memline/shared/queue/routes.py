"""Name every queue: its messages, their actors, and its threads; send a message to the queue it belongs to.

The one table of queues. A new queue is a row here, its messages in `shared.queue.messages`, and the module of
its name in `workers`; the Procfile has a line of it. Producers send without knowing the workers' code.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import dramatiq

from memline.shared import traces
from memline.shared.config.schema import AgentSettings
from memline.shared.queue import hosts, messages
from memline.shared.queue.messages import M, MessageRefused, Wire
from memline.shared.values import value

#: Tries after the first for an actor that raises. Few: what matters is in rows and is swept again, and an
#: error that repeats is a bug or a full disk, which a hundred tries do not mend.
MESSAGE_RETRIES = 3

#: Milliseconds before the first retry, and at most: a full disk or a locked file may pass in seconds. Each
#: wait is twice the one before, and up to twice as long by chance.
MIN_BACKOFF_MS = 200
MAX_BACKOFF_MS = 5_000


@value
class Queue:
    """One queue, served by the worker role of the same name; most have one on each index host."""

    #: Messages a worker process works on at a time. Reading and splitting hold the interpreter lock: two
    #: threads hide the disk, more do not help.
    threads: int
    #: Message type -> name of its actor.
    actors: dict[type[Wire], str]
    #: Whether other threads would break what the actors rely on.
    is_single: bool = False


QUEUES = {
    "chunk": Queue(threads=2, actors={messages.ChunkFiles: "chunk_files"}),
    "embed": Queue(threads=4, actors={messages.EmbedTexts: "embed_texts"}),
    # Two threads, so that a large upload holds up no other job.
    "batch": Queue(threads=2, actors={messages.AdvanceBatch: "advance_batch"}),
    "store": Queue(
        threads=1,
        is_single=True,
        actors={
            messages.StoreFiles: "store_files",
            messages.StoreVectors: "store_vectors",
            messages.EmbedFailed: "embed_failed",
            messages.Sweep: "sweep",
        },
    ),
    "query": Queue(threads=2, actors={messages.RunQuery: "run_query"}),
    "flush": Queue(threads=1, actors={messages.FlushMemory: "flush_memory"}),
}

#: Message type -> (queue, actor).
ROUTES = {kind: (name, actor) for name, queue in QUEUES.items() for kind, actor in queue.actors.items()}

#: Actors whose failed messages are only logged: the caller has given up an old question, the timer sends the
#: next sweep in seconds, and the row of a batch says when it is polled again. Kept, a full disk would make a
#: dead letter of every sweep of the night.
TRANSIENT = frozenset({"run_query", "sweep", "advance_batch"})

#: Actors whose messages fail at once: a request has told the rows of its failure, and they send it again.
_NEVER_RETRIED = TRANSIENT | {"embed_texts"}


def is_retried(actor: str, error: BaseException) -> bool:
    """Tell whether a message is tried again after this error, in one process as in a fleet."""
    return actor not in _NEVER_RETRIED and not isinstance(error, MessageRefused)


def actor(kind: type[M]) -> Callable[[Callable[[M], None]], Callable[[dict[str, Any]], None]]:
    """Declare a function as the actor of a message, which it is called with; see `ROUTES` for its name."""
    role, name = ROUTES[kind]

    def declare(function: Callable[[M], None]) -> Callable[[dict[str, Any]], None]:
        @wraps(function)
        def run(raw: dict[str, Any]) -> None:
            function(messages.decode(raw, kind))

        queue = hosts.queue_name(role, own_host())
        declared: Callable[[dict[str, Any]], None] = dramatiq.actor(queue_name=queue, actor_name=name)(run)
        return declared

    return declare


def own_host() -> str:
    """Tell which index host the broker of this process is of; empty where there is one."""
    return getattr(dramatiq.get_broker(), "host", "")


def claim(settings: AgentSettings) -> None:
    """Make this index host the one that serves an agent. Raises IndexElsewhere when another one does."""
    if own_host():
        broker: Any = dramatiq.get_broker()
        broker.retry(hosts.claim_agent, broker.client, settings)


def send(message: Wire, *, host: str | None = None, origins: Sequence[str] = ()) -> str:
    """Put a message on its queue, through the broker of this process; returns its id.

    `host`: the index host that is meant, when it is not that of this process. `origins`: the traces of what
    the message is about, when it is not that of this thread (`shared.traces`).
    A request's message is named after its lease, and so are the answers to it, so that the dispatcher can see
    whether it is missing or became a dead letter.
    """
    role, actor = ROUTES[type(message)]
    message_id = uuid.uuid4().hex
    if isinstance(message, messages.EmbedTexts):
        message_id = message.lease
    elif isinstance(message, messages.StoreVectors | messages.EmbedFailed):
        message_id = f"{message.lease}.{message_id}"
    dramatiq.get_broker().enqueue(
        dramatiq.Message(
            queue_name=hosts.queue_name(role, own_host() if host is None else host),
            actor_name=actor,
            args=(messages.encode(message),),
            kwargs={},
            options=traces.carrier(origins),
            message_id=message_id,
        )
    )
    return message_id
