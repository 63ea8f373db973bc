"""Name the queues of a fleet, each served by the worker role of the same name.

A new queue is a row here, its messages in `shared.queue.messages`, and the module of its name in `workers`;
the processes of a fleet, their files and the dashboard follow from the row.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexFault
from memline.shared.index.batches import open_batches
from memline.shared.index.driver import reading_if_any


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue."""

    #: Messages a worker process works on at a time.
    threads: int
    #: Whether other threads would break what the actors rely on.
    is_single: bool = False
    #: Whether its workers work on the index itself: they are of its home.
    is_beside_index: bool = False
    #: Whether its work is done without a worker too: one is missed only where a message waits for it.
    is_optional: bool = False
    #: Whether `memline index` needs it where one process does the work.
    is_indexing: bool = False


QUEUES = {
    # Reading and splitting hold the interpreter lock: two threads hide the disk, more do not help.
    "chunk": Queue(threads=2, is_indexing=True),
    "embed": Queue(threads=4, is_indexing=True),
    # Two threads, so that a large upload holds up no other job.
    "batch": Queue(threads=2, is_beside_index=True),
    "store": Queue(threads=1, is_single=True, is_beside_index=True, is_indexing=True),
    "query": Queue(threads=2, is_beside_index=True, is_optional=True),
}


def needed_roles(agents: Iterable[AgentSettings]) -> tuple[str, ...]:
    """Name the roles that a fleet of these agents needs."""
    known = [*agents]
    needed = {"embed": any(map(embeds, known)), "batch": any(map(uses_batches, known))}
    return tuple(role for role in QUEUES if needed.get(role, True))


def embeds(agent: AgentSettings) -> bool:
    """Tell whether texts of an agent are embedded at all."""
    return choose(agent).identity is not None


def uses_batches(agent: AgentSettings) -> bool:
    """Tell whether an agent sends batches, or has left one open."""
    if agent.memory.remote.batch.enabled:
        return True
    try:
        with reading_if_any(agent.index_path) as reader:
            return reader is not None and bool(open_batches(reader))
    except IndexFault:
        # The run that opens it to work says what is wrong with it.
        return False
