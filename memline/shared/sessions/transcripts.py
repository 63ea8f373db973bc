"""Find the sessions of an agent, of every program, and read one whole: its chunks, with secrets masked.

A further program is a class beside this one, and a row of `shared.config.environment.PROGRAMS`.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexFault
from memline.shared.sessions.claude_code import ClaudeCode
from memline.shared.sessions.codex import Codex
from memline.shared.sessions.gemini_cli import GeminiCli
from memline.shared.sessions.openclaw import OpenClaw
from memline.shared.sessions.opencode import Opencode
from memline.shared.sessions.said import Records, Said
from memline.shared.sessions.secrets import mask
from memline.shared.sessions.stores import Opened, SessionStore, gone
from memline.shared.sources.chunking import AT_HEADING, AT_PARAGRAPH, WITHIN_LINE, Chunk, Unit, cut
from memline.shared.sources.discover import DiscoveredFile, Discovery
from memline.shared.sources.outcomes import EMPTY, GONE, INDEXED, NOT_TEXT, unreadable
from memline.shared.sources.paths import (
    SESSIONS,
    TRANSCRIPT_PREFIX,
    is_storable,
    is_transcript,
    is_transcript_name,
)
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sources.tokens import CHARS_PER_TOKEN, pieces, weighted_length
from memline.shared.sqlite import library
from memline.shared.words import counted

#: The programs by their names in `memorySearch.transcripts`.
PROGRAMS: dict[str, type[SessionStore]] = {
    each.name: each for each in (OpenClaw, ClaudeCode, Codex, GeminiCli, Opencode)
}


class SessionReading(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is stored in the index, or the reason why there is none."""

    outcome: str
    reason: str = ""
    chunks: tuple[Chunk, ...] = ()
    #: SHA-256 (hex) of the lines that were read; empty when none could be.
    digest: str = ""
    #: Lines that were read; a last one that is not complete is not.
    lines: int = 0
    #: First and last day of a message (ISO, UTC); empty when none has a day.
    first_day: str = ""
    last_day: str = ""
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0


class Transcripts:
    """Lists and reads the transcripts of one agent."""

    def __init__(self, stores: Iterable[SessionStore], *, barred: Collection[str] = ()) -> None:
        """`barred`: the ledger paths of sessions that were forgotten."""
        self._stores = {store.name: store for store in stores}
        self._barred = barred

    def covers(self, path: str) -> bool:
        """Tell whether a ledger path can be that of a transcript of this agent; it may not exist."""
        is_path = is_transcript(path) and is_storable(path) and "\0" not in path
        return is_path and path not in self._barred and program_of(path) in self._stores

    def discover(self) -> Discovery:
        """Find all transcripts, and all that look so but cannot be read; each path once."""
        joined, files = Discovery(), dict[str, DiscoveredFile]()
        for store in self._stores.values():
            joined = joined.joined(store.discover())
        for file in joined.files:
            if file.path not in self._barred:
                files.setdefault(file.path, file)
        return replace(joined, files=tuple(files.values()))

    def open(self, path: str) -> AbstractContextManager[Opened]:
        """Open the transcript of a ledger path for a block. Raises FileRefused."""
        if not self.covers(path):
            raise gone()
        return self._stores[program_of(path)].open(path)

    def read(self, path: str, *, max_tokens: int, overlap_tokens: int, clock: Clock) -> SessionReading:
        """Read the session of a ledger path. Never raises for what is on the disk, never follows a link."""
        if not self.covers(path):
            return SessionReading(outcome=GONE, reason="gone from the disk")
        limits = {"max_tokens": max_tokens, "overlap_tokens": overlap_tokens}
        return read_session(self._stores[program_of(path)], path, **limits, clock=clock)

    def folders(self) -> tuple[str, ...]:
        """Return the folders in which changes show; they may not exist."""
        return tuple(dict.fromkeys(folder for store in self._stores.values() for folder in store.folders()))

    def concerns_file(self, absolute: str) -> bool:
        """Tell whether a change of a file in one of the folders can be a change of a transcript."""
        name = os.path.basename(absolute)
        return is_transcript_name(name) or name.removesuffix("-wal").endswith((".sqlite", ".db"))

    def concerns_folder(self, absolute: str) -> bool:
        """Tell whether a folder that was made, moved or removed can change what transcripts there are."""
        inside = absolute.rstrip(os.sep) + os.sep
        return any((folder + os.sep).startswith(inside) for folder in self.folders())


def transcripts_of(settings: AgentSettings) -> Transcripts | None:
    """Return the transcripts an agent may see: its own, once they are allowed and configured."""
    memory = settings.memory
    if SESSIONS not in memory.sources or not memory.experimental.session_memory:
        return None
    stores = (PROGRAMS[name](settings) for name in memory.transcripts)
    return Transcripts(stores, barred=_barred(settings))


