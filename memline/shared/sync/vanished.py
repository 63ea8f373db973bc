"""Keep the rows of files that vanished together: a disk that is not mounted is no wish to forget.

A root is the workspace, or a folder of `extraPaths`. When all its files, or more than half of many, are gone
at once, their rows and vectors stay and are searched, and every answer says so, until the files are back,
`memline index --accept-removals`, or `sync.keepVanishedHours` is over. The rows of `kept` have each such
file; `since` 0 is one whose removal was accepted.

A root may also vanish file by file, each of them a plain removal: what the index had of such a file is set
aside for as long as its root goes on to lose one within `QUIET_S`, `sync.keepVanishedHours` at most, and is
there again when so many are gone that the root is kept. A file that was written meanwhile makes up for one
that went: where notes come, go and get other names all day, nothing vanishes.

A session that its own program deleted for its age stays until it is forgotten: no person asked for that.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from memline.shared.config.schema import AgentSettings
from memline.shared.config.transcript_programs import retention_days
from memline.shared.digests import sha256
from memline.shared.index import ledger
from memline.shared.index.ledger import SetAside
from memline.shared.sources.discover import Discovery
from memline.shared.sources.outcomes import RecordedFile
from memline.shared.sources.paths import SESSIONS, TRANSCRIPT_PREFIX, MemoryPaths, is_transcript, unprintable
from memline.shared.values import value
from memline.shared.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection
    from typing import Any

    from memline.shared.index.ledger import Content
    from memline.shared.index.rows import FileRow

#: Files of a root whose folder is there, of which all may be gone without a doubt.
FEW_FILES = 5

#: Files of a root, of which more than half are hardly removed at once on purpose.
MANY_FILES = 20

#: Seconds within which a root loses its next file when it vanishes file by file.
QUIET_S = 60.0

#: `since` of what may be removed, and of a session that its program cleaned up.
ACCEPTED, CLEANED_UP = 0.0, -1.0

#: Path -> root, and since when it is gone (seconds since the epoch).
Kept = Mapping[str, tuple[str, float]]


@value
class KeptRoot:
    """A root of which files are gone, and kept in the index."""

    files: int
    root: str
    #: Seconds since the epoch.
    since: float

    def words(self) -> str:
        """Say it in an answer that has no findings."""
        return f"{counted(self.files, 'file', 'are')} gone from {self.root}, and kept in the index"

    def to_json(self) -> dict[str, Any]:
        return {"files": self.files, "root": self.root, "since": self.since}


def read(connection: Connection) -> dict[str, tuple[str, float]]:
    """Return what is kept, and what may be removed."""
    rows = connection.execute("SELECT path, root, since FROM kept")
    return {path: (root, since) for path, root, since in rows}


def gone(kept: Kept) -> frozenset[str]:
    """Return the files that are gone from the disk and stay in the index."""
    return frozenset(path for path, (_, since) in kept.items() if since != ACCEPTED)


def is_kept(connection: Connection, path: str) -> bool:
    """Tell whether a file is gone, and kept."""
    query = "SELECT 1 FROM kept WHERE path = ? AND since > ?"
    return connection.execute(query, (path, ACCEPTED)).fetchone() is not None


def roots(connection: Connection) -> tuple[KeptRoot, ...]:
    """Return the roots of which files are kept."""
    return grouped(read(connection))


def grouped(kept: Kept) -> tuple[KeptRoot, ...]:
    """Return the roots of files that are kept."""
    held = [each for each in kept.values() if each[1] > ACCEPTED]
    return tuple(
        KeptRoot(files=len(times), root=root, since=min(times))
        for root in sorted({root for root, _ in held})
        for times in [[since for each, since in held if each == root]]
    )


def note(connection: Connection, kept: Kept) -> None:
    """Write down what a look has found to be kept, inside the caller's transaction."""
    connection.execute("DELETE FROM kept")
    keep(connection, kept)


def keep(connection: Connection, kept: Kept) -> None:
    """Add to what is written down, inside the caller's transaction."""
    connection.executemany(
        "INSERT OR IGNORE INTO kept (path, root, since) VALUES (?, ?, ?)",
        ((path, root, since) for path, (root, since) in kept.items()),
    )


