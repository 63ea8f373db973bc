"""Makes the database in which opencode 1.18 keeps its sessions: the tables that are read, as a WAL."""

import json
import sqlite3

T0 = 1_795_000_000_000

SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, project_id text, parent_id text, directory text, title text,
    revert text, time_created integer, time_updated integer, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, time_updated integer,
    data text);
CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, time_created integer,
    time_updated integer, data text);
"""


class Desk:
    """Writes as opencode does; its log stays beside the database."""

    def __init__(self, database):
        self.database = database
        self.rows = sqlite3.connect(database, isolation_level=None)
        self.rows.execute("PRAGMA journal_mode = wal")
        self.rows.executescript(SCHEMA)
        self.count = 0

    def session(self, name, directory="/w/proj", **more):
        row = {"title": "New session - 2026-11-23T03:27:13.592Z", "parent_id": None, "revert": None} | more
        self.rows.execute(
            "INSERT INTO session (id, directory, title, parent_id, revert, time_updated)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (name, directory, row["title"], row["parent_id"], row["revert"], T0),
        )

    def say(self, session, role, *parts, **data):
        self.count += 1
        if role == "user":
            # In a git project: the files that were changed by it.
            data = {"summary": {"diffs": []}} | data
        message = f"msg_{self.count:04}"
        at = T0 + self.count
        self.rows.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?)",
            (message, session, at, at, json.dumps({"role": role, "time": {"created": at}, **data})),
        )
        for number, part in enumerate(parts):
            spoken = {"type": "text", "text": part} if isinstance(part, str) else part
            self.rows.execute(
                "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)",
                (f"prt_{self.count:04}{number}", message, session, at, at, json.dumps(spoken)),
            )
        self.rows.execute("UPDATE session SET time_updated = ? WHERE id = ?", (at, session))
        return message

    def revert(self, session, to):
        self.rows.execute("UPDATE session SET revert = ? WHERE id = ?", (json.dumps(to), session))

    def add_part(self, message, session, data):
        """Add a part with data that opencode did not write."""
        row = ("prt_x", message, session, 0, 0, data)
        self.rows.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
