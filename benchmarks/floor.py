"""The job of a memory by hand, with the fastest parts: what the rows of `benchmarks.peers` are compared with.

    python -m benchmarks.floor NOTES STORE URL            index what changed
    python -m benchmarks.floor NOTES STORE URL QUESTION   answer a question; `-`: one a line of standard input

Files are read, cut into 1,600 characters with 320 in common, hashed, sent in requests of 128, six in flight,
and put into SQLite: rows, FTS5, vectors. A question is answered by BM25 and cosine, half each. Nothing is
checked, nothing survives a kill, no hit has lines.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

_CHARS, _SHARED, _ROWS, _IN_FLIGHT, _TOP = 1_600, 320, 128, 6, 10

_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (id INTEGER PRIMARY KEY, path TEXT UNIQUE, mtime_ns INTEGER, size INTEGER);
CREATE TABLE IF NOT EXISTS chunks (id INTEGER PRIMARY KEY, file INTEGER, hash BLOB, text TEXT, vector BLOB);
CREATE INDEX IF NOT EXISTS chunks_file ON chunks (file);
CREATE VIRTUAL TABLE IF NOT EXISTS fts USING fts5 (text, content = 'chunks', content_rowid = 'id',
    tokenize = 'porter unicode61');
"""


class _Row(msgspec.Struct):
    embedding: str


class _Answer(msgspec.Struct):
    data: list[_Row]


def embed(url: str, texts: list[str]) -> list[bytes]:
    """Return the vectors of texts, float32."""
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port)
    body = json.dumps({"input": texts, "model": "text-embedding-3-small", "encoding_format": "base64"})
    connection.request("POST", f"{at.path}/embeddings", body, {"Content-Type": "application/json"})
    answer = msgspec.json.decode(connection.getresponse().read(), type=_Answer)
    connection.close()
    return [base64.b64decode(row.embedding) for row in answer.data]


def pieces(text: str) -> Iterator[str]:
    """Cut a text into pieces of whole lines."""
    kept: list[str] = []
    chars = 0
    for line in text.split("\n"):
        if kept and chars + len(line) > _CHARS:
            yield "\n".join(kept)
            while kept and chars > _SHARED:
                chars -= len(kept.pop(0)) + 1
        kept.append(line)
        chars += len(line) + 1
    if "\n".join(kept).strip():
        yield "\n".join(kept)


def index(notes: Path, store: str, url: str) -> int:
    """Bring the store up to date; return the number of new chunks."""
    database = sqlite3.connect(store, isolation_level=None)
    database.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -65536;"
    )
    database.executescript(_SCHEMA)
    known = {path: rest for path, *rest in database.execute("SELECT path, mtime_ns, size FROM files")}
    rows: list[tuple[str, str]] = []
    database.execute("BEGIN")
    for folder, _, names in os.walk(notes):
        for name in names:
            path = f"{folder}/{name}"
            stat = os.stat(path)
            if known.get(path) == [stat.st_mtime_ns, stat.st_size]:
                continue
            file = "(SELECT id FROM files WHERE path = ?)"
            gone = f"SELECT 'delete', id, text FROM chunks WHERE file = {file}"
            database.execute(f"INSERT INTO fts (fts, rowid, text) {gone}", (path,))
            database.execute(f"DELETE FROM chunks WHERE file = {file}", (path,))
            database.execute(
                "INSERT OR REPLACE INTO files (path, mtime_ns, size) VALUES (?, ?, ?)",
                (path, stat.st_mtime_ns, stat.st_size),
            )
            rows += ((path, piece) for piece in pieces(Path(path).read_text("utf-8")))
    some = [rows[at : at + _ROWS] for at in range(0, len(rows), _ROWS)]
    with ThreadPoolExecutor(_IN_FLIGHT) as pool:
        vectors = pool.map(partial(embed, url), ([text for _, text in each] for each in some))
        for each, found in zip(some, vectors, strict=True):
            for (path, text), vector in zip(each, found, strict=True):
                digest = hashlib.sha256(text.encode()).digest()
                row_id = database.execute(
                    "INSERT INTO chunks (file, hash, text, vector)"
                    " SELECT id, ?, ?, ? FROM files WHERE path = ?",
                    (digest, text, vector, path),
                ).lastrowid
                database.execute("INSERT INTO fts (rowid, text) VALUES (?, ?)", (row_id, text))
    database.execute("COMMIT")
    database.close()
    return len(rows)


class Searcher:
    """Answers questions from a store, its vectors in memory."""

    def __init__(self, store: str, url: str) -> None:
        import numpy as np

        self._url = url
        self._database = sqlite3.connect(store)
        rows = self._database.execute(
            "SELECT chunks.id, path, vector FROM chunks JOIN files ON files.id = file"
        )
        self._ids, self._paths, vectors = zip(*rows, strict=True)
        self._matrix = np.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1)
        self._place = {row_id: at for at, row_id in enumerate(self._ids)}

    def paths(self, question: str) -> list[str]:
        """Return the paths of the best chunks."""
        import numpy as np

        (vector,) = embed(self._url, [question])
        scores = self._matrix @ np.frombuffer(vector, "<f4") / 2
        words = " OR ".join(f'"{word}"' for word in question.split())
        found = self._database.execute(
            "SELECT rowid, rank FROM fts WHERE fts MATCH ? ORDER BY rank LIMIT 50", (words,)
        ).fetchall()
        for row_id, rank in found:
            scores[self._place[row_id]] += rank / found[0][1] / 2
        return [self._paths[at] for at in np.argsort(-scores)[:_TOP]]


def main(notes: str, store: str, url: str, question: str = "") -> None:
    """Index, or answer."""
    if not question:
        print(json.dumps({"chunks": index(Path(notes), store, url)}))
        return
    searcher = Searcher(store, url)
    asked = (json.loads(line)["question"] for line in sys.stdin) if question == "-" else (question,)
    for each in asked:
        print(json.dumps({"paths": searcher.paths(each)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
