-- Add how far session transcripts have been read.

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
