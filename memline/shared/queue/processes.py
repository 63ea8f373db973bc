"""Name the processes that a configuration needs: the roles of workers, the watcher and the API."""

from __future__ import annotations

from importlib import import_module

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexFault
from memline.shared.index.batches import open_batches
from memline.shared.index.driver import reading_if_any
from memline.shared.queue.routes import QUEUES, Queue

#: All processes with the words of their commands, in the order of their start. They end together, and `store`
#: after them, so that what was paid for is still stored.
PROCESSES = {
    **{name: ["worker", name] for name in ("store", *(queue for queue in QUEUES if queue != "store"))},
    "api": ["serve"],
    "watch": ["watch"],
}


def commands(agents: list[AgentSettings], *, with_api: bool = True) -> dict[str, list[str]]:
    """Name the processes that these agents need, each with the words of its command."""
    needed = {name: _is_needed(queue, agents) for name, queue in QUEUES.items()} | {"api": with_api}
    return {name: words for name, words in PROCESSES.items() if needed.get(name, True)}


def _is_needed(queue: Queue, agents: list[AgentSettings]) -> bool:
    module, _, function = queue.needed_by.partition(":")
    return not module or any(map(getattr(import_module(module), function), agents))


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
