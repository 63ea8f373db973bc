"""Write and read the file in which notes and vectors move to another machine.

A SQLite file of its own kind (`application_id` "MemX"), so that it can be written in steps, gone on with
after a kill, and read a row at a time:

    meta         key -> JSON: what was asked for, and `complete` with counts and a digest once it is whole
    identities   what the vectors were made with, and the axes to which those of tokens are reduced
    notes        path relative to the workspace -> bytes
    vectors      identity and text hash -> float32, little-endian, unit length; with a local model also those
                 of the text's tokens, as `shared.embedders.token_vectors` packs them

No text but that of the notes, no key, no address. Behind the last page stand 32 bytes more, the SHA-256 of
all before, so that one byte that changed on the way is found before anything is imported. Files of 0.2.0
(version 1) are without; what they have, a digest of every row and one of all, is checked in both.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memline.shared.embedders.protocol import Identity
from memline.shared.embedders.vector_checks import load_numpy, unit_vector
from memline.shared.errors import MemlineError, ProviderBrokenAnswer
from memline.shared.index import token_rows
from memline.shared.index.driver import faults, library, scalar, transaction
from memline.shared.index.rows import VectorRow
from memline.shared.index.vectors import OF_TEXT
from memline.shared.values import asdict, value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: `application_id` of these files: the bytes "MemX".
APPLICATION_ID = 0x4D656D58
VERSION = 2

#: The version whose files have no seal, of 0.2.0.
_UNSEALED = 1

#: Bytes of the seal, and the least size of a page: a file of whole pages has none.
_SEAL_BYTES = 32
_PAGE_BYTES = 512

#: Page cache in KiB (negative in the pragma), of the file being written and of the one being read.
_CACHE_KIB = 8_192

#: Dimensions a vector has at most; a larger number is damage.
_MAX_DIMS = 65_536

_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE identities (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, provider TEXT NOT NULL,"
    " model TEXT NOT NULL, endpoint TEXT NOT NULL, dims INTEGER NOT NULL, scheme TEXT NOT NULL,"
    " vector_dims INTEGER NOT NULL, projection BLOB) STRICT",
    "CREATE TABLE notes (path TEXT PRIMARY KEY, mtime_ns INTEGER NOT NULL, content BLOB NOT NULL,"
    " digest BLOB NOT NULL) STRICT",
    "CREATE TABLE vectors (identity_id INTEGER NOT NULL, text_hash BLOB NOT NULL, embedding BLOB NOT NULL,"
    " tokens BLOB, digest BLOB NOT NULL, PRIMARY KEY (identity_id, text_hash)) STRICT",
)

_HINT = "export again, or name another file"


class ArchiveRefused(MemlineError):
    """The file is foreign, cut short, damaged, or does not fit; nothing was imported."""


@value
class Note:
    """A note: its path relative to the workspace, when it was changed, and its bytes."""

    path: str
    mtime_ns: int
    content: bytes


@value
class StoredIdentity:
    """An identity of an export, and the dimensions of its vectors."""

    id: int
    identity: Identity
    vector_dims: int
    #: What the vectors of tokens are reduced with; empty while they have all dimensions, or are none.
    projection: bytes


class Archive:
    """An export file; made with `writing` or `reading`."""

    def __init__(self, connection: Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    # Writing.

    def add_identity(self, identity: Identity, vector_dims: int) -> int:
        """Add an identity and return its number here; the same one again has the same number."""
        names = ("key", *asdict(identity), "vector_dims")
        row = (identity.key, *asdict(identity).values(), vector_dims)
        with transaction(self._connection):
            insert = f"INSERT OR IGNORE INTO identities ({', '.join(names)}) VALUES ({', '.join('?' * 7)})"
            self._connection.execute(insert, row)
        return int(scalar(self._connection, "SELECT id FROM identities WHERE key = ?", identity.key))

    def set_projection(self, identity_id: int, projection: bytes) -> None:
        """Say what the vectors of tokens are reduced with. Raises ValueError when some were with another."""
        with transaction(self._connection):
            query = "SELECT projection FROM identities WHERE id = ?"
            if scalar(self._connection, query, identity_id) not in (None, projection):
                raise ValueError("another projection")
            update = "UPDATE identities SET projection = ? WHERE id = ?"
            self._connection.execute(update, (projection, identity_id))

    def add_vectors(self, identity_id: int, key: str, rows: Iterable[VectorRow]) -> None:
        """Add vectors of an identity in one transaction; those that are there stay."""
        with transaction(self._connection):
            self._connection.executemany(
                "INSERT OR IGNORE INTO vectors (identity_id, text_hash, embedding, tokens, digest)"
                " VALUES (?, ?, ?, ?, ?)",
                (
                    (identity_id, row.hash, row.vector, row.tokens or None, _vector_digest(key, row))
                    for row in rows
                ),
            )

    def add_note(self, note: Note) -> None:
        """Add a note, in the place of an older one with its path."""
        with transaction(self._connection):
            self._connection.execute(
                "INSERT OR REPLACE INTO notes (path, mtime_ns, content, digest) VALUES (?, ?, ?, ?)",
                (note.path, note.mtime_ns, note.content, _note_digest(note)),
            )

    def keep_notes(self, paths: Iterable[str]) -> None:
        """Remove the notes that are not among `paths`: an earlier attempt wrote them, now they are gone."""
        wanted = json.dumps(sorted(paths))
        with transaction(self._connection):
            query = "DELETE FROM notes WHERE path NOT IN (SELECT value FROM json_each(?))"
            self._connection.execute(query, (wanted,))

    def finish(self) -> None:
        """Say that the file is whole."""
        with transaction(self._connection):
            _put(self._connection, "complete", self._sums())

    # Reading.

    def counts(self) -> tuple[int, int]:
        """Count notes and vectors."""
        tables = ("notes", "vectors")
        notes, vectors = (scalar(self._connection, f"SELECT count(*) FROM {table}") for table in tables)
        return int(notes), int(vectors)

    def identities(self) -> list[StoredIdentity]:
        """List the identities."""
        rows = self._connection.execute(
            "SELECT id, provider, model, endpoint, dims, scheme, vector_dims, projection FROM identities"
            " ORDER BY id"
        )
        return [
            StoredIdentity(
                id=row_id,
                identity=Identity(provider=provider, model=model, endpoint=place, dims=dims, scheme=scheme),
                vector_dims=vector_dims,
                projection=projection or b"",
            )
            for row_id, provider, model, place, dims, scheme, vector_dims, projection in rows
        ]

    def vectors(self, identity_id: int, rows: int) -> Iterator[list[VectorRow]]:
        """Read the vectors of an identity, so many rows at a time."""
        cursor = self._connection.execute(
            "SELECT text_hash, embedding, tokens FROM vectors WHERE identity_id = ? ORDER BY text_hash",
            (identity_id,),
        )
        while page := cursor.fetchmany(rows):
            yield [VectorRow(hash=each[0], vector=each[1], tokens=each[2] or b"") for each in page]

    def notes(self) -> Iterator[Note]:
        """Read the notes, one at a time."""
        for path, mtime_ns, content in self._connection.execute(
            "SELECT path, mtime_ns, content FROM notes ORDER BY path"
        ):
            yield Note(path=path, mtime_ns=mtime_ns, content=content)

    def note_paths(self) -> list[str]:
        """List the paths of the notes."""
        return [path for (path,) in self._connection.execute("SELECT path FROM notes ORDER BY path")]

    def check(self, *, max_note_bytes: int) -> None:
        """Read the whole file and refuse it unless every row is as it was written. Raises ArchiveRefused."""
        connection = self._connection
        is_old = scalar(connection, "PRAGMA user_version") == _UNSEALED
        if _has_seal(self._path) if is_old else not _is_sealed(self._path):
            raise _refused("it is damaged: its bytes are not those that were written")
        # A hostile file could bring views and triggers; what we run on must be tables of ours and no more.
        found = {row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        if found != set(_TABLES):
            raise _refused("it is not an export of Memline")
        if (said := scalar(connection, "PRAGMA integrity_check")) != "ok":
            raise _refused(f"it is damaged ({said})")
        complete = _get(connection, "complete")
        if not complete:
            raise _refused("it is not whole: the export that wrote it did not end")
        if int(scalar(connection, "SELECT max(length(content)) FROM notes") or 0) > max_note_bytes:
            raise _refused(f"it has a note of more than {max_note_bytes} bytes")
        # What numpy costs is paid back: each vector is looked at.
        load_numpy()
        keys: dict[int, StoredIdentity] = {}
        for each in self.identities():
            if not 0 < each.vector_dims <= _MAX_DIMS:
                raise _refused(f"it has a model of {each.vector_dims} dimensions")
            keys[each.id] = each
        if any(
            keys[row_id].identity.key != key
            for row_id, key in connection.execute("SELECT id, key FROM identities")
        ):
            raise _refused("it is damaged: a model is not what its key says")
        for row_id, digest, size, embedding, tokens, mark in connection.execute(
            "SELECT identity_id, text_hash, length(embedding), embedding, tokens, digest FROM vectors"
        ):
            stored = keys.get(row_id)
            if stored is None or len(digest) != 32 or size != 4 * stored.vector_dims:
                raise _refused("it is damaged: a vector does not fit its model")
            row = VectorRow(hash=digest, vector=embedding, tokens=tokens or b"")
            if mark != _vector_digest(stored.identity.key, row):
                raise _refused("it is damaged: a vector is not what was written")
            _check_vector(row, stored)
        for note in self.notes():
            query = "SELECT digest FROM notes WHERE path = ?"
            if scalar(connection, query, note.path) != _note_digest(note):
                raise _refused("it is damaged: a note is not what was written")
        if complete != self._sums():
            raise _refused("it is damaged: rows are missing, or were added")

    def _sums(self) -> dict[str, Any]:
        notes, vectors = self.counts()
        digest = hashlib.sha256()
        for query in (
            "SELECT digest FROM notes ORDER BY path",
            "SELECT digest FROM vectors ORDER BY identity_id, text_hash",
            "SELECT coalesce(projection, x'') FROM identities ORDER BY id",
        ):
            for (mark,) in self._connection.execute(query):
                digest.update(mark)
        return {"notes": notes, "vectors": vectors, "digest": digest.hexdigest()}


@contextmanager
def writing(path: Path, header: dict[str, Any]) -> Iterator[Archive]:
    """Open an export to be written, the file at `path` being there; go on with what it holds already.

    Raises ValueError when it holds another export than `header` says, or something else.
    """
    _unseal(path)
    with (
        faults(path, written=path),
        closing(library().connect(str(path), isolation_level=None, timeout=5)) as connection,
    ):
        if not _is_same(connection, header):
            raise ValueError("another export")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        with transaction(connection):
            if scalar(connection, "PRAGMA application_id") != APPLICATION_ID:
                for statement in _TABLES:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                _put(connection, "header", header)
            connection.execute(f"PRAGMA user_version = {VERSION}")
            _put(connection, "complete", None)
        yield Archive(connection, path)
    _seal(path)


@contextmanager
def reading(path: Path) -> Iterator[Archive]:
    """Open an export read-only. Raises ArchiveRefused for anything else."""
    if not path.is_file():
        raise ArchiveRefused(f"{path} is not a file", hint="name a file that memline export has written")
    uri = path.absolute().as_uri() + "?mode=ro"
    with closing(library().connect(uri, uri=True, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            # One moment for all reads: what was checked is what is imported.
            connection.execute("BEGIN")
            if scalar(connection, "PRAGMA application_id") != APPLICATION_ID:
                raise _refused("it is not an export of Memline")
            if (version := scalar(connection, "PRAGMA user_version")) not in (_UNSEALED, VERSION):
                raise _refused(f"it has version {version}; this Memline reads version {VERSION}")
            yield Archive(connection, path)
        except (library().Error, UnicodeDecodeError) as error:
            raise _refused(f"it is damaged ({error})") from error


def forget(path: Path, texts: Collection[bytes], needles: Collection[bytes]) -> bool:
    """Take vectors of these texts, and notes that hold one of the needles, out of an export; False: none."""
    with (
        faults(path, written=path),
        closing(library().connect(str(path), isolation_level=None, timeout=5)) as connection,
    ):
        connection.execute("PRAGMA secure_delete = ON")
        made = Archive(connection, path)
        with transaction(connection):
            before = connection.total_changes
            delete = f"DELETE FROM vectors WHERE {OF_TEXT}"
            connection.executemany(delete, ((each,) for each in texts))
            connection.executemany("DELETE FROM notes WHERE instr(content, ?)", ((each,) for each in needles))
            removed = bool(connection.total_changes > before)
        if removed:
            if _get(connection, "complete"):
                made.finish()
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("VACUUM")
    if removed:
        _unseal(path)
        _seal(path)
    return removed


def _seal(path: Path) -> None:
    with path.open("r+b") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        file.write(digest)


def _unseal(path: Path) -> None:
    if _has_seal(path):
        os.truncate(path, path.stat().st_size - _SEAL_BYTES)


def _has_seal(path: Path) -> bool:
    return path.stat().st_size % _PAGE_BYTES == _SEAL_BYTES


def _is_sealed(path: Path) -> bool:
    """Tell whether the last bytes are the digest of all before."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = path.stat().st_size - _SEAL_BYTES
        while left > 0 and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
        return file.read() == digest.digest()


