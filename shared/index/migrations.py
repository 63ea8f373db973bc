"""The schema of the index, as numbered steps; read top to bottom they are its history.

Run by the writer alone. Each step is a transaction together with its record (sqlite-utils); `user_version`
carries the number of the last one, so that a reader can tell a newer index without importing sqlite-utils.

    meta         one value a key (JSON text)
    files        the ledger of files: one row for every file seen, whatever became of it
    chunks       runs of whole lines of a file
    chunks_fts   FTS5 over `chunk_documents` (external content: the text is stored once)
    identities   what vectors can be compared with each other
    vectors      text hash x identity -> vector, or the state of the work on it; also the embedding cache
    vec_<id>     vec0 table of the live vectors of identity <id>, rowid = vectors.id
    leases       requests in flight
    batches      jobs of a provider's Batch API: those that are open, and the last that were
    providers    health of a provider in a mode: circuit breaker, hold, learned caps
    transcripts  how far each session transcript has been read, and what it amounts to
"""

from __future__ import annotations

from sqlite_utils import Database, Migrations

from shared.index import fts, meta

migrations = Migrations("memline")


@migrations()
def m001_index(db: Database) -> None:
    for statement in _M001.split(";\n"):
        if statement.strip():
            db.execute(statement)
    if fts.missing(db.conn):
        # The next writer whose library has FTS5 makes it.
        meta.put(db.conn, meta.FTS_STALE, True)
    else:
        db.execute(fts.CREATE)
    db.execute("PRAGMA user_version = 1")


@migrations()
def m002_batches(db: Database) -> None:
    for statement in _M002.split(";\n"):
        if statement.strip():
            db.execute(statement)
    db.execute("PRAGMA user_version = 2")


@migrations()
def m003_modes_of_providers(db: Database) -> None:
    for statement in _M003.split(";\n"):
        if statement.strip():
            db.execute(statement)
    db.execute("PRAGMA user_version = 3")


@migrations()
def m004_transcripts(db: Database) -> None:
    for statement in _M004.split(";\n"):
        if statement.strip():
            db.execute(statement)
    db.execute("PRAGMA user_version = 4")


_M001 = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE files (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    hash TEXT NOT NULL,
    observed_ns INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    chunking TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE chunks (
    id INTEGER PRIMARY KEY,
    file_id INTEGER NOT NULL REFERENCES files(id),
    ordinal INTEGER NOT NULL,
    start_line INTEGER NOT NULL,
    end_line INTEGER NOT NULL,
    heading TEXT NOT NULL,
    text TEXT NOT NULL,
    grams TEXT NOT NULL,
    text_hash BLOB NOT NULL,
    UNIQUE (file_id, ordinal)
) STRICT;
CREATE INDEX chunks_text_hash ON chunks (text_hash);

CREATE VIEW chunk_documents AS
    SELECT chunks.id AS id, chunks.text AS text, chunks.heading AS heading,
           files.path AS path, chunks.grams AS grams
    FROM chunks JOIN files ON files.id = chunks.file_id;

CREATE TABLE identities (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    dims INTEGER NOT NULL,
    scheme TEXT NOT NULL,
    base_url TEXT NOT NULL DEFAULT '',
    vector_dims INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL
) STRICT;

-- AUTOINCREMENT: an id is never given again, so that a cached matrix cannot take one vector for another.
CREATE TABLE vectors (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    identity_id INTEGER NOT NULL REFERENCES identities(id),
    text_hash BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('wanted', 'leased', 'ready', 'failed')),
    live INTEGER NOT NULL DEFAULT 1,
    backfill INTEGER NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0,
    due REAL NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    lease TEXT,
    error TEXT NOT NULL DEFAULT '',
    used_at REAL NOT NULL DEFAULT 0,
    embedding BLOB,
    UNIQUE (identity_id, text_hash)
) STRICT;
CREATE INDEX vectors_backlog ON vectors (state, identity_id, backfill, id) WHERE state <> 'ready';
CREATE INDEX vectors_counts ON vectors (identity_id, live, state);
CREATE INDEX vectors_lease ON vectors (lease) WHERE lease IS NOT NULL;
CREATE INDEX vectors_resting ON vectors (used_at) WHERE live = 0;

CREATE TABLE leases (
    token TEXT PRIMARY KEY,
    identity_id INTEGER NOT NULL REFERENCES identities(id),
    owner TEXT NOT NULL,
    until REAL NOT NULL,
    rows INTEGER NOT NULL
) STRICT;

