"""The broker of a fleet: dramatiq on Redis, with the settings and the consumer that make it prompt and safe.

Rows in the index are the truth. So a message that fails is not retried by delay: it goes to the dead letters
with its error for a person to see, and the rows it was about are sent out again by the sweep.
"""

from __future__ import annotations

import threading
from typing import Any

import redis
import tenacity
from dramatiq.broker import MessageProxy
from dramatiq.brokers.redis import RedisBroker, _RedisConsumer
from dramatiq.errors import ConnectionClosed
from dramatiq.message import Message

from shared.queue import server

#: Prefix of all our keys.
NAMESPACE = "memline"

#: Milliseconds without a heartbeat after which the messages of a worker process go back to their queue.
#: Every fetch is a heartbeat and happens at least every `BLOCK_S`; dramatiq's default of 60 s made a killed
#: worker's messages wait for minutes.
HEARTBEAT_TIMEOUT_MS = 15_000

#: Of a million commands, how many look for dead workers. All: it is one range query on a small set, and with
#: the default of 1,000 an idle queue takes a quarter of an hour to notice.
MAINTENANCE_CHANCE = 1_000_000

#: Seconds a consumer waits in Redis for a message before it looks whether it should stop.
BLOCK_S = 1.0


class FleetBroker(RedisBroker):
    """RedisBroker whose consumers wait inside Redis, and whose messages can be named."""

    def __init__(self, url: str, *, patience_s: float = 0.0, **options: Any) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            client=server.client(url),
            namespace=NAMESPACE,
            maintenance_chance=MAINTENANCE_CHANCE,
            heartbeat_timeout=HEARTBEAT_TIMEOUT_MS,
            **options,
        )
        self.url = url
        self._patience_s = patience_s

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Put a message on its queue under its own id, so that a sender can look whether it is still there.

        While Redis is away or full it is tried again until the patience is over. Raises QueueError then.
        """
        message = message.copy(options={"redis_message_id": message.message_id})
        tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(
                (redis.ConnectionError, redis.TimeoutError, redis.exceptions.OutOfMemoryError)
            ),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=1.0),
            stop=tenacity.stop_after_delay(self._patience_s),
            reraise=True,
        )
        self.emit_before("enqueue", message, delay)
        with server.translated(self.url):
            tries(self.do_enqueue, message.queue_name, message.message_id, message.encode())
        self.emit_after("enqueue", message, delay)
        return message

    @property
    def consumer_class(self) -> type[BlockingConsumer]:
        return BlockingConsumer


class BlockingConsumer(_RedisConsumer):
    """A consumer that takes a message within a millisecond of its arrival and costs nothing while idle.

    dramatiq's own sleeps up to a second between polls: a search through an idle queue took 235 ms. This one
    waits with BLMOVE from the head of the queue to the head of the queue, which returns as soon as there is
    an element and leaves the list as it was; the fetch itself stays dramatiq's script. The time limit of the
    wait is the safety net.
    """

    def __init__(self, broker: FleetBroker, queue_name: str, prefetch: int, timeout: int) -> None:
        super().__init__(broker, queue_name, prefetch, timeout)  # type: ignore[no-untyped-call]
        self._block_s = min(BLOCK_S, timeout / 1000)
        # A connection of its own: a blocked one can do nothing else.
        self._waiting = server.client(broker.url, block_s=self._block_s)
        self._list = f"{broker.namespace}:{queue_name}"
        self._has_room = threading.Event()

    def close(self) -> None:
        self._waiting.close()

    def ack(self, message: MessageProxy) -> None:
        super().ack(message)  # type: ignore[no-untyped-call]
        self._has_room.set()

    def nack(self, message: MessageProxy) -> None:
        super().nack(message)  # type: ignore[no-untyped-call]
        self._has_room.set()

    def __next__(self) -> MessageProxy | None:
        try:
            if not self.message_cache:
                self._has_room.clear()
                room = self.prefetch - self.outstanding_message_count
                if room <= 0:
                    # Every thread has work and as much again waits here: nothing to ask Redis for. The
                    # heartbeat goes on through the consumer of the delay queue, which is never full.
                    self._has_room.wait(self._block_s)
                    return None
                self.message_cache = self.broker.do_fetch(self.queue_name, room)
                if not self.message_cache:
                    # redis-py annotates whole seconds; the server takes fractions.
                    self._waiting.blmove(self._list, self._list, self._block_s, "LEFT", "LEFT")  # type: ignore[arg-type]
                    return None
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise ConnectionClosed(error) from None  # type: ignore[no-untyped-call]
        message: MessageProxy | None = super().__next__()  # type: ignore[no-untyped-call]
        return message
