"""Read the indexes of other programs: qmd's, and OpenClaw's of its early and of its newest format.

    early 2026   <state dir>/memory/<agent>.sqlite                      vectors as JSON text
    from 2026.9  <state dir>/agents/<agent>/agent/openclaw-agent.sqlite vectors as float64, little-endian

Its files stay untouched: SQLite would make a WAL index beside one that it only reads, so a copy is opened.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memline.shared.errors import IndexCorrupt, IndexNotOurs
from memline.shared.index import copies
from memline.shared.index.driver import library, scalar
from memline.shared.tables import as_dict
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Attempts to copy a file that OpenClaw is writing to.
_ATTEMPTS = 5

#: The row of the metadata with model and provider.
_META = "memory_index_meta_v1"


@value
class Layout:
    """The names of the tables of a format."""

    meta: str
    files: str
    chunks: str
    cache: str


EARLY = Layout(meta="meta", files="files", chunks="chunks", cache="embedding_cache")
NEWEST = Layout(
    meta="memory_index_meta",
    files="memory_index_sources",
    chunks="memory_index_chunks",
    cache="memory_embedding_cache",
)


@value
class TheirFile:
    """A file as it was indexed: SHA-256 (hex) of its content as UTF-8."""

    path: str
    hash: str


@value
class TheirChunk:
    """A chunk; lines are 1-based and inclusive, a last line that is empty counted."""

    start_line: int
    end_line: int
    text: str
    model: str
    #: The numbers of its vector as they are stored, to be decoded by `numbers`.
    embedding: object


class TheirIndex:
    """One agent's index of OpenClaw, opened by `opened`."""

    def __init__(self, connection: Connection, layout: Layout) -> None:
        self._connection = connection
        self._layout = layout
        text = scalar(connection, f"SELECT value FROM {layout.meta} WHERE key = ?", _META)
        try:
            meta = as_dict(json.loads(text or "{}"))
        except ValueError:
            meta = {}
        self.provider = str(meta.get("provider", ""))
        self.model = str(meta.get("model", ""))
        #: SHA-256 (hex) of what its vectors were made with; see `provider_keys`.
        self.provider_key = str(meta.get("providerKey") or "")
        dims: Any = meta.get("vectorDims", 0)
        #: Dimensions of its vectors; 0 when it does not say.
        self.dims: int = dims if isinstance(dims, int) and not isinstance(dims, bool) and dims > 0 else 0

    def files(self, source: str) -> list[TheirFile]:
        """List the files of a source, `memory` or `sessions`."""
        rows = self._connection.execute(
            f"SELECT path, hash FROM {self._layout.files} WHERE source = ? ORDER BY path", (source,)
        )
        return [TheirFile(path=str(path), hash=str(digest)) for path, digest in rows]

    def chunks(self, path: str, source: str) -> list[TheirChunk]:
        """List the chunks of a file in the order of its lines."""
        rows = self._connection.execute(
            f"SELECT start_line, end_line, text, model, embedding FROM {self._layout.chunks}"
            " WHERE path = ? AND source = ? ORDER BY start_line, rowid",
            (path, source),
        )
        return [
            TheirChunk(start_line=start, end_line=end, text=text, model=str(model), embedding=embedding)
            for start, end, text, model, embedding in rows
            if isinstance(start, int) and isinstance(end, int) and isinstance(text, str)
        ]

    def cached(self, rows: int) -> Iterator[list[tuple[object, object]]]:
        """Read (hash of a text in hex, numbers) of the cache of its model, so many rows at a time."""
        if not scalar(self._connection, "SELECT 1 FROM sqlite_master WHERE name = ?", self._layout.cache):
            return
        cursor = self._connection.execute(
            f"SELECT hash, embedding FROM {self._layout.cache} WHERE provider = ? AND model = ?"
            " AND (provider_key = ?3 OR ?3 = '')",
            (self.provider, self.model, self.provider_key),
        )
        while page := cursor.fetchmany(rows):
            yield page


def bare_provider_key(provider: str, model: str) -> str:
    """Return the key of a provider whose address OpenClaw leaves out: of local models and early Voyage."""
    return _json_hash({"provider": provider, "model": model})


