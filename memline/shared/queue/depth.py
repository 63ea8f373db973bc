"""Read how much work lies on the queues of a fleet, in one round trip a queue.

dramatiq keeps every message in `<queue>.msgs` until it is acknowledged; the list `<queue>` holds the ids that
no worker has taken yet; the messages of `<queue>.DQ.msgs` wait for a retry. The rest is in flight.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from memline.shared.queue import redis_client
from memline.shared.queue.fleet import Fleet, QueueDepth, WorkerInfo
from memline.shared.queue.heartbeat import live_workers
from memline.shared.queue.messages import ENVELOPES
from memline.shared.queue.redis_client import FleetClient
from memline.shared.queue.routes import QUEUES


def read(client: FleetClient) -> Fleet:
    """Read the state of all queues. Raises QueueError when Redis cannot be asked."""
    memory: Any = client.info("memory")
    workers = tuple(live_workers(client))
    return Fleet(
        queues=tuple(_depths(client, workers)),
        workers=workers,
        used_memory=int(memory["used_memory"]),
        error=redis_client.trouble(client, memory),
    )


def _depths(client: FleetClient, workers: Sequence[WorkerInfo]) -> Iterator[QueueDepth]:
    for queue in QUEUES:
        base = client.key(queue)
        pipe = client.pipeline(transaction=False)
        pipe.llen(base)
        pipe.hlen(f"{base}.msgs")
        pipe.hlen(f"{base}.DQ.msgs")
        pipe.zcard(f"{base}.XQ")
        pipe.lindex(base, 0)
        waiting, stored, delayed, dead, first = client.execute(pipe)
        content: Any = client.hget(f"{base}.msgs", first) if first else None
        oldest_s = 0.0
        with suppress(msgspec.DecodeError):
            oldest_s = time.time() - ENVELOPES.decode(content or b"").message_timestamp / 1000
        yield QueueDepth(
            name=queue,
            waiting=waiting,
            in_flight=max(0, stored - waiting),
            delayed=delayed,
            dead=dead,
            oldest_s=round(max(oldest_s, 0.0), 1),
            rate_per_minute=float(sum(worker.done.get(queue, 0) for worker in workers)),
        )
