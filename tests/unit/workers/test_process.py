from memline.shared.queue.broker import in_process
from memline.shared.queue.messages import KINDS
from memline.shared.queue.routes import QUEUES
from memline.workers.process import serve_queues


def test_every_queue_has_a_module_that_declares_its_actors(context):
    broker = in_process()

    with serve_queues(broker, context, dict.fromkeys(QUEUES, 1), idle_ms=10, stop_ms=10_000):
        pass

    for kind in KINDS.values():
        assert broker.get_actor(kind.actor).queue_name == kind.queue
