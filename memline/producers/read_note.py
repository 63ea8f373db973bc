"""Read lines of a note by its path or name, and of what was said in a past conversation; check links."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress
from sqlite3 import Connection

from msgspec.structs import replace

from memline.producers.backends import DeadLink
from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import AccessDenied, BadRequest, IndexFault, PathNotAllowed, not_utf_8
from memline.shared.index import driver, links
from memline.shared.note_names import is_markdown
from memline.shared.sources.about import links as links_of
from memline.shared.sources.paths import (
    SESSIONS,
    TRANSCRIPT_PREFIX,
    MemoryPaths,
    is_private,
    is_storable,
)
from memline.shared.sources.reading import (
    MAX_CHARS,
    READABLE,
    Excerpt,
    Part,
    Passage,
    excerpt_of,
    parse_citation,
    read_excerpt,
)

#: Notes with the same name that are listed, and notes that a note is linked with.
_LISTED = 10
LINKED = 50

_SPEAKER = re.compile(r"(?:User|Assistant): ")

_CHUNKS = """
SELECT start_line, end_line, text FROM chunks JOIN files ON files.id = chunks.file_id
WHERE path = ? AND source = ? ORDER BY ordinal
"""


def cited_part(
    cited: str, *, first: int | None = None, lines: int | None = None, max_chars: int | None = None
) -> tuple[str, Part]:
    """Return the path and the part that are asked for; `first` and `lines` win over those of a citation."""
    path, part = parse_citation(cited)
    if first is not None:
        part = Part(first=first, lines=lines)
    elif lines is not None:
        part = replace(part, lines=lines)
    return path, replace(part, max_chars=max(0, max_chars or 0) or MAX_CHARS)


def read_note(settings: AgentSettings, path: str, part: Part, *, private: bool, clock: Clock) -> Excerpt:
    """Read part of a note or a past conversation. Raises PathNotAllowed, AccessDenied and BadRequest."""
    excerpt = _read(settings, path, part, private=private, clock=clock)
    # Without an index a note is still a note.
    with suppress(IndexFault), driver.reading_if_any(settings.index_path) as reader:
        if reader is not None and excerpt.status == "ok":
            out, back = links.linked(reader, excerpt.path, private=private)
            return replace(
                excerpt,
                links=out[:LINKED],
                total_links=len(out),
                backlinks=back[:LINKED],
                total_backlinks=len(back),
            )
    return excerpt


def _read(settings: AgentSettings, path: str, part: Part, *, private: bool, clock: Clock) -> Excerpt:
    name = path.strip().removeprefix("./")
    for link in links_of({1: name}):
        # As it stands in a note, `[[plan#Steps|alias]]` or `[text](plan.md)`.
        name = link.target
    if not is_storable(name):
        raise not_utf_8(name)
    if name.lower().startswith(TRANSCRIPT_PREFIX) and not is_markdown(name):
        if not private:
            raise AccessDenied(
                "past conversations are private: they are not read in a group, nor by a subagent",
                hint="ask in a direct chat; memory.privateInGroups opens them to all",
            )
        if (said := _said(settings, name, part)) is not None:
            return said
    memory_paths = MemoryPaths.of(settings)
    read = partial(read_excerpt, memory_paths, part=part, private=private, clock=clock)
    try:
        excerpt = read(name)
    except PathNotAllowed:
        if (note := _note_named(settings, name, private=private)) is not None:
            return read(note)
        _refuse_name(memory_paths, name)
        raise
    if excerpt.status == "not_found" and (note := _note_named(settings, name, private=private)) is not None:
        return read(note)
    return excerpt


def _refuse_name(memory_paths: MemoryPaths, name: str) -> None:
    """Raise PathNotAllowed with words of its own for what can be no path outside the memory.

    The disk is not looked at: the words say nothing of what exists.
    """
    note, _, fragment = name.rpartition("#")
    if memory_paths.locate(note) is not None:
        raise PathNotAllowed(
            f"{fragment!r} names no lines of {note}", hint=f"name lines as {note}#L1-L9, or {note} alone"
        )
    if name and "/" not in name and not is_markdown(name.partition("#")[0]):
        raise PathNotAllowed(f"no note is named {name[:200]!r}", hint=READABLE)


def _said(settings: AgentSettings, path: str, part: Part) -> Excerpt | None:
    """Return what was said in a past conversation; None when it is not in the index, or not searched."""
    if SESSIONS not in settings.memory.sources:
        return None
    with driver.reading_if_any(settings.index_path) as reader:
        return read_turns(reader, path, part) if reader else None


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


def _note_named(settings: AgentSettings, name: str, *, private: bool) -> str | None:
    """Return the path of the one note that this names; None when there is none, or no index."""
    found: list[str] = []
    # Without an index a path is still a path.
    with suppress(IndexFault), driver.reading_if_any(settings.index_path) as reader:
        found = links.notes_named(reader, name) if reader else []
    found = [path for path in found if private or not is_private(path)]
    if len(found) > 1:
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        listed = ", ".join(found[:_LISTED])
        raise BadRequest(f"several notes have this name: {listed}{more}", hint="give a path")
    return found[0] if found else None


def check_links(settings: AgentSettings, *, private: bool) -> tuple[DeadLink, ...]:
    """Return the dead links of the notes in the index; `private`: False leaves private notes out.

    A Markdown link to a file that is there, and is not a note, is not dead. Neither is one that leads out of
    the memory: what else is on the disk is not told. Raises IndexFaults.
    """
    folders = settings.workspace, *(root.path for root in MemoryPaths.of(settings).extras)
    roots = [os.path.join(os.path.normpath(str(each)), "") for each in folders]
    with driver.reading_if_any(settings.index_path) as reader:
        dead = links.dead(reader, private=private) if reader else []
    return tuple(
        DeadLink(path=path, line=line, target=target)
        for path, line, target, is_path in dead
        if not (is_path and _may_be_file(settings, path, target, roots))
    )


def _may_be_file(settings: AgentSettings, path: str, target: str, roots: Sequence[str]) -> bool:
    """Tell whether a Markdown link in the note at a ledger path leads to some file, or out of all `roots`."""
    folder = os.path.join(settings.workspace, os.path.dirname(path))
    places = os.path.join(folder, target), os.path.join(settings.workspace, target.lstrip("/"))
    beside, _ = inside = [any(os.path.normpath(place).startswith(root) for root in roots) for place in places]
    return not beside or any(map(os.path.exists, compress(places, inside)))
