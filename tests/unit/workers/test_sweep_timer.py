import threading

from memline.shared.errors import QueueError
from memline.workers.context import SweepTimer


def test_a_sweep_that_could_not_be_sent_is_sent_again():
    done, tries = threading.Event(), []

    def send_sweep(agent, deep):
        tries.append((agent, deep))
        if len(tries) == 1:
            raise QueueError("Redis is away")
        done.set()

    timer = SweepTimer(send_sweep, every_s=0.02)
    timer.start()
    timer.watch("main")

    assert done.wait(120)
    timer.stop()
    assert tries[:2] == [("main", True), ("main", True)]


def test_an_agent_is_swept_when_that_is_due_and_not_before():
    done = threading.Event()
    sent = []
    timer = SweepTimer(lambda agent, deep: (sent.append((agent, deep)), done.set()), every_s=3600)
    timer.start()
    timer.schedule("later", 3600)

    timer.schedule("main", 0)

    assert done.wait(120)
    timer.stop()
    assert sent == [("main", False)]