CREATE TABLE providers (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL DEFAULT 'ok',
    reason TEXT NOT NULL DEFAULT '',
    action TEXT NOT NULL DEFAULT '',
    failures INTEGER NOT NULL DEFAULT 0,
    hold_until REAL NOT NULL DEFAULT 0,
    max_rows INTEGER NOT NULL DEFAULT 0,
    max_tokens INTEGER NOT NULL DEFAULT 0,
    updated_at REAL NOT NULL DEFAULT 0
) STRICT;
"""

_M002 = """
CREATE TABLE batches (
    -- The lease of its rows in `vectors`, and its tag at the provider.
    token TEXT PRIMARY KEY,
    identity_id INTEGER NOT NULL REFERENCES identities(id),
    state TEXT NOT NULL CHECK (state IN
        ('filling', 'intent', 'uploaded', 'submitted', 'collecting', 'cleaning', 'closed')),
    outcome TEXT NOT NULL DEFAULT '',
    verdict TEXT NOT NULL DEFAULT '',
    rows INTEGER NOT NULL DEFAULT 0,
    stored INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    file_id TEXT NOT NULL DEFAULT '',
    job_id TEXT NOT NULL DEFAULT '',
    said TEXT NOT NULL DEFAULT '',
    rows_done INTEGER NOT NULL DEFAULT 0,
    rows_failed INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    action TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    calling_at REAL NOT NULL DEFAULT 0,
    uploads INTEGER NOT NULL DEFAULT 0,
    submitted_at REAL NOT NULL DEFAULT 0,
    looked_at REAL NOT NULL DEFAULT 0,
    closed_at REAL NOT NULL DEFAULT 0,
    due REAL NOT NULL DEFAULT 0,
    wait_s REAL NOT NULL DEFAULT 0,
    deadline REAL NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    owner TEXT NOT NULL DEFAULT '',
    owner_until REAL NOT NULL DEFAULT 0,
    cancel_asked REAL NOT NULL DEFAULT 0,
    cancel_reason TEXT NOT NULL DEFAULT '',
    cancelled_at REAL NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX batches_open ON batches (state) WHERE state <> 'closed';

-- 1: a batch has failed to bring it, so it goes out in a request.
ALTER TABLE vectors ADD COLUMN by_request INTEGER NOT NULL DEFAULT 0;
CREATE INDEX vectors_by_request ON vectors (identity_id, backfill, id)
    WHERE by_request = 1 AND state <> 'ready';
"""

_M003 = """
ALTER TABLE providers RENAME TO providers_m001;

CREATE TABLE providers (
    name TEXT NOT NULL,
    mode TEXT NOT NULL CHECK (mode IN ('requests', 'batch')),
    state TEXT NOT NULL DEFAULT 'closed' CHECK (state IN ('closed', 'open', 'half_open')),
    reason TEXT NOT NULL DEFAULT '',
    action TEXT NOT NULL DEFAULT '',
    failures INTEGER NOT NULL DEFAULT 0,
    hold_until REAL NOT NULL DEFAULT 0,
    since REAL NOT NULL DEFAULT 0,
    probe_at REAL NOT NULL DEFAULT 0,
    opens INTEGER NOT NULL DEFAULT 0,
    probe TEXT NOT NULL DEFAULT '',
    by_hand INTEGER NOT NULL DEFAULT 0,
    max_rows INTEGER NOT NULL DEFAULT 0,
    max_tokens INTEGER NOT NULL DEFAULT 0,
    updated_at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (name, mode)
) STRICT;

INSERT INTO providers (name, mode, state, reason, action, failures, hold_until, since, probe_at, opens,
                       max_rows, max_tokens, updated_at)
    SELECT name, 'requests', CASE state WHEN 'paused' THEN 'open' ELSE 'closed' END, reason, action, failures,
           hold_until, CASE state WHEN 'paused' THEN updated_at ELSE 0 END, updated_at, state = 'paused',
           max_rows, max_tokens, updated_at
    FROM providers_m001;

DROP TABLE providers_m001;
"""

_M004 = """
CREATE TABLE transcripts (
    file_id INTEGER PRIMARY KEY REFERENCES files(id) ON DELETE CASCADE,
    consumed INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    resume TEXT NOT NULL,
    title TEXT NOT NULL,
    messages INTEGER NOT NULL,
    broken INTEGER NOT NULL,
    first_day TEXT NOT NULL,
    last_day TEXT NOT NULL
) STRICT;
CREATE INDEX files_source ON files (source);
"""
