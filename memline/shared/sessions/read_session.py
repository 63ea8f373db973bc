"""Read a session whole: its chunks, with secrets masked, and what is known of it."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from memline.shared.clock import Clock
from memline.shared.sessions.said import Counts, Records, Said, TranscriptFacts
from memline.shared.sessions.secrets import mask
from memline.shared.sessions.stores import OpenTranscript, TranscriptFormat
from memline.shared.sources.chunking import AT_HEADING, AT_PARAGRAPH, WITHIN_LINE, Chunk, Unit, cut
from memline.shared.sources.outcomes import EMPTY, INDEXED, NOT_TEXT, unreadable
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sources.tokens import CHARS_PER_TOKEN, pieces, weighted_length
from memline.shared.words import counted

#: Characters of a session at most: what follows is left out, and the reason says so.
MAX_CHARS = 32_000_000

#: Characters of the first user message that name a session without a title.
TITLE_CHARS = 80

#: Days by which a record may be ahead of the clock that reads it; a later one has no day.
_AHEAD_S = 86_400.0

#: 2001: what is earlier is not a time of a session.
_EARLIEST_S = 978_307_200.0

#: Smallest chunk that has room for the names of the speakers.
_LABELLED_FROM = 64

#: Control characters and lone surrogates, which neither a full-text index nor UTF-8 can hold, and characters
#: without width that may stand anywhere in a word, also in one that announces a secret.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\xad\u200b\u2060\ufeff\ud800-\udfff]")

_SPEAKERS = {"user": "User", "assistant": "Assistant"}


class SessionReading(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is stored in the index, or the reason why there is none."""

    outcome: str
    reason: str = ""
    chunks: tuple[Chunk, ...] = ()
    #: SHA-256 (hex) of the lines that were read; empty when none could be.
    digest: str = ""
    facts: TranscriptFacts = TranscriptFacts()
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What the user or the agent wrote, on one line and masked."""

    #: `User` or `Assistant`.
    speaker: str
    text: str
    #: Number of its line, from 1.
    line: int
    #: Day on which it was written (ISO, UTC), and what the session was called by then.
    day: str
    title: str
    #: Places where a secret was masked.
    secrets: int


def read_session(
    open_: Callable[[], OpenTranscript],
    *,
    format: TranscriptFormat,
    max_tokens: int,
    overlap_tokens: int,
    clock: Clock,
) -> SessionReading:
    """Read a session up to what is there now.

    Never raises for what is on the disk, never follows a link.
    """
    messages, chars = list[Message](), 0
    try:
        with open_() as opened:
            records = Records(opened.lines, format.relevant)
            for message in messages_of(format.said(records), now=clock.now()):
                chars += len(message.text)
                if chars > MAX_CHARS:
                    break
                messages.append(message)
    except FileRefused as error:
        return SessionReading(outcome=error.problem.outcome, reason=error.problem.reason)
    except OSError as error:
        problem = unreadable(error)
        return SessionReading(outcome=problem.outcome, reason=problem.reason)
    title = messages[-1].title if messages else ""
    days = [message.day for message in messages if message.day]
    counts = Counts(
        messages=len(messages),
        broken=records.broken,
        first_day=min(days, default=""),
        last_day=max(days, default=""),
        secrets=sum(message.secrets for message in messages),
    )
    outcome, reason = _outcome(counts, records.lines)
    return SessionReading(
        outcome=outcome,
        reason=f"only the first {MAX_CHARS:,} characters are read" if chars > MAX_CHARS else reason,
        chunks=tuple(chunks_of(messages, max_tokens=max_tokens, overlap_tokens=overlap_tokens)),
        digest=records.digest.hexdigest(),
        facts=TranscriptFacts(title=title, lines=records.lines, counts=counts),
        size=opened.size,
        mtime_ns=opened.mtime_ns,
        ctime_ns=opened.ctime_ns,
    )


def _outcome(counts: Counts, lines: int) -> tuple[str, str]:
    broken = counts.broken
    if counts.messages:
        return INDEXED, f"no valid record on {counted(broken, 'line')}, left out" if broken else ""
    if broken > lines // 2:
        return NOT_TEXT, f"no valid record on {broken} of its {counted(lines, 'line')}"
    return EMPTY, "it has no messages" if lines else "no complete line yet"


def messages_of(said: Iterator[Said], *, now: float) -> Iterator[Message]:
    """Yield the messages of a session, masked; `now` (s since the epoch) decides which days are to come."""
    day = title = ""
    for each in said:
        if _EARLIEST_S <= each.at <= now + _AHEAD_S:
            day = datetime.fromtimestamp(each.at, UTC).date().isoformat()
        title = _first_words(_on_one_line(each.title)[0]) or title
        text, secrets = _on_one_line(each.text)
        if not text or each.role not in _SPEAKERS:
            continue
        if each.role == "user":
            title = title or _first_words(text)
        speaker = _SPEAKERS[each.role]
        yield Message(speaker=speaker, text=text, line=each.line, day=day, title=title, secrets=secrets)


def masked(text: str) -> tuple[str, int]:
    """Return a text without secrets and what may hide them, and how many secrets it had."""
    return mask(_UNPRINTABLE.sub("", text))


def _on_one_line(text: str) -> tuple[str, int]:
    clean, secrets = masked(text)
    return " ".join(clean.split()), secrets


def _first_words(text: str) -> str:
    if len(text) <= TITLE_CHARS:
        return text
    cut_off = text[: TITLE_CHARS + 1].rpartition(" ")[0]
    return (cut_off or text[:TITLE_CHARS]) + " …"


def heading(day: str, title: str) -> str:
    """Return what a chunk is found by in addition to its words: `2026-02-10 10 February 2026 > title`."""
    words = f"{day} {datetime.fromisoformat(day):%-d %B %Y}" if day else ""
    return " > ".join(filter(None, (words, title)))


def _units(messages: list[Message], *, max_tokens: int, overlap_tokens: int) -> Iterator[Unit]:
    """Yield messages, long ones in pieces; a cut is best before a question, then before an answer.

    The line of a unit is the place of its message in the list.
    """
    limit = max(1, max_tokens) * CHARS_PER_TOKEN
    overlap = min(max(0, overlap_tokens) * CHARS_PER_TOKEN, limit // 2)
    for number, message in enumerate(messages):
        label = len(_label(message, max_tokens))
        room = max(limit // 8, min(limit // 4, overlap)) - label
        rank = AT_HEADING if message.speaker == "User" else AT_PARAGRAPH
        is_short = weighted_length(message.text) <= limit // 2 - label
        for part in [message.text] if is_short else pieces(message.text, room):
            if text := part.strip():
                yield Unit(text=text, line=number, weight=weighted_length(text) + label, rank=rank)
                rank = WITHIN_LINE


def _label(message: Message, max_tokens: int) -> str:
    """Return the name of the speaker as it stands in a chunk."""
    return f"{message.speaker}: " if max_tokens * CHARS_PER_TOKEN >= _LABELLED_FROM else ""


def chunks_of(messages: list[Message], *, max_tokens: int, overlap_tokens: int) -> Iterator[Chunk]:
    """Cut a conversation into chunks: runs of messages, a long one in pieces.

    What follows a chunk does not change it, but for the last one.
    """
    units = list(_units(messages, max_tokens=max_tokens, overlap_tokens=overlap_tokens))
    for first, last in cut(units, max_tokens=max_tokens, overlap_tokens=overlap_tokens):
        begin, end = messages[units[first].line], messages[units[last].line]
        lines = (
            # Also a piece says who speaks, where a chunk begins with it.
            (
                _label(messages[each.line], max_tokens)
                if each.rank != WITHIN_LINE or each is units[first]
                else ""
            )
            + each.text
            for each in units[first : last + 1]
        )
        yield Chunk(
            start_line=begin.line,
            end_line=end.line,
            text="\n".join(lines),
            heading=heading(begin.day, end.title),
        )
