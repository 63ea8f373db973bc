-- Keep what is looked up beside what is shown where the two differ: ё and е, ß and ss, forms of NFKC.

-- NULL: looked up as it is.
ALTER TABLE chunks ADD COLUMN folded TEXT;
ALTER TABLE chunks ADD COLUMN folded_heading TEXT;
ALTER TABLE files ADD COLUMN folded TEXT;

DROP VIEW chunk_documents;

CREATE VIEW chunk_documents AS
    SELECT chunks.id AS id, ifnull(chunks.folded, chunks.text) AS text,
           ifnull(chunks.folded_heading, chunks.heading) AS heading,
           ifnull(files.folded, files.path) AS path, chunks.grams AS grams
    FROM chunks JOIN files ON files.id = chunks.file_id;
