"""Queue `chunk`: from paths to chunks. Runs beside the files; only reads the index."""

from __future__ import annotations

from typing import Any

import dramatiq

from shared.index import ledger
from shared.index.driver import reading_if_any
from shared.index.intake import Intake
from shared.index.ledger import LedgerEntry
from shared.index.rows import FileRow
from shared.queue.messages import ChunkFiles, StoreFiles, decode
from shared.queue.send import send
from workers import runtime

#: Characters of text in one StoreFiles message, about: large enough to be cheap, small enough to stay in
#: memory and off Redis for long.
MESSAGE_CHARS = 1_000_000


@dramatiq.actor(queue_name="chunk")
def chunk_files(raw: dict[str, Any]) -> None:
    """Look at the files named and tell the store worker what they are now.

    Safe twice, late and out of order: it reads what is on the disk at this moment, and the store worker
    keeps the newest look.
    """
    message = decode(raw, ChunkFiles)
    here = runtime.current()
    intake = Intake(here.agent(message.agent), clock=here.clock)
    known = _known(message, here)
    rows: list[FileRow] = []
    chars = 0
    for path in message.paths:
        for row in intake.look(path, known=known.get(path), force=message.force):
            rows.append(row)
            chars += sum(len(chunk.text) for chunk in row.chunks or ())
            if chars > MESSAGE_CHARS:
                _send(message, rows, here)
                rows, chars = [], 0
    if rows:
        _send(message, rows, here)


def _send(message: ChunkFiles, rows: list[FileRow], here: runtime.Runtime) -> None:
    here.wait_for_room()
    send(
        StoreFiles(
            agent=message.agent,
            files=tuple(rows),
            backfill=message.backfill,
            asked_ns=message.asked_ns,
        )
    )


def _known(message: ChunkFiles, here: runtime.Runtime) -> dict[str, LedgerEntry]:
    """What the ledger has of these files; a file it does not know is read and split in any case."""
    with reading_if_any(here.agent(message.agent).index_path) as reader:
        if reader is None:
            return {}
        found = ((path, ledger.entry(reader, path)) for path in message.paths)
        return {path: entry for path, entry in found if entry is not None}
