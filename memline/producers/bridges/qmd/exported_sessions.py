"""Write an agent's transcripts as Markdown for qmd: what was said, with secrets hidden."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.index import driver, forgotten
from memline.shared.sources.discover import DiscoveredFile
from memline.shared.sources.transcripts.formats import Transcripts, format_of, transcripts_of
from memline.shared.sources.transcripts.transcript_slices import read_transcript

_DAY_S = 86_400.0

#: The first line of an export, before the name of its session; a file without it is not ours to remove.
_TITLE = "# Session "


def export(settings: AgentSettings, folder: Path, *, clock: Clock) -> None:
    """Make `folder` agree with the transcripts: new and changed ones written, old and removed ones deleted.

    An export has the time of its transcript, so one that did not change is not written again. Raises OSError,
    and IndexFault when the list of what was forgotten cannot be read.
    """
    wanted: dict[str, DiscoveredFile] = {}
    source = transcripts_of(settings) if settings.qmd.sessions.enabled else None
    days = settings.qmd.sessions.retention_days
    for file in source.discover().files if source else ():
        is_old = days > 0 and file.mtime_ns / 1e9 < clock.now() - days * _DAY_S
        if file.problem is None and not is_old:
            wanted[f"{Path(file.absolute).name.removesuffix('.jsonl')}.md"] = file
    if wanted:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in folder.glob("*.md"):
        if path.name not in wanted and is_export(path):
            path.unlink(missing_ok=True)
    with driver.reading_if_any(settings.index_path) as index:
        for name, file in wanted.items():
            with suppress(FileNotFoundError):
                if (folder / name).stat().st_mtime_ns == file.mtime_ns:
                    continue
            gone = forgotten.lines_of(index, file.path) if index else frozenset()
            if source is not None:
                _write(folder / name, source, file, gone, clock)


def _write(
    path: Path, source: Transcripts, file: DiscoveredFile, gone: Collection[bytes], clock: Clock
) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as out:
            out.write(f"{_TITLE}{path.stem}\n\n")
            written = 0
            for text in _said(source, file.path, gone, clock):
                out.write(text + "\n")
                written += 1
            if not written:
                out.write("(empty)\n")
        os.utime(part, ns=(file.mtime_ns, file.mtime_ns))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _said(source: Transcripts, path: str, gone: Collection[bytes], clock: Clock) -> Iterator[str]:
    """Yield what was said in a transcript, as the builtin backend reads it; `gone` is what was forgotten."""
    slices = read_transcript(
        partial(source.open, path),
        format=format_of(path),
        known=None,
        known_digest="",
        max_tokens=400,
        overlap_tokens=0,
        clock=clock,
        forgotten=gone,
    )
    for part in slices:
        for chunk in part.chunks:
            yield chunk.text


def is_export(path: Path) -> bool:
    """Tell whether a file is an export of ours, which may be deleted."""
    try:
        with path.open(encoding="utf-8", errors="replace") as opened:
            return opened.readline().rstrip("\n") == f"{_TITLE}{path.stem}"
    except OSError:
        return False
