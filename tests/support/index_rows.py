"""Small rows for tests of the index: files of a few lines, vectors of four dimensions."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from shared.embedders.protocol import Identity, RequestCaps
from shared.index.chunks import text_hash
from shared.index.dispatch import Request
from shared.index.rows import ChunkRow, FileRow, LearnedCaps, VectorRow
from shared.index.writer import IndexWriter

MODEL_A = Identity(provider="openai", model="a")
MODEL_B = Identity(provider="openai", model="b")
CAPS = RequestCaps(max_rows=100, max_tokens=100_000, max_text_tokens=8_000)


def file_row(path: str, *texts: str, at: int = 1, outcome: str = "indexed") -> FileRow:
    """A file whose every text is a chunk of one line."""
    chunks = tuple(ChunkRow(start_line=n, end_line=n, text=text) for n, text in enumerate(texts, 1))
    return FileRow(
        path=path,
        source="memory",
        outcome=outcome,
        size=sum(map(len, texts)),
        mtime_ns=at,
        hash=f"hash-{at}",
        observed_ns=at,
        chunks=chunks,
        chunking="c1",
    )


def vector(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def vector_of(text: str) -> bytes:
    """A unit vector of four dimensions that depends on the text alone."""
    raw = [byte - 127.5 for byte in text_hash(text)[:4]]
    norm = sum(value * value for value in raw) ** 0.5
    return vector(*(value / norm for value in raw))


def lease_all(writer: IndexWriter, *, credits: int = 8) -> list[Request]:
    return writer.lease(CAPS, credits=credits, only_full=False)


def answer(writer: IndexWriter, requests: Sequence[Request]) -> None:
    """Store the right vector for every text of the requests."""
    for request in requests:
        rows = [VectorRow(hash=text.hash, vector=vector_of(text.text)) for text in request.texts]
        writer.store_vectors(request.identity, request.lease, rows, LearnedCaps())


def fail(writer: IndexWriter, request: Request, kind: str, *, retry_after_s: float | None = None) -> None:
    writer.embed_failed(
        request.identity,
        request.lease,
        [text.hash for text in request.texts],
        kind=kind,
        error=f"it was {kind}",
        action="do something",
        retry_after_s=retry_after_s,
        learned=LearnedCaps(),
    )
