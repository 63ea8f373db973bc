"""The broker of this process and its settings, and what is sent through it: dramatiq is configured here.

Without `queue.url` the same actors run in one process on dramatiq's StubBroker.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import cache, partial, wraps
from queue import Queue
from typing import Any

import dramatiq
import msgspec
from dramatiq.brokers.stub import StubBroker
from dramatiq.encoder import Encoder
from dramatiq.middleware import CurrentMessage, Retries

from memline.shared import logs
from memline.shared.errors import IndexUnwritable, MemlineError, QueueError
from memline.shared.logs import Log
from memline.shared.queue import messages
from memline.shared.queue.messages import ENVELOPES, KINDS, Envelope, M, MessageRefused, Wire, agent_of
from memline.shared.queue.routes import QUEUES

#: Tries after the first for an actor that raises. Few: what matters is in rows and is swept again, and an
#: error that repeats is a bug, which a hundred tries do not mend.
MESSAGE_RETRIES = 3

#: Milliseconds before the first retry, and at most: a full disk or a locked file may pass in seconds. Each
#: wait is twice the one before, and up to twice as long by chance.
MIN_BACKOFF_MS = 200
MAX_BACKOFF_MS = 5_000


class MessagePack(Encoder):
    """Encodes messages for Redis: a vector costs 4 bytes a number, as JSON thirty times more.

    A message that stays in this process is handed over as it is.
    """

    def encode(self, data: dict[str, Any]) -> Any:
        # dramatiq's Redis broker gives each message an id of its own.
        return msgspec.msgpack.encode(data) if "redis_message_id" in data["options"] else data

    def decode(self, data: Any) -> dict[str, Any]:
        """Decode a message.

        What is none becomes a message of no actor, about which dramatiq says so. An error would end its
        consumer, which forgets what it has fetched beside it.
        """
        if isinstance(data, dict):
            return data
        try:
            envelope = ENVELOPES.decode(data)
        except msgspec.DecodeError:
            envelope = Envelope("", "unreadable", [], {}, {"redis_message_id": ""}, "", 0)
        return msgspec.structs.asdict(envelope)


class Faults(Retries):
    """dramatiq's retries, as the kinds of messages have them, with a line in the log."""

    def __init__(self) -> None:
        super().__init__(max_retries=MESSAGE_RETRIES, min_backoff=MIN_BACKOFF_MS, max_backoff=MAX_BACKOFF_MS)

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        if exception is None:
            return
        Log("queue").error(
            "message.failed",
            message_id=message.message_id,
            queue=message.queue_name,
            actor=message.actor_name,
            agent=agent_of(message.args),
            error=f"{type(exception).__name__}: {exception}",
        )
        kind = KINDS.get(message.actor_name)
        if kind is None or kind.is_kept:
            try:
                super().after_process_message(  # type: ignore[no-untyped-call]
                    broker, message, result=result, exception=exception
                )
            except QueueError:
                # Redis takes no message for later; it takes this one as a dead letter once it is back.
                message.fail()


def is_retried(kind: type[Wire], tries: int, error: BaseException) -> bool:
    """Tell whether a message is tried again after this error, when it was so often already."""
    if isinstance(error, MessageRefused):
        return False
    if isinstance(error, IndexUnwritable) and kind.waits_for_disk:
        # It may have room again.
        return True
    return tries < MESSAGE_RETRIES


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


for _name in (
    "worker.Worker",
    "worker.WorkerThread",
    "middleware.retries.Faults",
    *(f"worker.ConsumerThread({queue}{kind})" for queue in QUEUES for kind in ("", ".DQ")),
):
    logging.getLogger(f"dramatiq.{_name}").addFilter(RedactMessages())
# An actor's own logger tells at DEBUG what it was given: whole notes.
logging.getLogger("memline.workers").setLevel(logging.INFO)
# A command that shows its errors itself keeps no log; without a handler Python would print these lines.
logging.getLogger("dramatiq").addHandler(logging.NullHandler())

#: Calls what `send` does, again while Redis is away; None to try once.
_retry: Callable[..., object] | None = None

#: The last error that an actor of this run raised. Each run has its own: a thread that one which ended left
#: behind is no trouble of the next.
_errors: deque[Exception] = deque(maxlen=1)


def use(broker: dramatiq.Broker, retry: Callable[..., object] | None = None) -> None:
    """Make a broker the process's; `retry` calls what sends."""
    global _retry
    _retry = retry
    dramatiq.set_broker(broker)


def in_process() -> StubBroker:
    """Make the broker for one process the process's broker, without what an earlier run left in it.

    Its queues are in memory, the truth in rows.
    """
    global _errors
    _errors = deque(maxlen=1)
    broker = _stub()
    for name in broker.queues:
        # Flushed only, the queue would wait for ever for messages that a stopped thread had taken.
        broker.queues[name] = Queue()
    # Also when it was made before: a command may have used a fleet in between.
    use(broker)
    return broker


@cache
def _stub() -> StubBroker:
    """Make the one broker of its kind: actors are bound to the first one for as long as Python runs."""
    dramatiq.set_encoder(MessagePack())
    # No TimeLimit: it raises inside running code, also between two statements of a transaction; what can
    # hang, the provider call, has its own time limit. No AgeLimit: rows decide.
    return StubBroker(middleware=[CurrentMessage(), Faults()])


def last_error() -> Exception | None:
    """Return the last error that an actor of this run raised: a command that waits can end with it."""
    return _errors[-1] if _errors else None


def actor(kind: type[M]) -> Callable[[Callable[[M], None]], Callable[[dict[str, Any] | M], None]]:
    """Declare a function as the actor of a kind of message, which it is called with."""

    def declare(function: Callable[[M], None]) -> Callable[[dict[str, Any] | M], None]:
        @wraps(function)
        def run(raw: dict[str, Any] | M) -> None:
            errors, sent = _errors, CurrentMessage.get_current_message()
            name = sent.message_id if sent is not None else ""
            with logs.context(queue=kind.queue, message_id=name, actor=kind.actor, agent=agent_of([raw])):
                try:
                    function(raw if isinstance(raw, kind) else messages.decode(raw, kind))
                except Exception as error:
                    errors.append(error)
                    raise

        declared: Callable[[dict[str, Any] | M], None] = dramatiq.actor(
            queue_name=kind.queue, actor_name=kind.actor, retry_when=partial(is_retried, kind)
        )(run)
        return declared

    return declare


def send(message: Wire) -> None:
    """Put a message on its queue, through the broker of this process. Raises QueueError when that fails."""
    enqueue = dramatiq.get_broker().enqueue
    if _retry is None:
        enqueue(envelope(message))
    else:
        _retry(enqueue, envelope(message))


def envelope(message: Wire) -> dramatiq.Message[Any]:
    """Address a message to its queue and actor."""
    return dramatiq.Message(
        queue_name=message.queue, actor_name=message.actor, args=(message,), kwargs={}, options={}
    )