class Roots:
    """The roots of an agent's notes."""

    def __init__(self, settings: AgentSettings, paths: MemoryPaths | None = None) -> None:
        paths = paths or MemoryPaths.of(settings)
        self._keep_s = settings.memory.sync.keep_vanished_hours * 3_600.0
        self._settings = settings
        self.workspace = paths.workspace
        extras = {extra.path for extra in paths.extras} - {self.workspace}
        #: The deepest first.
        self._extras = sorted(extras, key=len, reverse=True)

    def of(self, path: str) -> str:
        """Return the root of a ledger path; empty when it is below none."""
        absolute = self.absolute(path)
        for extra in self._extras:
            if absolute == extra or absolute.startswith(f"{extra}/"):
                return extra
        return "" if os.path.isabs(path) or is_transcript(path) else self.workspace

    def absolute(self, path: str) -> str:
        return os.path.join(self.workspace, path)

    def is_gone(self, path: str) -> bool:
        """Tell whether nothing has the name of a ledger path."""
        return not any(os.path.lexists(self.absolute(name)) for name in (path, unprintable(path)))

    def holds(self, known: tuple[str, float], now: float) -> bool:
        """Tell whether what is gone since then is still kept."""
        return known[1] == CLEANED_UP or (known[1] != ACCEPTED and now - known[1] < self._keep_s)

    def is_cleaned_up(self, path: str, mtime_ns: int, now: float) -> bool:
        """Tell whether a transcript that is gone was old enough for its program to delete it."""
        if not is_transcript(path):
            return False
        name, _, rest = path.removeprefix(TRANSCRIPT_PREFIX).partition("/")
        memory = self._settings.memory
        is_read = (
            SESSIONS in memory.sources and memory.experimental.session_memory and name in memory.transcripts
        )
        if not rest or not is_read:
            return False
        days = retention_days(name, self._settings.transcript_places[name])
        return bool(days) and mtime_ns > 0 and now - mtime_ns / 1e9 >= days * 86_400.0

    def may_vanish(self, files: int) -> bool:
        """Tell whether so many files of a root can be kept at all while its folder is there."""
        return files >= FEW_FILES and self._keep_s > 0

    def is_over(self, since: float, now: float) -> bool:
        """Tell whether no file is kept any longer that went then."""
        return abs(now - since) >= self._keep_s

    def doubtful(self, gone: Iterable[str], files: Iterable[str], written: Iterable[str] = ()) -> set[str]:
        """Return the roots of which so much is gone that it is kept.

        `files`: those that the ledger has; `written`: those of them that make up for one that is gone.
        """
        if not self._keep_s:
            return set()
        missing, total, new = (Counter(map(self.of, paths)) for paths in (gone, files, written))
        return {
            root
            for root, count in missing.items()
            if root and self._is_doubtful(root, count - new[root], total[root] - new[root])
        }

    def written(self, aside: SetAside, files: Mapping[str, RecordedFile]) -> set[str]:
        """Return the files, those set aside too, that were written since their root lost the first."""
        first: dict[str, float] = {}
        for root, at, _ in aside.values():
            first[root] = min(at, first.get(root, at))
        found = {path for path, (root, _, changed) in aside.items() if changed > first[root]}
        for path, file in files.items() if first else ():
            if max(file.mtime_ns, file.ctime_ns) > first.get(self.of(path), math.inf) * 1e9:
                found.add(path)
        return found

    def _is_doubtful(self, root: str, gone: int, total: int) -> bool:
        if gone >= total:
            return total >= FEW_FILES or not os.path.isdir(root)
        return total >= MANY_FILES and 2 * gone > total


def hold(
    roots: Roots,
    discovery: Discovery,
    removed: Iterable[str],
    files: Mapping[str, RecordedFile],
    known: Kept,
    *,
    now: float,
    hashes: Callable[[], Mapping[str, str]],
    aside: SetAside | None = None,
    decides: bool = False,
    accepts: bool = False,
) -> dict[str, tuple[str, float]]:
    """Return which of the files that a walk did not find are kept, and which of them may be removed.

    `files`: those of the ledger; `hashes`: those of their contents, asked for only in doubt. `aside`: files
    that went before and are set aside. `decides`: what is not kept may be removed; `accepts`: whatever is
    gone.
    """
    removed = list(removed)
    gone = [path for path in removed if roots.of(path) and roots.is_gone(path)]
    found = {path: known[path] for path in gone if path in known}
    old = [path for path in removed if roots.is_cleaned_up(path, files[path].mtime_ns, now)]
    if "." in discovery.unlisted:
        # Nothing can be removed of a workspace that is missing; that it is, is said from now on.
        below = [path for path in files if roots.of(path) == roots.workspace]
        found |= {path: known.get(path, (roots.workspace, now)) for path in below}
    if accepts:
        found = {path: (roots.of(path), ACCEPTED) for path in gone}
    found |= dict.fromkeys(old, ("", CLEANED_UP))
    if accepts:
        return found
    fresh, aside = [path for path in gone if path not in known], aside or {}
    before = [path for path in aside if roots.is_gone(path)]
    settled = [*(path for path in files if path not in known), *aside]
    written = roots.written(aside, files) - known.keys()
    if doubtful := roots.doubtful([*before, *fresh], settled, written):
        in_doubt = [path for path in fresh if roots.of(path) in doubtful]
        moved = _moved(in_doubt, discovery, files, hashes)
        # With these back in their root it may be in order.
        left = [path for path in fresh if path not in moved]
        still = roots.doubtful([*before, *left], settled, written)
        found |= {
            path: (roots.of(path), now) for path in in_doubt if roots.of(path) in still and path not in moved
        }
        found |= {path: (roots.of(path), ACCEPTED) for path in in_doubt if path not in found}
        # They are stored again (`settle`).
        found |= {path: (roots.of(path), now) for path in before if roots.of(path) in still}
    if decides:
        found |= {path: (roots.of(path), ACCEPTED) for path in fresh if path not in found}
    return found


