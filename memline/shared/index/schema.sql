-- The tables of an index. A new file gets them in one step (`driver.py`):
-- each statement does nothing where the thing is there.

-- One value a key, as JSON (`meta.py`).
CREATE TABLE IF NOT EXISTS meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

-- The ledger of files: a row for every file seen, whatever became of it.
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    -- When its inode changed: an edit may keep size and mtime, not this.
    ctime_ns INTEGER NOT NULL DEFAULT 0,
    hash TEXT NOT NULL,
    observed_ns INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    chunking TEXT NOT NULL DEFAULT '',
    -- What a note says of itself: title and aliases, one a line, and its day (ISO), else that of its file name.
    names TEXT NOT NULL DEFAULT '',
    day TEXT NOT NULL DEFAULT '',
    -- Of a transcript: lines that were read, and the days (ISO) of its first and last message.
    lines INTEGER NOT NULL DEFAULT 0,
    first_day TEXT NOT NULL DEFAULT '',
    last_day TEXT NOT NULL DEFAULT ''
) STRICT;
-- Each search asks whether a source is there that is switched off, and whether a file has a problem.
CREATE INDEX IF NOT EXISTS files_source ON files (source, outcome);

-- Runs of whole lines of a file. AUTOINCREMENT: an id is never given again, so that what a search keeps of a
-- chunk holds as long as the index.
CREATE TABLE IF NOT EXISTS chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file_id INTEGER NOT NULL REFERENCES files(id),
    ordinal INTEGER NOT NULL,
    start_line INTEGER NOT NULL,
    end_line INTEGER NOT NULL,
    heading TEXT NOT NULL,
    text TEXT NOT NULL,
    text_hash BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS chunks_file ON chunks (file_id, ordinal);
CREATE INDEX IF NOT EXISTS chunks_text_hash ON chunks (text_hash, file_id);

