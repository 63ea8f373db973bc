"""Which queue and actor a message belongs to: producers send without knowing the workers' code."""

from __future__ import annotations

import uuid

import dramatiq

from shared.queue import messages
from shared.queue.messages import Wire

#: Message type -> (queue, actor).
ROUTES: dict[type[Wire], tuple[str, str]] = {
    messages.ChunkFiles: ("chunk", "chunk_files"),
    messages.StoreFiles: ("store", "store_files"),
    messages.StoreVectors: ("store", "store_vectors"),
    messages.EmbedFailed: ("store", "embed_failed"),
    messages.SettleBatch: ("store", "settle_batch"),
    messages.Sweep: ("store", "sweep"),
    messages.EmbedTexts: ("embed", "embed_texts"),
    messages.SubmitBatch: ("batch", "submit_batch"),
    messages.PollBatch: ("batch", "poll_batch"),
    messages.RunQuery: ("query", "run_query"),
    messages.FlushMemory: ("flush", "flush_memory"),
}


def send(message: Wire) -> str:
    """Put a message on its queue, through the broker of this process; returns its id.

    A request's message is named after its lease, and so are the answers to it, so that the dispatcher can see
    whether it was lost or died.
    """
    queue, actor = ROUTES[type(message)]
    name = uuid.uuid4().hex
    if isinstance(message, messages.EmbedTexts):
        name = message.lease
    elif isinstance(message, messages.StoreVectors | messages.EmbedFailed):
        name = f"{message.lease}.{name}"
    dramatiq.get_broker().enqueue(
        dramatiq.Message(
            queue_name=queue,
            actor_name=actor,
            args=(messages.encode(message),),
            kwargs={},
            options={},
            message_id=name,
        )
    )
    return name
