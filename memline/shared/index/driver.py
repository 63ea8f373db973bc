"""Open connections to an index, with the SQLite library that `shared.sqlite` chose."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from sqlite3 import Connection
from typing import Any, NamedTuple, TypeVar

import msgspec

from memline.shared.errors import (
    IndexCorrupt,
    IndexFault,
    IndexMissing,
    IndexTooOld,
    IndexUnwritable,
)
from memline.shared.packages import lack
from memline.shared.sqlite import library as library
from memline.shared.sqlite import statements

Row = TypeVar("Row", bound=msgspec.Struct)


class Kind(NamedTuple):
    """A kind of file of ours: `application_id`, `user_version`, and the SQL of its tables."""

    application_id: int
    version: int
    schema: Path


#: Its `application_id` is the bytes "MemL". A file of an older version is moved aside like a damaged one, and
#: built again.
INDEX = Kind(0x4D656D4C, 31, Path(__file__).with_name("schema.sql"))

#: Milliseconds a write waits for another writer: each takes well under a second.
BUSY_TIMEOUT_MS = 30_000

#: Page cache in KiB. It fills up and stays: `index` at 100,000 chunks peaked at 181 MB with 64 MiB and at 129
#: MB with this, and nothing got slower.
CACHE_KIB = 16_384

#: Page cache of a reader: with 16,384 a server took 14 MB more and 2 % less of the time.
READER_CACHE_KIB = 6_144

#: Pages of 4 KiB in the WAL from which on a commit moves them into the file: with SQLite's 1,000 every
#: message of vectors waited for the disk, and 10,000 vectors of 1,536 took 1.9 s, not 1.6.
CHECKPOINT_PAGES = 8_000

#: Bytes of a WAL that a writer leaves behind at most.
LONG_LOG_BYTES = 4_000_000

#: Suffixes under which a file that is no database is a damaged index; any other belongs to another program.
INDEX_SUFFIXES = (".sqlite", ".sqlite3", ".db")


def vec_path(extension_path: str = "") -> str:
    """Find the sqlite-vec library: `extension_path`, or the one of the installed package, or ""."""
    # Not imported: the package imports numpy, which costs 110 ms.
    spec = find_spec("sqlite_vec")
    if extension_path or spec is None or not spec.submodule_search_locations:
        return os.path.expanduser(extension_path)
    suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    return str(Path(spec.submodule_search_locations[0]) / f"vec0{suffix}")


def load_vec(connection: Connection, extension_path: str = "") -> str:
    """Load sqlite-vec into `connection`. Returns "" on success, else why it is not there."""
    if not (path := vec_path(extension_path)):
        return "the package sqlite-vec is not installed"
    try:
        connection.enable_load_extension(True)
        connection.load_extension(path)
        connection.enable_load_extension(False)
    except (AttributeError, library().Error) as error:
        # The standard library's may have been built without extensions.
        return f"{path}: {error}"
    return ""


def vec_error(extension_path: str = "") -> str:
    """Say why sqlite-vec cannot be loaded; empty when it can."""
    with closing(_open(":memory:")) as connection:
        return load_vec(connection, extension_path)


def open_writer(path: Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS, kind: Kind = INDEX) -> Connection:
    """Open a connection that may write; the file, its folder and its tables are made when they are missing.

    Raises IndexFault for a file that is neither empty nor of this kind, or of a newer Memline, IndexTooOld,
    IndexCorrupt or IndexUnwritable.
    """
    # An existing index is never opened by us, only by SQLite: closing any descriptor of a file drops all
    # POSIX locks that this process has on it, and then another process takes this one for dead and deletes
    # the WAL file we write to. Measured: 188 of 201 committed files were left.
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise IndexUnwritable(
            f"cannot write the index {path}: {error.strerror}",
            hint="check the folder's permissions, or choose another with --home DIR",
        ) from error
    with _new(path, partial(_open, str(path), timeout=busy_timeout_ms / 1000)) as connection:
        is_new = not refuse_foreign(connection, path, kind)
        _set_up(connection)
        if is_new:
            _make_tables(connection, kind)
    return connection


def open_reader(path: Path, *, kind: Kind = INDEX) -> Connection:
    """Open a connection that cannot write.

    Raises IndexMissing when there is nothing to read yet, and what `open_writer` raises.
    """
    if not path.exists() or path.stat().st_size == 0:
        raise IndexMissing(f"there is no index yet at {path}", hint="memline index")
    with _new(path, partial(connect_read_only, path)) as connection:
        if not refuse_foreign(connection, path, kind):
            raise IndexMissing(f"the index at {path} is still empty", hint="memline index")
        connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
    return connection


def connect_read_only(path: Path) -> Connection:
    """Connect to a file that is there without looking at what it is."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = _open(uri, timeout=BUSY_TIMEOUT_MS / 1000, uri=True)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except library().OperationalError:
        # In a read-only folder SQLite cannot make what a WAL needs; without a WAL there is no writer.
        connection.close()
        wal = Path(f"{path}-wal")
        if os.access(path.parent, os.W_OK) or (wal.exists() and wal.stat().st_size):
            raise
        connection = _open(f"{uri}&immutable=1", uri=True)
    return connection