-- Full text of chunks, as it is compared (`folding.py`). Its segments are not merged while FTS5 writes, but 64 at a
-- time where nobody else does (`chunks.merge_full_text`): with its own 4 and 16 all words of a first index were
-- written once more, a fifth of what full text took.
CREATE VIRTUAL TABLE IF NOT EXISTS chunks_fts USING fts5 (
    text, heading, path, grams,
    content = '',
    tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('automerge', 0);
INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('crisismerge', 64);

-- Names of files: file name and title, each alias.
CREATE TABLE IF NOT EXISTS names (
    id INTEGER PRIMARY KEY,
    file_id INTEGER NOT NULL REFERENCES files(id) ON DELETE CASCADE,
    -- A whole name in the form in which names are compared.
    key TEXT NOT NULL,
    -- The title as written, in the first row of a file.
    title TEXT NOT NULL DEFAULT '',
    UNIQUE (file_id, key)
) STRICT;
CREATE INDEX IF NOT EXISTS names_key ON names (key);
CREATE VIRTUAL TABLE IF NOT EXISTS names_fts USING fts5 (
    text, grams,
    content = '',
    tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO names_fts (names_fts, rank) VALUES ('automerge', 0);
INSERT INTO names_fts (names_fts, rank) VALUES ('crisismerge', 64);

-- Tags of notes.
CREATE TABLE IF NOT EXISTS tags (
    file_id INTEGER NOT NULL REFERENCES files(id) ON DELETE CASCADE,
    tag TEXT NOT NULL,
    PRIMARY KEY (file_id, tag)
) STRICT, WITHOUT ROWID;

-- Links of notes to other notes as they are written, resolved when they are asked for (`links.py`).
CREATE TABLE IF NOT EXISTS links (
    file_id INTEGER NOT NULL REFERENCES files(id) ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    line INTEGER NOT NULL,
    target TEXT NOT NULL,
    -- 1: a Markdown link, whose path begins at the folder of its note.
    is_path INTEGER NOT NULL,
    -- The last part of its target in the form in which names are compared.
    key TEXT NOT NULL,
    PRIMARY KEY (file_id, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS links_key ON links (key);

-- What vectors can be compared with each other.
CREATE TABLE IF NOT EXISTS identities (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    dims INTEGER NOT NULL,
    scheme TEXT NOT NULL,
    base_url TEXT NOT NULL DEFAULT '',
    vector_dims INTEGER NOT NULL DEFAULT 0,
    -- Axes to which vectors of tokens are reduced (`token_rows.py`).
    projection BLOB,
    -- What bits of its vectors are taken to (`bits.py`).
    centre BLOB
) STRICT;

-- Text hash x identity -> vector, or the state of the work on it; also the embedding cache. AUTOINCREMENT: an id
-- is never given again, so that a cached matrix cannot take one vector for another.
CREATE TABLE IF NOT EXISTS vectors (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    identity_id INTEGER NOT NULL REFERENCES identities(id),
    text_hash BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('wanted', 'leased', 'ready', 'failed')),
    active INTEGER NOT NULL DEFAULT 1,
    -- The job that wants it; 0: a live edit.
    job INTEGER NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0,
    due REAL NOT NULL DEFAULT 0,
    -- Requests and batches that brought no vector; after the first it goes in requests alone.
    attempts INTEGER NOT NULL DEFAULT 0,
    lease TEXT,
    error TEXT NOT NULL DEFAULT '',
    used_at REAL NOT NULL DEFAULT 0,
    embedding BLOB,
    UNIQUE (identity_id, text_hash)
) STRICT;
-- Answers each question about states alone: the rows hold the embeddings, megabytes of them.
CREATE INDEX IF NOT EXISTS vectors_state ON vectors (identity_id, active, state, job, attempts, id, tokens);
CREATE INDEX IF NOT EXISTS vectors_lease ON vectors (lease) WHERE lease IS NOT NULL;
CREATE INDEX IF NOT EXISTS vectors_cached ON vectors (used_at) WHERE active = 0;

-- Of an identity with a centre, a bit a dimension of each vector (`bits.py`): few are compared with a question exactly.
CREATE TABLE IF NOT EXISTS vector_bits (
    vector_id INTEGER PRIMARY KEY REFERENCES vectors(id) ON DELETE CASCADE,
    identity_id INTEGER NOT NULL REFERENCES identities(id),
    bits BLOB NOT NULL
) STRICT;

-- Vectors of the tokens of a text, for late interaction (local models).
CREATE TABLE IF NOT EXISTS token_vectors (
    vector_id INTEGER PRIMARY KEY REFERENCES vectors(id) ON DELETE CASCADE,
    identity_id INTEGER NOT NULL REFERENCES identities(id),
    tokens BLOB NOT NULL
) STRICT;

-- Requests in flight: what each was counted with on which day (UTC), and when its texts are wanted again.
CREATE TABLE IF NOT EXISTS leases (
    token TEXT PRIMARY KEY,
    identity_id INTEGER NOT NULL REFERENCES identities(id),
    tokens INTEGER NOT NULL,
    day TEXT NOT NULL,
    until REAL NOT NULL
) STRICT;

-- Jobs of a provider's Batch API: those that are open, and the last that were.
CREATE TABLE IF NOT EXISTS batches (
    -- The lease of its rows in `vectors`, and its tag at the provider.
    token TEXT PRIMARY KEY,
    identity_id INTEGER NOT NULL REFERENCES identities(id),
    state TEXT NOT NULL CHECK (state IN ('intent', 'submitted', 'collecting', 'closed')),
    outcome TEXT NOT NULL DEFAULT '',
    rows INTEGER NOT NULL DEFAULT 0,
    -- Estimated, and counted as spent on the day of `created_at`.
    tokens INTEGER NOT NULL DEFAULT 0,
    stored INTEGER NOT NULL DEFAULT 0,
    file_id TEXT NOT NULL DEFAULT '',
    job_id TEXT NOT NULL DEFAULT '',
    provider_state TEXT NOT NULL DEFAULT '',
    rows_done INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    action TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    -- When the create began whose answer is not known; 0: every answer is.
    call_started_at REAL NOT NULL DEFAULT 0,
    submitted_at REAL NOT NULL DEFAULT 0,
    polled_at REAL NOT NULL DEFAULT 0,
    closed_at REAL NOT NULL DEFAULT 0,
    due REAL NOT NULL DEFAULT 0,
    deadline REAL NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    cancel_reason TEXT NOT NULL DEFAULT '',
    cancelled_at REAL NOT NULL DEFAULT 0
) STRICT;

-- Reindexes, first imports, model changes and backfills: those that are open, and the last.
CREATE TABLE IF NOT EXISTS jobs (
    -- The older job goes first.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- What users call it; messages name it so as well.
    token TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('import', 'reindex', 'model', 'backfill')),
    what TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL CHECK (state IN ('running', 'paused', 'cancelled', 'done')),
    -- Whether its files are chunked again when they did not change.
    force INTEGER NOT NULL DEFAULT 0,
    created_ns INTEGER NOT NULL,
    ended_at REAL NOT NULL DEFAULT 0,
    files INTEGER NOT NULL DEFAULT 0,
    -- Of vectors that were stored for it; what is left is counted in `vectors`.
    texts_done INTEGER NOT NULL DEFAULT 0,
    -- The identity that all texts are embedded with, of a change of the model.
    identity_id INTEGER
) STRICT;

-- A row for each file that a job has not read yet.
CREATE TABLE IF NOT EXISTS job_files (
    job INTEGER NOT NULL REFERENCES jobs(id),
    path TEXT NOT NULL,
    size INTEGER NOT NULL,
    PRIMARY KEY (job, path)
) STRICT, WITHOUT ROWID;
