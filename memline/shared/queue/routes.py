"""Name the queues of a fleet, each served by the worker role of the same name.

A new queue is a row here, its messages in `shared.queue.messages`, and the module of its name in `workers`;
the processes of a fleet, their files and the dashboard follow from the row.
"""

from __future__ import annotations

from collections.abc import Iterable

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexFault
from memline.shared.index.batches import open_batches
from memline.shared.index.driver import reading_if_any

#: Queue -> messages that a worker process works on at a time.
QUEUES = {
    # Reading and splitting hold the interpreter lock: two threads hide the disk, more do not help.
    "chunk": 2,
    "embed": 4,
    # Two threads, so that a large upload holds up no batch of another agent.
    "batch": 2,
    # The dispatcher relies on being alone.
    "store": 1,
    "query": 2,
}

#: Those that bring an index up to date, and those whose workers are of the home of the index.
INDEXING = ("chunk", "embed", "store")
BESIDE_INDEX = {"batch", "store", "query"}


def needed_roles(agents: Iterable[AgentSettings]) -> tuple[str, ...]:
    """Name the roles that a fleet of these agents needs."""
    known = [*agents]
    embeds = any(choose(agent).identity is not None for agent in known)
    needed = {"embed": embeds, "batch": any(map(uses_batches, known))}
    return tuple(role for role in QUEUES if needed.get(role, True))


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
