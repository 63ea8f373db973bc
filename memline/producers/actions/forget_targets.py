"""Say what `memline forget` shall forget: by path, by words, by session, by day."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from memline.shared.clock import SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import BadRequest, ConfigError, MemlineError, PathNotAllowed
from memline.shared.index import driver, forgotten, meta
from memline.shared.index.chunks import former_texts
from memline.shared.index.full_text import TOKENIZER
from memline.shared.index.links import notes_named
from memline.shared.search.query import Term, analyse, any_of
from memline.shared.sources import note_files
from memline.shared.sources.dates import day_of_path
from memline.shared.sources.discover import discover
from memline.shared.sources.excerpt import Citation, parse_citation
from memline.shared.sources.folding import fold
from memline.shared.sources.forgetting import line_hash
from memline.shared.sources.outcomes import EMPTY, GONE, INDEXED
from memline.shared.sources.paths import MemoryPaths, is_transcript
from memline.shared.sources.reading import read_file
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.sources.tokens import grams
from memline.shared.sources.transcripts.formats import transcripts_of
from memline.shared.values import value
from memline.shared.words import counted

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Lines that together hold what was asked, where no single one does: a sentence that is wrapped.
MAX_TOGETHER = 3


#: Hash and text of a chunk.
Text = tuple[bytes, str]


@value
class Lines:
    """Lines of a note."""

    path: str
    #: 1-based, inclusive.
    first: int
    last: int

    #: Whether the file keeps them whatever was asked, so that only the list of hashes holds them back.
    stays: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"{self.path}#L{self.first}-L{self.last}"

    @classmethod
    def holding(cls, agent: AgentSettings, path: str, terms: Sequence[Term]) -> list[Target]:
        """List what of a note holds every term: each line with all of them, else the shortest runs."""
        runs = _spans(terms_of_lines(cls.lines_of(agent, path), terms), len(terms))
        return [cls(path=path, first=first, last=last) for first, last in runs]

    @classmethod
    def of_part(cls, agent: AgentSettings, path: str, part: Citation) -> list[Target]:
        """List what a citation names of a note."""
        first, last = 1, len(cls.lines_of(agent, path))
        if part.first is not None:
            first, last = max(1, part.first), min(last, part.first + (part.lines or 1) - 1)
        return [cls(path=path, first=first, last=last)] if first <= last else []

    @staticmethod
    def lines_of(agent: AgentSettings, path: str) -> list[str]:
        """Read the lines of a note as they are now; none when it cannot be read."""
        located = MemoryPaths.of(agent).locate(path)
        reading = located and read_file(located.absolute, root=located.anchor, clock=SystemClock())
        if not reading or reading.outcome not in (INDEXED, EMPTY):
            return []
        return reading.text.removesuffix("\n").split("\n") if reading.text else []

    def chunks(self, connection: Connection) -> list[Text]:
        """Read hash and text of the chunks that hold some of it."""
        query = f"{_CHUNKS_OF} AND start_line <= ? AND end_line >= ?"
        return connection.execute(query, (self.path, self.last, self.first)).fetchall()

    def shown(self, agent: AgentSettings) -> list[str]:
        """Return its lines when they are few enough to be shown."""
        return self._lines(agent) if self.last - self.first < MAX_TOGETHER else []

    def words(self, agent: AgentSettings, chunks: Sequence[Text]) -> tuple[set[bytes], set[bytes]]:
        """Return the bytes of its lines, which other files may hold, and their hashes for the list."""
        chosen = [line for line in self._lines(agent) if line.strip()]
        return {line.strip().encode() for line in chosen}, {line_hash(line) for line in chosen}

    def _lines(self, agent: AgentSettings) -> list[str]:
        return self.lines_of(agent, self.path)[self.first - 1 : self.last]

    def check(self, agent: AgentSettings) -> tuple[str, str, bytes]:
        """Return the note, as `_note` does; raise a MemlineError where nothing can be taken out of it."""
        anchor, relative, data = _note(agent, self.path)
        if data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:4] == b"\x00\x00\xfe\xff":
            raise MemlineError(
                f"{self.path} is not UTF-8, so its lines are not taken out",
                hint="add --keep-note to leave it as it is",
            )
        file = os.path.join(anchor, relative)
        # A new file takes the place of the old one.
        if not (os.access(file, os.W_OK) and os.access(os.path.dirname(file), os.W_OK | os.X_OK)):
            raise MemlineError(
                f"{self.path} may not be written, so its lines are not taken out",
                hint="fix the permissions of the file and its folder, or add --keep-note",
            )
        return anchor, relative, data

    def take_out(self, agent: AgentSettings) -> None:
        """Remove it from the note. Raises MemlineErrors."""
        for _ in range(5):
            anchor, relative, data = self.check(agent)
            if note_files.remove_lines(anchor, relative, self.first, self.last, data):
                return
        raise MemlineError(f"{self.path} is changed all the time", hint="try again later")

    def keep_copy(self, agent: AgentSettings, folder: Path) -> None:
        """Copy the note below a folder."""
        copy = folder / self.path.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        opened = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.write(_note(agent, self.path)[2])


@value
class Gone:
    """A note whose file is gone, as a whole: what the index, or another file of the home, still has of it."""

    path: str

    first: ClassVar[int] = 0
    stays: ClassVar[bool] = False

    def __str__(self) -> str:
        return self.path

    def chunks(self, connection: Connection) -> list[Text]:
        return connection.execute(_CHUNKS_OF, (self.path,)).fetchall()

    def shown(self, agent: AgentSettings) -> list[str]:
        return []

    def words(self, agent: AgentSettings, chunks: Sequence[Text]) -> tuple[set[bytes], set[bytes]]:
        lines = (line.strip().encode() for _, text in chunks for line in text.split("\n"))
        return {*filter(None, lines)}, set()

    def take_out(self, agent: AgentSettings) -> None:
        """Do nothing."""

    def keep_copy(self, agent: AgentSettings, folder: Path) -> None:
        """Do nothing."""


@value
class Transcript(Gone):
    """A whole transcript. It always stays: it is another program's."""

    stays: ClassVar[bool] = True

    @classmethod
    def holding(cls, agent: AgentSettings, path: str, terms: Sequence[Term]) -> list[Target]:
        return [cls(path=path)]

    def words(self, agent: AgentSettings, chunks: Sequence[Text]) -> tuple[set[bytes], set[bytes]]:
        lines, _ = Gone.words(self, agent, chunks)
        transcripts = transcripts_of(agent)
        if transcripts is None or transcripts.locate(self.path) is None:
            return lines, set()
        try:
            with transcripts.open(self.path) as opened:
                return lines, {line_hash(line.rstrip(b"\n")) for line in opened.lines if line.strip()}
        except FileRefused as error:
            if error.problem.outcome != GONE:
                raise
            # Its program has deleted it: the index alone has it.
            return lines, set()


