"""Hold how far a transcript has been read: what an index keeps, so that the next reading goes on there."""

from __future__ import annotations

from memline.shared.values import field, value


@value
class TranscriptContext:
    """What holds from one line of a transcript to the next."""

    #: What the session is called: its name, or the first words of the user.
    title: str = ""
    #: Day of the last record that had one (ISO, UTC).
    day: str = ""
    #: A cron job began this session and no user has written since: its reports to itself are left out.
    is_muted: bool = False


@value
class Counts:
    """What has been counted in a transcript so far."""

    messages: int = 0
    #: Lines that are not a record.
    broken: int = 0
    #: First and last day of a message (ISO, UTC); empty when none has a day.
    first_day: str = ""
    last_day: str = ""
    #: Places in them where a secret was hidden.
    secrets: int = 0


@value
class ChunkStart:
    """Where a chunk begins: a piece of the message on a line, and what is needed to read on from there."""

    #: First byte of the line, and its number from 1.
    offset: int = 0
    line: int = 1
    #: Which piece of the line, from 0.
    piece: int = 0
    #: Number of the chunk in the transcript, from 0.
    ordinal: int = 0
    #: What holds before the line.
    context: TranscriptContext = field(default_factory=TranscriptContext)


@value
class Progress:
    """How far a transcript has been read, and what it held."""

    #: Bytes and lines that were read; a last line that is not complete is not.
    consumed: int = 0
    lines: int = 0
    #: Where the last chunk begins: the next reading makes it again.
    resume: ChunkStart = field(default_factory=ChunkStart)
    title: str = ""
    counts: Counts = field(default_factory=Counts)
