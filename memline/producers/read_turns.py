"""Read what was said in a past conversation, from the index, where its secrets are masked."""

import re
from collections.abc import Iterator
from sqlite3 import Connection

from memline.shared.config.installation import HIGHEST
from memline.shared.sources.paths import SESSIONS
from memline.shared.sources.reading import DEFAULT_LINES, Excerpt, Part

_SPEAKER = re.compile(r"(?:User|Assistant): ")

#: Chunks that are read for an excerpt at most: more never fit.
_MOST_CHUNKS = 500

_CHUNKS = f"""
SELECT start_line, end_line, text FROM chunks JOIN files ON files.id = chunks.file_id
WHERE path = ? AND source = ? AND end_line >= ? ORDER BY ordinal LIMIT {_MOST_CHUNKS}
"""

Row = tuple[int, int, str]


def read_turns(connection: Connection, path: str, part: Part) -> Excerpt | None:
    """Read what was said on these lines of a transcript; None when it is not in the index.

    The excerpt has whole chunks, as a search cites them, as far as `max_chars` reaches; its `first` and
    `lines` are those of the chunks.
    """
    first = min(max(1, part.first), HIGHEST)
    last = first + (part.lines or DEFAULT_LINES) - 1
    rows: list[Row] = connection.execute(_CHUNKS, (path, SESSIONS, first)).fetchall()
    if not rows and not connection.execute(_CHUNKS, (path, SESSIONS, 0)).fetchone():
        # One that was forgotten has its row alone.
        return None
    asked = sum(start <= last for start, _, _ in rows)
    said = list(_without_repeats(rows[:asked]))
    fits, chars = 0, 1 - part.column
    for each in said:
        chars += len(each) + 1
        if fits and chars > part.max_chars:
            break
        fits += 1
    # Whether the first line goes on behind what fits; then it is cut, and `rest` reads on in it.
    is_cut = fits < asked and rows[fits][0] <= first
    text = "\n".join(said if is_cut else said[:fits])[part.column - 1 :]
    is_cut |= len(text) > part.max_chars
    end = max((stop for _, stop, _ in rows[:fits]), default=first - 1)
    next_from = None
    if is_cut:
        next_from = first + 1 if any(stop > first for _, stop, _ in rows) else None
    elif fits < len(rows):
        # A line that goes on in the next chunk is read once more.
        start, stop, _ = rows[fits]
        next_from = start if stop <= end else max(start, end + 1)
    begin = rows[0][0] if fits else first
    return Excerpt(
        path=path,
        text=text[: part.max_chars],
        first=begin,
        lines=end - begin + 1 if fits else 0,
        truncated=is_cut or fits < (len(rows) if part.lines is None else asked),
        next_from=next_from,
        cut=is_cut,
        rest=f"{path}#L{first}C{part.column + part.max_chars}" if len(text) > part.max_chars else "",
    )


def _without_repeats(rows: list[Row]) -> Iterator[str]:
    """Yield the text of each chunk without what it repeats of the end of the one before."""
    joined: list[str] = []
    last = 0
    for start, end, text in rows:
        texts, both = text.split("\n"), 0
        if start <= last:
            bare = _SPEAKER.sub("", texts[0], count=1)
            for count in range(min(len(joined), len(texts)), 0, -1):
                tail = joined[-count:]
                if tail[1:] == texts[1:count] and tail[0] in (texts[0], bare):
                    both = count
                    break
            # A message goes on: its chunk names the speaker once more.
            texts = texts[both:] if both else [bare, *texts[1:]]
        joined += texts
        last = end
        yield "\n".join(texts)
