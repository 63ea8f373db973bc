"""Makes the database in which OpenClaw 2026.9 keeps an agent's sessions: the tables that are read, as a WAL.

Its schema was read from databases that OpenClaw 2026.9.6 made. `tests/integration/test_openclaw_home.py`
holds this against the real program where it is installed.
"""

import zstandard

from memline.shared.sqlite import library

_TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE transcript_rewrite_watermarks (session_id TEXT NOT NULL PRIMARY KEY, generation TEXT NOT NULL,
    updated_at INTEGER NOT NULL) STRICT;
CREATE TABLE session_transcript_cold_archives (session_id TEXT NOT NULL PRIMARY KEY) STRICT;
CREATE TABLE memory_session_tombstones (session_id TEXT NOT NULL PRIMARY KEY) STRICT;
CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT,
    created_at INTEGER NOT NULL, event_zstd BLOB, event_utf8_bytes INTEGER, navigation_json TEXT,
    PRIMARY KEY (session_id, seq)) STRICT;
"""

#: The earlier form, of records that are not compressed.
_PLAIN = """
PRAGMA journal_mode = WAL;
CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT NOT NULL,
    created_at INTEGER NOT NULL, PRIMARY KEY (session_id, seq)) STRICT;
"""

#: Bytes from which on a record is compressed.
_COMPRESSED_FROM = 1024


class SessionDatabase:
    """The database of one agent, open as its program has it."""

    def __init__(self, state_dir, agent="main", *, is_plain=False):
        self.path = state_dir / "agents" / agent / "agent" / "openclaw-agent.sqlite"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._is_plain = is_plain
        self.connection = library().connect(str(self.path), isolation_level=None, check_same_thread=False)
        self.connection.executescript(_PLAIN if is_plain else _TABLES)
        # What is written stays in the log, as while a program has just written it.
        self.connection.execute("PRAGMA wal_autocheckpoint = 0")

    def say(self, session, lines, *, at_ms=1_770_000_000_000):
        """Append the lines of a transcript, one record each."""
        run = self.connection.execute
        (first,) = run("SELECT count(*) FROM transcript_events WHERE session_id = ?", (session,)).fetchone()
        for number, line in enumerate(lines.splitlines(), first):
            data = line.encode()
            if self._is_plain:
                run(
                    "INSERT INTO transcript_events VALUES (?, ?, ?, ?)",
                    (session, number, line, at_ms + number),
                )
                continue
            packed = zstandard.ZstdCompressor(level=1, write_checksum=True).compress(data)
            kept = (line, None) if len(data) < _COMPRESSED_FROM else (None, packed)
            run(
                "INSERT INTO transcript_events VALUES (?, ?, ?, ?, ?, ?, NULL)",
                (session, number, kept[0], at_ms + number, kept[1], len(data)),
            )

    def delete(self, session):
        """Delete a session, as OpenClaw does."""
        self.connection.execute("DELETE FROM transcript_events WHERE session_id = ?", (session,))

    def note(self, table, session):
        """Put a session into a table of those that were forgotten, or put away."""
        self.connection.execute(f"INSERT INTO {table} VALUES (?)", (session,))

    def damage(self, seq, packed, size=0):
        """Give a record other bytes, and another size than it has."""
        change = "event_zstd = ?, event_utf8_bytes = max(event_utf8_bytes, ?)"
        self.connection.execute(f"UPDATE transcript_events SET {change} WHERE seq = ?", (packed, size, seq))

    def close(self):
        """Close it, as when its program ends."""
        self.connection.close()


#: Where releases have kept keys: place, table with its columns, and the row before the text; the early one is
#: a file.
KEY_STORES = {
    "early": ("agents/main/agent/auth-profiles.json", "", ""),
    "agent": (
        "agents/main/agent/openclaw-agent.sqlite",
        "auth_profile_store (store_key, store_json)",
        "primary",
    ),
    "all": ("state/openclaw.sqlite", "config_machine_state (state_key, value_json)", "authProfiles.store"),
}


def save_keys(state_dir, text, store):
    """Save keys as a release of OpenClaw did; `store` is one of `KEY_STORES`."""
    place, table, name = KEY_STORES[store]
    path = state_dir / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if not table:
        path.write_text(text)
        return
    connection = library().connect(str(path), isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"CREATE TABLE {table}")
    connection.execute(f"INSERT INTO {table} VALUES (?, ?)", (name, text))
    connection.close()
