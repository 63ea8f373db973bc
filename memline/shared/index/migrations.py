"""Bring the schema of an index up to date, in numbered steps that the writer runs.

Each step is a transaction together with its record (sqlite-utils); `user_version` carries the number of the
last one, so that a reader can tell a newer index without importing sqlite-utils. The first step is
`schema.sql` as a whole, and brings over a file of 0.2.0 (schema 19); a new file is made of that alone
(`driver.open_writer`). Once 0.3.0 is released it does not change any more, and a change of the schema is a
step of its own below it.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from sqlite_utils import Database, Migrations

from memline.shared.index import chunks, meta
from memline.shared.sources.front_matter import about
from memline.shared.sources.markdown import front_matter_end
from memline.shared.sources.paths import MEMORY
from memline.shared.sqlite import SCHEMA, statements

try:
    from memline.shared.embedders import token_vectors
except ModuleNotFoundError as error:
    if error.name != "numpy":
        raise
    has_numpy = False
else:
    has_numpy = True

if TYPE_CHECKING:
    from sqlite3 import Connection

migrations = Migrations("memline")

#: Texts whose token vectors are in memory at once.
_SLICE_TEXTS = 50


@migrations(name="m020_schema_of_0_3")
def make_schema(database: Database) -> None:
    """Make what a file of 0.2.0 lacks, and its rows stay; a new file has it all."""
    connection = database.conn
    if connection.execute("PRAGMA user_version").fetchone()[0] >= 20:
        return
    _before_schema(connection)
    for statement in statements(SCHEMA):
        connection.execute(statement)
    _after_schema(connection)


def _before_schema(connection: Connection) -> None:
    """Take away what a file of 0.2.0 has no use for any more."""
    # What an operator paused before pauses were values of their own.
    connection.execute(
        "INSERT OR IGNORE INTO meta (key, value)"
        " SELECT 'paused_modes', json_group_array(name || ' ' || mode) FROM providers WHERE manual = 1"
        " HAVING count(*) > 0"
    )
    connection.execute("DROP TABLE providers")
    connection.execute("ALTER TABLE forgotten ADD COLUMN everywhere INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE forgotten ADD COLUMN content TEXT NOT NULL DEFAULT ''")
    # How long its lines are is not known; a file that is renamed is.
    connection.execute(
        "UPDATE forgotten SET content = coalesce((SELECT hash FROM files WHERE files.path = forgotten.path"
        " AND source = 'memory'), '') WHERE kind = 'line'"
    )
    # Signs are made anew, of vectors that are there.
    connection.execute("ALTER TABLE identities DROP COLUMN signs_check")
    connection.execute("DROP TABLE vector_signs")


def _after_schema(connection: Connection) -> None:
    """Fill what 0.2.0 did not have, from the rows that it left."""
    # A process whose SQLite had no FTS5 changed chunks.
    if connection.execute("DELETE FROM meta WHERE key = 'fts_stale' AND value = 'true'").rowcount:
        connection.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('rebuild')")
    # 20 µs a chunk; nothing is read again or embedded.
    connection.execute("INSERT INTO forms_fts (forms_fts) VALUES ('rebuild')")
    chunks.fill_names(connection)
    # What 0.2.0 deleted may stand in any page.
    meta.put(connection, meta.TO_ERASE, meta.ALL)
    connection.execute(
        "INSERT INTO vector_signs (vector_id, identity_id)"
        " SELECT id, identity_id FROM vectors WHERE active = 1 AND state = 'ready'"
    )
    _fill_tags_and_links(connection)
    bring_tokens_over(connection)


def _fill_tags_and_links(connection: Connection) -> None:
    """Store tags and links of all notes from their chunks: what does not change is not read again."""
    found = connection.execute(
        "SELECT file_id, start_line, text FROM chunks WHERE file_id IN"
        " (SELECT file_id FROM chunks JOIN files ON files.id = file_id WHERE source = ? AND"
        "  (instr(text, '#') OR instr(text, '[[') OR instr(text, '](') OR instr(text, ']:')"
        "   OR ordinal = 0 AND text LIKE '%tag%')) ORDER BY file_id, ordinal",
        (MEMORY,),
    )
    for file_id, rows in groupby(found, key=itemgetter(0)):
        # Chunks overlap by whole lines; a line of several chunks is in pieces.
        lines: dict[int, str] = {}
        for _, first, text in rows:
            lines |= dict(enumerate(text.split("\n"), first))
        texts = [lines.get(at, "") for at in range(1, max(lines) + 1)]
        said = about(texts, front_matter_end(texts))
        chunks.store_tags(connection, file_id, "\n".join(said.tags))
        chunks.store_links(connection, file_id, said.links)


def bring_tokens_over(connection: Connection) -> None:
    """Store again what 0.2.0 reduced, in half of the bytes, inside the caller's transaction."""
    fitted = connection.execute(
        "SELECT id, projection FROM identities WHERE projection IS NOT NULL"
    ).fetchall()
    if fitted and not has_numpy:
        # They were made, and are read, with numpy alone: until they are made anew, vectors decide.
        ids = [(identity_id,) for identity_id, _ in fitted]
        connection.executemany("DELETE FROM token_vectors WHERE identity_id = ?", ids)
        connection.executemany("UPDATE identities SET projection = NULL WHERE id = ?", ids)
        return
    for identity_id, axes in fitted:
        last = 0
        while rows := connection.execute(
            "SELECT vector_id, tokens FROM token_vectors WHERE vector_id > ? AND identity_id = ?"
            " ORDER BY vector_id LIMIT ?",
            (last, identity_id, _SLICE_TEXTS),
        ).fetchall():
            last = rows[-1][0]
            connection.executemany(
                "UPDATE token_vectors SET tokens = ? WHERE vector_id = ?",
                [(token_vectors.of_0_2(tokens, axes), vector_id) for vector_id, tokens in rows],
            )
        axes = token_vectors.projection_of_0_2(axes)
        connection.execute("UPDATE identities SET projection = ? WHERE id = ?", (axes, identity_id))


def migrate(connection: Connection) -> None:
    """Take the steps that a file lacks, inside the caller's transaction."""
    migrations.apply(Database(connection, recursive_triggers=False, execute_plugins=False))