Target = Lines | Gone


def kind_of(path: str) -> type[Lines] | type[Transcript]:
    """Tell what a path of the ledger is of; asked once, the rest are methods."""
    return Transcript if is_transcript(path) else Lines


_CHUNKS_OF = "SELECT text_hash, text FROM chunks JOIN files ON files.id = file_id WHERE path = ?"


def targets_of_path(agent: AgentSettings, cited: str) -> list[Target]:
    """Resolve a path or citation. Raises PathNotAllowed, and BadRequest for lines of a conversation."""
    citation = parse_citation(cited)
    if (kind := kind_of(citation.path)) is not Lines:
        if citation.first is not None:
            raise BadRequest(
                "a conversation is forgotten as a whole, and not some lines of it",
                hint=f"memline forget {shlex.quote(citation.path)}",
            )
        return kind.holding(agent, citation.path, ()) if _has_transcript(agent, citation.path) else []
    paths = MemoryPaths.of(agent)
    located = paths.locate(citation.path)
    path = located.path if located else citation.path
    is_there = located and os.path.lexists(located.absolute)
    if not is_there and _is_left(agent, path):
        return [Gone(path=path)]
    if located is None:
        raise PathNotAllowed(
            f"{citation.path} is not a memory file of this agent", hint="memline search QUERY"
        )
    return Lines.of_part(agent, located.path, citation)


