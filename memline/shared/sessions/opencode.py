"""Read the sessions of opencode that were held in a workspace: rows of its database, which stays as it is.

    session(id, parent_id, directory, title, revert, time_updated)
    message(id, session_id, time_created, data)            {"role": "user"|"assistant", "summary"?, "mode"?}
    part(id, message_id, session_id, time_updated, data)   {"type": "text", "text", "synthetic"?, "ignored"?}

A session reads like a file with a message a line; one that was reverted has no text. Measured with 1.18.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from sqlite3 import Connection

from memline.shared.config.schema import AgentSettings
from memline.shared.sessions import stores
from memline.shared.sessions.said import Record, Said, seconds_of
from memline.shared.sources.discover import DiscoveredFile, Discovery
from memline.shared.sources.safe_open import FileRefused
from memline.shared.values import as_text

#: The title of a session before a model has given it one.
_UNTITLED = ("New session - ", "Child session - ")

_SESSIONS = """
    SELECT s.id, s.directory,
        (SELECT ifnull(sum({length}), 0) FROM message WHERE session_id = s.id)
            + (SELECT ifnull(sum({length}), 0) FROM part WHERE session_id = s.id),
        max(s.time_updated, (SELECT ifnull(max(time_updated), 0) FROM part WHERE session_id = s.id))
    FROM session AS s WHERE s.parent_id IS NULL ORDER BY s.id"""

#: Without what the program wrote in the name of the user, and without summaries: of a message of the user
#: `summary` has its changed files, of one of a model it is true. `revert` names the first part that is gone.
_MESSAGES = """
    WITH parts AS (
        SELECT id, message_id, iif(json_valid(data), data, '{}') AS data
        FROM part WHERE session_id = ?1 ORDER BY id),
    messages AS (
        SELECT m.id, m.time_created, s.title, iif(json_valid(m.data), m.data, '{}') AS data,
            iif(json_valid(s.revert), s.revert, '{}') AS revert
        FROM message AS m JOIN session AS s ON s.id = m.session_id WHERE s.id = ?1)
    SELECT CAST(json_object('time', m.time_created, 'title', m.title, 'role', m.data ->> 'role',
        'text', group_concat(p.data ->> 'text', char(10))) AS BLOB)
    FROM messages AS m LEFT JOIN parts AS p ON p.message_id = m.id
        AND p.data ->> 'type' = 'text' AND json_type(p.data, '$.text') = 'text'
        AND NOT ifnull(p.data ->> 'synthetic', 0) AND NOT ifnull(p.data ->> 'ignored', 0)
        AND ifnull(json_type(m.data, '$.summary'), '') <> 'true'
        AND ifnull(m.data ->> 'mode', '') <> 'compaction'
        AND (m.revert ->> 'messageID' IS NULL
            OR (m.id, p.id) < (m.revert ->> 'messageID', ifnull(m.revert ->> 'partID', '')))
    GROUP BY m.id ORDER BY m.time_created, m.id"""


class Opencode(stores.SessionStore):
    """The sessions of one workspace in a database."""

    name = "opencode"
    relevant = rb"^\{"

    def __init__(self, settings: AgentSettings) -> None:
        self._database = settings.transcript_places[self.name]
        self._is_within = stores.within(settings.workspace)

    @staticmethod
    def said(records: Iterable[Record]) -> Iterator[Said]:
        """Yield what the lines say that `open` makes."""
        for line, record in records:
            role, text, title = (as_text(record.get(name)) for name in ("role", "text", "title"))
            title = "" if title.startswith(_UNTITLED) else title
            yield Said(line=line, at=seconds_of(record.get("time")), role=role, text=text, title=title)

    def discover(self) -> Discovery:
        if not self._database.exists():
            return Discovery()
        try:
            with stores.reading_database(self.name, self._database) as connection:
                return Discovery(files=tuple(each for _, each in self._sessions(connection)))
        except FileRefused as error:
            return Discovery(issues=(error.problem.reason,))

    @contextmanager
    def open(self, path: str) -> Iterator[stores.Opened]:
        with stores.reading_database(self.name, self._database) as connection:
            for session, file in self._sessions(connection):
                if file.path == path:
                    yield file, (line + b"\n" for (line,) in connection.execute(_MESSAGES, (session,)))
                    return
        raise stores.gone()

    def folders(self) -> list[str]:
        return [str(self._database.parent)]

    def _sessions(self, connection: Connection) -> Iterator[tuple[str, DiscoveredFile]]:
        rows = connection.execute(_SESSIONS.format(length=stores.byte_length("data")))
        for session, place, size, written in rows:
            path = stores.path_of(self.name, session)
            if path and self._is_within(as_text(place)):
                yield session, DiscoveredFile(path, str(self._database), size, stores.as_ns(written))
