"""Tell lines that were forgotten by their hash, and leave them out of a text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from memline.shared.digests import sha256
from memline.shared.patterns import late
from memline.shared.sources.tokens import has_dense
from memline.shared.values import field, value

#: Words from which on a line is told by its text alone, wherever it stands; a run of dense script counts by
#: its characters, two for a word.
LONG_LINE = 4

#: What stands in the place of a line that was forgotten.
FORGOTTEN = "[forgotten]"

_WORD = late(r"\w+")


@value
class ForgottenLines:
    """Hashes of the lines of a file that are not to be read."""

    #: Those of its path, and long ones of any.
    lines: frozenset[bytes] = frozenset()
    #: Short ones, by the SHA-256 of the file in which they stand: it may have been renamed.
    by_content: Mapping[str, frozenset[bytes]] = field(default_factory=dict)

    def of(self, content: str) -> frozenset[bytes]:
        """Return those of a file with this SHA-256, in hex."""
        return self.lines | self.by_content.get(content, frozenset())


#: Where nothing was forgotten.
NOTHING = ForgottenLines()


def is_long(line: str) -> bool:
    """Tell whether a line is known by its text alone."""
    words = _WORD.findall(line)
    return sum(1 + len(word) // 2 if has_dense(word) else 1 for word in words) >= LONG_LINE


def shown(lines: Sequence[str], gone: Collection[bytes]) -> list[str]:
    """Put `[forgotten]` in the place of forgotten lines."""
    if not gone:
        return list(lines)
    return [FORGOTTEN if line.strip() and line_hash(line) in gone else line for line in lines]


def line_hash(line: str | bytes) -> bytes:
    """Return the SHA-256 (32 bytes) of a line without the blanks around it."""
    raw = line.encode("utf-8", "replace") if isinstance(line, str) else line
    return sha256(raw.strip()).digest()


def without(text: str, lines: Collection[bytes]) -> str:
    """Blank the forgotten lines of a text out; those after them keep their numbers."""
    if not lines:
        return text
    kept = ("" if line.strip() and line_hash(line) in lines else line for line in text.split("\n"))
    return "\n".join(kept)
