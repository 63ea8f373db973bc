"""A damaged index is moved aside, never removed: the notes are the truth and the index is built again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from shared.errors import IndexUnwritable


def move_aside(path: Path, now: float) -> Path:
    """Rename the index (with its WAL files) and return its new name. Raises IndexUnwritable."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")
    try:
        for suffix in ("-wal", "-shm"):
            side = Path(f"{path}{suffix}")
            if side.exists():
                side.rename(f"{aside}{suffix}")
        path.rename(aside)
    except OSError as error:
        raise IndexUnwritable(
            f"the index {path} is damaged and cannot be moved aside: {error.strerror}",
            hint=f"move {path} away yourself, then run: memline index",
        ) from error
    return aside
