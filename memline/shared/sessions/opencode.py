"""Read the sessions of opencode that were held in a workspace: rows of its database, which stays as it is.

    session(id, parent_id, directory, title, revert, time_updated)
    message(id, session_id, time_created, data)            {"role": "user"|"assistant", "summary"?, "mode"?}
    part(id, message_id, session_id, time_updated, data)   {"type": "text", "text", "synthetic"?, "ignored"?}

A session reads like a file with a message a line, in their order; one that was reverted is an empty line. The
older folder `storage` was taken over into the database and is stale. Measured with opencode 1.18.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from memline.shared.config.schema import AgentSettings
from memline.shared.sessions.said import Record, Said, parse, seconds_of
from memline.shared.sessions.stores import (
    OpenTranscript,
    TranscriptFormat,
    TranscriptStore,
    as_ns,
    byte_length,
    reading_database,
    within,
)
from memline.shared.sources.discover import DiscoveredFile, Discovery
from memline.shared.sources.outcomes import GONE, Problem
from memline.shared.sources.paths import TRANSCRIPT_PREFIX, FileLocation, is_storable, is_transcript_name
from memline.shared.sources.safe_open import FileRefused
from memline.shared.tables import as_text

NAME = "opencode"

_PREFIX, _ENDING = f"{TRANSCRIPT_PREFIX}{NAME}/", ".jsonl"

#: What a session has before a model has given it a title.
_UNTITLED = ("New session - ", "Child session - ")

#: Bytes are counted without reading them.
_SESSIONS = """
    SELECT s.id, s.directory, s.title, s.revert,
        (SELECT ifnull(sum({length}), 0) FROM message WHERE session_id = s.id)
            + (SELECT ifnull(sum({length}), 0) FROM part WHERE session_id = s.id),
        max(s.time_updated, (SELECT ifnull(max(time_updated), 0) FROM part WHERE session_id = s.id))
    FROM session AS s WHERE s.parent_id IS NULL ORDER BY s.id"""

_TEXTS = """
    SELECT m.id, m.time_created, m.data, p.id, p.data
    FROM message AS m LEFT JOIN part AS p ON p.message_id = m.id
        AND CASE WHEN json_valid(p.data) THEN json_extract(p.data, '$.type') END = 'text'
    WHERE m.session_id = ? ORDER BY m.time_created, m.id, p.id"""


class OpencodeSessions(TranscriptStore):
    """The sessions of one workspace in a database."""

    def __init__(self, database: Path, workspace: Path) -> None:
        self._database = database
        self._is_within = within(workspace)

    def locate(self, path: str) -> FileLocation | None:
        """Return where the session of a ledger path is; None when its name cannot be one."""
        name = path.removeprefix(_PREFIX)
        is_name = is_storable(name) and is_transcript_name(name) and "/" not in name and "\0" not in name
        if name == path or not is_name:
            return None
        return FileLocation(path=path, absolute=str(self._database), anchor=str(self._database.parent))

    def discover(self) -> Discovery:
        """Find all sessions that were held in the workspace."""
        if not self._database.exists():
            return Discovery()
        try:
            with reading_database(NAME, self._database) as connection:
                rows = self._rows(connection)
        except FileRefused as error:
            return Discovery(issues=(error.problem.reason,))
        absolute = str(self._database)
        files = (
            DiscoveredFile(path=path, absolute=absolute, size=size, mtime_ns=mtime_ns)
            for path, (*_, size, mtime_ns) in rows.items()
        )
        return Discovery(files=tuple(files))

    def open(self, path: str) -> OpenTranscript:
        """Open the session of a ledger path. Raises FileRefused."""
        with reading_database(NAME, self._database) as connection:
            if (row := self._rows(connection).get(path)) is None:
                raise FileRefused(Problem(outcome=GONE, reason="gone from the disk"))
            title, revert, size, mtime_ns = row
            session = path.removeprefix(_PREFIX).removesuffix(_ENDING)
            lines = list(_lines(connection.execute(_TEXTS, (session,)), as_text(title), _record(revert)))
        encoded = (f"{line}\n".encode("utf-8", "replace") for line in lines)
        return OpenTranscript(lines=encoded, size=size, mtime_ns=mtime_ns, ctime_ns=0)

    def folders(self) -> tuple[str, ...]:
        """Return the folder of the database."""
        return (str(self._database.parent),)

    def is_shared(self, absolute: str) -> bool:
        """Tell whether it is the database or its log."""
        return absolute in (str(self._database), f"{self._database}-wal")

    def _rows(self, connection: Connection) -> dict[str, tuple[object, object, int, int]]:
        """Return title, revert, bytes and time (ns) of the sessions of the workspace, by ledger path."""
        query = _SESSIONS.format(length=byte_length("data"))
        return {
            f"{_PREFIX}{session}{_ENDING}": (title, revert, size, as_ns(written))
            for session, directory, title, revert, size, written in connection.execute(query)
            if self._is_within(as_text(directory)) and self.locate(f"{_PREFIX}{session}{_ENDING}")
        }


def _lines(rows: Iterable[tuple[Any, ...]], title: str, revert: dict[str, Any]) -> Iterator[str]:
    """Yield a line a message: JSON with role, time, text and title; empty for one that was reverted."""
    named = title if isinstance(title, str) and not title.startswith(_UNTITLED) else ""
    for (identity, created, data), parts in groupby(rows, key=itemgetter(0, 1, 2)):
        message = _record(data)
        kept = [
            _record(text) for *_, part, text in parts if part and not _is_reverted(identity, part, revert)
        ]
        # What the program wrote in the name of the user is left out.
        own = [part for part in kept if not part.get("ignored") and not part.get("synthetic")]
        text = "\n".join(filter(None, (as_text(part.get("text")) for part in own)))
        # A message of the user has its changed files as `summary`.
        is_summary = message.get("summary") is True or message.get("mode") == "compaction"
        if message.get("role") == "assistant" and is_summary:
            text = ""
        record = {"time": created, "title": named, "role": message.get("role"), "text": text}
        yield json.dumps(record, ensure_ascii=False) if kept else ""


def _is_reverted(message: str, part: str, revert: dict[str, Any]) -> bool:
    """Tell whether a part was undone: that of the message which `revert` names, or of a later one."""
    first, inner = revert.get("messageID"), revert.get("partID")
    if not isinstance(first, str) or message < first:
        return False
    return message > first or not isinstance(inner, str) or part >= inner


def _record(data: object) -> dict[str, Any]:
    text = data.encode("utf-8", "replace") if isinstance(data, str) else data
    return (parse(text) if isinstance(text, bytes) else None) or {}


def said(records: Iterable[Record]) -> Iterator[Said]:
    """Yield what the lines of this module say."""
    for line, record in records:
        role, text, title = (as_text(record.get(name)) for name in ("role", "text", "title"))
        yield Said(line=line, at=seconds_of(record.get("time")), role=role, text=text, title=title)


def _find(settings: AgentSettings) -> tuple[TranscriptStore, ...]:
    return (OpencodeSessions(settings.transcript_places[NAME], settings.workspace),)


FORMAT = TranscriptFormat(name=NAME, relevant=rb"^\{", said=said, find=_find)
