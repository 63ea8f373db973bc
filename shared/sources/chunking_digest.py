"""Which way of chunking the chunks of a file were made with: the part of chunking that searches need."""

from __future__ import annotations

#: Raised whenever the same text gives other chunks: files chunked by an older version are chunked again.
CHUNKING_VERSION = 1

#: The same for transcripts: what is taken out of them, what is masked, how turns are cut.
TRANSCRIPT_VERSION = 2


def chunking_digest(max_tokens: int, overlap_tokens: int) -> str:
    """All that decides how a text is cut, in short; another digest means chunking again.

    Not hashed: every search asks for it, and loading OpenSSL for `hashlib` costs 2.5 ms.
    """
    return f"{CHUNKING_VERSION}:{max_tokens}:{overlap_tokens}"


def transcript_digest(max_tokens: int, overlap_tokens: int) -> str:
    """The same for a transcript."""
    return f"t{TRANSCRIPT_VERSION}:{max_tokens}:{overlap_tokens}"
