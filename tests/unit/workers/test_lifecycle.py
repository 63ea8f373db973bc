from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import dramatiq

from memline.shared import logs
from memline.shared.config.installation import NO_QUEUE
from memline.shared.queue.broker import in_process
from memline.shared.queue.messages import KINDS
from memline.shared.queue.routes import QUEUES
from memline.workers import lifecycle
from memline.workers.process import ShowWork


def test_every_queue_has_a_module_that_declares_its_actors():
    broker = in_process()

    lifecycle.stop(lifecycle.start(broker, dict.fromkeys(QUEUES, 1), idle_ms=10), timeout_ms=10_000)

    for kind in KINDS.values():
        assert broker.get_actor(kind.actor).queue_name == kind.queue


def test_lines_of_a_thread_that_works_on_a_message_name_it(monkeypatch):
    seen = []
    fields, broker = ShowWork(NO_QUEUE, {"store": 1}), cast(dramatiq.Broker, None)
    message = cast(
        Any,
        SimpleNamespace(
            queue_name="store", message_id="m", actor_name="sweep", args=[{"agent": "main"}], options={}
        ),
    )
    original = logs.context

    def context(**bound):
        seen.append(bound)
        return original(**bound)

    monkeypatch.setattr(logs, "context", context)
    fields.before_process_message(broker, message)
    fields.after_process_message(broker, message)

    assert seen == [{"queue": "store", "message_id": "m", "actor": "sweep", "agent": "main"}]
