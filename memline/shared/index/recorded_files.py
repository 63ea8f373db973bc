"""Define the files that an index has, as a look compares them with those on the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Mapping

from memline.shared.sources.outcomes import INDEXED
from memline.shared.values import value


@value
class RecordedFile:
    """What a scan compares with the file on the disk."""

    size: int
    mtime_ns: int
    #: When content, name or rights changed: nothing can set it back, unlike `mtime_ns`.
    ctime_ns: int
    outcome: str
    chunking: str


class RecordedFiles(Mapping[str, RecordedFile]):
    """Files of a ledger by path.

    Every search asks for all of them, and hardly any has changed: a row becomes a record when it is looked
    up, which took a third of the time of comparing 20,000.
    """

    def __init__(self, rows: Iterable[tuple[str, int, int, int, str, str]] = ()) -> None:
        """`rows`: path, then the fields of a record."""
        self._rows = {row[0]: row for row in rows}

    def __getitem__(self, path: str) -> RecordedFile:
        _, size, mtime_ns, ctime_ns, outcome, chunking = self._rows[path]
        return RecordedFile(
            size=size, mtime_ns=mtime_ns, ctime_ns=ctime_ns, outcome=outcome, chunking=chunking
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def keys(self) -> KeysView[str]:
        return self._rows.keys()

    def is_indexed(self, path: str, size: int, mtime_ns: int, ctime_ns: int, chunking: str) -> bool:
        """Tell whether a file was indexed just as it is, and cut like that."""
        return self._rows.get(path) == (path, size, mtime_ns, ctime_ns, INDEXED, chunking)
