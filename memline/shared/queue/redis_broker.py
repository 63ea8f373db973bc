"""The broker of a fleet: dramatiq on Redis, with the consumer and the settings that make it prompt and safe.

A message that failed waits for its retry in Redis, not in the memory of a worker as dramatiq's does, so that
it survives a kill of any process. `<fleet>` is `memline:` and the fleet's name (`redis_client.namespace`):

    <fleet>:<queue>             list: ids of the messages that no worker has taken      (dramatiq's)
    <fleet>:<queue>.msgs        hash: id -> message, until it is acknowledged           (dramatiq's)
    <fleet>:<queue>.delayed     sorted set: id -> when it is retried (ms)               (ours)
    <fleet>:<queue>.XQ          sorted set: id -> when it became a dead letter (ms)     (dramatiq's)
    <fleet>:<queue>.XQ.msgs     hash: id -> message, its error among its options        (dramatiq's)
    <fleet>:embed.begun:<id>    string: the process that has begun to send this request (ours)
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import version
from typing import Any, cast

import msgspec
import redis
from dramatiq import worker as dramatiq_worker
from dramatiq.broker import MessageProxy
from dramatiq.brokers import redis as dramatiq_redis
from dramatiq.brokers.redis import RedisBroker, _RedisConsumer
from dramatiq.common import compute_backoff
from dramatiq.errors import ConnectionClosed, DecodeError
from dramatiq.message import Message

from memline.shared.errors import ModelMismatch, QueueError
from memline.shared.logs import Log
from memline.shared.packages import install_command
from memline.shared.queue import redis_client
from memline.shared.queue.middleware import ANSWERED, PAID, error_text
from memline.shared.queue.redis_client import RetryPolicy
from memline.shared.queue.redis_scripts import BEGIN, CHANGES, ENQUEUE, MOVE, PUT_BACK, RETRY_DUE
from memline.shared.queue.routes import (
    MAX_BACKOFF_MS,
    MESSAGE_RETRIES,
    MIN_BACKOFF_MS,
    is_retried,
    waits_for_disk,
)

#: Milliseconds without a heartbeat after which the messages of a worker process go back to their queue.
#: Every fetch is a heartbeat and happens at least every `BLOCK_S`; dramatiq's default of 60 s made a killed
#: worker's messages wait for minutes.
HEARTBEAT_TIMEOUT_MS = 15_000

#: Of a million commands, how many look for dead workers. All: it is one range query on a small set, and with
#: the default of 1,000 an idle queue takes a quarter of an hour to notice.
MAINTENANCE_CHANCE = 1_000_000

#: Seconds that Redis remembers that it has had a message which costs money: longer than a sender that lost
#: the answer goes on trying. Meanwhile the message may have been worked on and be gone.
REMEMBER_S = 900

#: Seconds that Redis remembers that a request was begun, when no answer comes: as long as it stays reserved
#: (`shared.scheduling.budget`). After an answer `REMEMBER_S`.
KEPT_BEGUN_S = 7 * 86_400

#: Seconds a consumer waits in Redis for a message before it looks whether it should stop.
BLOCK_S = 1.0

#: Seconds after which a consumer that lost its connection begins anew, and an acknowledgement is tried again.
#: dramatiq's 3 and 5 s are most of what a restart of Redis costs.
RECONNECT_S = 1

#: Seconds between two looks for messages that Redis says this process has and the process does not know of.
RECLAIM_EVERY_S = 5.0

#: Seconds between two looks for messages whose retry is due.
RETRY_EVERY_S = 0.5


class FleetBroker(RedisBroker):
    """RedisBroker whose consumers wait inside Redis, and whose messages have names and are retried."""

    def __init__(self, url: str, *, retry: RetryPolicy | None = None, **options: Any) -> None:
        """Raise QueueError when the private parts of dramatiq that are used here have changed."""
        script = dramatiq_redis._scripts.get("dispatch", b"")
        is_known = all(part in script for part in CHANGES)
        if not is_known or not hasattr(_RedisConsumer, "outstanding_message_count"):
            raise QueueError(
                f"dramatiq {version('dramatiq')} works otherwise than this release of Memline expects",
                hint=install_command("dramatiq>=2.2,<2.3"),
            )
        client = redis_client.client(url)
        super().__init__(  # type: ignore[no-untyped-call]
            client=client,
            namespace=redis_client.namespace(client),
            maintenance_chance=MAINTENANCE_CHANCE,
            heartbeat_timeout=HEARTBEAT_TIMEOUT_MS,
            **options,
        )
        self.url = url
        self.retry = retry or RetryPolicy(url)
        #: The process is told to stop: nothing is waited for any more.
        self.is_stopping = False
        #: Queue -> ids of the messages this process has taken and not finished, of all its consumers.
        self.taken_ids: dict[str, set[str]] = defaultdict(set)
        #: Queue -> when its consumer looked for a message last (monotonic seconds), also in vain.
        self.looked_at: dict[str, float] = {}
        for part, change in CHANGES.items():
            script = script.replace(part, change)
        self.scripts["dispatch"] = self.client.register_script(script)
        self._enqueue: Callable[..., Any] = self.client.register_script(ENQUEUE)
        self._begin: Callable[..., Any] = self.client.register_script(BEGIN)
        self._put_back: Callable[..., Any] = self.client.register_script(PUT_BACK)
        self._move: Callable[..., Any] = self.client.register_script(MOVE)
        self.retry_due: Callable[..., Any] = self.client.register_script(RETRY_DUE)

    @property
    def consumer_class(self) -> type[BlockingConsumer]:
        return BlockingConsumer

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Put a message on its queue under its own id, so that a sender can look whether it is still there.

        While Redis is away or full it is tried again as the retry policy says. Raises QueueError then.
        """
        own = {"redis_message_id": message.message_id, "fleet": self.namespace}
        answered = message.options.get(ANSWERED, "")
        message = message.copy(options=own)
        base = self.key(message.queue_name)
        self.emit_before("enqueue", message, delay)
        embed = self.key("embed")
        keys = [base, f"{base}.msgs", f"{embed}.msgs", f"{embed}.begun:{answered}"]
        if message.queue_name in PAID:
            keys.append(f"{base}.sent:{message.message_id}")
        args = [message.message_id, message.encode(), REMEMBER_S, answered]
        self.retry(self._enqueue, keys=keys, args=args)
        self.emit_after("enqueue", message, delay)
        return message

    def stop_waiting(self, within_s: float) -> None:
        """Give what cannot be sent or acknowledged so many seconds more: the process is told to stop."""
        self.is_stopping = True
        self.retry.stop_after(within_s)

    def key(self, queue: str) -> str:
        """Name the list of a queue; its other keys begin with it."""
        return f"{self.namespace}:{queue}"

    def taken_key(self, queue: str) -> str:
        """Name the set of ids that this process has taken from a queue and not acknowledged."""
        return self.key(f"__acks__.{self.broker_id}.{queue}")

    def has_taken(self, queue: str, message_id: str) -> bool:
        """Tell whether this process still has a message that it took: it was neither revoked nor taken."""
        pipe = self.client.pipeline(transaction=False)
        pipe.hexists(f"{self.key(queue)}.msgs", message_id)
        pipe.sismember(self.taken_key(queue), message_id)
        return all(pipe.execute())

    def begin(self, queue: str, message_id: str) -> bool:
        """Note that this process begins to send a request that it took; False when it may not any more."""
        base = self.key(queue)
        keys = [f"{base}.msgs", self.taken_key(queue), f"{base}.begun:{message_id}"]
        return bool(self._begin(keys=keys, args=[message_id, KEPT_BEGUN_S]))

    def take_over(self, queue: str) -> None:
        """Put back at once what other processes have taken from a queue that is this process's alone.

        Without it a new store worker would hear of its predecessor's last messages only when that one's
        heartbeat is missed, after it has sent again, and paid for, what those messages held.
        """

        def put_back() -> None:
            for key in self.client.scan_iter(match=self.key(f"__acks__.*.{queue}"), count=1_000):
                if (taken := key.decode()) != self.taken_key(queue):
                    self.put_back(queue, self.client.smembers(taken), taken=taken)

        self.retry(put_back)

    def put_back(self, queue: str, ids: Iterable[Any], *, taken: str = "") -> int:
        """Put messages that a process has taken (this one, or that of the key) back, in this order.

        Returns how many were still to be worked on.
        """
        base = self.key(queue)
        return int(
            self._put_back(keys=[taken or self.taken_key(queue), base, f"{base}.msgs"], args=list(ids))
        )

    def retry_or_dead_letter(self, queue: str, message_id: str, message: MessageProxy) -> None:
        """Delay a message whose actor raised until its next try, with backoff; dead-letter it after the last.

        A request that this worker cannot send and another one may is put back, however often. Else the same
        rule as in one process (`shared.queue.routes.is_retried`).
        """
        error = message._exception
        failure = {"error": error_text(error)} if error else {}
        if isinstance(error, ModelMismatch):
            # Nothing is wrong with the message: another worker may be set up for its model.
            self.put_back(queue, [message_id])
            return
        retries = message.options.get("retries", 0)
        if waits_for_disk(message.actor_name, error):
            retries = min(retries, MESSAGE_RETRIES - 1)
        if error is not None and retries < MESSAGE_RETRIES and is_retried(message.actor_name, error):
            options = {**failure, "retries": retries + 1}
            self._delay(queue, message_id, message, tries=retries, options=options)
        else:
            self.dead_letter(queue, message_id, message.copy(options=failure).encode())

    def _delay(
        self, queue: str, message_id: str, message: MessageProxy, *, tries: int, options: dict[str, Any]
    ) -> None:
        """Let a message that this process has taken wait for its next try, the longer the more it had."""
        _, delay_ms = compute_backoff(tries, factor=MIN_BACKOFF_MS, max_backoff=MAX_BACKOFF_MS)
        stored = f"{self.key(queue)}.msgs"
        keys = [self.taken_key(queue), stored, f"{self.key(queue)}.delayed", stored]
        self._move(keys=keys, args=[message_id, message.copy(options=options).encode(), delay_ms])

    def dead_letter(self, queue: str, message_id: str, content: bytes) -> None:
        """Move a message that this process has taken to the dead letters."""
        base = self.key(queue)
        keys = [self.taken_key(queue), f"{base}.msgs", f"{base}.XQ", f"{base}.XQ.msgs"]
        self._move(keys=keys, args=[message_id, content, 0])