def provider_keys(
    provider: str, model: str, urls: Iterable[str], headers: Mapping[str, str], dims: int
) -> set[str]:
    """Return the keys that OpenClaw may record for a provider at one of these addresses.

    `headers`: the extra ones as configured, without credentials; `dims`: dimensions that are asked for, or 0.
    Its releases hash the JSON of address, model and headers; which headers of its own are counted depends on
    release and provider (2026.2 and 2026.9 looked at).
    """
    content_type, origin = ("Content-Type", "application/json"), ("originator", "openclaw")
    found = set()
    for url in urls:
        for own in ((content_type,), (content_type, origin), (origin,), ()):
            named = sorted({**dict(own), **headers}.items(), key=lambda pair: (pair[0].lower(), pair[0]))
            about: dict[str, object] = {"provider": provider, "baseUrl": url, "model": model}
            listed = {"headers": [list(pair) for pair in named]}
            found |= {_json_hash(about), _json_hash({**about, **listed})}
            if dims:
                found.add(_json_hash({**about, "outputDimensionality": dims, **listed}))
    return found


def _json_hash(content: object) -> str:
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def numbers(stored: object) -> Sequence[float]:
    """Decode the numbers of a vector: JSON text, or float64 bytes. Raises ValueError."""
    if isinstance(stored, bytes):
        if not stored or len(stored) % 8:
            raise ValueError("the bytes of a vector are cut off")
        decoded = array("d", stored)
        if sys.byteorder == "big":
            decoded.byteswap()
        return decoded
    found = json.loads(stored) if isinstance(stored, str) else None
    if not isinstance(found, list) or not found or not all(type(each) in (int, float) for each in found):
        raise ValueError("a vector is not a list of numbers")
    return found


def places(state_dir: Path, agent: str) -> tuple[Path, Path]:
    """Return where the index of an agent is: of the newest format, and of the early one."""
    return (
        state_dir / "agents" / agent / "agent" / "openclaw-agent.sqlite",
        state_dir / "memory" / f"{agent}.sqlite",
    )


@contextmanager
def opened(path: Path, folder: Path) -> Iterator[TheirIndex]:
    """Open a copy of an index, made in `folder` (mode 0700) and removed after.

    Raises IndexNotOurs for a file without its tables, IndexCorrupt for a damaged one.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    try:
        copy = _copy(path, folder)
        with closing(library().connect(str(copy), isolation_level=None)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            tables = {
                name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            for layout in (NEWEST, EARLY):
                if {layout.meta, layout.files, layout.chunks} <= tables:
                    break
            else:
                raise IndexNotOurs(f"{path} is not a memory index of OpenClaw")
            if (said := scalar(connection, "PRAGMA quick_check")) != "ok":
                raise IndexCorrupt(f"{path} is damaged: {said}")
            yield TheirIndex(connection, layout)
    except library().Error as error:
        raise IndexCorrupt(f"{path} cannot be read: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy(path: Path, folder: Path) -> Path:
    """Copy the database with its WAL or journal; again when OpenClaw took its WAL in meanwhile."""
    copy = folder / "index.sqlite"
    for _ in range(_ATTEMPTS):
        before = _state(path)
        for suffix in ("", *copies.COMPANIONS):
            source = Path(f"{path}{suffix}")
            Path(f"{copy}{suffix}").unlink(missing_ok=True)
            if suffix != "-shm" and source.is_file():
                shutil.copyfile(source, f"{copy}{suffix}")
        if _state(path) == before:
            return copy
    raise IndexCorrupt(f"{path} changes all the time", hint="stop OpenClaw, then run this again")


def _state(path: Path) -> tuple[object, ...]:
    """Tell whether a copy in the meantime is of one moment: the file is the same, and its WAL only grew."""
    status = path.stat()
    wal = Path(f"{path}-wal")
    head = b""
    if wal.is_file():
        with wal.open("rb") as file:
            head = file.read(32)
    return status.st_mtime_ns, status.st_size, head, Path(f"{path}-journal").exists()


#: Milliseconds to wait for a writer: qmd itself, which is asked again later.
_BUSY_MS = 1


def document(index: Path, docid: str) -> tuple[str, str] | None:
    """Return collection and path of the first active document whose hash begins so; None for none.

    Raises OSError when the index cannot be read now.
    """
    sqlite = library()
    try:
        with closing(sqlite.connect(f"{index.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            row = connection.execute(
                "SELECT collection, path FROM documents WHERE hash LIKE ? || '%' AND active = 1 LIMIT 1",
                (docid,),
            ).fetchone()
    except sqlite.Error as error:
        raise OSError(str(error)) from error
    return (str(row[0]), str(row[1])) if row else None
