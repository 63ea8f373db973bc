"""Forget lines of notes and whole sessions: in the notes, in the index, at the provider and in the home.

In this order, so that nothing comes back from a message or a process that read the file before: the list of
hashes, the note, the file read again, what was made of its texts, then every byte of the index.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memline.producers.actions import forget_batches, forget_home
from memline.producers.actions.forget_batches import LeftBehind
from memline.producers.actions.forget_targets import Lines, Target, Transcript
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import ConfigError, IndexFault, IndexUnwritable, MemlineError
from memline.shared.index import driver, erase, forgotten
from memline.shared.index.chunks import former_texts
from memline.shared.index.driver import transaction
from memline.shared.index.forgotten import Group
from memline.shared.index_writer import IndexWriter
from memline.shared.queue.fleet_workers import drop_with
from memline.shared.sources.forgetting import is_long, line_hash
from memline.shared.sources.paths import MemoryPaths
from memline.shared.sync.read_file import FileReader
from memline.shared.values import to_json, value

if TYPE_CHECKING:
    from sqlite3 import Connection


@value
class Forgotten:
    """What was forgotten."""

    agent: str
    targets: tuple[Target, ...] = ()
    lines: int = 0
    chunks: int = 0
    vectors: int = 0
    #: Other files of the home that were cleaned or deleted.
    files: tuple[str, ...] = ()
    #: Files of the home that hold a line of it and are not Memline's to change.
    out_of_reach: tuple[str, ...] = ()
    #: Indexes of other agents and workspaces in the home that hold some of it.
    other_indexes: tuple[str, ...] = ()
    #: Notes with the very same text, which were not named.
    also_in: tuple[str, ...] = ()
    kept_notes: bool = False
    backup: str = ""
    #: Batches with it whose file is still at their provider.
    at_provider: tuple[LeftBehind, ...] = ()

    def to_json(self) -> dict[str, Any]:
        forgotten = [str(target) for target in self.targets]
        return to_json(self, without=("targets",), forgotten=forgotten, backup=self.backup or None)


def forget(
    agent: AgentSettings,
    targets: Sequence[Target],
    *,
    keep_note: bool = False,
    backup: Path | None = None,
    found: Mapping[Path, Collection[bytes]] = MappingProxyType({}),
    queue_address: str = "",
    clock: Clock | None = None,
) -> Forgotten:
    """Forget these lines and sessions. Safe to run again after a kill. Raises MemlineErrors.

    `keep_note`: notes stay as they are, and the list keeps their lines out of the index. Transcripts always
    stay. `backup`: a folder outside of the home that gets a copy of each note first. `found`: lines that
    other files of the home hold, by file, and perhaps no note any more.
    """
    clock = clock or SystemClock()
    if backup is not None:
        if backup.absolute().is_relative_to(agent.home.absolute()):
            raise ConfigError(f"{backup} is inside Memline's home", hint="name a folder outside of it")
        paths = MemoryPaths.of(agent)
        if any(paths.locate(str(backup.absolute() / target.path.lstrip("/"))) for target in targets):
            raise ConfigError(
                f"{backup} is searched: the copy would be found", hint="name a folder outside of the notes"
            )
    # All of them first: a note that cannot be changed must not leave the others half forgotten.
    for target in targets:
        if isinstance(target, Lines) and not (target.stays or keep_note):
            target.check(agent)
    if backup is not None:
        for target in targets:
            target.keep_copy(agent, backup)
    in_files = frozenset[bytes]().union(*found.values())
    needles = {*in_files}
    hashes: dict[str, set[bytes]] = {}
    lines = chunk_count = 0
    failure: MemlineError | OSError | None = None
    with closing(IndexWriter.of(agent, clock=clock)) as writer, _unfinished():
        writer.connection.execute("PRAGMA secure_delete = ON")
        # From the end of a note to its beginning: the numbers of the lines before stay.
        left = sorted(targets, key=lambda each: (each.path, -each.first))
        try:
            while left:
                held, count = _forget_one(agent, writer, left[0], keep_note, clock, hashes)
                needles |= held
                lines += len(held)
                chunk_count += count
                left.pop(0)
        except IndexFault:
            raise
        except (MemlineError, OSError) as error:
            # What is out of its note is forgotten to the end.
            failure = error
        every = sorted(set().union(*hashes.values()))
        with writer.session() as (connection, now):
            gone = erase.drop_vectors(connection, every, now)
            for file, in_file in found.items():
                with transaction(connection):
                    digests = map(line_hash, in_file)
                    place = forgotten.IN_ANY_COPY
                    forgotten.add(connection, str(file), "line", digests, now, everywhere=place)
        forget_batches.reopen(writer)
        with writer.session() as (connection, now):
            erase.drop_errors(connection, now)
            also_in = _others(connection, every)
        writer.recover()
        with writer.session() as (connection, _):
            erase.erase(connection)
        at_provider = forget_batches.end(agent, writer, clock)
    erase.drop_account_errors(agent.account_path)
    long_needles = {each for each in needles if len(each) >= forget_home.MIN_NEEDLE or each in in_files}
    files, out_of_reach = forget_home.clean(agent, hashes, long_needles, in_files)
    other_indexes = forget_home.other_indexes(agent, every, long_needles)
    if queue_address and needles:
        # By the hash its vector too, and by the path what is too short to be looked for.
        named = {target.path.encode() for target in targets}
        drop_with(queue_address, long_needles | {*every} | named)
    done = Forgotten(
        agent=agent.agent,
        targets=tuple(each for each in targets if each not in left),
        lines=lines,
        chunks=chunk_count,
        vectors=gone,
        files=tuple(files),
        out_of_reach=tuple(out_of_reach),
        other_indexes=tuple(other_indexes),
        also_in=tuple(also_in),
        kept_notes=keep_note,
        backup=str(backup or ""),
        at_provider=tuple(at_provider),
    )
    _audit(agent, done, clock)
    if failure is not None:
        why = failure.message if isinstance(failure, MemlineError) else str(failure)
        raise MemlineError(
            f"{len(done.targets)} of {len(targets)} are forgotten, and the others stay: {why}",
            hint="run it again",
        ) from failure
    return done


@contextmanager
def _unfinished() -> Iterator[None]:
    """Say of an index that cannot be written that part may be forgotten, and how to go on."""
    try:
        yield
    except IndexUnwritable as error:
        why, _, _ = error.message.partition(";")
        raise IndexUnwritable(
            f"not all is forgotten, and lines may be out of their note already: {why}",
            hint="free space or fix the permissions, then run it again, and: memline index",
        ) from error


def listed(agent: AgentSettings) -> list[Group]:
    """List what was forgotten, the oldest first."""
    with driver.reading_if_any(agent.index_path) as reader:
        return forgotten.groups(reader) if reader else []


def undo(agent: AgentSettings, group: Group) -> bool:
    """Take one off the list; returns whether it held back anything, which the next run reads again."""
    with closing(IndexWriter.of(agent)) as writer, writer.transaction() as (connection, _):
        has_held = forgotten.take_off(connection, group)
    return has_held


def _forget_one(
    agent: AgentSettings,
    writer: IndexWriter,
    target: Target,
    keep_note: bool,
    clock: Clock,
    hashes: dict[str, set[bytes]],
) -> tuple[set[bytes], int]:
    """Forget one target; returns the bytes of its lines, and how many chunks held one of them."""
    connection = writer.connection
    rows = target.chunks(connection)
    # Of what it was before only hashes are known, so all of it goes.
    texts = {digest for digest, _ in rows} | former_texts(connection, target.path)
    hashes.setdefault(target.path, set()).update(texts)
    needles, line_hashes = target.words(agent, rows)
    is_transcript = isinstance(target, Transcript)
    stays = target.stays or keep_note
    with writer.transaction() as (_, now):
        forgotten.add(connection, target.path, "text", texts, now)
        if stays:
            # A record of a transcript is one line, and known by its text like a long one of a note.
            long = {line_hash(line) for line in needles if is_long(line.decode())}
            long = line_hashes if is_transcript else line_hashes & long
            place = forgotten.IN_TRANSCRIPTS if is_transcript else forgotten.IN_NOTES
            forgotten.add(connection, target.path, "line", line_hashes - long, now)
            forgotten.add(connection, target.path, "line", long, now, everywhere=place)
        else:
            place = forgotten.IN_COPIES
            forgotten.add(connection, target.path, "line", line_hashes, now, everywhere=place)
    if not stays:
        target.take_out(agent)
    # Looked at from here on: whatever was read before loses against this look.
    reader = FileReader(agent, clock=clock)
    # A long line of a note that stays is kept out of all others as well.
    others = _with_lines(connection, needles, hashes) if stays and not is_transcript else []
    for path in (target.path, *others):
        gone = forgotten.lines_of(connection, path)
        row = reader.read(path, entry=None, force=True, forgotten=gone)
        writer.store_file(row)
    return needles, len(rows)


def _with_lines(connection: Connection, needles: set[bytes], hashes: dict[str, set[bytes]]) -> list[str]:
    """List the notes with one of these lines, if it is long; their texts that have it go to `hashes`."""
    found: set[str] = set()
    for line in map(bytes.decode, needles):
        if is_long(line):
            query = (
                "SELECT path, text_hash FROM chunks JOIN files ON files.id = file_id"
                " WHERE source = 'memory' AND instr(text, ?)"
            )
            for path, digest in connection.execute(query, (line,)).fetchall():
                hashes.setdefault(path, set()).add(digest)
                found.add(path)
    return sorted(found)


def _others(connection: Connection, hashes: Sequence[bytes]) -> list[str]:
    query = "SELECT DISTINCT path FROM chunks JOIN files ON files.id = file_id WHERE text_hash = ?"
    return sorted({path for digest in hashes for (path,) in connection.execute(query, (digest,))})


def _audit(agent: AgentSettings, done: Forgotten, clock: Clock) -> None:
    at = datetime.fromtimestamp(clock.now(), UTC).isoformat(timespec="seconds")
    line = json.dumps({"at": at, **done.to_json()}) + "\n"
    agent.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    opened = os.open(agent.home / forget_home.AUDIT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(opened, "w") as file:
        file.write(line)
