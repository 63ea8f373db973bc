"""Write notes and vectors of an agent into one file, and take them over from such a file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import ConfigError, PathNotAllowed
from memline.shared.index import archive, copies, identities, token_rows, vectors
from memline.shared.index.archive import Archive, ArchiveRefused, Note, StoredIdentity
from memline.shared.index.driver import reading_if_any
from memline.shared.index.rows import VectorRow
from memline.shared.index.vectors import SLICE_ROWS
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import model_change
from memline.shared.sources import note_files
from memline.shared.sources.discover import discover
from memline.shared.sources.paths import MemoryPaths, is_ignored_folder, is_storable
from memline.shared.sources.reading import MAX_FILE_BYTES
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.values import replace, value

if TYPE_CHECKING:
    from sqlite3 import Connection

ALL, NOTES, VECTORS, CACHE = "all", "notes", "vectors", "cache"
WHAT = (ALL, NOTES, VECTORS, CACHE)

#: Which vectors go along: those that chunks need, and those that none needs any more.
_ACTIVE_OF = {ALL: (0, 1), VECTORS: (1, 1), CACHE: (0, 0)}

Progress = Callable[[int], None]

#: What became of a conversation that is new here, or newer.


@value
class Moved:
    """What an export or an import did."""

    agent: str
    path: Path
    #: Notes written; of an import those that were missing.
    notes: int = 0
    #: Vectors written; of an import those that the index did not have.
    vectors: int = 0
    #: Of an import: notes and vectors that were there already.
    known_notes: int = 0
    known_vectors: int = 0
    #: Notes that stay as they are because another text has their name.
    kept: tuple[str, ...] = ()
    #: Notes that were left out, each with the reason.
    left_out: tuple[str, ...] = ()
    #: Models whose vectors came and that this configuration does not embed with.
    other_models: tuple[str, ...] = ()
    bytes: int = 0


def export(
    agent: AgentSettings, path: Path, *, what: str = ALL, on_progress: Progress = lambda _: None
) -> Moved:
    """Write notes and vectors of an agent to `path` (mode 0600), a row at a time.

    What an attempt before wrote before it was killed is not written again. A file that is there, also behind
    a link, is replaced when the new one is whole, if it is an export. What is not a file, such as a FIFO or
    /dev/stdout, is written into. Raises IndexFaults, ConfigError, and MemlineError while notes are kept that
    are gone from the workspace.
    """
    if path.exists() and not path.is_file():
        if path.is_dir():
            raise ConfigError(f"{path} is a folder", hint="name a file")
        with path.open("wb") as stream:
            return export_into(agent, stream, path, what=what, on_progress=on_progress)
    target = Path(os.path.realpath(path))
    if target.exists() and target.stat().st_size and not archive.is_archive(target):
        raise ConfigError(f"{path} is there and is not an export of Memline", hint="name another file")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    with copies.alone(target):
        try:
            moved = _write(agent, path, part, what, on_progress)
        except ValueError:
            copies.remove(part)
            moved = _write(agent, path, part, what, on_progress)
        copies.settle(part, target)
    return moved


def export_into(
    agent: AgentSettings,
    stream: IO[bytes],
    path: Path,
    *,
    what: str = ALL,
    on_progress: Progress = lambda _: None,
) -> Moved:
    """Write the same to a stream, whose name is `path`, once it is whole in a file of the home."""
    with _home_file(agent) as part:
        moved = _write(agent, path, part, what, on_progress)
        with part.open("rb") as whole:
            shutil.copyfileobj(whole, stream)
        stream.flush()
    return moved


@contextmanager
def _home_file(agent: AgentSettings) -> Iterator[Path]:
    """Give the path of a file of the home that lasts as long as the block."""
    agent.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix="export-", dir=agent.home) as folder:
        yield Path(folder, "whole.part")


def _write(agent: AgentSettings, path: Path, part: Path, what: str, on_progress: Progress) -> Moved:
    header = {"agent": agent.agent, "what": what, "workspace": str(agent.workspace)}
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    part.chmod(0o600)
    left_out: list[str] = []
    with archive.writing(part, header) as made:
        if what in _ACTIVE_OF:
            with reading_if_any(agent.index_path) as connection:
                if connection is not None:
                    _write_vectors(connection, made, _ACTIVE_OF[what], on_progress)
        if what in (ALL, NOTES):
            paths = []
            for note in _notes(agent, left_out):
                made.add_note(note)
                paths.append(note.path)
            made.keep_notes(paths)
        made.finish()
        notes, count = made.counts()
    return Moved(
        agent=agent.agent,
        path=path,
        notes=notes,
        vectors=count,
        left_out=tuple(left_out),
        bytes=part.stat().st_size,
    )


def _write_vectors(
    connection: Connection, made: Archive, active: tuple[int, int], on_progress: Progress
) -> None:
    numbers: dict[int, tuple[int, str]] = {}
    last = done = 0
    while True:
        # Short reads: one that lasts minutes would keep the write-ahead log from being taken in.
        rows = connection.execute(
            "SELECT id, vectors.identity_id, text_hash, embedding, coalesce(token_vectors.tokens, x'')"
            " FROM vectors LEFT JOIN token_vectors ON vector_id = id WHERE id > ? AND state = 'ready'"
            " AND active BETWEEN ? AND ? ORDER BY id LIMIT ?",
            (last, *active, SLICE_ROWS),
        ).fetchall()
        if not rows:
            break
        last = rows[-1][0]
        by_identity: dict[int, list[VectorRow]] = {}
        for _, identity_id, digest, embedding, tokens in rows:
            row = VectorRow(hash=digest, vector=embedding, tokens=tokens)
            by_identity.setdefault(identity_id, []).append(row)
        for identity_id, each in by_identity.items():
            if identity_id not in numbers:
                found = identities.by_id(connection, identity_id)
                assert found is not None
                dims = found.vector_dims or len(each[0].vector) // 4
                numbers[identity_id] = made.add_identity(found.identity, dims), found.identity.key
            made.add_vectors(*numbers[identity_id], each)
        done += len(rows)
        on_progress(done)
    # At the end: an index that finds its axes meanwhile reduces what was not read yet.
    for identity_id, (number, _) in numbers.items():
        if projection := token_rows.projection(connection, identity_id):
            made.set_projection(number, projection)


def _notes(agent: AgentSettings, left_out: list[str]) -> Iterator[Note]:
    """Read the notes of the workspace; what cannot go along is added to `left_out`."""
    workspace = str(agent.workspace)
    for file in discover(MemoryPaths.of(agent)).files:
        if os.path.isabs(file.path):
            left_out.append(f"{file.path}: outside of the workspace")
        elif file.problem is not None or file.size > MAX_FILE_BYTES:
            left_out.append(f"{file.path}: {file.problem.reason if file.problem else 'too large'}")
        else:
            try:
                opened = open_regular(workspace, file.path)
            except FileRefused as error:
                left_out.append(f"{file.path}: {error.problem.reason}")
                continue
            with os.fdopen(opened, "rb") as content:
                data = content.read(MAX_FILE_BYTES + 1)
            if len(data) <= MAX_FILE_BYTES:
                yield Note(path=file.path, mtime_ns=file.mtime_ns, content=data)


def take_in(
    agent: AgentSettings, path: Path, *, clock: Clock | None = None, on_progress: Progress = lambda _: None
) -> Moved:
    """Take over the notes and vectors of an export: what is missing is added, what is there stays.

    The whole file is checked before anything is written, then written in steps: killed and run again it goes
    on. What is not a file, such as a FIFO or /dev/stdin, is read to its end first. Raises ArchiveRefused and
    IndexFaults.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with _home_file(agent) as whole:
            with path.open("rb") as stream, whole.open("xb") as file:
                shutil.copyfileobj(stream, file)
            return replace(take_in(agent, whole, clock=clock, on_progress=on_progress), path=path)
    clock = clock or SystemClock()
    with archive.reading(path) as found:
        found.check(max_note_bytes=MAX_FILE_BYTES)
        for name in found.note_paths():
            if not _is_safe(name):
                raise ArchiveRefused(f"{path} has a note {name!r}, which is not a path below a workspace")
        stored = found.identities()
        _refuse_other_dimensions(agent, stored)
        # Vectors first: a running `up` that finds the notes finds their vectors too.
        new, known = _take_vectors(agent, found, stored, clock, on_progress)
        moved = _take_notes(agent, path, found)
    choice = choose(agent)
    ours = choice.identity.key if choice.identity else ""
    others = {
        f"{each.identity.provider} {each.identity.model}" for each in stored if each.identity.key != ours
    }
    return Moved(
        agent=agent.agent,
        path=path,
        vectors=new,
        known_vectors=known,
        other_models=tuple(sorted(others)),
        bytes=path.stat().st_size,
        **moved,
    )


