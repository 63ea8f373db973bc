"""Forget lines of notes and whole sessions: in the notes, in the index, and in its free pages.

All notes are read before the first is changed, so that one which cannot be changed does not leave the others
half forgotten. Then the lines go out of the notes and the sessions are barred, before the files are read
again: whatever was read earlier is older than that, and loses against it.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from datetime import date

import msgspec

from memline.shared.clock import SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import BadRequest, ConfigError, MemlineError, PathNotAllowed
from memline.shared.index import accounts, batches, driver, identities, maintenance
from memline.shared.index.maintenance import COMPANIONS
from memline.shared.index_writer import IndexWriter
from memline.shared.sessions.transcripts import transcripts_of
from memline.shared.sources import writing
from memline.shared.sources.dates import day_of_path
from memline.shared.sources.discover import discover
from memline.shared.sources.outcomes import EMPTY, GONE, INDEXED
from memline.shared.sources.paths import SESSIONS, FileLocation, MemoryPaths, is_transcript
from memline.shared.sources.reading import parse_citation, read_file, read_file_excerpt
from memline.shared.sources.safe_open import open_regular
from memline.shared.sync.read_file import FileReader
from memline.shared.words import cite, counted

#: Bytes of a line at least that is looked for in other files of the home: shorter ones stand everywhere.
MIN_NEEDLE = 12

#: Files that hold no text of notes, and may be large.
_MODELS = (".gguf", ".onnx", ".onnx_data")

#: Byte order marks of UTF-16 and UTF-32.
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a note; without lines a session, or a note whose file is gone."""

    path: str
    #: 1-based, inclusive; 0: the whole.
    first: int = 0
    last: int = 0
    #: The lines that go.
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return cite(self.path, self.first, self.last) if self.first else self.path


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What was forgotten, and what holds some of it and was not changed."""

    agent: str
    forgotten: tuple[str, ...]
    lines: int
    vectors: int
    #: Files of the home with one of the lines.
    out_of_reach: tuple[str, ...]
    #: Open batches with such a text: `<id> at <provider>`, with the name of the file there.
    at_provider: tuple[str, ...]


def targets_of_path(agent: AgentSettings, cited: str) -> list[Target]:
    """Resolve a path or citation, to one target.

    Raises PathNotAllowed, BadRequest for lines of a session, and MemlineError where there is nothing.
    """
    path, part = parse_citation(cited)
    if is_transcript(path):
        if part.lines is not None:
            raise BadRequest("a session is forgotten as a whole", hint=f"memline forget {path}")
        known = transcripts_of(agent)
        is_there = known is not None and any(each.path == path for each in known.discover().files)
        if not (is_there or _is_indexed(agent, path)):
            raise MemlineError(f"there is no session {path}", hint="memline search QUERY --source sessions")
        return [Target(path=path)]
    located = _locate(agent, path)
    if not os.path.lexists(located.absolute):
        if not _is_indexed(agent, located.path):
            raise MemlineError(f"there is no note {located.path}", hint="memline search QUERY")
        return [Target(path=located.path)]
    lines = _lines_of(located)
    first, last = 1, len(lines)
    if part.lines is not None:
        first, last = max(1, part.first), min(last, part.first + part.lines - 1)
    if first > last:
        # Raises for what cannot be read.
        read_file_excerpt(located, part)
        what = f"{counted(len(lines), 'line')} of text"
        raise MemlineError(f"{located.path} has {what}", hint=f"memline get {located.path}")
    return [_target(located.path, lines, first, last)]


def targets_of_session(agent: AgentSettings, session: str) -> list[Target]:
    """List the transcript of a session, and its archives, by its id."""
    transcripts = transcripts_of(agent)
    if transcripts is None:
        raise ConfigError(
            "this agent has no source `sessions`",
            hint='in memorySearch set sources: ["memory", "sessions"] and experimental.sessionMemory: true',
        )
    wanted = session.partition(".jsonl")[0]
    paths = [each.path for each in transcripts.discover().files if each.problem is None]
    return [Target(path=path) for path in paths if path.rpartition("/")[2].partition(".jsonl")[0] == wanted]


def targets_of_query(
    agent: AgentSettings, query: str, on_unread: Callable[[str], None] = lambda _: None
) -> list[Target]:
    """List the lines of notes, and the sessions with a line, that have every word of `query`.

    A word counts as it is written, in upper or lower case; several in quotation marks stand together.
    `on_unread` is told of each note that cannot be read, and may have such a line.
    """
    words = [quoted or word for quoted, word in re.findall(r'"([^"]+)"|(\S+)', query)]
    patterns = [re.compile(rf"(?<!\w){re.escape(each)}(?!\w)", re.IGNORECASE) for each in words]

    def has_all(line: str) -> bool:
        return all(pattern.search(line) for pattern in patterns)

    targets: list[Target] = []
    for file in discover(MemoryPaths.of(agent)).files if patterns else ():
        lines = _lines_of(_locate(agent, file.path), on_unread)
        numbers = [number for number, line in enumerate(lines, 1) if has_all(line)]
        targets += [_target(file.path, lines, number, number) for number in numbers]
    chunks = "SELECT path, text FROM chunks JOIN files ON files.id = file_id WHERE source = ?"
    with driver.reading_if_any(agent.index_path) as reader:
        texts = reader.execute(chunks, (SESSIONS,)) if reader and patterns else ()
        paths = dict.fromkeys(path for path, text in texts if any(map(has_all, text.split("\n"))))
    return targets + [Target(path=path) for path in paths]


def targets_before(agent: AgentSettings, day: date) -> list[Target]:
    """List the dated notes, and the sessions that ended, before a day.

    A note is of the day in its front matter, as the index has it, else of that in its name.
    """
    query = "SELECT path FROM files WHERE last_day <> '' AND last_day < ? ORDER BY path"
    with driver.reading_if_any(agent.index_path) as reader:
        days = dict(reader.execute("SELECT path, day FROM files WHERE day <> ''")) if reader else {}
        sessions = reader.execute(query, (day.isoformat(),)).fetchall() if reader else []
    targets: list[Target] = []
    for file in discover(MemoryPaths.of(agent)).files:
        dated = date.fromisoformat(days[file.path]) if file.path in days else day_of_path(file.path)
        if file.problem is None and dated is not None and dated < day:
            lines = _lines_of(_locate(agent, file.path))
            targets += [_target(file.path, lines, 1, len(lines))] if lines else []
    return targets + [Target(path=path) for (path,) in sessions]


def forget(agent: AgentSettings, targets: Sequence[Target]) -> Forgotten:
    """Forget these lines and sessions. Raises MemlineErrors and OSErrors.

    After a run that was killed, lines that have gone from their notes may stand in free pages of the index,
    until the next one ends. Citations have moved by then: list the targets again.
    """
    clock = SystemClock()
    # From the end of a note to its beginning: the numbers of the lines before stay.
    of_notes = sorted((each for each in targets if each.first), key=lambda each: (each.path, -each.first))
    for target in of_notes:
        _read_checked(agent, target)
    paths = list(dict.fromkeys(each.path for each in targets))
    with closing(IndexWriter.of(agent, clock=clock)) as writer:
        needles = {line.strip().encode() for each in targets for line in each.lines}
        needles |= _indexed_lines(writer, [each.path for each in targets if not each.first])
        sessions = [path for path in paths if is_transcript(path)]
        accounts.bar_sessions(writer.accounts.file, agent.agent, sessions, clock.now())
        for target in of_notes:
            located, data = _read_checked(agent, target)
            is_same = tuple(_lines_of(located)[target.first - 1 : target.last]) == target.lines
            relative = os.path.relpath(located.absolute, located.anchor)
            options = target.first, target.last, data
            if not (is_same and writing.remove_lines(located.anchor, relative, *options)):
                what = f"{target.path} was changed meanwhile, and its lines stay"
                raise MemlineError(what, hint="run it again")
        reader = FileReader(agent, clock=clock)
        for path in paths:
            writer.store_file(reader.read(path, entry=None, force=True))
        with writer.session() as (connection, _):
            vectors, tokens = maintenance.drop_vectors(connection)
            at_provider = []
            for batch in filter(None, (batches.get(connection, token) for token in tokens)):
                file = f", file {batch.file_id}" if batch.file_id else ""
                row = identities.by_id(connection, batch.identity_id)
                provider = row.identity.provider if row else "its provider"
                at_provider.append(f"{batch.token[:8]} at {provider}{file}")
            maintenance.erase(connection)
    long = {each for each in needles if len(each) >= MIN_NEEDLE}
    return Forgotten(
        agent=agent.agent,
        forgotten=tuple(map(str, targets)),
        lines=sum(len(each.lines) for each in targets),
        vectors=vectors,
        out_of_reach=tuple(_files_with(agent, long)),
        at_provider=tuple(at_provider),
    )


def _locate(agent: AgentSettings, path: str) -> FileLocation:
    located = MemoryPaths.of(agent).locate(path)
    if located is None:
        raise PathNotAllowed(f"{path} is not a memory file of this agent", hint="memline search QUERY")
    return located


def _target(path: str, lines: Sequence[str], first: int, last: int) -> Target:
    return Target(path=path, first=first, last=last, lines=tuple(lines[first - 1 : last]))


def _lines_of(located: FileLocation, on_unread: Callable[[str], None] = lambda _: None) -> list[str]:
    """Read the lines of a note as they are now; none when it cannot be read."""
    reading = read_file(located.absolute, root=located.anchor, clock=SystemClock())
    if reading.outcome not in (INDEXED, EMPTY, GONE):
        on_unread(f"{located.path} cannot be read, and may contain it: {reading.reason}")
    return reading.text.removesuffix("\n").split("\n") if reading.text else []


def _is_indexed(agent: AgentSettings, path: str) -> bool:
    query = "SELECT 1 FROM files JOIN chunks ON file_id = files.id WHERE path = ? LIMIT 1"
    with driver.reading_if_any(agent.index_path) as reader:
        return reader is not None and driver.scalar(reader, query, path) is not None


def _indexed_lines(writer: IndexWriter, paths: Sequence[str]) -> set[bytes]:
    query = "SELECT text FROM chunks JOIN files ON files.id = file_id WHERE path = ?"
    with writer.session() as (connection, _):
        texts = [text for path in paths for (text,) in connection.execute(query, (path,))]
    return {line.strip().encode() for text in texts for line in text.split("\n")}


def _read_checked(agent: AgentSettings, target: Target) -> tuple[FileLocation, bytes]:
    """Return where a note is, and its bytes. Raises MemlineError where its lines cannot go."""
    located = _locate(agent, target.path)
    relative = os.path.relpath(located.absolute, located.anchor)
    with os.fdopen(open_regular(located.anchor, relative), "rb") as file:
        data = file.read()
    kept = "so its lines are not taken out; nothing was changed"
    if data.startswith(_WIDE):
        hint = "save it as UTF-8, or edit it yourself, then: memline index"
        raise MemlineError(f"{target.path} is not UTF-8, {kept}", hint=hint)
    # A new file takes the place of the old one.
    folder = os.path.dirname(located.absolute)
    if not (os.access(located.absolute, os.W_OK) and os.access(folder, os.W_OK | os.X_OK)):
        hint = "fix the permissions of the file and its folder"
        raise MemlineError(f"{target.path} may not be written, {kept}", hint=hint)
    return located, data


def _files_with(agent: AgentSettings, needles: Collection[bytes]) -> Iterator[str]:
    """Yield the files of the home that have one of these lines, but for the index, which has none."""
    ours = {f"{path}{end}" for path in (agent.index_path, agent.account_path) for end in ("", *COMPANIONS)}
    for path in sorted(agent.home.rglob("*")) if needles else ():
        if not path.is_file() or path.is_symlink() or str(path) in ours or path.name.endswith(_MODELS):
            continue
        if path.is_relative_to(agent.workspace):
            continue
        # An empty file cannot be mapped: ValueError.
        with (
            suppress(OSError, ValueError),
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            if any(content.find(needle) >= 0 for needle in needles):
                yield str(path)
