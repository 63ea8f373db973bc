from types import SimpleNamespace

from memline.shared import logs
from memline.shared.queue.broker import in_process
from memline.shared.queue.messages import KINDS, Sweep
from memline.shared.queue.routes import QUEUES
from memline.workers import store
from memline.workers.process import serve_queues
from tests.unit.workers.conftest import work


def test_every_queue_has_a_module_that_declares_its_actors(context):
    broker = in_process()

    with serve_queues(broker, context, dict.fromkeys(QUEUES, 1), idle_ms=10, stop_ms=10_000):
        pass

    for kind in KINDS.values():
        assert broker.get_actor(kind.actor).queue_name == kind.queue


def test_lines_of_a_thread_that_works_on_a_message_name_it(context, monkeypatch):
    seen = []
    original = logs.context

    def noted(**bound):
        seen.append(bound)
        return original(**bound)

    monkeypatch.setattr(logs, "context", noted)
    monkeypatch.setattr(
        "memline.shared.queue.broker.CurrentMessage.get_current_message",
        lambda: SimpleNamespace(message_id="m"),
    )
    work(store.sweep, Sweep(agent="main"))

    assert seen == [{"queue": "store", "message_id": "m", "actor": "sweep", "agent": "main"}]
