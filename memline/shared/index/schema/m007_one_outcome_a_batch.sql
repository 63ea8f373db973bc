-- Drop the verdicts of batches, and the state in which they were filled.

-- A batch is `intent` from its first row on: one whose maker died goes with the texts it has.
UPDATE batches SET state = 'intent' WHERE state = 'filling';
ALTER TABLE batches DROP COLUMN verdict;
DELETE FROM meta WHERE key = 'batch_watermark';
