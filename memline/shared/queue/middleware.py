"""What is done before and after each message that a worker takes, beside its actor."""

from __future__ import annotations

from typing import Any

from dramatiq.middleware import Middleware, SkipMessage

from memline.shared.errors import QueueError
from memline.shared.logs import Log
from memline.shared.queue.heartbeat import Heartbeat
from memline.shared.queue.messages import MessageRefused, agent_of
from memline.shared.queue.routes import QUEUES, actor_of

#: Characters of an error that are kept.
MAX_ERROR_CHARS = 2_000

#: Option of a message: the id of the request that it is the last answer to.
ANSWERED = "answered"

#: Queues whose messages cost money.
PAID = frozenset(name for name, queue in QUEUES.items() if queue.is_paid)

_LOG = Log("queue")


class ShowAlive(Heartbeat, Middleware):
    """Tells Redis what this process works on."""


class SkipRevoked(Middleware):
    """Skips a request that is not this worker's any more, before it is paid for.

    A worker that was suspended, or whose Redis came back empty, still has messages in its memory that have
    been sent again to others.
    """

    def before_process_message(self, broker: Any, message: Any) -> None:
        if (queue := message.queue_name) not in PAID:
            return
        try:
            if broker.retry(broker.has_taken, queue, message.options["redis_message_id"]):
                return
        except QueueError as error:
            # Not known: the actor asks Redis for the limits before it sends anything, and fails there.
            Log("queue").warning("message.not_checked", message_id=message.message_id, error=error.message)
            return
        raise SkipMessage("the request has been sent again meanwhile")


class FailMessages(Middleware):
    """Marks a message whose actor raised, so that the broker retries it or makes it a dead letter."""

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        if exception is None:
            return
        _LOG.error(
            "message.failed",
            message_id=message.message_id,
            queue=message.queue_name,
            actor=message.actor_name,
            agent=agent_of(message.args),
            error=error_text(exception),
        )
        if actor_of(message.actor_name).is_kept or isinstance(exception, MessageRefused):
            message.fail()


def error_text(error: BaseException) -> str:
    """Say an error as a dead letter keeps it.

    Half a letter of a file name, which UTF-8 cannot say, would keep a message from being moved.
    """
    return f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS].encode("utf-8", "replace").decode()
