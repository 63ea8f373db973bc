"""Cancel messages: take them off their queue before a worker works on them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from memline.shared.errors import QueueError
from memline.shared.queue import redis_client
from memline.shared.queue.hosts import queue_of
from memline.shared.queue.messages import ChunkFiles, decode
from memline.shared.queue.redis_client import key

if TYPE_CHECKING:
    from redis import Redis

#: Messages read from Redis at a time.
_PAGE = 500


def cancel(client: Redis, queue: str, message_id: str, *, revoke: bool = False) -> bool:
    """Take a message off its queue; False when a worker was quicker, or it is not there.

    With `revoke` a worker that has taken it leaves it alone (`shared.queue.middleware.SkipRevoked`).
    """
    base = key(client, queue)
    # The process that takes the id off the list, or off the delayed messages, owns the message.
    is_ours = bool(client.lrem(base, 1, message_id) or client.zrem(f"{base}.delayed", message_id))
    if is_ours or revoke:
        client.hdel(f"{base}.msgs", message_id)
    return is_ours


def cancel_jobs(url: str, agent: str, tokens: Collection[str]) -> int:
    """Cancel the messages of an agent's jobs on the chunk queue; count them."""
    messages = 0
    with redis_client.connected(url) as client:
        queue = queue_of(client, "chunk")
        base = key(client, queue)
        ids: Any = client.lrange(base, 0, -1) + client.zrange(f"{base}.delayed", 0, -1)
        for first in range(0, len(ids), _PAGE):
            page = ids[first : first + _PAGE]
            stored: Any = client.hmget(f"{base}.msgs", page)
            for raw_id, content in zip(page, stored, strict=True):
                if _is_of_job(content or b"", agent, tokens) and cancel(client, queue, raw_id.decode()):
                    messages += 1
    return messages


def _is_of_job(content: bytes, agent: str, tokens: Collection[str]) -> bool:
    """Tell whether a stored message belongs to one of these jobs of the agent."""
    try:
        message = decode(msgspec.msgpack.decode(content)["args"][0], ChunkFiles)
    except (msgspec.DecodeError, LookupError, TypeError, QueueError):
        # Not a message of ours: a worker will say so.
        return False
    return message.agent == agent and message.job in tokens
