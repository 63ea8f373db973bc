"""Forget lines of notes and whole sessions: in the notes, in the index, at the provider and in the home.

In this order, so that nothing comes back from a message or a process that read the file before: the list of
hashes, the note, the file read again, what was made of its texts, then every byte of the index.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memline.producers.actions.forget_targets import Target
from memline.producers.bridges.qmd.updates import Updater
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import ConfigError, IndexFault
from memline.shared.index import archive, chunks, copies, driver, erase, forgotten
from memline.shared.index.vectors import OF_TEXT
from memline.shared.index_writer import IndexWriter
from memline.shared.queue.message_list import drop_with
from memline.shared.sync.read_file import FileReader
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: The file with one line for every time something was forgotten, without its text.
AUDIT = "forgotten.jsonl"

#: Bytes of a line at least that is looked for in other files of the home: shorter ones stand everywhere.
_MIN_NEEDLE = 12

#: Bytes of such a file read at a time.
_BLOCK = 1 << 20

#: Files of the home that hold no text of notes and may be large.
_MODELS = (".gguf", ".onnx", ".onnx_data")


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
    #: Notes with the very same text, which were not named.
    also_in: tuple[str, ...] = ()
    kept_notes: bool = False
    backup: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "agentId": self.agent,
            "forgotten": [str(target) for target in self.targets],
            "lines": self.lines,
            "chunks": self.chunks,
            "vectors": self.vectors,
            "files": list(self.files),
            "outOfReach": list(self.out_of_reach),
            "alsoIn": list(self.also_in),
            "keptNotes": self.kept_notes,
            "backup": self.backup or None,
        }


def forget(
    agent: AgentSettings,
    targets: Sequence[Target],
    *,
    keep_note: bool = False,
    backup: Path | None = None,
    queue_address: str = "",
    clock: Clock | None = None,
) -> Forgotten:
    """Forget these lines and sessions. Safe to run again after a kill. Raises MemlineErrors.

    `keep_note`: notes stay as they are, and the list keeps their lines out of the index. Transcripts always
    stay. `backup`: a folder outside of the home that gets a copy of each note first.
    """
    clock = clock or SystemClock()
    if backup is not None:
        if backup.absolute().is_relative_to(agent.home.absolute()):
            raise ConfigError(f"{backup} is inside Memline's home", hint="name a folder outside of it")
        for target in targets:
            target.keep_copy(agent, backup)
    needles: set[bytes] = set()
    hashes: dict[str, set[bytes]] = {}
    lines = chunk_count = 0
    with closing(IndexWriter.of(agent, clock=clock)) as writer:
        writer.connection.execute("PRAGMA secure_delete = ON")
        # From the end of a note to its beginning: the numbers of the lines before stay.
        for target in sorted(targets, key=lambda each: (each.path, -each.first)):
            found, count = _forget_one(agent, writer, target, keep_note, clock, hashes)
            needles |= found
            lines += len(found)
            chunk_count += count
        every = sorted(set().union(*hashes.values()))
        with writer.session() as (connection, now):
            gone = erase.drop_vectors(connection, every, now)
            erase.drop_errors(connection, now)
            also_in = _others(connection, every)
        writer.recover()
        with writer.session() as (connection, _):
            erase.erase(connection)
    erase.drop_account_errors(agent.account_path)
    files, out_of_reach = _clean_home(agent, hashes, {each for each in needles if len(each) >= _MIN_NEEDLE})
    if queue_address and needles:
        # By the hash its vector too, and by the path what is too short to be looked for.
        named = {target.path.encode() for target in targets}
        drop_with(queue_address, {each for each in needles if len(each) >= _MIN_NEEDLE} | {*every} | named)
    done = Forgotten(
        agent=agent.agent,
        targets=tuple(targets),
        lines=lines,
        chunks=chunk_count,
        vectors=gone,
        files=tuple(files),
        out_of_reach=tuple(out_of_reach),
        also_in=tuple(also_in),
        kept_notes=keep_note,
        backup=str(backup or ""),
    )
    _audit(agent, done, clock)
    return done


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
    texts = {digest for digest, _ in rows}
    hashes.setdefault(target.path, set()).update(texts)
    needles, line_hashes = target.words(agent, rows)
    stays = target.stays or keep_note
    with writer.transaction() as (_, now):
        forgotten.add(connection, target.path, "text", texts, now)
        if stays:
            forgotten.add(connection, target.path, "line", line_hashes, now)
    if not stays:
        target.take_out(agent)
    # Looked at from here on: whatever was read before loses against this look.
    reader = FileReader(agent, clock=clock)
    for row in reader.read(
        target.path, entry=None, force=True, forgotten=forgotten.lines_of(connection, target.path)
    ):
        writer.store_file(row)
    return needles, len(rows)


def _others(connection: Connection, hashes: Sequence[bytes]) -> list[str]:
    query = "SELECT DISTINCT path FROM chunks JOIN files ON files.id = file_id WHERE text_hash = ?"
    return sorted({path for digest in hashes for (path,) in connection.execute(query, (digest,))})


def _clean_home(
    agent: AgentSettings, hashes: dict[str, set[bytes]], needles: set[bytes]
) -> tuple[list[str], list[str]]:
    """Clean exports, backups, logs and leftovers of the home; also name other files that hold the text."""
    # It holds whole notes, and is made again of what is left of them.
    cleaned, others = Updater(agent).erase(), list[str]()
    for path in sorted(agent.home.rglob("*")):
        if path.is_symlink() or not path.is_file() or _is_left_alone(path, agent):
            continue
        if _clean(path, hashes, needles):
            cleaned.append(str(path))
        elif _holds(path, needles):
            others.append(str(path))
    return cleaned, others


def _is_left_alone(path: Path, agent: AgentSettings) -> bool:
    """Tell whether a file of the home is an index in use, or nothing in which a text of ours can be.

    An index in use is never opened but by SQLite: its locks would be lost.
    """
    if path.name.endswith((*copies.COMPANIONS, *_MODELS)) or path.name in (AUDIT, "accounts.sqlite"):
        return True
    is_index = path.parent == agent.index_path.parent and path.suffix == agent.index_path.suffix
    return is_index and not path.name.startswith(".")


def _clean(path: Path, hashes: dict[str, set[bytes]], needles: set[bytes]) -> bool:
    if archive.is_archive(path):
        return archive.forget(path, set().union(*hashes.values()), needles)
    with suppress(IndexFault):
        with copies.reading_raw(path) as connection:
            copies.check_marks(connection, path)
        return _clean_index(path, hashes)
    is_leftover = path.suffix == ".part" or ".sqlite.corrupt-" in path.name or path.name.startswith(".")
    if not (is_leftover or path.suffix == ".log") or not _holds(path, needles):
        return False
    if path.suffix == ".log":
        kept = [
            line
            for line in path.read_bytes().splitlines(keepends=True)
            if not any(each in line for each in needles)
        ]
        path.write_bytes(b"".join(kept))
    else:
        copies.remove(path)
    return True


def _clean_index(path: Path, hashes: dict[str, set[bytes]]) -> bool:
    """Take texts out of a backup."""
    with driver.faults(path), closing(driver.open_writer(path)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        removed = 0
        with driver.transaction(connection):
            for name, texts in hashes.items():
                query = (
                    "SELECT file_id, ordinal, text_hash FROM chunks JOIN files ON files.id = file_id"
                    " WHERE path = ?"
                )
                for file_id, ordinal, digest in connection.execute(query, (name,)).fetchall():
                    if digest in texts:
                        chunks.remove_full_text(connection, file_id, ordinal, ordinal + 1)
                        connection.execute(
                            "DELETE FROM chunks WHERE file_id = ? AND ordinal = ?", (file_id, ordinal)
                        )
                        removed += 1
                # Titles and aliases are words of the note; the next look at it has them again.
                connection.execute(
                    "UPDATE files SET hash = '', chunking = '', names = '' WHERE path = ?", (name,)
                )
                for digest in texts:
                    connection.execute(f"DELETE FROM vectors WHERE {OF_TEXT}", (digest,))
        if removed:
            erase.erase(connection)
        connection.execute("PRAGMA journal_mode = DELETE")
    return bool(removed)


def _holds(path: Path, needles: set[bytes]) -> bool:
    overlap = max(map(len, needles), default=1) - 1
    before = b""
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                data = before + block
                if any(each in data for each in needles):
                    return True
                before = data[-overlap:] if overlap else b""
    except OSError:
        pass
    return False


def _audit(agent: AgentSettings, done: Forgotten, clock: Clock) -> None:
    at = datetime.fromtimestamp(clock.now(), UTC).isoformat(timespec="seconds")
    line = json.dumps({"at": at, **done.to_json()}) + "\n"
    agent.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    opened = os.open(agent.home / AUDIT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(opened, "w") as file:
        file.write(line)
