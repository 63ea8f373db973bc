"""Append an entry to today's log, or to the long-term note."""

from __future__ import annotations

import os

from memline.producers.backends import Entry
from memline.producers.chats import Chat
from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import AccessDenied, BadRequest
from memline.shared.sources import writing as notes
from memline.shared.sources.paths import LONG_TERM, MemoryPaths
from memline.shared.words import counted

#: A note that an agent writes grows no larger than this.
MAX_NOTE_BYTES = 1_048_576


def append(
    settings: AgentSettings,
    text: str,
    *,
    target: str = "daily",
    chat: Chat | None = None,
    clock: Clock,
) -> Entry:
    """Add an entry to the note `target`, daily or longTerm.

    In a folder that is read as a whole both go into the log, at its root. Raises AccessDenied for the
    long-term note in a chat that is not private, AppendRefused when the note cannot be written, and
    BadRequest for an entry that is empty or too long.
    """
    if target not in ("daily", "longTerm"):
        raise BadRequest(f"there is no target {target[:80]!r}", hint="write daily or longTerm")
    is_lasting = target == "longTerm"
    if is_lasting and chat is not None and not chat.is_private:
        raise AccessDenied(
            f"the long-term note is not written from a {chat.kind or 'subagent'}",
            hint='use target "daily", or a direct chat',
        )
    if len(text) > (limit := settings.memory.append.max_chars):
        raise BadRequest(
            f"text has {counted(len(text), 'character')}, {limit:,} are allowed",
            hint="say it shorter, or in several entries",
        )
    if notes.is_empty(text):
        raise BadRequest("text holds nothing to remember", hint="give the sentence to remember as text")
    moment = notes.local_time(clock.now(), settings.content.agents.defaults.user_timezone)
    paths = MemoryPaths.of(settings)
    if is_lasting and not paths.is_whole:
        title, entry = "# Memory", notes.long_term_entry(text, moment)
        # The spelling that is there, else the usual one.
        spellings = (name for name in LONG_TERM if os.path.lexists(settings.workspace / name))
        path = next(spellings, LONG_TERM[0])
    else:
        # A first `MEMORY.md` would end that the folder is read as a whole.
        title, entry = f"# {moment.date().isoformat()}", notes.daily_entry(text, moment)
        path = notes.log_path(paths, moment.date())

    def composed(note: str) -> str:
        return entry if note.strip() else f"{title}\n\n{entry}"

    workspace = str(settings.workspace)
    added = notes.append(workspace, path, composed, max_bytes=MAX_NOTE_BYTES, clock=clock)
    return Entry(
        path=path,
        start_line=added.end_line - entry.count("\n"),
        end_line=added.end_line,
        text=entry,
        bytes=added.size,
    )
