"""Makes small indexes as OpenClaw has them, early and newest: the tables and forms that an import reads.

The chunks are whole lines with overlap, every text ending as a line does, and files are known by the hash of
their content: what makes its hashes differ from ours.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from memline.shared.index import driver
from tests.support.fake_embedder import FakeEmbedder

#: Lines of a chunk, and lines that the next one begins with again.
_LINES, _OVERLAP = 6, 2

_EARLY = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE files (path TEXT PRIMARY KEY, source TEXT NOT NULL DEFAULT 'memory', hash TEXT NOT NULL,
    mtime INTEGER NOT NULL, size INTEGER NOT NULL);
CREATE TABLE chunks (id TEXT PRIMARY KEY, path TEXT NOT NULL, source TEXT NOT NULL DEFAULT 'memory',
    start_line INTEGER NOT NULL, end_line INTEGER NOT NULL, hash TEXT NOT NULL, model TEXT NOT NULL,
    text TEXT NOT NULL, embedding TEXT NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE embedding_cache (provider TEXT NOT NULL, model TEXT NOT NULL, provider_key TEXT NOT NULL,
    hash TEXT NOT NULL, embedding TEXT NOT NULL, dims INTEGER, updated_at INTEGER NOT NULL,
    PRIMARY KEY (provider, model, provider_key, hash));
"""

_NEWEST = """
CREATE TABLE memory_index_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE memory_index_sources (id INTEGER PRIMARY KEY, path TEXT NOT NULL, source TEXT NOT NULL,
    hash TEXT NOT NULL, mtime REAL NOT NULL, size INTEGER NOT NULL, UNIQUE (path, source)) STRICT;
CREATE TABLE memory_index_chunks (chunk_rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    path TEXT NOT NULL, source TEXT NOT NULL, start_line INTEGER NOT NULL, end_line INTEGER NOT NULL,
    hash TEXT NOT NULL, model TEXT NOT NULL, text TEXT NOT NULL, embedding BLOB NOT NULL,
    updated_at INTEGER NOT NULL) STRICT;
CREATE TABLE memory_embedding_cache (provider TEXT NOT NULL, model TEXT NOT NULL, provider_key TEXT NOT NULL,
    hash TEXT NOT NULL, embedding BLOB NOT NULL, dims INTEGER, updated_at INTEGER NOT NULL,
    PRIMARY KEY (provider, model, provider_key, hash)) STRICT;
"""


def early(state_dir: Path, workspace: Path, *, agent: str = "main", **options: Any) -> Path:
    """Index the notes of a workspace as a release of early 2026 did."""
    path = state_dir / "memory" / f"{agent}.sqlite"
    names = ("meta", "files", "chunks", "embedding_cache")
    return _make(path, _EARLY, names, lambda numbers: json.dumps(list(numbers)), workspace, **options)


def newest(state_dir: Path, workspace: Path, *, agent: str = "main", **options: Any) -> Path:
    """Index the notes of a workspace as releases from 2026.9 on do: in the agent's database, in WAL mode."""
    path = state_dir / "agents" / agent / "agent" / "openclaw-agent.sqlite"
    names = ("memory_index_meta", "memory_index_sources", "memory_index_chunks", "memory_embedding_cache")
    return _make(path, _NEWEST, names, lambda numbers: numbers.tobytes(), workspace, wal=True, **options)


def _make(
    path: Path,
    schema: str,
    names: tuple[str, str, str, str],
    stored: Callable[[array[float]], object],
    workspace: Path,
    *,
    wal: bool = False,
    provider: object = "openai",
    model: object = "stub",
    dims: object = 16,
    key: object = "",
    sessions: Mapping[str, str] | None = None,
) -> Path:
    """`sessions`: path of a transcript -> the lines that OpenClaw makes of its messages."""
    assert isinstance(dims, int)
    # As of a provider whose address is not recorded.
    bare = hashlib.sha256(f'{{"provider":"{provider}","model":"{model}"}}'.encode()).hexdigest()
    key = key or bare
    meta, files, chunks, cache = names
    embedder = FakeEmbedder(dims=dims)
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(driver.library().connect(str(path), isolation_level=None)) as connection:
        if wal:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(schema)
        about = {"model": model, "provider": provider, "providerKey": key, "vectorDims": dims}
        insert = connection.execute
        insert(f"INSERT INTO {meta} VALUES ('memory_index_meta_v1', ?)", (json.dumps(about),))
        memory = [
            (note.relative_to(workspace).as_posix(), note.read_bytes().decode(), "memory")
            for note in sorted(workspace.rglob("*.md"))
        ]
        said = [(name, text, "sessions") for name, text in (sessions or {}).items()]
        for name, content, source in memory + said:
            for first, last, text in _chunks(content):
                digest = hashlib.sha256(text.encode()).hexdigest()
                # Not of unit length: the early releases stored what the provider sent.
                numbers = array("d", (3.0 * x for x in array("f", embedder.embed_documents([text])[0])))
                columns = "id, path, source, start_line, end_line, hash, model, text, embedding, updated_at"
                row_id = f"{name}:{first}:{digest}"
                insert(
                    f"INSERT INTO {chunks} ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
                    (row_id, name, source, first, last, digest, model, text, stored(numbers)),
                )
                insert(
                    f"INSERT OR REPLACE INTO {cache} VALUES (?, ?, ?, ?, ?, ?, 1)",
                    (provider, model, key, digest, stored(numbers), dims),
                )
            digest = hashlib.sha256(content.encode()).hexdigest()
            insert(
                f"INSERT INTO {files} (path, source, hash, mtime, size) VALUES (?, ?, ?, 1.5, ?)",
                (name, source, digest, len(content)),
            )
    return path


def _chunks(content: str) -> list[tuple[int, int, str]]:
    lines, chunks, first = content.split("\n"), [], 0
    while True:
        part = lines[first : first + _LINES]
        if "".join(part).strip():
            chunks.append((first + 1, first + len(part), "\n".join(part)))
        if first + _LINES >= len(lines):
            return chunks
        first += _LINES - _OVERLAP
