-- Keep what a batch brought in place of a vector: the texts themselves are sent again, and forget it.

CREATE TABLE batch_errors (
    batch TEXT NOT NULL REFERENCES batches(token) ON DELETE CASCADE,
    text_hash BLOB NOT NULL,
    error TEXT NOT NULL,
    PRIMARY KEY (batch, text_hash)
) STRICT;
