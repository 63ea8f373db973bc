"""Queue `chunk`: from paths to chunks. Runs beside the files; only reads the index."""

from __future__ import annotations

from contextlib import suppress

from memline.shared.errors import QueueError
from memline.shared.index import ledger
from memline.shared.index.driver import reading_if_any
from memline.shared.index.rows import FileRow
from memline.shared.queue.broker import actor, send
from memline.shared.queue.messages import ChunkFiles, StoreFiles
from memline.shared.sync.read_file import FileReader
from memline.workers.context import current

#: Characters of text in one StoreFiles message, about: large enough to be cheap, small enough to stay in
#: memory and off Redis for long.
MESSAGE_CHARS = 1_000_000

#: Messages on the store queue above which a chunk worker waits, and seconds between two looks.
MAX_STORE_DEPTH = 32
LOOK_EVERY_S = 0.01


@actor(ChunkFiles)
def chunk_files(message: ChunkFiles) -> None:
    """Read the named files and tell the store worker what they are now.

    Safe twice, late and out of order: it reads what is on the disk at this moment, and the store worker
    keeps the newest look.
    """
    context = current()
    settings = context.agent(message.agent, index=message.index).with_workspace()
    file_reader = FileReader(settings, clock=context.clock)
    # A file that the ledger does not know is read and split in any case.
    with reading_if_any(settings.index_path) as reader:
        entries = {path: ledger.entry(reader, path) for path in message.paths} if reader else {}
    rows: list[FileRow] = []
    chars = 0
    for path in message.paths:
        row = file_reader.read(path, entry=entries.get(path), force=message.force)
        rows.append(row)
        chars += sum(len(chunk.text) for chunk in row.chunks or ())
        if chars > MESSAGE_CHARS or path == message.paths[-1]:
            # Texts are not to pile up. While Redis is away the sender waits for it, and says so.
            with suppress(QueueError):
                while context.store_depth() > MAX_STORE_DEPTH and not context.stopping.wait(LOOK_EVERY_S):
                    pass
            send(StoreFiles(agent=message.agent, files=tuple(rows), job=message.job, index=message.index))
            rows, chars = [], 0