def why_nothing(agent: AgentSettings, cited: str) -> tuple[str, str]:
    """Say why a path or citation has nothing to be forgotten, and what to do; the last may be empty."""
    citation = parse_citation(cited)
    path = citation.path
    located = MemoryPaths.of(agent).locate(path)
    if located and os.path.lexists(located.absolute) and kind_of(path) is Lines:
        reading = read_file(located.absolute, root=located.anchor, clock=SystemClock())
        if reading.outcome not in (INDEXED, EMPTY):
            return (
                f"{path} is on the disk and was not read: {reading.reason}",
                f"rm {shlex.quote(located.absolute)}",
            )
        count = len(Lines.lines_of(agent, path))
        return f"{path} has {counted(count, 'line')}" if count else f"{path} is empty", ""
    with driver.reading_if_any(agent.index_path) as reader:
        if reader is not None and any(group.path == path for group in forgotten.groups(reader)):
            rest = "memline index" * bool(meta.get(reader, meta.TO_ERASE))
            return f"nothing but hashes is left of {path}", rest
        named = notes_named(reader, path) if reader is not None else []
    again = f"memline forget {shlex.quote(named[0])}" if named else "memline search QUERY"
    return f"there is no {'note' if kind_of(path) is Lines else 'transcript'} {path}", again


def _is_left(agent: AgentSettings, path: str) -> bool:
    """Tell whether the index has texts, or vectors of texts, of a file that is gone."""
    with driver.reading_if_any(agent.index_path) as reader:
        if reader is None:
            return False
        has_chunks = reader.execute(f"{_CHUNKS_OF} LIMIT 1", (path,)).fetchone() is not None
        return has_chunks or bool(former_texts(reader, path))


def _has_transcript(agent: AgentSettings, path: str) -> bool:
    """Tell whether a transcript is on the disk, or in the index."""
    transcripts = transcripts_of(agent)
    # Of a source that is off what the index has: no file of it is read, so none can be kept out.
    found = transcripts.discover().files if transcripts is not None else ()
    return any(file.path == path for file in found) or _is_left(agent, path)


def has_former_texts(agent: AgentSettings) -> bool:
    """Tell whether the index has hashes of texts that are in no note any more."""
    query = "SELECT 1 FROM former_texts UNION SELECT 1 FROM forgotten LIMIT 1"
    with driver.reading_if_any(agent.index_path) as reader:
        return reader is not None and reader.execute(query).fetchone() is not None


def targets_before(agent: AgentSettings, day: date) -> list[Target]:
    """List the dated notes and the sessions that ended before a day.

    A note is of the day in its front matter, as the index has it, else of that in its name.
    """
    found: list[Target] = []
    with driver.reading_if_any(agent.index_path) as reader:
        of_files = "SELECT path, day FROM files WHERE day <> ''"
        days = dict(reader.execute(of_files).fetchall()) if reader is not None else {}
        for file in discover(MemoryPaths.of(agent)).files:
            stated = days.get(file.path)
            dated = date.fromisoformat(stated) if stated else day_of_path(file.path)
            if file.problem is None and dated is not None and dated < day:
                found += targets_of_path(agent, file.path)
        if reader is not None:
            query = (
                "SELECT path FROM files JOIN transcripts ON file_id = files.id"
                " WHERE last_day <> '' AND last_day < ? ORDER BY path"
            )
            for (path,) in reader.execute(query, (day.isoformat(),)):
                found += kind_of(path).holding(agent, path, ())
    return found


