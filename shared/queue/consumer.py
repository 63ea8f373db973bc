"""Taking messages off a queue in Redis: at once, each decoded with care, none forgotten on the way."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any, cast

import redis
from dramatiq import worker as dramatiq_worker
from dramatiq.broker import MessageProxy
from dramatiq.brokers.redis import _RedisConsumer
from dramatiq.errors import ConnectionClosed, DecodeError
from dramatiq.message import Message

from shared.logs import Log
from shared.queue import server
from shared.queue.fleet import NAMESPACE, FleetBroker

#: Seconds a consumer waits in Redis for a message before it looks whether it should stop.
BLOCK_S = 1.0

#: Seconds after which a consumer that lost its connection begins anew, and an acknowledgement is tried again.
#: dramatiq's 3 and 5 s are most of what a restart of Redis costs.
RECONNECT_S = 1

#: Seconds between two looks for messages that Redis says we have and we have not.
RECLAIM_EVERY_S = 5.0

dramatiq_worker.CONSUMER_RESTART_DELAY_SECS = RECONNECT_S
dramatiq_worker.POST_PROCESS_MESSAGE_RETRY_DELAY_SECS = RECONNECT_S


class BlockingConsumer(_RedisConsumer):
    """A consumer that takes a message within a millisecond of its arrival and costs nothing while idle.

    dramatiq's own sleeps up to a second between polls: a search through an idle queue took 235 ms. This one
    waits with BLMOVE from the head of the queue to the head of the queue, which returns as soon as there is
    an element and leaves the list as it was; the fetch itself stays dramatiq's script. The time limit of the
    wait is the safety net.
    """

    broker: FleetBroker

    def __init__(self, broker: FleetBroker, queue_name: str, prefetch: int, timeout: int) -> None:
        super().__init__(broker, queue_name, prefetch, timeout)  # type: ignore[no-untyped-call]
        self._block_s = min(BLOCK_S, timeout / 1000)
        # A connection of its own: a blocked one can do nothing else.
        self._waiting = server.client(broker.url, block_s=self._block_s)
        self._list = f"{NAMESPACE}:{queue_name}"
        self._has_room = threading.Event()
        self._held = broker.held[queue_name]
        self._next_reclaim = 0.0
        self._log = Log("queue").bind(queue=queue_name)

    def __next__(self) -> MessageProxy | None:
        """The next message; None when there was none for a while. Raises ConnectionClosed.

        Every error of Redis is one of the connection to dramatiq: it waits and begins anew. Other errors it
        takes for bugs, and forgets the message.
        """
        try:
            while self.message_cache or self._fetch():
                message = self._decoded(self.message_cache.pop(0))
                if message is not None:
                    return message
            return None
        except redis.RedisError as error:
            raise _closed(error, self.broker.url) from None

    def ack(self, message: MessageProxy) -> None:
        self._settle(message, self.broker.do_ack)

    def nack(self, message: MessageProxy) -> None:
        self._settle(message, self.broker.do_nack)

    def requeue(self, messages: Any) -> None:
        """Put messages that were taken and not begun back on the queue."""
        ids = [message.options["redis_message_id"] for message in messages]
        try:
            if ids:
                self.broker.put_back(self.queue_name, ids)
        except redis.RedisError as error:
            # They come back when our heartbeat is missed.
            self._log.warning("messages.not_put_back", count=len(ids), error=str(error))
        self._held.difference_update(ids)

    def close(self) -> None:
        """Put back what was fetched and not given out, and close the connection."""
        self.message_cache = []
        # Redis may be what is in trouble; then the messages come back when our heartbeat is missed.
        with suppress(redis.RedisError):
            self._reclaim()
        self._waiting.close()

    def _fetch(self) -> bool:
        """Take messages, or wait for some; False when it is time to look around."""
        now = time.monotonic()
        if now >= self._next_reclaim:
            self._next_reclaim = now + RECLAIM_EVERY_S
            self._reclaim()
        self._has_room.clear()
        room = self.prefetch - self.outstanding_message_count
        if room <= 0:
            # Every thread has work and as much again waits here: nothing to ask Redis for. The
            # heartbeat goes on through the consumer of the delay queue, which is never full.
            self._has_room.wait(self._block_s)
            return False
        self.message_cache = self.broker.do_fetch(self.queue_name, room)
        if self.message_cache:
            return True
        # redis-py annotates whole seconds; the server takes fractions.
        self._waiting.blmove(self._list, self._list, self._block_s, "LEFT", "LEFT")  # type: ignore[arg-type]
        return False

    def _decoded(self, data: bytes | None) -> MessageProxy | None:
        """The message, ready to be given out; None when it is gone meanwhile, or is none."""
        if data is None:
            return None
        try:
            message = Message.decode(data)
            problem = _problem(message, self.queue_name)
        except DecodeError as error:
            problem = f"the message cannot be decoded: {error.__cause__ or error}"
        if problem:
            self._bury(data, problem)
            return None
        # We never delay; a message that says so is due.
        message.options.pop("eta", None)
        self.queued_message_ids.add(message.message_id)
        self._held.add(message.options["redis_message_id"])
        return MessageProxy(message)

    def _bury(self, data: bytes, problem: str) -> None:
        """Move a message that is none to the dead letters; it cannot tell its id, its content finds it."""
        found: Any = self.broker.client.smembers(self.broker.taken(self.queue_name))
        for raw_id in found:
            if self.broker.client.hget(f"{self._list}.msgs", raw_id) == data:
                letter_id = raw_id.decode()
                self.broker.keep_error(letter_id, problem)
                self.broker.do_nack(self.queue_name, letter_id)
                self._log.error("message.refused", message_id=letter_id, error=problem)

    def _reclaim(self) -> None:
        """Put back what Redis says this process has taken and the process knows nothing of.

        The answer to a fetch was lost with its connection, or Redis came back with an older state.
        """
        taken: Any = self.broker.client.smembers(self.broker.taken(self.queue_name))
        forgotten = {raw_id.decode() for raw_id in taken} - self._held
        if forgotten:
            self.broker.put_back(self.queue_name, forgotten)
            self._log.warning("messages.reclaimed", count=len(forgotten))

    def _settle(self, message: MessageProxy, tell: Any) -> None:
        letter_id = message.options["redis_message_id"]
        try:
            tell(self.queue_name, letter_id)
        except redis.RedisError as error:
            if not self.broker.is_stopping:
                # dramatiq tries again until Redis is back.
                raise _closed(error, self.broker.url) from None
            self._log.warning("message.not_settled", message_id=letter_id, error=str(error))
        finally:
            self.queued_message_ids.discard(message.message_id)
            self._has_room.set()
        self._held.discard(letter_id)


def _problem(message: Message[Any], queue: str) -> str:
    """Why a message that could be decoded cannot be worked on; empty when it can."""
    # Whatever could be decoded may be anything, whatever the types say.
    options, actor, arguments = cast("tuple[Any, ...]", (message.options, message.actor_name, message.kwargs))
    if not isinstance(options, dict) or not isinstance(options.get("redis_message_id"), str):
        return "the message does not name itself: it was put on the queue by something else"
    if message.queue_name != queue:
        return f"the message belongs to the queue {message.queue_name!r}"
    if not isinstance(actor, str) or not isinstance(arguments, dict):
        return "the message has no actor or arguments"
    return ""


def _closed(error: redis.RedisError, url: str) -> ConnectionClosed:
    translated = server.translate(error, url)
    text = f"{translated.message}; try: {translated.hint}"
    return ConnectionClosed(text)  # type: ignore[no-untyped-call]
