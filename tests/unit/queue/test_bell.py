from __future__ import annotations

import threading

from shared.errors import QueueError
from shared.queue.bell import Bell


def test_a_bell_that_could_not_be_rung_rings_again() -> None:
    rung, tries = threading.Event(), []

    def ring(agent: str, deep: bool) -> None:
        tries.append((agent, deep))
        if len(tries) == 1:
            raise QueueError("Redis is away")
        rung.set()

    bell = Bell(ring, every_s=0.02)
    bell.start()
    bell.watch("main")

    assert rung.wait(5)
    bell.stop()
    assert tries[:2] == [("main", True), ("main", True)]


def test_an_agent_is_rung_for_when_it_asks_and_not_before() -> None:
    rung = threading.Event()
    heard: list[tuple[str, bool]] = []
    bell = Bell(lambda agent, deep: (heard.append((agent, deep)), rung.set()), every_s=3600)
    bell.start()
    bell.ask("later", 3600)

    bell.ask("main", 0)

    assert rung.wait(5)
    bell.stop()
    assert heard == [("main", False)]