class BlockingConsumer(_RedisConsumer):
    """Takes a message within a millisecond of its arrival, and costs nothing while idle.

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
        self._blocking = redis_client.client(broker.url, block_s=self._block_s)
        self._list = broker.key(queue_name)
        self._has_room = threading.Event()
        self._taken_ids = broker.taken_ids[queue_name]
        self._next_reclaim = 0.0
        #: The last fetch took all that lay on the queue.
        self._is_emptied = False
        # dramatiq's own delay queues stay empty: to look there is a heartbeat and nothing else.
        self._is_delay_queue = queue_name.endswith(".DQ")
        self._next_retry = float("inf") if self._is_delay_queue else 0.0
        self._log = Log("queue", queue=queue_name)

    def __next__(self) -> MessageProxy | None:
        """Take the next message; None when there was none for a while. Raises ConnectionClosed.

        Every error of Redis is one of the connection to dramatiq: it waits and begins anew. Other errors it
        takes for bugs, and forgets the message.
        """
        self.broker.looked_at[self.queue_name] = time.monotonic()
        try:
            while self.message_cache or self._fetch():
                message = self._decoded(self.message_cache.pop(0))
                if message is not None:
                    return message
            return None
        except redis.RedisError as error:
            raise _closed(error, self.broker.url) from None

    def ack(self, message: MessageProxy) -> None:
        self._finish(message, self.broker.do_ack)

    def nack(self, message: MessageProxy) -> None:
        self._finish(message, self.broker.retry_or_dead_letter, message)

    def requeue(self, messages: Any) -> None:
        """Put messages that were taken and not begun back on the queue."""
        ids = [message.options["redis_message_id"] for message in messages]
        try:
            if ids:
                self.broker.put_back(self.queue_name, ids)
        except redis.RedisError as error:
            # They come back when our heartbeat is missed.
            self._log.warning("messages.not_put_back", count=len(ids), error=str(error))
        self._taken_ids.difference_update(ids)

    def close(self) -> None:
        """Put back what was fetched and not begun, and close the connection."""
        self.message_cache = []
        # Redis may be what is in trouble; then the messages come back when our heartbeat is missed.
        with suppress(redis.RedisError):
            self._reclaim(expected=True)
        self._blocking.close()

    def _fetch(self) -> bool:
        """Take messages, or wait for some; False when it is time to look around."""
        now = time.monotonic()
        if now >= self._next_reclaim:
            self._next_reclaim = now + RECLAIM_EVERY_S
            self._reclaim()
        if now >= self._next_retry:
            self._next_retry = now + RETRY_EVERY_S
            self.broker.retry_due(keys=[f"{self._list}.delayed", self._list, f"{self._list}.msgs"])
        self._has_room.clear()
        room = self.prefetch - self.outstanding_message_count
        if room <= 0 or self.broker.is_stopping:
            # Every thread has work and as much again waits here, or the process ends. The
            # heartbeat goes on through the consumer of the delay queue, which is never full.
            self._has_room.wait(self._block_s)
            return False
        if not self._is_emptied:
            self.message_cache = self.broker.do_fetch(self.queue_name, room)
            # What left room was all that there was: a fetch for nothing is a tenth of what a message costs.
            self._is_emptied = len(self.message_cache) < room
            if self.message_cache:
                return True
        # Each wait is followed by a fetch, which is also the heartbeat.
        self._is_emptied = False
        # redis-py annotates whole seconds; the server takes fractions.
        self._blocking.blmove(self._list, self._list, self._block_s, "LEFT", "LEFT")  # type: ignore[arg-type]
        return False

    def _decoded(self, data: bytes | None) -> MessageProxy | None:
        """Decode a message for its actor; None when it was cancelled meanwhile, or is not a message."""
        if data is None:
            return None
        try:
            message = Message.decode(data)
            problem = _problem(message, self.queue_name, self.broker.namespace)
        except DecodeError as error:
            problem = f"the message cannot be decoded: {error.__cause__ or error}"
        if problem:
            self._refuse(data, problem)
            return None
        # dramatiq would keep a message with a time in this process until then.
        message.options.pop("eta", None)
        self.queued_message_ids.add(message.message_id)
        self._taken_ids.add(message.options["redis_message_id"])
        return MessageProxy(message)

    def _refuse(self, data: bytes, problem: str) -> None:
        """Dead-letter what is not a message; it cannot tell its id, so its content finds it."""
        content = msgspec.msgpack.encode({"refused": data, "options": {"error": problem}})
        for raw_id in self._taken():
            if self.broker.client.hget(f"{self._list}.msgs", raw_id) == data:
                message_id = raw_id.decode()
                self.broker.dead_letter(self.queue_name, message_id, content)
                self._log.error("message.refused", message_id=message_id, error=problem)

    def _reclaim(self, *, expected: bool = False) -> None:
        """Put back what Redis says this process has taken and the process does not know of.

        The answer to a fetch was lost with its connection, or Redis came back with an older state.
        """
        # First what the process knows: a message that is finished between the two looks is in neither.
        known = set(self._taken_ids)
        unknown = {raw_id.decode() for raw_id in self._taken()} - known
        # What was cancelled after it was taken is in no queue any more.
        if unknown and (count := self.broker.put_back(self.queue_name, unknown)):
            (self._log.debug if expected else self._log.warning)("messages.reclaimed", count=count)

    def _taken(self) -> set[bytes]:
        """Read which messages Redis says this process has taken."""
        taken: Any = self.broker.client.smembers(self.broker.taken_key(self.queue_name))
        return set(taken)

    def _finish(self, message: MessageProxy, tell: Callable[..., None], *more: MessageProxy) -> None:
        message_id = message.options["redis_message_id"]
        try:
            tell(self.queue_name, message_id, *more)
        except redis.RedisError as error:
            if not self.broker.is_stopping:
                # dramatiq tries again until Redis is back.
                raise _closed(error, self.broker.url) from None
            self._log.warning("message.not_settled", message_id=message_id, error=str(error))
        finally:
            self.queued_message_ids.discard(message.message_id)
            self._has_room.set()
        self._taken_ids.discard(message_id)


def _problem(message: Message[Any], queue: str, fleet: str) -> str:
    """Say why a message that could be decoded cannot be worked on; empty when it can."""
    # What could be decoded may be anything, whatever the types say.
    options, actor, arguments = cast("tuple[Any, ...]", (message.options, message.actor_name, message.kwargs))
    if not isinstance(options, dict) or not isinstance(options.get("redis_message_id"), str):
        return "the message does not name itself: it was put on the queue by something else"
    if options.get("fleet", fleet) != fleet:
        return f"the message belongs to the fleet {options['fleet']!r}, and this worker to {fleet!r}"
    if message.queue_name != queue:
        return f"the message belongs to the queue {message.queue_name!r}"
    if not isinstance(actor, str) or not isinstance(arguments, dict):
        return "the message has no actor or arguments"
    return ""


def _closed(error: redis.RedisError, url: str) -> ConnectionClosed:
    problem = redis_client.translate(error, url)
    return ConnectionClosed(f"{problem.message}; try: {problem.hint}")  # type: ignore[no-untyped-call]


dramatiq_worker.CONSUMER_RESTART_DELAY_SECS = RECONNECT_S
dramatiq_worker.POST_PROCESS_MESSAGE_RETRY_DELAY_SECS = RECONNECT_S