def _barred(settings: AgentSettings) -> frozenset[str]:
    """Return the paths of the sessions of an agent that were forgotten. Raises IndexFault."""
    path = settings.account_path
    if not path.exists():
        return frozenset()
    how = "mode=ro" if os.access(path.parent, os.W_OK) else "mode=ro&immutable=1"
    try:
        with closing(library().connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as connection:
            query = "SELECT path FROM forgotten_sessions WHERE agent = ?"
            return frozenset(barred for (barred,) in connection.execute(query, (settings.agent,)))
    except library().Error as error:
        if "no such table" in str(error):
            # It was made in this moment, or is of another release.
            return frozenset()
        raise IndexFault(f"{path} cannot be read: {error}", hint="memline doctor") from error


def program_of(path: str) -> str:
    """Return the program of the transcript of a ledger path."""
    name, _, rest = path.removeprefix(TRANSCRIPT_PREFIX).partition("/")
    return name if rest and name in PROGRAMS else OpenClaw.name


#: Characters of the first user message that name a session without a title.
TITLE_CHARS = 80

#: Seconds by which a record may be ahead of the clock that reads it; a later one has no day.
_AHEAD_S = 86_400.0

#: 2001: what is earlier is not a time of a session.
_EARLIEST_S = 978_307_200.0

#: Control characters and lone surrogates, which neither a full-text index nor UTF-8 can hold, and characters
#: without width that may stand anywhere in a word, also in one that announces a secret.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\xad\u200b\u2060\ufeff\ud800-\udfff]")

#: Smallest chunk that has room for the names of the speakers.
_LEAST_TOKENS = 20

#: The names of the speakers in a chunk.
_LABELS = {"user": "User: ", "assistant": "Assistant: "}


def read_session(
    store: SessionStore, path: str, *, max_tokens: int, overlap_tokens: int, clock: Clock
) -> SessionReading:
    """Read a session up to what is there now. Never raises for what is on the disk, never follows a link."""
    try:
        with store.open(path) as (file, lines):
            records = Records(lines, store.relevant, store.identity)
            messages = list(messages_of(store.said(records), now=clock.now()))
    except (FileRefused, OSError) as error:
        problem = error.problem if isinstance(error, FileRefused) else unreadable(error)
        return SessionReading(outcome=problem.outcome, reason=problem.reason)
    broken = records.broken
    if messages:
        outcome, reason = INDEXED, f"no valid record on {counted(broken, 'line')}, left out" if broken else ""
    elif broken > records.lines // 2:
        outcome, reason = NOT_TEXT, f"no valid record on {broken} of its {counted(records.lines, 'line')}"
    else:
        outcome, reason = EMPTY, "it has no messages" if records.lines else "no complete line yet"
    days = [day for day in map(day_of, messages) if day]
    return SessionReading(
        outcome=outcome,
        reason=reason,
        chunks=tuple(_chunks(messages, max_tokens=max_tokens, overlap_tokens=overlap_tokens)),
        digest=records.digest.hexdigest(),
        lines=records.lines,
        first_day=min(days, default=""),
        last_day=max(days, default=""),
        size=file.size,
        mtime_ns=file.mtime_ns,
        ctime_ns=file.ctime_ns,
    )


def messages_of(said: Iterable[Said], *, now: float) -> Iterator[Said]:
    """Yield the messages of a session, each on one line, masked, and with the title and time it has by then.

    A time before 2001, or after `now` (s since the epoch), is none: the one before it holds.
    """
    at, title = 0.0, ""
    for each in said:
        at = each.at if _EARLIEST_S <= each.at <= now + _AHEAD_S else at
        title = _first_words(_on_one_line(each.title)) or title
        text = _on_one_line(each.text)
        if text and each.role in _LABELS:
            title = title or (_first_words(text) if each.role == "user" else "")
            yield replace(each, text=text, title=title, at=at)


def masked(text: str) -> str:
    """Return a text without secrets, and without characters that may hide them."""
    return mask(_UNPRINTABLE.sub("", text))


def _on_one_line(text: str) -> str:
    return " ".join(masked(text).split()) if text else ""


def _first_words(text: str) -> str:
    if len(text) <= TITLE_CHARS:
        return text
    return (text[: TITLE_CHARS + 1].rpartition(" ")[0] or text[:TITLE_CHARS]) + " …"


def day_of(message: Said) -> str:
    """Return the day of a message (ISO, UTC); empty without a time."""
    return f"{datetime.fromtimestamp(message.at, UTC):%Y-%m-%d}" if message.at else ""


def _chunks(messages: list[Said], *, max_tokens: int, overlap_tokens: int) -> Iterator[Chunk]:
    """Cut a conversation into chunks: runs of messages, a long one in pieces.

    What follows a chunk does not change it, but for the last one.
    """
    max_tokens = max(_LEAST_TOKENS, max_tokens)
    units = list(_units(messages, max_tokens=max_tokens, overlap_tokens=overlap_tokens))
    for first, last in cut(units, max_tokens=max_tokens, overlap_tokens=overlap_tokens):
        begin, end = messages[units[first].line], messages[units[last].line]
        lines = []
        for each in units[first : last + 1]:
            # Also a piece says who speaks, where a chunk begins with it.
            is_labelled = each.rank != WITHIN_LINE or each is units[first]
            lines.append((_LABELS[messages[each.line].role] if is_labelled else "") + each.text)
        # A session is found by its day, in two spellings, and its title.
        words = f"{day_of(begin)} {datetime.fromtimestamp(begin.at, UTC):%-d %B %Y}" if begin.at else ""
        yield Chunk(
            start_line=begin.line,
            end_line=end.line,
            text="\n".join(lines),
            heading=" > ".join(filter(None, (words, end.title))),
        )


def _units(messages: list[Said], *, max_tokens: int, overlap_tokens: int) -> Iterator[Unit]:
    """Yield messages, long ones in pieces; a cut is best before a question, then before an answer.

    The line of a unit is the place of its message in the list.
    """
    limit = max_tokens * CHARS_PER_TOKEN
    overlap = min(max(0, overlap_tokens) * CHARS_PER_TOKEN, limit // 2)
    for number, message in enumerate(messages):
        label = len(_LABELS[message.role])
        room = max(limit // 8, min(limit // 4, overlap)) - label
        rank = AT_HEADING if message.role == "user" else AT_PARAGRAPH
        is_short = weighted_length(message.text) <= limit // 2 - label
        for part in [message.text] if is_short else pieces(message.text, room):
            if text := part.strip():
                yield Unit(text=text, line=number, weight=weighted_length(text) + label, rank=rank)
                rank = WITHIN_LINE
