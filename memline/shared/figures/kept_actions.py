"""Keep the last lines of the audit log of a home, of all its processes: for the page Audit.

The log of a process has them too, and refused logins.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

from memline.shared.errors import IndexFault
from memline.shared.index.accounts import AccountFile
from memline.shared.values import value

#: Lines of a home that are kept, and the most characters of a text in one.
MOST_LINES, MOST_CHARS = 10_000, 300


@value
class Line:
    """What a user did."""

    id: int
    #: Seconds since the epoch.
    at: float
    #: user@host, the name of a token, or an address.
    by: str
    #: The name of the call, such as `jobs pause`; `login`.
    action: str
    #: The agent that it is of; empty: of several, or of none.
    agent: str
    #: What it is about: names and counts.
    subject: str
    #: Why it failed; empty: it did not.
    error: str


def keep(
    path: Path, *, by: str, action: str, agent: str, fields: Mapping[str, object], error: str = ""
) -> None:
    """Keep a line in an account file; the oldest go. Without a home that can be written none is."""
    subject = ", ".join(f"{name} {each}" for name, each in fields.items() if each != "" and name != "agent")
    words = (by, action, agent, subject, error)
    texts = (each[:MOST_CHARS].encode("utf-8", "replace").decode() for each in words)
    if path.is_absolute() and path.parent.is_dir():
        with suppress(IndexFault), closing(AccountFile(path)) as file, file.writing() as connection:
            insert = "INSERT INTO audit (at, asker, action, agent, subject, error) VALUES (?, ?, ?, ?, ?, ?)"
            last = connection.execute(insert, (time.time(), *texts)).lastrowid or 0
            connection.execute("DELETE FROM audit WHERE id <= ?", (last - MOST_LINES,))


def listed(
    file: AccountFile, agent: str, *, by: str = "", action: str = "", before: int = 0, count: int
) -> list[Line]:
    """List lines, the newest first; empty texts are any, `before` is the id of a line. Raises IndexFaults."""
    where = "? IN (agent, '') AND ? IN (asker, '') AND ? IN (action, '') AND (id < ? OR ? = 0)"
    columns = "id, at, asker, action, agent, subject, error"
    query = f"SELECT {columns} FROM audit WHERE {where} ORDER BY id DESC LIMIT ?"
    names = ("id", "at", "by", "action", "agent", "subject", "error")
    with file.reading() as connection:
        given = (agent, by, action, before, before, count)
        rows = connection.execute(query, given) if connection else ()
        return [Line(**dict(zip(names, row, strict=True))) for row in rows]


def known(file: AccountFile, agent: str) -> tuple[list[str], list[str]]:
    """Return who did something of this agent, or of any, and what was done: for menus. Raises IndexFaults."""
    with file.reading() as connection:
        query = "SELECT DISTINCT {} FROM audit WHERE ? IN (agent, '') ORDER BY 1"
        columns = ("asker", "action")
        rows = [connection.execute(query.format(each), (agent,)) if connection else () for each in columns]
        askers, actions = ([text for (text,) in each] for each in rows)
        return askers, actions
