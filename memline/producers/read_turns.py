"""Read what was said in a past conversation, from the index, where its secrets are masked."""

import re
from collections.abc import Iterator
from sqlite3 import Connection

from memline.shared.sources.paths import SESSIONS
from memline.shared.sources.reading import Excerpt, Part, Passage, excerpt_of

_SPEAKER = re.compile(r"(?:User|Assistant): ")

_CHUNKS = """
SELECT start_line, end_line, text FROM chunks JOIN files ON files.id = chunks.file_id
WHERE path = ? AND source = ? ORDER BY ordinal
"""


def read_turns(connection: Connection, path: str, part: Part) -> Excerpt | None:
    """Read what was said on these lines of a transcript; None when it is not in the index.

    The excerpt has whole passages, runs of messages that a chunk has, as far as `max_chars` reaches.
    """
    rows = connection.execute(_CHUNKS, (path, SESSIONS)).fetchall()
    # One that was forgotten has its row alone.
    return excerpt_of(list(_passages(rows)), path, part) if rows else None


def _passages(rows: list[tuple[int, int, str]]) -> Iterator[Passage]:
    """Yield the messages of each chunk without what it repeats; one that goes on in another is not parted."""
    first = last = 0
    joined: list[str] = []
    for start, end, text in rows:
        fresh = text.split("\n")
        goes_on = 0
        if start <= last:
            fresh = _without_repeats(joined, fresh)
            # Of a message that goes on, what is behind its first chunk does not say who speaks.
            goes_on = next((at for at, each in enumerate(fresh) if _SPEAKER.match(each)), len(fresh))
            joined += fresh[:goes_on]
            last = max(last, start)
        if goes_on == len(fresh):
            last = end
            continue
        if joined:
            yield first, last, "\n".join(joined)
        first, last, joined = max(start, last + 1), end, fresh[goes_on:]
    yield first, last, "\n".join(joined)


def _without_repeats(before: list[str], texts: list[str]) -> list[str]:
    """Return the texts of a chunk without those at its beginning that end the passage before it."""
    bare = _SPEAKER.sub("", texts[0], count=1)
    for count in range(min(len(before), len(texts)), 0, -1):
        tail = before[-count:]
        if tail[1:] == texts[1:count] and tail[0] in (texts[0], bare):
            return texts[count:]
    # A message goes on: its chunk names the speaker once more.
    return [bare, *texts[1:]]
