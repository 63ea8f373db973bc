-- Rename three columns of batches to the field's words.

ALTER TABLE batches RENAME COLUMN said TO provider_state;
ALTER TABLE batches RENAME COLUMN calling_at TO call_started_at;
ALTER TABLE batches RENAME COLUMN looked_at TO polled_at;
