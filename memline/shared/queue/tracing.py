"""Continue the trace of a message while a worker works on it (`shared.traces`)."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

from dramatiq.middleware import Middleware

from memline.shared import traces
from memline.shared.queue import hosts
from memline.shared.queue.messages import agent_of


class TraceMessages(Middleware):
    """Gives a message that carries a context a span of its own. Others begin no trace: most are sweeps."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def before_process_message(self, broker: Any, message: Any) -> None:
        self._thread.span = None
        if not traces.is_on() or traces.PARENT not in message.options:
            return
        role, host = hosts.split(message.queue_name)
        # https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
        attributes = {
            "messaging.system": "dramatiq",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": message.queue_name,
            "messaging.message.id": message.message_id,
            "memline.actor": message.actor_name,
            "memline.agent": agent_of(message.args),
            **({"memline.index_host": host} if host else {}),
        }
        # Entered here and left below: dramatiq calls the actor between its two.
        span: AbstractContextManager[traces.Span] = traces.span(
            f"process {role}", kind="CONSUMER", carried=message.options, attributes=attributes
        )
        span.__enter__()
        self._thread.span = span

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        span = getattr(self._thread, "span", None)
        self._thread.span = None
        if span is None:
            return
        if exception is None:
            span.__exit__(None, None, None)
            return
        try:
            span.__exit__(type(exception), exception, None)
        except BaseException as same:
            # It told the span; the message is dramatiq's.
            if same is not exception:
                raise

    after_skip_message = after_process_message