def _refuse_other_dimensions(agent: AgentSettings, stored: list[StoredIdentity]) -> None:
    with reading_if_any(agent.index_path) as connection:
        for each in stored if connection else ():
            assert connection is not None
            row = identities.by_key(connection, each.identity.key)
            if row is not None and row.vector_dims not in (0, each.vector_dims):
                raise ArchiveRefused(
                    f"the vectors of {each.identity.model} have {each.vector_dims} dimensions in this file"
                    f" and {row.vector_dims} in the index; nothing was changed",
                    hint="if the server changed its model: memline index --re-embed",
                )


def _take_vectors(
    agent: AgentSettings, found: Archive, stored: list[StoredIdentity], clock: Clock, on_progress: Progress
) -> tuple[int, int]:
    """Return how many vectors were new, and how many were there."""
    new = seen = 0
    if not stored:
        return new, seen
    with closing(IndexWriter.of(agent, clock=clock)) as writer:
        for each in stored:
            for rows in found.vectors(each.id, SLICE_ROWS):
                with writer.transaction() as (connection, now):
                    row = identities.take_in(connection, each.identity, each.vector_dims, now)
                    new += vectors.take_in(connection, row, rows, now, projection=each.projection)
                seen += len(rows)
                on_progress(seen)
        with writer.session() as (connection, _):
            for each in stored:
                if ours := identities.by_key(connection, each.identity.key):
                    token_rows.reduce(connection, ours.id)
            model_change.switch_when_complete(connection)
    return new, seen - new


