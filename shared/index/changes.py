"""What changed on the disk since the ledger was written, told by names, sizes and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared.index.ledger import PARTLY
from shared.sources.discover import Discovery, Found
from shared.sources.outcomes import EMPTY, INDEXED, NOT_TEXT, SYMLINK, TOO_LARGE
from shared.sources.transcript_names import is_transcript
from shared.values import value

#: Outcomes that come from the content: with the same size and time they would come again.
_SETTLED = frozenset({EMPTY, NOT_TEXT, TOO_LARGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the ledger says of a file."""

    size: int
    mtime_ns: int
    outcome: str
    chunking: str


@value
class Changes:
    """Ledger paths by what happened to them.

    Every path of the walk and of the ledger is in one of these, but for those in the ledger below a folder
    that could not be listed: nothing is known of them, so nothing is done.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    #: Transcripts that grew by less than is worth a look each time; they count as up to date.
    growing: tuple[str, ...] = ()
    #: Things that cannot be indexed (links, FIFOs …) and that the ledger does not know as such yet.
    refused: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many files the index is behind."""
        return len(self.added) + len(self.changed) + len(self.removed) + len(self.refused)

    def announced(self, *, force: bool = False, tails: bool = True) -> tuple[str, ...]:
        """Paths a chunk worker should look at: those that changed in any way, with `force` all.

        Without `tails` transcripts that grew only a little are left out.
        """
        growing = self.growing if tails or force else ()
        changed = (*self.added, *self.changed, *growing, *self.removed, *self.refused)
        return (*changed, *self.unchanged) if force else changed


def compare(
    discovery: Discovery,
    ledger: Mapping[str, Seen],
    chunking: str,
    *,
    transcript_chunking: str = "",
    growth: int = 0,
) -> Changes:
    """Compare a walk with the ledger. Pure; opens no file.

    A file is unchanged when size and time are those of the ledger and its chunks were made with the present
    settings (`chunking`; `transcript_chunking` for transcripts). What could not be read last time is tried
    again every time. A transcript is growing while it is larger by less than `growth` bytes.
    """
    groups: dict[str, list[str]] = {field: [] for field in Changes.__dataclass_fields__}
    present: set[str] = set()
    for found in discovery.found:
        present.add(found.path)
        seen = ledger.get(found.path)
        if found.problem is not None:
            is_known = seen is not None and seen.outcome == found.problem.outcome
            change = "unchanged" if is_known else "refused"
        elif seen is None:
            change = "added"
        elif (seen.size, seen.mtime_ns) != (found.size, found.mtime_ns):
            change = "growing" if _is_growing(found, seen, transcript_chunking, growth) else "changed"
        elif seen.outcome == INDEXED:
            wanted = transcript_chunking if is_transcript(found.path) else chunking
            change = "unchanged" if seen.chunking == wanted else "changed"
        else:
            change = "unchanged" if seen.outcome in _SETTLED else "changed"
        groups[change].append(found.path)
    links = tuple(
        found.path + "/" for found in discovery.found if found.problem and found.problem.outcome == SYMLINK
    )
    for path, seen in ledger.items():
        if path in present or discovery.is_unlisted(path):
            continue
        # Behind a link that the walk did not follow: looked at, it would be the same again.
        is_known = seen.outcome == SYMLINK and path.startswith(links)
        groups["unchanged" if is_known else "removed"].append(path)
    return Changes(**{name: tuple(paths) for name, paths in groups.items()})


def _is_growing(found: Found, seen: Seen, chunking: str, growth: int) -> bool:
    return (
        is_transcript(found.path)
        and seen.outcome in (INDEXED, EMPTY)
        and seen.mtime_ns != PARTLY
        and seen.chunking == chunking
        and 0 < found.size - seen.size < growth
    )
