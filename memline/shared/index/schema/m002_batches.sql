-- Add the jobs of Batch APIs.

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

-- 1: a batch has failed to embed it, so it is sent in a request.
ALTER TABLE vectors ADD COLUMN by_request INTEGER NOT NULL DEFAULT 0;
CREATE INDEX vectors_by_request ON vectors (identity_id, backfill, id)
    WHERE by_request = 1 AND state <> 'ready';
