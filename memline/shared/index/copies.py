"""Copy a whole index while it is in use: out of it into a file, and from a file back into it.

Out: `VACUUM INTO`, one read snapshot, so no writer waits and nothing that was deleted comes along. Back:
SQLite's online backup as one write transaction of the index in use, so every other process goes on with its
open connection and sees the old content or the new, never a mixture. A file renamed into the place of an open
index would leave other processes writing to the one that is gone, and its WAL beside one that is not its own.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from memline.shared.errors import IndexCorrupt, IndexFault, IndexNotOurs, IndexTooNew, IndexUnwritable
from memline.shared.index import driver, erase, full_text, jobs, meta, token_rows, vectors
from memline.shared.index.driver import faults, library, open_writer, reading, scalar, transaction
from memline.shared.sqlite import SCHEMA, statements

if TYPE_CHECKING:
    from sqlite3 import Connection

#: What SQLite keeps beside a database file.
COMPANIONS = ("-wal", "-shm", "-journal")


def copy_out(index: Path, target: Path) -> int:
    """Write the index as it is at this moment to `target` (mode 0600) and return its bytes.

    A file that is there stays until the new one is whole. Raises IndexFaults.
    """
    with private_file(target) as part, reading(index) as connection, faults(index, written=target):
        connection.execute("VACUUM INTO ?", (str(part),))
    return target.stat().st_size


@contextmanager
def private_file(target: Path) -> Iterator[Path]:
    """Give the path of a new empty file (mode 0600) that takes the place of `target` when the block is over.

    When the block raises, `target` is as it was. A link to it stays one.
    """
    target = Path(os.path.realpath(target))
    if target.exists() and not target.is_file():
        raise IndexUnwritable(f"{target} is not a file", hint="name another folder")
    part = target.with_name(f"{target.name}.part")
    try:
        with alone(target):
            try:
                remove(part)
                os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                yield part
                settle(part, target)
            finally:
                with suppress(OSError):
                    remove(part)
    except OSError as error:
        raise IndexUnwritable(f"cannot write {target}: {error.strerror or error}") from error


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Let one process at a time write a file; the others wait until it is done."""
    lock = target.with_name(f".{target.name}.lock")
    while True:
        opened = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Some network disks have no locks.
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        # The one before has removed the file that was waited for.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(opened), os.stat(lock)):
                break
        os.close(opened)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(opened)


