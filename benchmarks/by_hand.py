"""A loop over the notes, as one would write it without a pipeline: read, split, request, insert.

    python -m benchmarks.by_hand CONFIG HOME WORKSPACE     prints seconds, files, chunks, requests as JSON

The parts are those of Memline (splitter, embedder, schema, pragmas), a transaction a file, a request when a
full one is together; no threads, no messages, no leases, no ledger to compare with.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from sqlite3 import Connection

from memline.shared.config.load import Options, load
from memline.shared.embedders.choice import choose
from memline.shared.embedders.protocol import Embedder
from memline.shared.index import driver, identities, meta
from memline.shared.index.chunks import text_hash
from memline.shared.sources.chunking import split
from memline.shared.sources.markdown import outline


def index(config: Path, home: Path, workspace: Path) -> dict[str, float]:
    """Index a workspace from nothing."""
    settings = load(Options(config=config, home=home, workspace=workspace)).agent()
    chunking = settings.memory.chunking
    choice = choose(settings)
    files = chunks = requests = 0
    began = time.perf_counter()
    connection = driver.open_writer(settings.index_path)
    row_id, max_rows, embedder = 0, 1, None
    if choice.identity is not None and choice.caps is not None:
        embedder, max_rows = choice.build(), choice.caps.max_rows
        with driver.transaction(connection):
            row_id = identities.ensure(connection, choice.identity, base_url=choice.base_url).id
            meta.put(connection, meta.ACTIVE, row_id)
    waiting: list[str] = []
    for path in sorted(workspace.rglob("*.md")):
        raw = path.read_bytes()
        lines = raw.decode().split("\n")
        pieces = split(lines, outline(lines), max_tokens=chunking.tokens, overlap_tokens=chunking.overlap)
        with driver.transaction(connection):
            file_id = connection.execute(
                "INSERT INTO files (path, source, size, mtime_ns, hash, observed_ns, outcome)"
                " VALUES (?, 'memory', ?, ?, ?, ?, 'indexed')",
                (
                    str(path.relative_to(workspace)),
                    len(raw),
                    path.stat().st_mtime_ns,
                    hashlib.sha256(raw).hexdigest(),
                    time.time_ns(),
                ),
            ).lastrowid
            connection.executemany(
                "INSERT INTO chunks (file_id, ordinal, start_line, end_line, heading, text, text_hash)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        file_id,
                        ordinal,
                        piece.start_line,
                        piece.end_line,
                        piece.heading,
                        piece.text,
                        text_hash(piece.text),
                    )
                    for ordinal, piece in enumerate(pieces)
                ),
            )
            connection.execute(
                "INSERT INTO chunks_fts (rowid, text, heading, path)"
                " SELECT id, text, heading, ? FROM chunks WHERE file_id = ?",
                (str(path), file_id),
            )
            name_id = connection.execute(
                "INSERT INTO names (file_id, key) VALUES (?, ?)", (file_id, path.stem)
            ).lastrowid
            connection.execute("INSERT INTO names_fts (rowid, text) VALUES (?, ?)", (name_id, path.stem))
        files += 1
        chunks += len(pieces)
        if embedder is None:
            continue
        waiting += (piece.text for piece in pieces)
        while len(waiting) >= max_rows:
            _embed(connection, row_id, embedder, waiting[:max_rows])
            requests += 1
            del waiting[:max_rows]
    if embedder is not None and waiting:
        _embed(connection, row_id, embedder, waiting)
        requests += 1
    connection.close()
    return {"seconds": time.perf_counter() - began, "files": files, "chunks": chunks, "requests": requests}


def _embed(connection: Connection, row_id: int, embedder: Embedder, texts: list[str]) -> None:
    vectors = embedder.embed_documents(texts)
    with driver.transaction(connection):
        for text, vector in zip(texts, vectors, strict=True):
            connection.execute(
                # Some texts stand in several notes.
                "INSERT OR IGNORE INTO vectors (identity_id, text_hash, state, embedding)"
                " VALUES (?, ?, 'ready', ?)",
                (row_id, text_hash(text), vector),
            )


if __name__ == "__main__":
    print(json.dumps(index(*map(Path, sys.argv[1:4]))))
