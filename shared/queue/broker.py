"""The broker of this process and its settings: the only module that configures dramatiq.

Without `queue.url` the same actors run in one process on dramatiq's StubBroker. Messages are MessagePack,
because vectors and texts must stay bytes.
"""

from __future__ import annotations

from typing import Any

import dramatiq
import msgspec
from dramatiq.brokers.stub import StubBroker
from dramatiq.encoder import Encoder
from dramatiq.errors import DecodeError
from dramatiq.middleware import Middleware, Retries

#: Tries after the first for an actor that raises. Few: what matters is in rows and is swept again, and an
#: error that repeats is a bug or a full disk, which a hundred tries do not mend.
MAX_RETRIES = 3

#: Milliseconds before the first retry, and at most: a full disk or a locked file may pass in seconds.
MIN_BACKOFF_MS = 200
MAX_BACKOFF_MS = 5_000

#: Queues of the pipeline, as in the Procfile.
QUEUES = ("chunk", "embed", "store", "query")


class MessagePack(Encoder):
    """Messages as MessagePack: a vector costs 4 bytes a number, as JSON it costs thirty times more."""

    def encode(self, data: dict[str, Any]) -> bytes:
        return msgspec.msgpack.encode(data)

    def decode(self, data: bytes) -> dict[str, Any]:
        try:
            decoded = msgspec.msgpack.decode(data)
        except msgspec.DecodeError as error:
            raise DecodeError("not a MessagePack message", data, error) from error
        if not isinstance(decoded, dict):
            raise DecodeError("not a message", data, None)
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


def in_process() -> StubBroker:
    """A broker for one process, made the process's broker; its queues are in memory, the truth in rows."""
    dramatiq.set_encoder(MessagePack())
    broker = StubBroker(
        middleware=[
            # No TimeLimit: it raises inside running code, also between two statements of a transaction;
            # what can hang, the provider call, has its own time limit. No AgeLimit: rows decide.
            Retries(max_retries=MAX_RETRIES, min_backoff=MIN_BACKOFF_MS, max_backoff=MAX_BACKOFF_MS),
            Faults(),
        ]
    )
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    return broker


def faults(broker: dramatiq.Broker) -> Faults:
    """The error memory of a broker made here."""
    return next(item for item in broker.middleware if isinstance(item, Faults))
