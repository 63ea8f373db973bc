"""Hold what is known of a transcript that was read, beside its chunks."""

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
class TranscriptFacts:
    """What a transcript held when it was read."""

    title: str = ""
    #: Lines that were read; a last one that is not complete is not.
    lines: int = 0
    counts: Counts = field(default_factory=Counts)