def _open(name: str, **options: Any) -> Connection:
    connection: Connection = library().connect(name, isolation_level=None, check_same_thread=False, **options)
    return connection


@contextmanager
def _new(path: Path, connect: Callable[[], Connection]) -> Iterator[Connection]:
    """Connect to a file, and close the connection again when a block cannot use it."""
    with faults(path), ExitStack() as stack:
        yield stack.enter_context(closing(connect()))
        stack.pop_all()


def shorten_log(connection: Connection, path: Path) -> None:
    """Empty a long WAL for a writer that is closed, unless a reader needs it.

    SQLite does so when the last connection is closed, but not when that can only read.
    """
    with suppress(OSError, library().Error):
        if Path(f"{path}-wal").stat().st_size > LONG_LOG_BYTES:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextmanager
def reading(path: Path) -> Iterator[Connection]:
    """Open a reader for a block and close it after; the driver's errors become IndexFaults."""
    with closing(open_reader(path)) as connection, faults(path):
        yield connection


@contextmanager
def reading_if_any(path: Path) -> Iterator[Connection | None]:
    """Open a reader for a block, or give None when there is no index yet."""
    with ExitStack() as stack:
        connection = None
        with suppress(IndexMissing):
            connection = stack.enter_context(reading(path))
        yield connection


@cache
def empty() -> Connection:
    """Open an index in memory that has no row, for who reads where there is none; once in a process."""
    connection: Connection = library().connect(":memory:", check_same_thread=False)
    for statement in statements(INDEX.schema):
        connection.execute(statement)
    return connection


def file_id(path: Path) -> tuple[int, int] | None:
    """Identify the file at `path`, to notice when it is replaced; None when there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turn the driver's exceptions into `IndexFault`s that name the file and the next step."""
    try:
        yield
    except library().Error as error:
        raise _translate(str(error), path) from error


def snapshot(connection: Connection) -> AbstractContextManager[None]:
    """Let all reads of a block see the index at one moment."""
    return transaction(connection, "DEFERRED")


