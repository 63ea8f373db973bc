-- What a batch cost in dollars, written when it is finished; null before, and where no price is known.

ALTER TABLE batches ADD COLUMN cost REAL;
