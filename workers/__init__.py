"""The workers: what `dramatiq workers` loads. One module a queue, each actor a thin shell over `shared`."""

from shared.queue import broker as _broker

broker = _broker.current()
if broker is None:
    from workers.fleet import join_fleet

    broker = join_fleet()

# After the broker: an actor belongs to the broker that is current when it is declared.
from workers import batch, chunk, embed, flush, query, store  # noqa: E402

__all__ = ["batch", "broker", "chunk", "embed", "flush", "query", "store"]