def targets_of_session(agent: AgentSettings, key: str) -> list[Target]:
    """List the transcripts of a session: by its key in OpenClaw's database, or by its id."""
    transcripts = transcripts_of(agent)
    if transcripts is None:
        raise ConfigError(
            "this agent has no source `sessions`",
            hint='in memorySearch set sources: ["memory", "sessions"] and experimental.sessionMemory: true',
        )
    ids = transcripts.sessions_of(key) or {key.partition(".jsonl")[0]}
    files = [file.path for file in transcripts.discover().files if file.problem is None]
    named = [path for path in files if path.rpartition("/")[2].partition(".jsonl")[0] in ids]
    return [target for path in named for target in kind_of(path).holding(agent, path, ())]


def targets_of_query(agent: AgentSettings, query: str) -> list[Target]:
    """List the lines of notes, and the whole transcripts, that hold every word of `query` in some form.

    Of a note only what holds the words: each line with all of them, else the shortest runs of lines. The
    notes are read as they are now; the index only names those to look at, so it must be up to date. No
    provider is asked.
    """
    terms = terms_of(query)
    if not terms:
        return []
    everything = " AND ".join(f"({any_of((term.match, *term.spellings))})" for term in terms)
    paths = (
        "SELECT DISTINCT path FROM files JOIN chunks ON file_id = files.id"
        " WHERE chunks.id IN (SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?) ORDER BY path"
    )
    with driver.reading_if_any(agent.index_path) as reader:
        named = [path for (path,) in reader.execute(paths, (everything,))] if reader else []
    return [target for path in named for target in kind_of(path).holding(agent, path, terms)]


def terms_of(query: str) -> list[Term]:
    """Return what a line has to hold."""
    return [term for term in analyse(query).terms if term.is_asked]


def terms_of_lines(lines: Sequence[str], terms: Sequence[Term]) -> list[set[int]]:
    """Return which of the terms each line holds, by the rules of the index."""
    held: list[set[int]] = [set() for _ in lines]
    folded = [fold(line) for line in lines]
    with closing(driver.in_memory()) as connection:
        columns = "text, heading, path, grams"
        connection.execute(f"CREATE VIRTUAL TABLE line USING fts5 ({columns}, tokenize = '{TOKENIZER}')")
        rows = ((number, text, grams(text)) for number, text in enumerate(folded))
        connection.executemany("INSERT INTO line (rowid, text, grams) VALUES (?, ?, ?)", rows)
        for place, term in enumerate(terms):
            match = any_of((term.match, *term.spellings))
            for (number,) in connection.execute("SELECT rowid FROM line WHERE line MATCH ?", (match,)):
                if term.literal is None or term.literal.search(folded[number]):
                    held[number].add(place)
    return held


def _spans(held: Sequence[set[int]], wanted: int) -> Iterator[tuple[int, int]]:
    """Find the lines (1-based, inclusive) that hold all terms: single ones, else runs that do not overlap."""
    for length in range(1, MAX_TOGETHER + 1):
        first, found = 0, False
        while first + length <= len(held):
            run = held[first : first + length]
            # A line without any of them is no part of the sentence: a blank one ends a paragraph.
            if all(run) and len(set().union(*run)) == wanted:
                found = True
                yield first + 1, first + length
                first += length
            else:
                first += 1
        if found:
            return


def _note(agent: AgentSettings, path: str) -> tuple[str, str, bytes]:
    """Return the root of a note, its path below it, and its bytes now."""
    located = MemoryPaths.of(agent).locate(path)
    assert located is not None
    relative = os.path.relpath(located.absolute, located.anchor)
    with os.fdopen(open_regular(located.anchor, relative), "rb") as file:
        return located.anchor, relative, file.read()
