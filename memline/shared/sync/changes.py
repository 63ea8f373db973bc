"""Compare a walk of the disk with the ledger, by names, sizes and times. Pure."""

from __future__ import annotations

from memline.shared.index.ledger import PARTIALLY_READ
from memline.shared.sources.discover import DiscoveredFile, Discovery
from memline.shared.sources.outcomes import (
    EMPTY,
    INDEXED,
    NOT_TEXT,
    SYMLINK,
    TOO_LARGE,
    UNREADABLE,
    RecordedFile,
    RecordedFiles,
)
from memline.shared.sources.paths import is_transcript
from memline.shared.values import fields, value

#: Outcomes that come from the content: with the same size and time they would come again.
_BY_CONTENT = frozenset({EMPTY, NOT_TEXT, TOO_LARGE})


@value
class Changes:
    """Groups ledger paths by what happened to their files.

    Every path of the walk and of the ledger is in one of these, but for those in the ledger below a folder
    that could not be listed: they may be there, so nothing is done.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    #: Transcripts that grew by less than is worth reading each time; they count as up to date.
    growing: tuple[str, ...] = ()
    #: Could not be read last time, and look the same (or are folders that can be listed now): tried again,
    #: and not behind.
    again: tuple[str, ...] = ()
    #: Things that cannot be indexed (links, FIFOs …) and that the ledger does not know as such yet.
    refused: tuple[str, ...] = ()
    #: Gone, and kept in the index: so many went together that it may be no removal.
    kept: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Count the files that the index is behind."""
        return len(self.added) + len(self.changed) + len(self.removed) + len(self.refused)

    def to_read(self, *, force: bool = False, tails: bool = True) -> tuple[str, ...]:
        """Return the paths a chunk worker should read: those that changed in any way, with `force` all.

        Without `tails` transcripts that grew only a little are left out.
        """
        growing = self.growing if tails or force else ()
        changed = (*self.added, *self.changed, *growing, *self.removed, *self.again, *self.refused)
        return (*changed, *self.unchanged) if force else changed


def compare(
    discovery: Discovery,
    ledger: RecordedFiles,
    chunking: str,
    *,
    transcript_chunking: str = "",
    growth: int = 0,
) -> Changes:
    """Compare a walk with the ledger. Pure; opens no file.

    A file is unchanged when size and times are those of the ledger and its chunks were made with the present
    settings (`chunking`; `transcript_chunking` for transcripts). What could not be read last time is tried
    again every time. A transcript is growing while it is larger by less than `growth` bytes.
    """
    groups: dict[str, list[str]] = {field.name: [] for field in fields(Changes)}
    unchanged = groups["unchanged"]
    row_of = ledger.rows.get
    links: list[str] = []
    for file in discovery.files:
        path = file.path
        cut, most = (transcript_chunking, growth) if is_transcript(path) else (chunking, 0)
        seen = path, file.size, file.mtime_ns, file.ctime_ns, INDEXED, cut
        if file.problem is None and row_of(path) == seen:
            unchanged.append(path)
            continue
        groups[_change_of(file, ledger.get(path), cut, most)].append(path)
        if file.problem and file.problem.outcome == SYMLINK:
            links.append(path + "/")
    # At most searches the ledger has no other file.
    gone = ledger.keys() - {file.path for file in discovery.files} if len(unchanged) < len(ledger) else ()
    for path in sorted(gone):
        if discovery.is_unlisted(path):
            continue
        group = "removed"
        if ledger[path].outcome == SYMLINK and path.startswith(tuple(links)):
            # Behind a link that the walk did not follow: read again, it would have the same outcome.
            group = "unchanged"
        elif ledger[path].outcome == UNREADABLE and any(
            file.path.startswith(f"{path}/") for file in discovery.files
        ):
            # A folder that could not be listed, and can be now: no note went. Its row goes when it is read.
            group = "again"
        groups[group].append(path)
    return Changes(**{name: tuple(paths) for name, paths in groups.items()})


def _change_of(file: DiscoveredFile, recorded: RecordedFile | None, chunking: str, growth: int) -> str:
    if file.problem is not None:
        is_recorded = recorded is not None and recorded.outcome == file.problem.outcome
        return "unchanged" if is_recorded else "refused"
    if recorded is None:
        return "added"
    was = (recorded.size, recorded.mtime_ns, recorded.ctime_ns)
    if was != (file.size, file.mtime_ns, file.ctime_ns):
        is_growing = (
            0 < file.size - recorded.size < growth
            and recorded.outcome in (INDEXED, EMPTY)
            and recorded.mtime_ns != PARTIALLY_READ
            and recorded.chunking == chunking
        )
        return "growing" if is_growing else "changed"
    if recorded.outcome in _BY_CONTENT:
        return "unchanged"
    return "again" if recorded.outcome == UNREADABLE else "changed"
