-- Keep what a note says of itself: title and aliases, one a line, and its day (ISO).

ALTER TABLE files ADD COLUMN names TEXT NOT NULL DEFAULT '';
ALTER TABLE files ADD COLUMN day TEXT NOT NULL DEFAULT '';
