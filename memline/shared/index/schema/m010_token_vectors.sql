-- Keep the vectors of the tokens of a text, for late interaction; they live and die with its vector.

CREATE TABLE token_vectors (
    vector_id INTEGER PRIMARY KEY,
    identity_id INTEGER NOT NULL REFERENCES identities(id),
    is_reduced INTEGER NOT NULL,
    tokens BLOB NOT NULL
) STRICT;
CREATE INDEX token_vectors_unreduced ON token_vectors (identity_id) WHERE is_reduced = 0;
CREATE TRIGGER token_vectors_follow AFTER DELETE ON vectors BEGIN DELETE FROM token_vectors WHERE vector_id = old.id; END;

ALTER TABLE identities ADD COLUMN projection BLOB;