def settle(part: Path, target: Path) -> None:
    """Rename a finished file to its name, both on the disk. No connection may have it open."""
    opened = os.open(part, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
    os.replace(part, target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove(path: Path) -> None:
    """Delete a database file that no process has open, with what SQLite keeps beside it."""
    for suffix in ("", *COMPANIONS):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


@contextmanager
def staged(source: Path, index: Path) -> Iterator[Path]:
    """Copy an index file that may be damaged, hostile or old to a place beside `index`, checked and upgraded.

    `source` is only read. Raises IndexNotOurs, IndexTooNew, IndexCorrupt and IndexUnwritable, which names
    `index`: no reader knows of the copy.
    """
    stage = index.with_name(f".{index.name}.restore")
    index.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        remove(stage)
        with reading_raw(source) as connection, faults(source, written=index):
            check(connection, source)
            with closing(_new(stage)) as copy:
                connection.backup(copy)
        with closing(open_writer(stage)) as connection, faults(source, written=index):
            check_content(connection, source)
        yield stage
    except IndexUnwritable as error:
        raise IndexUnwritable(error.message.replace(str(stage), str(index)), hint=error.hint) from error
    finally:
        with suppress(OSError):
            remove(stage)


@contextmanager
def reading_raw(path: Path, *, hint: str = "name another backup") -> Iterator[Connection]:
    """Open a backup read-only without upgrading it, whatever its version. Raises IndexFaults."""
    if not path.is_file():
        raise IndexNotOurs(f"{path} is not a file", hint="name a backup that memline backup has written")
    is_open = False
    try:
        with faults(path), closing(driver.connect_read_only(path)) as connection:
            is_open = True
            yield connection
    except IndexUnwritable as error:
        if is_open:
            # It is another file that the block writes.
            raise
        raise IndexFault(f"cannot read {path}", hint=hint) from error
    except IndexFault as error:
        # Said of an index in use, with what mends that.
        words = error.message.replace(f"the index {path}", str(path))
        more = "upgrade Memline, or " if isinstance(error, IndexTooNew) else ""
        raise type(error)(words, hint=f"{more}{hint}") from error


def check_marks(connection: Connection, path: Path) -> None:
    """Refuse a file that does not say that it is an index of ours, or is too new."""
    driver.refuse_foreign(connection, path)
    if int(scalar(connection, "PRAGMA user_version")) == 0:
        raise IndexNotOurs(f"{path} is not a Memline index; nothing was changed", hint="name another file")


def check(connection: Connection, path: Path) -> None:
    """Refuse a file that is not an index of ours, or too new, or that SQLite finds damaged."""
    check_marks(connection, path)
    connection.execute("PRAGMA cell_size_check = ON")
    if (said := scalar(connection, "PRAGMA integrity_check")) != "ok":
        raise IndexCorrupt(f"{path} is damaged: {said}; nothing was changed", hint="name another backup")
    with closing(driver.in_memory()) as empty:
        for statement in statements(SCHEMA):
            empty.execute(statement)
        ours = set(_programs(empty).values())
    for name, program in _programs(connection).items():
        if program not in ours:
            raise IndexNotOurs(f"{path} has {name!r}, which no index of Memline has; nothing was changed")


def _programs(connection: Connection) -> dict[str, str]:
    """Return the views and triggers by name, each on one line: 0.2.0 broke the same ones at other places."""
    query = "SELECT name, sql FROM sqlite_master WHERE type IN ('view', 'trigger')"
    return {name: " ".join(sql.split()) for name, sql in connection.execute(query)}


def check_content(connection: Connection, path: Path) -> None:
    """Refuse an upgraded copy whose rows contradict each other."""
    if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
        raise IndexCorrupt(f"{path} is damaged: rows refer to others that are not there; nothing was changed")
    odd = (
        "SELECT 1 FROM vectors JOIN identities ON identities.id = identity_id WHERE state = 'ready'"
        " AND (embedding IS NULL OR (vector_dims > 0 AND length(embedding) <> 4 * vector_dims)) LIMIT 1"
    )
    if scalar(connection, odd):
        raise IndexCorrupt(f"{path} is damaged: a vector has other dimensions than its model")


def carry_over(stage: Connection, live: Path, *, is_last: bool = False) -> None:
    """Add to a staged copy what the index in use has paid for since: its vectors, and what is in flight.

    Vectors come as cached ones; where the copy only wants a vector it has it now. What a person has paused or
    cancelled stays so. `is_last`: once more, for what little came meanwhile.
    """
    columns = "key, provider, model, endpoint, dims, scheme, base_url, vector_dims, created_at, projection"
    same = (
        "JOIN live.identities AS theirs ON theirs.id = other.identity_id"
        " JOIN main.identities AS ours ON ours.key = theirs.key"
        # Of an index that was begun anew the first answer may be on its way.
        " AND (ours.vector_dims = theirs.vector_dims OR 0 IN (ours.vector_dims, theirs.vector_dims))"
    )
    stage.execute("ATTACH ? AS live", (str(live),))
    try:
        with transaction(stage):
            stage.execute(
                f"INSERT OR IGNORE INTO main.identities ({columns}) SELECT {columns} FROM live.identities"
            )
            stage.execute(
                "UPDATE main.identities AS ours SET vector_dims = (SELECT vector_dims FROM live.identities"
                " AS theirs WHERE theirs.key = ours.key) WHERE vector_dims = 0 AND EXISTS"
                " (SELECT 1 FROM live.identities AS theirs WHERE theirs.key = ours.key)"
            )
            stage.execute(
                "UPDATE main.vectors AS mine SET state = 'ready', lease = NULL, error = '', attempts = 0,"
                " embedding = found.embedding FROM (SELECT ours.id AS identity_id, text_hash, embedding"
                f" FROM live.vectors AS other {same} WHERE other.state = 'ready') AS found"
                " WHERE mine.identity_id = found.identity_id AND mine.text_hash = found.text_hash"
                " AND mine.state <> 'ready'"
            )
            stage.execute(
                "INSERT OR IGNORE INTO main.vectors"
                " (identity_id, text_hash, state, active, used_at, embedding)"
                " SELECT ours.id, text_hash, 'ready', 0, used_at, embedding"
                f" FROM live.vectors AS other {same} WHERE other.state = 'ready'"
                # Before their vectors are read.
                " AND NOT EXISTS (SELECT 1 FROM main.vectors AS mine WHERE mine.identity_id = ours.id"
                " AND mine.text_hash = other.text_hash)"
            )
            _carry_tokens(stage)
            _carry_batches(stage, same)
            _carry_leases(stage, same)
            _carry_pauses(stage)
            # Row numbers may mean other vectors than before: caches in memory begin anew.
            meta.put(stage, meta.EPOCH, uuid.uuid4().hex)
        jobs.move_misplaced(stage)
        if erase.take_list(stage, "live"):
            # A copy takes free pages along.
            full_text.merge(stage)
    finally:
        stage.execute("DETACH live")
    if not is_last:
        stage.execute("VACUUM")


def _carry_batches(stage: Connection, same: str) -> None:
    """Take over the batches of the attached index, and what was done of jobs, since they were in a backup."""
    names = [row[1] for row in stage.execute("PRAGMA main.table_info(batches)")]
    listed = ", ".join(names)
    values = ", ".join("ours.id" if name == "identity_id" else f"other.{name}" for name in names)
    stage.execute(
        f"INSERT OR REPLACE INTO main.batches ({listed}) SELECT {values} FROM live.batches AS other {same}"
    )
    stage.execute(
        "INSERT OR REPLACE INTO main.batch_errors (batch, text_hash, error)"
        " SELECT batch, text_hash, error FROM live.batch_errors"
        " WHERE batch IN (SELECT token FROM main.batches)"
    )
    stage.execute(
        "UPDATE main.jobs AS ours SET identity_id = coalesce((SELECT main.identities.id FROM main.identities"
        " JOIN live.identities AS theirs_id USING (key) WHERE theirs_id.id = theirs.identity_id),"
        " ours.identity_id), texts_done = max(ours.texts_done, theirs.texts_done),"
        " tokens_done = max(ours.tokens_done, theirs.tokens_done),"
        " batch_tokens_done = max(ours.batch_tokens_done, theirs.batch_tokens_done)"
        " FROM live.jobs AS theirs WHERE theirs.token = ours.token"
    )


def _carry_leases(stage: Connection, same: str) -> None:
    """Let what was sent be in flight here, in the requests and open batches of the attached index alone.

    Also texts that no chunk here needs: their notes may be read again before the answer is there.
    """
    stage.execute(
        "UPDATE main.vectors SET state = 'wanted', lease = NULL"
        " WHERE lease IN (SELECT token FROM main.leases)"
    )
    stage.execute("DELETE FROM main.leases")
    stage.execute(
        "INSERT INTO main.leases (token, identity_id, owner, until, rows)"
        f" SELECT token, ours.id, owner, until, rows FROM live.leases AS other {same}"
    )
    sent = (
        f"FROM live.vectors AS other {same} WHERE other.state = 'leased' AND other.state <> 'ready'"
        " AND lease IN (SELECT token FROM live.leases"
        " UNION SELECT token FROM live.batches WHERE state <> 'closed')"
    )
    stage.execute(
        "UPDATE main.vectors AS mine SET state = 'leased', lease = found.lease"
        f" FROM (SELECT ours.id AS identity_id, text_hash, lease {sent}) AS found"
        " WHERE mine.identity_id = found.identity_id AND mine.text_hash = found.text_hash"
        " AND mine.state <> 'ready'"
    )
    stage.execute(
        "INSERT OR IGNORE INTO main.vectors (identity_id, text_hash, state, active, priority, tokens, lease)"
        f" SELECT ours.id, text_hash, 'leased', 0, {vectors.BACKFILL}, tokens, lease {sent}"
    )
    vectors.drop_unneeded(stage)


def _carry_pauses(stage: Connection) -> None:
    """Hold back what a person holds back in the attached index, also where this one knows nothing of it."""
    stage.execute("INSERT OR IGNORE INTO main.meta SELECT * FROM live.meta WHERE key = ?", (meta.PAUSED,))
    modes = stage.execute(
        "SELECT DISTINCT mode.value FROM (SELECT value FROM main.meta WHERE key = ?1"
        " UNION ALL SELECT value FROM live.meta WHERE key = ?1) AS modes, json_each(modes.value) AS mode",
        (meta.PAUSED_MODES,),
    )
    meta.put(stage, meta.PAUSED_MODES, sorted(mode for (mode,) in modes) or None)
    # A history only grows, so the longer one is the later. What is done there may lack files here.
    stage.execute(
        "UPDATE main.jobs AS ours SET state = theirs.state, ended_at = theirs.ended_at,"
        " history = theirs.history FROM live.jobs AS theirs WHERE theirs.token = ours.token"
        " AND ours.state <> 'done' AND theirs.state <> 'done'"
        " AND json_array_length(theirs.history) > json_array_length(ours.history)"
    )
    stage.execute(
        "DELETE FROM main.job_files WHERE job IN (SELECT id FROM main.jobs WHERE state = 'cancelled')"
    )


def _carry_tokens(stage: Connection) -> None:
    """Add the vectors of tokens that the attached index has of vectors of this one."""
    models = stage.execute(
        "SELECT ours.id, theirs.id, coalesce(theirs.projection, x'') FROM main.identities AS ours"
        " JOIN live.identities AS theirs USING (key) WHERE ours.vector_dims = theirs.vector_dims"
    ).fetchall()
    for ours, theirs, projection in models:
        last = 0
        while rows := stage.execute(
            "SELECT vector_id, text_hash, theirs.tokens FROM live.token_vectors AS theirs"
            " JOIN live.vectors AS other ON other.id = vector_id"
            " WHERE theirs.identity_id = ? AND vector_id > ? AND NOT EXISTS"
            " (SELECT 1 FROM main.vectors AS mine JOIN main.token_vectors AS has ON has.vector_id = mine.id"
            " WHERE mine.identity_id = ? AND mine.text_hash = other.text_hash) ORDER BY vector_id LIMIT ?",
            (theirs, last, ours, vectors.SLICE_ROWS),
        ).fetchall():
            last = rows[-1][0]
            token_rows.take_in(stage, ours, [row[1:] for row in rows], projection)


def put_in_place(stage: Connection, live: Connection, index: Path) -> None:
    """Make the index in use hold what the staged copy holds: one transaction, seen by every process."""
    with faults(index):
        stage.backup(live)
        live.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _new(path: Path) -> Connection:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    connection: Connection = library().connect(str(path), isolation_level=None)
    return connection
