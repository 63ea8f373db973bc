-- Log which vectors became searchable or ceased to be, so that a matrix in memory reads no others again.

-- The newest 65,536; a reader that is further behind reads all. Never empty, so that seq goes on by one. By
-- triggers, so that no statement is forgotten.
CREATE TABLE vector_changes (
    seq INTEGER PRIMARY KEY,
    vector_id INTEGER NOT NULL
) STRICT;
INSERT INTO vector_changes (vector_id) VALUES (0);
CREATE TRIGGER vectors_inserted AFTER INSERT ON vectors WHEN NEW.active = 1 AND NEW.state = 'ready' BEGIN INSERT INTO vector_changes (vector_id) VALUES (NEW.id); END;
CREATE TRIGGER vectors_updated AFTER UPDATE OF active, state, embedding ON vectors WHEN (OLD.active = 1 AND OLD.state = 'ready') OR (NEW.active = 1 AND NEW.state = 'ready') BEGIN INSERT INTO vector_changes (vector_id) VALUES (NEW.id); END;
CREATE TRIGGER vectors_deleted AFTER DELETE ON vectors WHEN OLD.active = 1 AND OLD.state = 'ready' BEGIN INSERT INTO vector_changes (vector_id) VALUES (OLD.id); END;
CREATE TRIGGER vector_changes_pruned AFTER INSERT ON vector_changes BEGIN DELETE FROM vector_changes WHERE seq <= NEW.seq - 65536; END;

DELETE FROM meta WHERE key = 'revision';
