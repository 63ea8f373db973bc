"""Number the steps that make the schema of an index, which sqlite-utils runs and records.

The first step is `schema.sql` as a whole. `user_version` carries the number of the schema, so that a reader
can tell an older or a newer file without sqlite-utils. It takes 150 ms to import, and is imported only when
a file is made.
"""

from __future__ import annotations

from sqlite3 import Connection

from sqlite_utils import Database, Migrations

from memline.shared.sqlite import SCHEMA, statements

migrations = Migrations("memline")


@migrations(name="001_schema")
def make_schema(database: Database) -> None:
    """Make the tables of a new file."""
    for statement in statements(SCHEMA):
        database.conn.execute(statement)


def migrate(connection: Connection) -> None:
    """Take the steps that a file lacks, inside the caller's transaction."""
    migrations.apply(Database(connection, recursive_triggers=False, execute_plugins=False))
