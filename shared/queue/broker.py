"""The broker of this process and its settings: the only module that configures dramatiq.

Without `queue.url` the same actors run in one process on dramatiq's StubBroker. Messages are MessagePack,
because vectors and texts must stay bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from queue import Queue
from typing import TYPE_CHECKING, Any

import dramatiq
import msgspec
from dramatiq.brokers.stub import StubBroker
from dramatiq.encoder import Encoder
from dramatiq.middleware import Middleware, Retries

from shared.errors import MemlineError, QueueError

if TYPE_CHECKING:
    from shared.queue.patience import Patience

#: Tries after the first for an actor that raises. Few: what matters is in rows and is swept again, and an
#: error that repeats is a bug or a full disk, which a hundred tries do not mend.
MAX_RETRIES = 3

#: Milliseconds before the first retry, and at most: a full disk or a locked file may pass in seconds.
MIN_BACKOFF_MS = 200
MAX_BACKOFF_MS = 5_000

#: Queues of the pipeline, as in the Procfile.
QUEUES = ("chunk", "embed", "batch", "store", "query", "flush")


class MessagePack(Encoder):
    """Messages as MessagePack: a vector costs 4 bytes a number, as JSON it costs thirty times more."""

    def encode(self, data: dict[str, Any]) -> bytes:
        return msgspec.msgpack.encode(data)

    def decode(self, data: bytes) -> dict[str, Any]:
        try:
            decoded = msgspec.msgpack.decode(data)
        except msgspec.DecodeError as error:
            raise ValueError(f"not a MessagePack message: {error}") from error
        if not isinstance(decoded, dict):
            raise ValueError("not a message")
        return decoded


class Faults(Middleware):
    """Remembers the last error of an actor, so that a command that waits for the work can end with it."""

    def __init__(self) -> None:
        self.last: BaseException | None = None

    def after_process_message(
        self,
        broker: dramatiq.Broker,
        message: dramatiq.broker.MessageProxy,
        *,
        result: Any = None,
        exception: BaseException | None = None,
    ) -> None:
        if exception is not None:
            self.last = exception


class NoContent(logging.Filter):
    """Keeps what messages carry out of dramatiq's log lines, which name a message by all of its content.

    Of an error that we raise on purpose there is a line of our own; a traceback would say no more.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], MemlineError):
            return False
        if isinstance(record.args, tuple):
            record.args = tuple(map(_named, record.args))
        return True


def _named(value: object) -> object:
    is_message = isinstance(value, dramatiq.Message | dramatiq.broker.MessageProxy)
    return f"{value.actor_name}({value.message_id})" if is_message else value  # type: ignore[attr-defined]


_SPEAKERS = (
    "dramatiq.worker.WorkerThread",
    "dramatiq.middleware.retries.Retries",
    *(f"dramatiq.worker.ConsumerThread({queue}{kind})" for queue in QUEUES for kind in ("", ".DQ")),
)
for _name in _SPEAKERS:
    logging.getLogger(_name).addFilter(NoContent())
# An actor's own logger tells at DEBUG what it was given: whole notes.
logging.getLogger("workers").setLevel(logging.INFO)
# A command that shows its errors itself keeps no log; without a handler Python would print these lines.
logging.getLogger("dramatiq").addHandler(logging.NullHandler())


def in_process() -> StubBroker:
    """The broker for one process, made the process's broker; its queues are in memory, the truth in rows.

    Called again it gives the same broker: actors are bound to the first one for as long as Python runs.
    """
    global _in_process
    if _in_process is None:
        dramatiq.set_encoder(MessagePack())
        _in_process = StubBroker(
            middleware=[
                # No TimeLimit: it raises inside running code, also between two statements of a transaction;
                # what can hang, the provider call, has its own time limit. No AgeLimit: rows decide.
                Retries(max_retries=MAX_RETRIES, min_backoff=MIN_BACKOFF_MS, max_backoff=MAX_BACKOFF_MS),
                Faults(),
            ]
        )
    # Also when it was made before: a command may have used a fleet in between.
    dramatiq.set_broker(_in_process)
    return _in_process


def forget_messages(broker: StubBroker) -> None:
    """Drop what an earlier run of this process left, and the count of what its threads had fetched."""
    for name in broker.queues:
        # Flushed only, the queue would wait for ever for messages that a stopped thread had taken.
        broker.queues[name] = Queue()


def current() -> dramatiq.Broker | None:
    """The broker that was made before in this process; None when there is none yet."""
    return _in_process


def on_redis(
    url: str,
    *,
    patience: Patience | None = None,
    middleware: Sequence[Middleware] = (),
    is_checked: bool = True,
) -> dramatiq.Broker:
    """The broker of a fleet, made the process's broker.

    `patience`: how long sending goes on trying while Redis is away. `is_checked`: first see that the server
    can be trusted; a question is too short-lived to care. Raises QueueError without a URL, and
    for a server that cannot be trusted with messages.
    """
    if not url:
        raise QueueError(
            "workers as separate processes need a queue, and no queue.url is set",
            hint="set MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0, or run everything in one: memline up",
        )
    from shared.queue import server
    from shared.queue.fleet import FleetBroker

    if is_checked:
        server.check(url)
    dramatiq.set_encoder(MessagePack())
    broker = FleetBroker(url, patience=patience, middleware=list(middleware))
    dramatiq.set_broker(broker)
    return broker


def faults(broker: dramatiq.Broker) -> Faults:
    """The error memory of a broker made here."""
    return next(item for item in broker.middleware if isinstance(item, Faults))


_in_process: StubBroker | None = None
