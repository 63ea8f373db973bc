"""Keep when each finding was first seen, for those whose own rows do not tell since when it is so.

Processes that run for long write it while they look; what they see no more is forgotten, so that it begins
anew when it comes back. A subject may be the path of a note: its digest is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from memline.shared.digests import sha256
from memline.shared.errors import IndexFault
from memline.shared.finding import OK, Finding
from memline.shared.index.accounts import AccountFile
from memline.shared.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

#: Findings of a home that are kept; of more the newest are not.
MOST = 10_000

#: Code, agent (empty: of all) and the digest of the subject.
Key = tuple[str, str, str]


def dated(file: AccountFile, found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings with the moment they were first seen, where they have none and it is kept."""
    if all(each.since is not None for each in found):
        return tuple(found)
    kept: dict[Key, float] = {}
    # A look tells what is wrong in any case.
    with suppress(IndexFault), file.reading() as connection:
        kept = _read(connection) if connection is not None else {}
    if not kept:
        return tuple(found)
    return tuple(replace(each, since=kept.get(_key(each))) if each.since is None else each for each in found)


def note(
    file: AccountFile, found: Iterable[Finding], looked: Mapping[str, Collection[str]], now: float
) -> None:
    """Keep what is found, and forget what is not any more. Writes only what differs. Raises IndexFaults.

    `looked`: agent (empty: of all) -> the codes that were looked for.
    """
    seen = {_key(each) for each in found if each.level != OK}
    with file.reading() as connection:
        kept = _read(connection) if connection is not None else {}
    gone = [key for key in kept.keys() - seen if key[0] in looked.get(key[1], ())]
    new = sorted(seen - kept.keys())[: max(0, MOST - len(kept))]
    if gone or new:
        with file.writing() as connection:
            row = "code = ? AND agent = ? AND subject = ?"
            connection.executemany(f"DELETE FROM first_seen WHERE {row}", gone)
            insert = "INSERT OR IGNORE INTO first_seen VALUES (?, ?, ?, ?)"
            connection.executemany(insert, [(*key, now) for key in new])


def _read(connection: Connection) -> dict[Key, float]:
    rows = connection.execute("SELECT code, agent, subject, at FROM first_seen")
    return {(code, agent, subject): at for code, agent, subject, at in rows}


def _key(finding: Finding) -> Key:
    return (
        finding.code,
        finding.agent or "",
        sha256(finding.subject.encode("utf-8", "replace")).hexdigest()[:16],
    )
