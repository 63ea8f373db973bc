-- Keep when the inode of a file changed: an edit may keep size and mtime, not this.

-- 0 in the rows that are there: each file is read once more, and where its hash is the same only its times move.
ALTER TABLE files ADD COLUMN ctime_ns INTEGER NOT NULL DEFAULT 0;
