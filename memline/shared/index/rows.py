"""Define the rows that workers hand to the index, the same in a message and in a call."""

from __future__ import annotations

import msgspec

from memline.shared.sources.about import Link as Link
from memline.shared.sources.chunking import Chunk as Chunk
from memline.shared.sources.outcomes import EMPTY, INDEXED


class LedgerEntry(msgspec.Struct, frozen=True):
    """What the ledger keeps of one file."""

    path: str
    source: str
    #: One of the words of `shared.sources.outcomes`.
    outcome: str
    #: When it was read last (ns since the epoch); the newer row wins.
    observed_ns: int
    reason: str = ""
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    #: SHA-256 (hex) of the bytes; empty when they were not read.
    hash: str = ""
    #: Digest of the chunking settings the chunks were made with.
    chunking: str = ""
    #: Title and aliases of a note, one a line, as `about.About` has them; and its day (ISO).
    names: str = ""
    day: str = ""
    #: Of a transcript: lines that were read, and the days (ISO) of its first and last message.
    lines: int = 0
    first_day: str = ""
    last_day: str = ""

    @property
    def is_fine(self) -> bool:
        """Say whether its content is searched, or there is none."""
        return self.outcome in (INDEXED, EMPTY)


class FileRow(LedgerEntry, frozen=True, kw_only=True):
    """One file as a chunk worker read it."""

    #: None: the content is that of the ledger, only size and times move.
    chunks: tuple[Chunk, ...] | None = ()
    #: The tags of a note, one a line, as `tag_key` has them.
    tags: str = ""
    #: Its links to other notes, as written.
    links: tuple[Link, ...] = ()


class TextRow(msgspec.Struct, frozen=True, kw_only=True):
    """A text to embed and its SHA-256 (32 bytes)."""

    hash: bytes
    text: str


class VectorRow(msgspec.Struct, frozen=True, kw_only=True):
    """A text hash (32 bytes) and its vector (float32, little-endian, unit length)."""

    hash: bytes
    vector: bytes
    #: Vectors of its tokens, as `shared.embedders.token_vectors` packs them; empty without a local model.
    tokens: bytes = b""
