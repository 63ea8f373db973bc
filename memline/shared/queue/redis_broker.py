"""The broker of a fleet: dramatiq's own on Redis, as it is; `dispatch.lua` of dramatiq describes its keys.

Beside them, for `shared.queue.dead_letters`:

    <fleet>:error:<id>    string: why this message became a dead letter     (gone after KEPT_ERROR_S)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.errors import ConnectionClosed
from dramatiq.middleware import CurrentMessage, Middleware

from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.queue import redis_client
from memline.shared.queue.broker import Faults, MessagePack, use
from memline.shared.queue.redis_client import FleetClient

#: Milliseconds without a heartbeat after which the messages of a worker process go back to their queue; each
#: fetch is one.
HEARTBEAT_TIMEOUT_MS = 15_000

#: Of a million commands, how many look for dead workers: all, or an idle queue takes minutes to notice one.
MAINTENANCE_CHANCE = 1_000_000

#: Characters of an error that are kept, and seconds: as long as dramatiq keeps a dead letter.
MAX_ERROR_CHARS = 2_000
KEPT_ERROR_S = 7 * 86_400


class ConnectionLost(QueueError, ConnectionClosed):
    """Redis did not do what dramatiq asked for, which tries again after an error of the connection alone."""


class KeepErrors(Middleware):
    """Keeps the error of a dead letter beside it, since dramatiq moves the message as it was sent.

    It stands before `Faults` in the list: what is done after a message goes from the last to the first.
    """

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        if exception is not None and message.failed:
            name = f"{broker.namespace}:error:{message.options['redis_message_id']}"
            # Half a letter of a file name cannot be said in UTF-8.
            text = f"{type(exception).__name__}: {exception}"[:MAX_ERROR_CHARS].encode("utf-8", "replace")
            with suppress(QueueError):
                broker.client.set(name, text, ex=KEPT_ERROR_S)


def on_redis(address: QueueAddress, *, retry: Callable[..., Any] | None = None) -> RedisBroker:
    """Make a broker of Redis the process's, and return it.

    `retry` calls what sends; None tries once. Raises QueueError, also for a server that cannot be trusted.
    """
    if not address:
        raise QueueError(
            "workers as separate processes need a queue, and queue.url is not set",
            hint="MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0; in one process: memline up",
        )
    redis_client.check(address)
    broker = sender(redis_client.client(address))
    broker.add_middleware(Faults())
    use(broker, retry)
    return broker


def sender(client: FleetClient) -> RedisBroker:
    """Make a broker that sends by this client, and is not the process's."""
    dramatiq.set_encoder(MessagePack())
    client.raises = ConnectionLost
    return RedisBroker(  # type: ignore[no-untyped-call]
        client=client,
        namespace=client.namespace,
        heartbeat_timeout=HEARTBEAT_TIMEOUT_MS,
        maintenance_chance=MAINTENANCE_CHANCE,
        middleware=[CurrentMessage(), KeepErrors()],
    )
