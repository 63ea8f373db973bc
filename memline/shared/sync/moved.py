"""Tell that a folder is one that was moved: its settings and its index are still those of the old path."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from memline.shared.digests import sha256
from memline.shared.errors import IndexFault
from memline.shared.index import driver

#: Notes of an index that are compared, the largest first: one that is a page is not another's by chance.
MOST_COMPARED = 50

#: Bytes of a note up to which it is compared.
_MAX_BYTES = 1 << 20

_NOTES = """
SELECT path, size, hash FROM files WHERE source = 'memory' AND outcome = 'indexed' AND size <= ?
    AND path NOT LIKE '/%' ORDER BY size DESC, path LIMIT ?
"""


def former_of(workspace: Path, gone: Iterable[tuple[Path, Path]]) -> Path | None:
    """Return the folder that `workspace` was before: at least half of the notes of its index are here.

    `gone`: folders that are there no more, each with its index. A note is the same by path and content.
    """
    return next((former for former, index in gone if _is_here(workspace, index)), None)


def _is_here(workspace: Path, index: Path) -> bool:
    with suppress(IndexFault), driver.reading(index) as reader:
        notes = reader.execute(_NOTES, (_MAX_BYTES, MOST_COMPARED)).fetchall()
        same = sum(_is_same(workspace / path, size, digest) for path, size, digest in notes)
        return 0 < len(notes) <= 2 * same
    return False


def _is_same(file: Path, size: int, digest: str) -> bool:
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(opened, "rb") as content:
        is_size = os.fstat(opened).st_size == size
        return is_size and sha256(content.read(size)).hexdigest() == digest
