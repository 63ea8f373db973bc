"""The workers: what `dramatiq workers` loads. One module a queue, each actor a thin shell over `shared`."""

from shared.queue.broker import of_this_process

broker = of_this_process()

# After the broker: an actor belongs to the broker that is current when it is declared.
from workers import chunk, embed, query, store  # noqa: E402

__all__ = ["broker", "chunk", "embed", "query", "store"]
