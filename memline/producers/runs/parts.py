"""Run the parts of a process until it is told to stop: the loop of `up`, `watch`, `worker` and `serve`.

A part is a context manager that works while its block runs, in threads of its own or when it is ticked.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from memline.shared.liveness import Liveness

#: Seconds between two calls of `tick`.
TICK_S = 0.25


class Part(AbstractContextManager[object], Protocol):
    """Something that a process does beside other things."""

    def tick(self) -> None:
        """Do what is due. What it raises ends the process."""
        ...


def run(parts: Sequence[Part], stop: threading.Event, *, liveness: Liveness | None = None) -> None:
    """Start parts in this order, tick them until `stop` is set, and stop them in reverse.

    So what makes work stands behind those that do it, and ends first. Raises what a part raises.
    """
    liveness = liveness or Liveness()
    with ExitStack() as stack:
        for part in parts:
            stack.enter_context(part)
        liveness.ready()
        while not stop.wait(TICK_S):
            for part in parts:
                part.tick()
            liveness.alive()
        liveness.stopping()