def _take_notes(agent: AgentSettings, path: Path, found: Archive) -> dict[str, Any]:
    written = known = 0
    kept: list[str] = []
    left_out: list[str] = []
    # Made first: an empty workspace takes the notes of a folder that was read as a whole.
    agent.workspace.mkdir(parents=True, exist_ok=True)
    places = MemoryPaths.of(agent)
    for note in found.notes():
        located = places.locate(note.path)
        if located is None or located.path != note.path:
            left_out.append(f"{note.path}: not a memory file of this workspace")
            continue
        try:
            if note_files.create(str(agent.workspace), note.path, note.content, mtime_ns=note.mtime_ns):
                written += 1
            elif _content(agent, note.path) == note.content:
                known += 1
            else:
                kept.append(note.path)
        except (OSError, PathNotAllowed) as error:
            left_out.append(f"{note.path}: {getattr(error, 'strerror', None) or error}")
    return {"notes": written, "known_notes": known, "kept": tuple(kept), "left_out": tuple(left_out)}


def _content(agent: AgentSettings, path: str) -> bytes | None:
    try:
        with os.fdopen(open_regular(str(agent.workspace), path), "rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except (OSError, FileRefused):
        return None


def _is_safe(path: str) -> bool:
    """Tell whether a name in a file leads nowhere but below the workspace, and into no hidden folder."""
    *folders, name = parts = path.split("/")
    return (
        is_storable(path)
        and "\0" not in path
        and all(part not in ("", ".", "..") for part in parts)
        and not any(map(is_ignored_folder, folders))
        and not name.startswith(".")
    )