def is_archive(path: Path) -> bool:
    """Tell whether the file says that it is an export."""
    try:
        with reading(path):
            return True
    except ArchiveRefused:
        return False


def _is_same(connection: Connection, header: dict[str, Any]) -> bool:
    try:
        if not scalar(connection, "SELECT count(*) FROM sqlite_master"):
            return True
        return bool(_get(connection, "header") == json.loads(json.dumps(header)))
    except library().Error:
        return False


def _check_vector(row: VectorRow, stored: StoredIdentity) -> None:
    try:
        is_unit = unit_vector(row.vector, dims=stored.vector_dims) == row.vector
    except ProviderBrokenAnswer as error:
        raise _refused(f"it is damaged: {error.message}") from error
    if not is_unit:
        raise _refused("it is damaged: a vector is not of unit length")
    # Only local models have vectors of tokens.
    if row.tokens and not token_rows.fits(row.tokens, stored.projection, stored.vector_dims):
        raise _refused("it is damaged: vectors of tokens do not fit their model")


def _vector_digest(key: str, row: VectorRow) -> bytes:
    return hashlib.sha256(key.encode() + row.hash + row.vector + row.tokens).digest()[:16]


def _note_digest(note: Note) -> bytes:
    head = f"{len(note.path.encode())}:{note.path}{note.mtime_ns}:".encode()
    return hashlib.sha256(head + note.content).digest()[:16]


def _refused(why: str) -> ArchiveRefused:
    return ArchiveRefused(f"this file cannot be imported: {why}; nothing was changed", hint=_HINT)


def _get(connection: Connection, key: str) -> Any:
    text = scalar(connection, "SELECT value FROM meta WHERE key = ?", key)
    try:
        return {} if text is None else json.loads(text)
    except ValueError as error:
        raise _refused(f"it is damaged ({error})") from error


def _put(connection: Connection, key: str, content: Any) -> None:
    connection.execute("DELETE FROM meta WHERE key = ?", (key,))
    if content is not None:
        connection.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (key, json.dumps(content)))
