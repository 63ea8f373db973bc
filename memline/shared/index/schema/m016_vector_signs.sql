-- Keep the signs of the vectors that are searched, a bit a dimension, so that few of many are compared exactly.

-- A row for each active vector, by triggers; `signs` is NULL until a writer with numpy has made it (`signs.py`).
CREATE TABLE vector_signs (
    vector_id INTEGER PRIMARY KEY,
    identity_id INTEGER NOT NULL REFERENCES identities(id),
    signs BLOB
) STRICT;
CREATE INDEX vector_signs_missing ON vector_signs (identity_id) WHERE signs IS NULL;
INSERT INTO vector_signs (vector_id, identity_id) SELECT id, identity_id FROM vectors WHERE active = 1 AND state = 'ready';
CREATE TRIGGER vector_signs_inserted AFTER INSERT ON vectors WHEN NEW.active = 1 AND NEW.state = 'ready' BEGIN INSERT OR REPLACE INTO vector_signs (vector_id, identity_id) VALUES (NEW.id, NEW.identity_id); END;
CREATE TRIGGER vector_signs_updated AFTER UPDATE OF active, state, embedding ON vectors WHEN NEW.active = 1 AND NEW.state = 'ready' BEGIN INSERT OR REPLACE INTO vector_signs (vector_id, identity_id) VALUES (NEW.id, NEW.identity_id); END;
CREATE TRIGGER vector_signs_dropped AFTER UPDATE OF active, state ON vectors WHEN OLD.active = 1 AND OLD.state = 'ready' AND NOT (NEW.active = 1 AND NEW.state = 'ready') BEGIN DELETE FROM vector_signs WHERE vector_id = OLD.id; END;
CREATE TRIGGER vector_signs_deleted AFTER DELETE ON vectors WHEN OLD.active = 1 AND OLD.state = 'ready' BEGIN DELETE FROM vector_signs WHERE vector_id = OLD.id; END;

ALTER TABLE identities ADD COLUMN centre BLOB;
ALTER TABLE identities ADD COLUMN signs_check TEXT;
