import threading

from memline.shared.errors import QueueError
from memline.workers import context
from memline.workers.context import SweepTimer


def test_a_sweep_that_could_not_be_sent_is_sent_again_and_none_before_it_is_due(monkeypatch):
    stopping, sent = threading.Event(), []

    def send(message):
        sent.append((message.agent, message.deep))
        if len(sent) == 1:
            raise QueueError("Redis is away")
        stopping.set()

    monkeypatch.setattr(context, "send", send)
    monkeypatch.setattr(context, "SWEEP_EVERY_S", 0)
    timer = SweepTimer(stopping)
    timer.schedule("later", 3600)
    timer.schedule("main", 0, deep=True)

    timer.run()

    assert sent == [("main", True), ("main", True)]
