"""Name the outcomes of files, the reasons that go with them, and the files that a ledger has with theirs."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, KeysView, Mapping

import msgspec

INDEXED = "indexed"
EMPTY = "empty"
SYMLINK = "symlink"
SPECIAL = "special"
TOO_LARGE = "too_large"
NOT_TEXT = "not_text"
UNREADABLE = "unreadable"
BAD_NAME = "bad_name"
FAILED = "failed"
#: The file is not there, or what is there is a folder.
GONE = "removed"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a file is not in the index."""

    outcome: str
    reason: str


LINK_PROBLEM = Problem(outcome=SYMLINK, reason="symbolic links are never followed")
NAME_PROBLEM = Problem(outcome=BAD_NAME, reason="the name is not valid UTF-8; rename it")


#: What makes a note readable, by the outcome of reading it.
_MENDS = {
    NOT_TEXT: "save {file} as UTF-8",
    TOO_LARGE: "split {file}",
    BAD_NAME: "rename {file}",
    UNREADABLE: "let the user who runs Memline read {file} (chmod u+r)",
}


def mending(outcome: str, file: str) -> str:
    """Say what ends the trouble with a note that could not be read; `file` is what it is called there."""
    mend = _MENDS.get(outcome, "mend {file}").format(file=file)
    return f"{mend}, or leave it out by memorySearch.exclude"


def code(error: OSError) -> str:
    """Return the short name of a system error, e.g. EACCES."""
    return errno.errorcode.get(error.errno or 0, type(error).__name__)


def unreadable(error: OSError) -> Problem:
    """Return the problem of a file or folder that the system does not let us read."""
    return Problem(outcome=UNREADABLE, reason=f"not readable ({code(error)})")


class RecordedFile(msgspec.Struct, frozen=True, kw_only=True):
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
        #: Path -> its row.
        self.rows = {row[0]: row for row in rows}

    def __getitem__(self, path: str) -> RecordedFile:
        _, size, mtime_ns, ctime_ns, outcome, chunking = self.rows[path]
        return RecordedFile(
            size=size, mtime_ns=mtime_ns, ctime_ns=ctime_ns, outcome=outcome, chunking=chunking
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def keys(self) -> KeysView[str]:
        return self.rows.keys()
