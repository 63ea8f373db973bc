-- Rename columns to the field's words. No row is touched: every chunk and vector stays.

ALTER TABLE vectors RENAME COLUMN live TO active;
ALTER TABLE vectors RENAME COLUMN backfill TO priority;
DROP INDEX vectors_resting;
CREATE INDEX vectors_cached ON vectors (used_at) WHERE active = 0;

ALTER TABLE providers RENAME COLUMN hold_until TO retry_at;
ALTER TABLE providers RENAME COLUMN by_hand TO manual;

ALTER TABLE batches RENAME COLUMN cancel_asked TO cancel_requested_at;

UPDATE meta SET key = 'batch_watermark' WHERE key = 'batch_mark';
DELETE FROM meta WHERE key IN ('misfits', 'caps_learned');
