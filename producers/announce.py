"""Telling chunk workers which paths to look at."""

from __future__ import annotations

from collections.abc import Sequence

from shared.queue.messages import ChunkFiles
from shared.queue.send import send
from shared.sources.transcript_names import MEMORY, SESSIONS, source_of

#: Paths in one message: enough to make messages cheap, few enough to spread over workers.
PATHS_PER_MESSAGE = 32


def announce(
    agent: str,
    paths: Sequence[str],
    *,
    force: bool = False,
    backfill: bool = False,
    asked_ns: int = 0,
) -> None:
    """Send `ChunkFiles` for these ledger paths; `asked_ns` is when a backfill was asked for."""
    for source in (MEMORY, SESSIONS):
        of_source = [path for path in paths if source_of(path) == source]
        for first in range(0, len(of_source), PATHS_PER_MESSAGE):
            send(
                ChunkFiles(
                    agent=agent,
                    source=source,
                    paths=tuple(of_source[first : first + PATHS_PER_MESSAGE]),
                    force=force,
                    backfill=backfill,
                    asked_ns=asked_ns,
                )
            )
