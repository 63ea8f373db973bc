"""Bring the schema of an index up to date, in numbered steps: the files of `schema` are its history.

Each step is a transaction together with its record (sqlite-utils); `user_version`
carries the number of the last one, so that a reader can tell a newer index without importing sqlite-utils.

    meta         one value a key (JSON text)
    files        the ledger of files: one row for every file seen, whatever became of it
    chunks       runs of whole lines of a file
    chunks_fts   FTS5 over `chunk_documents` (external content: the text is stored once)
    identities   what vectors can be compared with each other
    vectors      text hash x identity -> vector, or the state of the work on it; also the embedding cache
    vector_signs    the signs of the active vectors; NULL until they are made
    vector_changes  vectors that became searchable or ceased to be, the newest last
    leases       requests in flight
    batches      jobs of a provider's Batch API: those that are open, and the last that were
    token_vectors  vectors of the tokens of a text, by vectors.id (local models)
    jobs         reindexes, first imports, model changes and backfills: those that are open, and the last
    job_files    the files that a job has not read yet
    providers    health of a provider in a mode: circuit breaker, cooldown, learned caps
    forgotten    hashes of what was forgotten and is not to come back
    transcripts  how far each session transcript has been read, and its figures
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sqlite_utils import Database, Migrations

from memline.shared.index import chunks, meta

if TYPE_CHECKING:
    from sqlite3 import Connection

migrations = Migrations("memline")

_VEC0 = "FROM sqlite_master WHERE type = 'table' AND sql GLOB 'CREATE VIRTUAL TABLE vec_* USING vec0*'"


def _add_step(version: int, path: Path) -> None:
    @migrations(name=path.stem)
    def run(db: Database) -> None:
        for statement in path.read_text("utf-8").split(";\n"):
            if statement.strip():
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {version}")
        if part := _IN_PYTHON.get(version):
            part(db.conn)


def _make_full_text(connection: Connection) -> None:
    if chunks.fts_missing(connection):
        # The next writer whose library has FTS5 makes it.
        meta.put(connection, meta.FTS_STALE, True)
    else:
        connection.execute(chunks.CREATE_FTS)


def _drop_vec0_tables(connection: Connection) -> None:
    """Drop sqlite-vec's copies of the vectors, also where sqlite-vec is not there to do it."""
    tables = [row[0] for row in connection.execute(f"SELECT name {_VEC0}")]
    if not tables:
        return
    connection.execute("PRAGMA writable_schema = ON")
    try:
        # Where SQLite forbids this (`defensive`) they stay, and nothing reads them.
        with suppress(connection.OperationalError):
            connection.execute(f"DELETE {_VEC0}")
    finally:
        connection.execute("PRAGMA writable_schema = RESET")
    if connection.execute(f"SELECT name {_VEC0}").fetchone():
        return
    parts = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB ? || '_[civr]*'"
    for table in tables:
        for (part,) in connection.execute(parts, (table,)).fetchall():
            connection.execute(f'DROP TABLE "{part}"')


#: What a step does beside its SQL, after it.
_IN_PYTHON = {1: _make_full_text, 14: _drop_vec0_tables, 15: chunks.fold_all}

for _number, _path in enumerate(sorted(Path(__file__).with_name("schema").glob("m*.sql")), 1):
    _add_step(_number, _path)
