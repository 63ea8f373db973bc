"""`memory_append`: an entry in today's log, or in the note that lasts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from shared.clock import Clock
from shared.config.schema import AgentSettings
from shared.errors import AccessDenied, BadRequest
from shared.search.chats import Chat
from shared.sources.append import append
from shared.sources.daily import LONG_TERM, local_time, log_path
from shared.sources.entries import daily_entry, heading_line, is_empty, last_heading, long_term_entry

#: A note that an agent writes grows no larger than this.
MAX_NOTE_BYTES = 1_048_576

#: Characters of a heading at most.
MAX_HEADING_CHARS = 120


def remember(
    settings: AgentSettings, chat: Chat, found: Mapping[str, Any], *, clock: Clock
) -> dict[str, Any]:
    """Add the entry; says where it stands.

    `found` has `text`, and maybe `target` and `heading`. Raises AccessDenied while `append.enabled` is off
    and in groups for the long-term note, NotAppended when the note cannot be written, and BadRequest for an
    entry that is empty or too long.
    """
    limits = settings.memory.append
    if not limits.enabled:
        raise AccessDenied(
            "this agent may not write notes (memorySearch.append.enabled is false)",
            hint="tell the user; they can set memorySearch.append.enabled to true",
        )
    is_lasting = found.get("target", "daily") == "longTerm"
    if is_lasting and chat.kind in ("group", "channel"):
        raise AccessDenied(
            f"the long-term note is not written from a {chat.kind}",
            hint='use target "daily", or a direct chat',
        )
    text, heading = found["text"], heading_line(found.get("heading", ""))
    for name, given, limit in (("text", text, limits.max_chars), ("heading", heading, MAX_HEADING_CHARS)):
        if len(given) > limit:
            raise BadRequest(
                f"{name} has {len(given)} characters, {limit} are allowed",
                hint="say it shorter, or in several entries",
            )
    moment = local_time(clock.now(), settings.sessions.user_timezone)
    entry = long_term_entry(text, moment) if is_lasting else daily_entry(text, moment)
    if is_empty(text):
        raise BadRequest("text holds nothing to remember", hint="give the sentence to remember as text")
    path = _long_term(settings) if is_lasting else log_path(moment.date())
    title = "# Memory" if is_lasting else f"# {moment.date().isoformat()}"
    added = append(
        str(settings.workspace),
        path,
        lambda held: _composed(held, title=title, heading=heading, entry=entry),
        max_bytes=MAX_NOTE_BYTES,
        clock=clock,
    )
    first, last = added.end_line - entry.count("\n"), added.end_line
    return {
        "path": path,
        "startLine": first,
        "endLine": last,
        "citation": f"{path}#L{first}" + (f"-L{last}" if last > first else ""),
        "text": entry,
        "bytes": added.size,
    }


def _composed(held: str, *, title: str, heading: str, entry: str) -> str:
    """What is added to a note that holds `held`."""
    parts = [] if held.strip() else [title, ""]
    if heading and last_heading(held) != heading.lstrip("# "):
        parts += ["", heading, ""] if held.strip() else [heading, ""]
    return "\n".join([*parts, entry])


def _long_term(settings: AgentSettings) -> str:
    """The note that lasts: the spelling that is there, else the usual one."""
    return next((name for name in LONG_TERM if os.path.lexists(settings.workspace / name)), LONG_TERM[0])