def _moved(
    gone: Iterable[str],
    discovery: Discovery,
    files: Mapping[str, RecordedFile],
    hashes: Callable[[], Mapping[str, str]],
) -> set[str]:
    """Return which files stand under another name: by size and time, else by their content."""
    there = [file for file in discovery.files if file.problem is None]
    stamps = {(file.size, file.mtime_ns) for file in there}
    moved = {path for path in gone if (files[path].size, files[path].mtime_ns) in stamps}
    if left := [path for path in gone if path not in moved]:
        digests, sizes = hashes(), {files[path].size for path in left}
        contents = {digests.get(file.path, "") for file in there}
        for file in there:
            if file.path not in digests and file.size in sizes:
                contents.add(_content(file.absolute))
        moved |= {path for path in left if digests.get(path) in contents - {""}}
    return moved


def _content(absolute: str) -> str:
    try:
        return sha256(Path(absolute).read_bytes()).hexdigest()
    except OSError:
        return ""


def refuse(connection: Connection, roots: Roots | None, rows: Iterable[FileRow], now: float) -> set[str]:
    """Return which of the files that are gone stay, and write that down, inside the caller's transaction.

    A message may be older than a look, or none have been taken. None as `roots`: nothing stays.
    """
    paths = [row.path for row in rows if row.outcome == ledger.REMOVED]
    if roots is None or not paths:
        return set()
    known = read(connection)
    cleaned = {
        path: ("", CLEANED_UP)
        for path in paths
        if is_transcript(path)
        and (entry := ledger.entry(connection, path))
        and roots.is_cleaned_up(path, entry.mtime_ns, now)
    }
    keep(connection, cleaned)
    paths = [path for path in paths if path not in cleaned]
    asked = [path for path in paths if path not in known or roots.holds(known[path], now)]
    fresh = [path for path in asked if path not in known]
    if fresh:
        aside = ledger.set_aside(connection)
        recorded = {
            path: file for path, file in ledger.recorded_files(connection).items() if path not in known
        }
        files = recorded.keys() | aside.keys()
        own = {roots.of(path) for path in fresh}
        gone = {path for path in files if roots.of(path) in own and roots.is_gone(path)}
        written = roots.written(aside, recorded)
        doubtful = roots.doubtful(gone, files, written) | _vanishing(known, since=now - QUIET_S)
        kept = {path: (roots.of(path), now) for path in fresh if roots.of(path) in doubtful}
        keep(connection, kept)
        asked = [path for path in asked if path in known or path in kept]
        totals = Counter(map(roots.of, files))
        for path in gone.intersection(fresh) - kept.keys():
            if roots.of(path) and roots.may_vanish(totals[roots.of(path)]):
                ledger.put_aside(connection, path, roots.of(path), now)
    return {*asked, *cleaned}


def _vanishing(known: Kept, *, since: float) -> set[str]:
    """Return the roots of which files were found gone, and kept, since then."""
    return {root for root, at in known.values() if at > ACCEPTED and at >= since}


def settle(connection: Connection, roots: Roots, now: float, *, decides: bool = False) -> list[Content]:
    """Return what is to be stored again of roots that vanish, and is kept from now on; inside a transaction.

    What was set aside of other roots is let go of when they have lost no more for `QUIET_S`. `decides`: now.
    """
    aside, known = ledger.set_aside(connection), read(connection)
    last: dict[str, float] = {}
    for root, at, _ in aside.values():
        last[root] = max(at, last.get(root, at))
    back, over = dict[str, tuple[str, float]](), list[str]()
    for path, (root, at, _) in aside.items():
        if root in _vanishing(known, since=last[root] - QUIET_S):
            back[path] = root, now
        elif decides or abs(now - last[root]) >= QUIET_S or roots.is_over(at, now):
            over.append(path)
    ledger.drop_aside(connection, over, now)
    keep(connection, back)
    return ledger.contents_aside(connection, back, now)
