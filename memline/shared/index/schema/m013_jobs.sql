-- Add jobs: reindexes, first imports, model changes and backfills, and the files they still have to read.

CREATE TABLE jobs (
    -- The older job goes first.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- What users call it; messages name it so as well.
    token TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('import', 'reindex', 'model', 'backfill')),
    what TEXT NOT NULL DEFAULT '',
    asked_by TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL CHECK (state IN ('running', 'paused', 'cancelled', 'done')),
    -- Whether its files are chunked again when they did not change.
    force INTEGER NOT NULL DEFAULT 0,
    created_ns INTEGER NOT NULL,
    ended_at REAL NOT NULL DEFAULT 0,
    files INTEGER NOT NULL DEFAULT 0,
    files_done INTEGER NOT NULL DEFAULT 0,
    -- Of vectors that were stored for it; what is left is counted in `vectors`.
    texts_done INTEGER NOT NULL DEFAULT 0,
    tokens_done INTEGER NOT NULL DEFAULT 0,
    batch_tokens_done INTEGER NOT NULL DEFAULT 0,
    -- The identity that embedded for it last.
    identity_id INTEGER,
    -- [[seconds since the epoch, event, by whom], …]
    history TEXT NOT NULL DEFAULT '[]'
) STRICT;
CREATE INDEX jobs_open ON jobs (id) WHERE ended_at = 0;

-- A row for each file that a job has not read yet.
CREATE TABLE job_files (
    job INTEGER NOT NULL REFERENCES jobs(id),
    path TEXT NOT NULL,
    size INTEGER NOT NULL,
    PRIMARY KEY (job, path)
) STRICT, WITHOUT ROWID;

-- The job that wants a text; 0: a live edit, or a job of an older release.
ALTER TABLE vectors ADD COLUMN job INTEGER NOT NULL DEFAULT 0;
DROP INDEX vectors_backlog;
CREATE INDEX vectors_backlog ON vectors (state, identity_id, priority, job, id, tokens) WHERE state <> 'ready';

-- What a backfill of an older release has not embedded yet.
INSERT INTO jobs (token, kind, what, state, created_ns)
    SELECT lower(hex(randomblob(4))), 'backfill', 'begun by an older release', 'running',
           CAST(strftime('%s', 'now') AS INTEGER) * 1000000000
    WHERE EXISTS (SELECT 1 FROM vectors WHERE state IN ('wanted', 'leased') AND state <> 'ready' AND priority = 1);
UPDATE vectors SET job = (SELECT max(id) FROM jobs)
    WHERE state IN ('wanted', 'leased') AND state <> 'ready' AND priority = 1;
DELETE FROM meta WHERE key = 'backfill_cancelled_ns';
