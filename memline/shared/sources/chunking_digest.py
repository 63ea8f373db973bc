"""Identify the way in which a file was chunked.

Apart from `chunking`, since every search needs it and importing that module takes 5 ms.
"""

from __future__ import annotations

#: Raised whenever the same text gives other chunks, names or days: files read by an older version are read
#: again.
CHUNKING_VERSION = 2

#: The same for transcripts: what is taken out of them, what is redacted, how messages are cut.
TRANSCRIPT_VERSION = 3


def chunking_digest(max_tokens: int, overlap_tokens: int) -> str:
    """Return all that decides how a text is cut, in short; another digest means chunking again.

    Not hashed: every search asks for it, and loading OpenSSL for `hashlib` costs 2.5 ms.
    """
    return f"{CHUNKING_VERSION}:{max_tokens}:{overlap_tokens}"


def transcript_digest(max_tokens: int, overlap_tokens: int) -> str:
    """Return the same for a transcript."""
    return f"t{TRANSCRIPT_VERSION}:{max_tokens}:{overlap_tokens}"
