-- Add the list of what was forgotten: hashes alone, by the path of the file it stood in.

-- `text`: the SHA-256 of a chunk's text; a vector of it that comes late is not kept. `line`: that of a line
-- which still stands in a note or transcript that was kept; it is not read again.
CREATE TABLE forgotten (
    path TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('text', 'line')),
    hash BLOB NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (path, kind, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX forgotten_texts ON forgotten (hash) WHERE kind = 'text';
