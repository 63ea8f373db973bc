-- Count the places of a transcript where a secret was hidden; of what was read before it is not known.
ALTER TABLE transcripts ADD COLUMN secrets INTEGER NOT NULL DEFAULT 0;