@contextmanager
def transaction(connection: Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Run a block in `BEGIN IMMEDIATE` … `COMMIT`; roll back when it raises."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def scalar(connection: Connection, query: str, *parameters: object) -> Any:
    """Return the first column of the first row of a query; None when there is no row."""
    row = connection.execute(query, parameters).fetchone()
    return row[0] if row else None


def select(connection: Connection, kind: type[Row], table: str, condition: str, *values: object) -> list[Row]:
    """Return the rows of a table for a condition as records, whose fields are its columns."""
    columns = ", ".join(kind.__struct_fields__)
    rows = connection.execute(f"SELECT {columns} FROM {table} {condition}", values)
    return [kind(*row) for row in rows.fetchall()]


def json_ids(ids: Iterable[int]) -> str:
    """Write row ids as a JSON array, the form in which statements take a list of any length."""
    return "[" + ",".join(map(str, ids)) + "]"


def refuse_foreign(connection: Connection, path: Path, kind: Kind = INDEX) -> int:
    """Return the schema of a file of ours; 0 while it has no tables.

    Raises IndexFault for a file of another program or a newer Memline, IndexTooOld for an older schema.
    """
    # In this order: another process may be making the file, its mark and its tables in one transaction.
    has_tables = bool(scalar(connection, "SELECT count(*) FROM sqlite_master"))
    owner = scalar(connection, "PRAGMA application_id")
    if owner != kind.application_id and (owner or has_tables):
        raise _not_ours(path)
    version = int(scalar(connection, "PRAGMA user_version"))
    if version > kind.version:
        raise IndexFault(
            f"the index {path} has schema {version}; this Memline reads schema {kind.version}",
            hint="upgrade Memline, or use another index with --home DIR",
        )
    if 0 < version < kind.version:
        raise IndexTooOld(
            f"the index {path} has schema {version}, of an older release;"
            f" this Memline reads schema {kind.version}",
            hint="memline index   (moves the file aside and builds the index again)",
        )
    return version


def _not_ours(path: Path) -> IndexFault:
    return IndexFault(
        f"{path} is not a Memline index; it was left untouched",
        hint="set store.path to another file, or use --home DIR",
    )


def _set_up(connection: Connection) -> None:
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except library().OperationalError as error:
            # The change to WAL needs the file alone and does not wait for it: others open it as well.
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


_PRAGMAS = (
    "synchronous = NORMAL",
    "foreign_keys = ON",
    f"cache_size = -{CACHE_KIB}",
    # With FAST a page that was freed keeps its text, and is used again without being overwritten as a whole.
    "secure_delete = ON",
    # Keeps the WAL file from staying at its largest size for ever after one big rebuild.
    "journal_size_limit = 67108864",
    f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
)


def _make_tables(connection: Connection, kind: Kind) -> None:
    # sqlite-utils uses numpy where it can be imported, and fails with one that is there and broken.
    lack("numpy")
    # 150 ms, which only those pay who make a file.
    from sqlite_utils import Database, Migrations

    migrations = Migrations("memline")

    @migrations(name="001_schema")
    def make_schema(database: Database) -> None:
        for statement in statements(kind.schema):
            database.conn.execute(statement)

    # One at a time: of processes that open a new file together the first makes it, the others wait. The
    # marks come in the same transaction as the tables, so a crash leaves a file of ours or an empty one.
    with transaction(connection):
        connection.execute(f"PRAGMA application_id = {kind.application_id}")
        migrations.apply(Database(connection, recursive_triggers=False, execute_plugins=False))
        connection.execute(f"PRAGMA user_version = {kind.version}")


def _translate(text: str, path: Path) -> IndexFault:
    if "not a database" in text and path.suffix not in INDEX_SUFFIXES:
        return _not_ours(path)
    if any(sign in text for sign in ("malformed", "not a database", "corrupt")):
        return IndexCorrupt(
            f"the index {path} is damaged: {text}",
            hint="memline index   (moves the damaged file aside and builds the index again)",
        )
    if any(sign in text for sign in ("disk is full", "readonly", "unable to open", "disk I/O error")):
        return IndexUnwritable(
            f"cannot write the index {path}: {text}; nothing was half-written",
            hint="free space or fix the permissions, then run the command again",
        )
    if "locked" in text:
        return IndexFault(
            f"the index {path} stayed locked by another process for {BUSY_TIMEOUT_MS // 1000} s",
            hint="end the other process, or wait until it is done",
        )
    return IndexFault(f"the index {path} failed: {text}", hint="memline doctor")
