"""Telling chunk workers which paths to look at."""

from __future__ import annotations

from collections.abc import Sequence

from shared.queue.messages import ChunkFiles
from shared.queue.send import send

#: Paths in one message: enough to make messages cheap, few enough to spread over workers.
PATHS_PER_MESSAGE = 32


def announce(
    agent: str,
    paths: Sequence[str],
    *,
    source: str = "memory",
    force: bool = False,
    backfill: bool = False,
    asked_ns: int = 0,
) -> None:
    """Send `ChunkFiles` for these ledger paths; `asked_ns` is when a backfill was asked for."""
    for first in range(0, len(paths), PATHS_PER_MESSAGE):
        send(
            ChunkFiles(
                agent=agent,
                source=source,
                paths=tuple(paths[first : first + PATHS_PER_MESSAGE]),
                force=force,
                backfill=backfill,
                asked_ns=asked_ns,
            )
        )
