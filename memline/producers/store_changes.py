"""Store the files that changed before a search answers, within a time."""

from __future__ import annotations

from collections import deque
from contextlib import closing

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexCorrupt, IndexFault, IndexUnwritable
from memline.shared.index import ledger
from memline.shared.index.rows import FileRow
from memline.shared.index_writer import IndexWriter
from memline.shared.logs import Log
from memline.shared.sync.plan import Plan
from memline.shared.sync.read_file import FileReader

#: Seconds a search spends on bringing changed files into the keyword index before it answers; the rest
#: is reported as `stale`. A thousand notes take about one.
CATCH_UP_S = 1.5

#: Characters of text, and files, that one transaction stores, about. Of files that are gone, which have no
#: text, each transaction looks at all files of the index: 0.2 s at 20,000.
BATCH_CHARS, BATCH_ROWS = 100_000, 500

#: Milliseconds it waits for another writer meanwhile.
CATCH_UP_BUSY_MS = 500


def store_changes(settings: AgentSettings, plan: Plan, clock: Clock) -> int:
    """Store changed files until the time is over; return how many were done."""
    reader = FileReader(settings, clock=clock)
    done = 0
    try:
        with closing(IndexWriter.of(settings, clock=clock, busy_timeout_ms=CATCH_UP_BUSY_MS)) as writer:
            until = clock.now() + CATCH_UP_S
            todo = deque(plan.changes.to_read())
            again = {*plan.changes.growing, *plan.changes.again}
            while todo and clock.now() <= until:
                rows, chars = list[FileRow](), 0
                while todo and chars <= BATCH_CHARS and len(rows) < BATCH_ROWS and clock.now() <= until:
                    entry = ledger.entry(writer.connection, todo[0])
                    rows.append(reader.read(todo.popleft(), entry=entry))
                    chars += sum(len(chunk.text) for chunk in rows[-1].chunks or ())
                writer.store_files(rows)
                done += sum(row.path not in again for row in rows)
    except IndexCorrupt:
        raise
    except IndexFault as error:
        if isinstance(error, IndexUnwritable) and not settings.index_path.exists():
            # There is nothing to read: that it is missing would be only half of it.
            raise
        # Read-only, full, or busy with another writer: reading is enough to answer, and the answer says how
        # much it lacks.
        Log("search").info("catch_up.failed", error=error.message)
    return done
