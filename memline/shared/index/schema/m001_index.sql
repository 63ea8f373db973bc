-- Make the tables of files, chunks, vectors and leases.

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
