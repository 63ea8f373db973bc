"""Taking back messages that no worker has taken yet: those of a reindex that was cancelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import redis

from shared.errors import QueueError
from shared.queue import server
from shared.queue.fleet import NAMESPACE
from shared.queue.messages import ChunkFiles, decode

_QUEUE = f"{NAMESPACE}:chunk"

#: Messages read from Redis at a time.
_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """What was taken back."""

    messages: int
    #: Files they named; they stay as they are in the index until somebody looks at them again.
    files: int


def withdraw_backfill(url: str, agent: str) -> Withdrawn:
    """Take the backfill of an agent off the chunk queue; what a worker has taken goes on."""
    messages = files = 0
    with server.closing_client(url) as client, server.translated(url):
        ids: Any = client.lrange(_QUEUE, 0, -1)
        for first in range(0, len(ids), _PAGE):
            page = ids[first : first + _PAGE]
            stored: Any = client.hmget(f"{_QUEUE}.msgs", page)
            for message_id, data in zip(page, stored, strict=True):
                paths = _backfill_paths(data, agent)
                if paths and _take(client, message_id):
                    messages += 1
                    files += paths
    return Withdrawn(messages=messages, files=files)


def _take(client: redis.Redis, message_id: bytes) -> bool:
    """Whoever takes the id off the list owns the message: us, or a worker that was quicker."""
    if not client.lrem(_QUEUE, 1, message_id):  # type: ignore[arg-type]
        return False
    client.hdel(f"{_QUEUE}.msgs", message_id)
    return True


def _backfill_paths(data: bytes | None, agent: str) -> int:
    """How many files a stored message names, if it is a backfill of this agent; else 0."""
    if data is None:
        return 0
    try:
        message = decode(msgspec.msgpack.decode(data)["args"][0], ChunkFiles)
    except (msgspec.DecodeError, LookupError, TypeError, QueueError):
        # Not one of ours to understand: a worker will say so.
        return 0
    return len(message.paths) if message.backfill and message.agent == agent else 0
