"""How many requests may be out at a time: two for each embed thread that is alive.

One is being answered, the other lies in the worker so that its thread never waits. More would only hide work
in the queue, where a live edit stands behind it.
"""

from __future__ import annotations

from typing import Protocol

#: Requests out per embed thread.
PER_THREAD = 2

#: Threads of one embed process, as in the Procfile: what is reckoned with while none is alive.
EMBED_THREADS = 4

#: Texts out at most, over all requests. A text with its vector of 1,536 numbers is about 8 KB, so that this
#: is 64 MB in Redis; when many threads are alive each request is smaller, none of them goes without.
MAX_ROWS_OUT = 8_192


class Credits(Protocol):
    """Asked by the dispatcher before it leases; fixed in one process, counted in Redis for a fleet."""

    def now(self) -> int:
        """Requests that may be out at this moment."""
        ...


class InProcessCredits:
    """Credits of one process, whose threads are known."""

    def now(self) -> int:
        return PER_THREAD * EMBED_THREADS


def rows_per_request(max_rows: int, credits: int) -> int:
    """A provider's cap of rows, made smaller when so many credits would put too much into Redis."""
    return max(1, min(max_rows, MAX_ROWS_OUT // credits))
