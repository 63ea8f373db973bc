"""Run the parts of a process until it is told to stop: the loop of `up`, `watch`, `worker` and `serve`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack

from memline.shared.liveness import Liveness

#: Something that a process does while the block of this context manager runs. It gives what is called several
#: times a second, to do what is due; what that raises ends the process.
Part = AbstractContextManager[Callable[[], object]]

#: Seconds between two calls.
TICK_S = 0.25


def run(parts: Sequence[Part], stop: threading.Event, *, liveness: Liveness | None = None) -> None:
    """Start parts in this order, call what they give until `stop` is set, and end them in reverse.

    So what makes work stands behind those that do it, and ends first. Raises what a part raises.
    """
    liveness = liveness or Liveness()
    with ExitStack() as stack:
        ticks = [stack.enter_context(part) for part in parts]
        liveness.ready()
        while not stop.wait(TICK_S):
            for tick in ticks:
                tick()
            liveness.alive()
        liveness.stopping()
