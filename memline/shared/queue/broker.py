"""The broker of this process and its settings, and what is sent through it: dramatiq is configured here.

Without `queue.url` the same actors run in one process on dramatiq's StubBroker. Messages are MessagePack,
because vectors and texts must stay bytes.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import cache, wraps
from queue import Queue
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import dramatiq
import msgspec
from dramatiq.brokers.stub import StubBroker
from dramatiq.encoder import Encoder
from dramatiq.middleware import Middleware, Retries

from memline.shared.errors import MemlineError, QueueError
from memline.shared.queue import messages, redis_client
from memline.shared.queue.messages import M, Wire
from memline.shared.queue.middleware import ANSWERED
from memline.shared.queue.routes import (
    MAX_BACKOFF_MS,
    MESSAGE_RETRIES,
    MIN_BACKOFF_MS,
    QUEUES,
    ROUTES,
    is_retried,
)

if TYPE_CHECKING:
    from memline.shared.queue.redis_broker import FleetBroker
    from memline.shared.queue.redis_client import RetryPolicy


class MessagePack(Encoder):
    """Encodes messages as MessagePack: a vector costs 4 bytes a number, as JSON thirty times more."""

    def encode(self, data: dict[str, Any]) -> bytes:
        return msgspec.msgpack.encode(data)

    def decode(self, data: bytes) -> dict[str, Any]:
        try:
            return msgspec.msgpack.decode(data, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ValueError(f"not a valid MessagePack message: {error}") from error


class Faults(Retries):
    """Tries a message whose actor raised again, as a fleet does in Redis, and remembers the last error.

    A command that waits for the work can end with it.
    """

    last: BaseException | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        #: Threads that a run which ended left to themselves: what they raise is no trouble of the next run.
        self.left_behind: WeakSet[threading.Thread] = WeakSet()

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        if exception is None or threading.current_thread() in self.left_behind:
            return
        self.last = exception
        if is_retried(message.actor_name, exception):
            super().after_process_message(  # type: ignore[no-untyped-call]
                broker, message, result=result, exception=exception
            )


class RedactMessages(logging.Filter):
    """Keeps what messages carry out of dramatiq's log lines, which name a message by all of its content.

    An error that we raise on purpose has a line of our own; a traceback would say no more.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], MemlineError):
            return False
        if isinstance(record.args, tuple):
            record.args = tuple(
                f"{value.actor_name}({value.message_id})"
                if isinstance(value, dramatiq.Message | dramatiq.broker.MessageProxy)
                else value
                for value in record.args
            )
        return True


def _redact(*loggers: str) -> None:
    for name in loggers:
        logging.getLogger(name).addFilter(RedactMessages())


def _consumers(queues: Iterable[str]) -> list[str]:
    """Name the loggers of dramatiq's consumers of these queues."""
    return [f"dramatiq.worker.ConsumerThread({queue}{kind})" for queue in queues for kind in ("", ".DQ")]


_redact("dramatiq.worker.WorkerThread", "dramatiq.middleware.retries.Retries", *_consumers(QUEUES))
# An actor's own logger tells at DEBUG what it was given: whole notes.
logging.getLogger("memline.workers").setLevel(logging.INFO)
# A command that shows its errors itself keeps no log; without a handler Python would print these lines.
logging.getLogger("dramatiq").addHandler(logging.NullHandler())


def in_process() -> StubBroker:
    """Make the broker for one process the process's broker; its queues are in memory, the truth in rows."""
    broker = _stub()
    # Also when it was made before: a command may have used a fleet in between.
    dramatiq.set_broker(broker)
    return broker


@cache
def _stub() -> StubBroker:
    """Make the one broker of its kind: actors are bound to the first one for as long as Python runs."""
    dramatiq.set_encoder(MessagePack())
    # No TimeLimit: it raises inside running code, also between two statements of a transaction; what can
    # hang, the provider call, has its own time limit. No AgeLimit: rows decide.
    retries = Faults(max_retries=MESSAGE_RETRIES, min_backoff=MIN_BACKOFF_MS, max_backoff=MAX_BACKOFF_MS)
    return StubBroker(middleware=[retries])


def forget_messages(broker: StubBroker) -> None:
    """Drop what an earlier run of this process left, and the count of what its threads had fetched."""
    for name in broker.queues:
        # Flushed only, the queue would wait for ever for messages that a stopped thread had taken.
        broker.queues[name] = Queue()


def on_redis(
    url: str, *, retry: RetryPolicy | None = None, middleware: Sequence[Middleware] = ()
) -> FleetBroker:
    """Make the broker of a fleet the process's broker.

    `retry`: how long sending goes on trying while Redis is away. Raises QueueError, also for a server that
    cannot be trusted.
    """
    if not url:
        raise QueueError(
            "workers as separate processes need a queue, and queue.url is not set",
            hint="MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0; in one process: memline up",
        )
    # redis takes 45 ms to import, which one process never needs.
    from memline.shared.queue.redis_broker import FleetBroker

    redis_client.check(url)
    dramatiq.set_encoder(MessagePack())
    broker = FleetBroker(url, retry=retry, middleware=middleware)
    dramatiq.set_broker(broker)
    return broker


def faults(broker: dramatiq.Broker) -> Faults:
    """Give the error memory of a broker made here."""
    return next(item for item in broker.middleware if isinstance(item, Faults))


def actor(kind: type[M]) -> Callable[[Callable[[M], None]], Callable[[dict[str, Any]], None]]:
    """Declare a function as the actor of a message, which it is called with; see `ROUTES` for its name."""
    role, row = ROUTES[kind]

    def declare(function: Callable[[M], None]) -> Callable[[dict[str, Any]], None]:
        @wraps(function)
        def run(raw: dict[str, Any]) -> None:
            function(messages.decode(raw, kind))

        declared: Callable[[dict[str, Any]], None] = dramatiq.actor(queue_name=role, actor_name=row.name)(run)
        return declared

    return declare


def send(message: Wire) -> str:
    """Put a message on its queue, through the broker of this process; returns its id.

    A request's message is named after its lease, and so are the answers to it, so that the dispatcher can see
    whether it is missing or became a dead letter.
    """
    role, row = ROUTES[type(message)]
    message_id = uuid.uuid4().hex
    if isinstance(message, messages.EmbedTexts):
        message_id = message.lease
    elif isinstance(message, messages.StoreVectors | messages.EmbedFailed):
        message_id = f"{message.lease}.{message_id}"
    # The last answer of a request; a failure may be followed by another message of it.
    done = {ANSWERED: message.lease} if isinstance(message, messages.StoreVectors) else {}
    dramatiq.get_broker().enqueue(
        dramatiq.Message(
            queue_name=role,
            actor_name=row.name,
            args=(messages.encode(message),),
            kwargs={},
            options=done,
            message_id=message_id,
        )
    )
    return message_id
