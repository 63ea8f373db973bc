"""The broker of a fleet: dramatiq's own on Redis, as it is; `dispatch.lua` of dramatiq describes its keys.

Beside them, for `shared.queue.dead_letters`:

    <fleet>:error:<id>    string: why this message became a dead letter     (gone after KEPT_ERROR_S)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.errors import ConnectionClosed
from dramatiq.middleware import Middleware

from memline.shared.errors import QueueError
from memline.shared.queue.redis_client import translate

#: Characters of an error that are kept, and seconds: as long as dramatiq keeps a dead letter.
MAX_ERROR_CHARS = 2_000
KEPT_ERROR_S = 7 * 86_400


class ConnectionLost(QueueError, ConnectionClosed):
    """Redis did not do what dramatiq asked for."""


class FleetBroker(RedisBroker):
    """dramatiq's broker, to which every error of Redis is one of the connection: it tries again.

    Others it would take for bugs, and leave the message unacknowledged until the process ends: as on a full
    server, which refuses even that.
    """

    url = ""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        command: Callable[..., Any] = super().__getattr__(name)  # type: ignore[no-untyped-call]

        def run(*args: Any) -> Any:
            try:
                return command(*args)
            except redis.RedisError as error:
                problem = translate(error, self.url)
                raise ConnectionLost(problem.message, hint=problem.hint) from error

        return run


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
            with suppress(redis.RedisError):
                broker.client.set(name, text, ex=KEPT_ERROR_S)
