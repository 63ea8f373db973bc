"""Take over the index that OpenClaw has of the same notes: chunks and vectors as they are, without a request.

Its texts end with a newline where ours do not, so their hashes never match ours. Hence whole files are taken
over: while a note is what it was when OpenClaw indexed it, its chunks stay ours until the note changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path, PurePath
from typing import Any

from memline.producers.bridges import openclaw_sessions, other_indexes
from memline.producers.bridges.other_indexes import TheirChunk, TheirIndex
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice, choose
from memline.shared.embedders.endpoint import normal_url
from memline.shared.embedders.vector_checks import FLOAT_BYTES, load_numpy, unit_vector
from memline.shared.errors import ConfigError, IndexMissing, ProviderBrokenAnswer
from memline.shared.index import forgotten, identities, jobs, ledger, vectors
from memline.shared.index.chunks import text_hash
from memline.shared.index.driver import scalar
from memline.shared.index.rows import Chunk, FileRow, VectorRow
from memline.shared.index.vectors import SLICE_ROWS
from memline.shared.index_writer import IndexWriter
from memline.shared.providers import LOCAL, PROVIDERS, price_of
from memline.shared.scheduling import model_change
from memline.shared.sources.markdown import Trail, outline
from memline.shared.sources.outcomes import INDEXED
from memline.shared.sources.paths import MEMORY, SESSIONS, MemoryPaths
from memline.shared.sources.reading import read_file
from memline.shared.sources.tokens import estimate_tokens
from memline.shared.sources.transcripts.formats import transcripts_of
from memline.shared.sync.read_file import FileReader
from memline.shared.values import replace, to_json, value

#: Lines that its texts have or lack where ours do not.
_NO_LINE_ENDS = str.maketrans("", "", "\r\n")

_ANOTHER = (
    "its vectors are of another address, or were asked for with other headers or dimensions, than those of {}"
)


@value
class Taken:
    """What was taken over of an index of OpenClaw."""

    agent: str
    path: Path
    provider: str = ""
    model: str = ""
    #: Notes whose chunks are ours now; those that were before; those that changed since, or are gone.
    files: int = 0
    known_files: int = 0
    changed: tuple[str, ...] = ()
    #: Notes whose rows contradict the note, and vectors that are not of this model's kind.
    odd_files: tuple[str, ...] = ()
    odd_vectors: int = 0
    chunks: int = 0
    #: Vectors that serve chunks, and more out of its cache.
    vectors: int = 0
    cached: int = 0
    #: Transcripts that came too, and those that are left to `index`: what it has of them is not what we read.
    sessions_taken: int = 0
    sessions: int = 0
    #: Tokens, estimated, of the texts whose vectors came; and what they would have cost.
    tokens: int = 0
    cost: float | None = None
    currency: str = ""
    #: Why no vector serves: it has another model's.
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return to_json(self, currency=self.currency or None)


def find(agent: AgentSettings, state_dir: Path | None = None) -> Path | None:
    """Return the index that OpenClaw has of this agent, the newest format first; None when there is none."""
    found = other_indexes.places(state_dir or agent.state_dir, agent.agent)
    return next((path for path in found if path.is_file() and path.stat().st_size), None)


def take_over(
    agent: AgentSettings,
    path: Path,
    *,
    prices: Mapping[str, Mapping[str, Any]] | None = None,
    clock: Clock | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Taken:
    """Take over chunks and vectors of the notes that are what they were when OpenClaw indexed them.

    Its file is copied and stays untouched. Safe to interrupt and to run again. Raises IndexFaults, and
    ConfigError while no provider is configured.
    """
    clock = clock or SystemClock()
    choice = choose(agent)
    with other_indexes.opened(path, _folder(agent)) as theirs:
        taken = Taken(agent=agent.agent, path=path, provider=theirs.provider, model=theirs.model)
        if reason := _mismatch(choice, theirs) or _other_address(agent, choice, theirs):
            return replace(taken, reason=reason)
        load_numpy()
        with closing(IndexWriter.of(agent, clock=clock)) as writer:
            writer.recover()
            with writer.session() as (_, now):
                model_change.use(writer.accounts, choice, now)
            taken = _TakeOver(agent, writer, theirs, clock).run(taken, on_progress)
    return _with_cost(taken, choice, prices)


def estimate(
    agent: AgentSettings, path: Path, *, prices: Mapping[str, Mapping[str, Any]] | None = None
) -> Taken:
    """Say what `take_over` would bring and save, and write nothing; its vectors are not looked at.

    Raises IndexFaults, and ConfigError while no provider is configured.
    """
    choice = choose(agent)
    with other_indexes.opened(path, _folder(agent)) as theirs:
        taken = Taken(agent=agent.agent, path=path, provider=theirs.provider, model=theirs.model)
        if reason := _mismatch(choice, theirs) or _other_address(agent, choice, theirs):
            return replace(taken, reason=reason)
        reader, places = FileReader(agent, clock=SystemClock()), MemoryPaths.of(agent)
        texts: dict[bytes, int] = {}
        files = 0
        for file in theirs.files(MEMORY):
            row = _note(reader, places, file.path)
            if row is not None and row.hash == file.hash:
                files += 1
                for each in theirs.chunks(file.path, MEMORY):
                    texts[text_hash(each.text)] = estimate_tokens(each.text)
    tokens = sum(texts.values())
    return _with_cost(replace(taken, files=files, chunks=len(texts), tokens=tokens), choice, prices)


def _folder(agent: AgentSettings) -> Path:
    """Return where the copy of its index is made."""
    return agent.index_path.with_name(f".{agent.index_path.name}.openclaw")


def _note(reader: FileReader, places: MemoryPaths, path: str) -> FileRow | None:
    """Read a note as it is now; None when it is not a note of this workspace with text in it."""
    located = places.locate(path)
    if located is None or located.path != path:
        return None
    row = next(reader.read(path, entry=None))
    return row if row.outcome == INDEXED else None


def _with_cost(taken: Taken, choice: Choice, prices: Mapping[str, Mapping[str, Any]] | None) -> Taken:
    assert choice.identity is not None
    price = price_of(
        choice.identity.provider, choice.identity.model, public=not choice.identity.endpoint, own=prices or {}
    )
    if price is None:
        return taken
    return replace(taken, cost=price.cost(taken.tokens, by_batch=False), currency=price.currency)


def _mismatch(choice: Choice, theirs: TheirIndex) -> str:
    """Say why vectors of that index cannot be compared with those of the configured provider; empty if so."""
    if choice.identity is None:
        raise ConfigError(
            f"there is no provider to take vectors over for: {choice.reason}", hint=choice.action or ""
        )
    ours = choice.identity
    model = theirs.model
    if ours.provider == LOCAL:
        model = PurePath(model).name
    if (theirs.provider, model) != (ours.provider, ours.model):
        return (
            f"its vectors are of {theirs.provider or 'no provider'} {theirs.model},"
            f" and this configuration embeds with {ours.provider} {ours.model}"
        )
    if ours.provider == LOCAL and ours.scheme:
        return f"Memline puts a prompt before texts for {ours.model}, OpenClaw did not"
    if ours.dims and theirs.dims not in (0, ours.dims):
        return f"its vectors have {theirs.dims} dimensions, {ours.dims} are configured"
    return ""


def _other_address(agent: AgentSettings, choice: Choice, theirs: TheirIndex) -> str:
    """Say that the vectors are of another address than the configured one; empty if not, or not recorded."""
    endpoint, recorded = choice.endpoint, theirs.provider_key
    assert endpoint is not None
    if endpoint.provider == LOCAL or not recorded:
        return ""
    if recorded == other_indexes.bare_provider_key(theirs.provider, theirs.model):
        # Ollama's has no address when it is the usual one; of others it never has one.
        return "" if endpoint.provider != "ollama" or endpoint.public else _ANOTHER.format(endpoint.shown_url)
    names = PROVIDERS[endpoint.provider].entry_names
    entries = [agent.providers[name] for name in names if name in agent.providers]
    remote = agent.memory.remote
    # It hashes the address and the names of headers as they are written.
    written = [url.strip() for url in (remote.base_url, *(each.base_url for each in entries)) if url.strip()]
    urls = {endpoint.base_url, *(url for url in written if normal_url(url) == endpoint.base_url)}
    urls |= {url.removesuffix("/v1") for url in urls} if endpoint.provider == "ollama" else set()
    configured = [*(each.headers for each in entries), remote.headers]
    spelled = {name.strip().lower(): name for each in configured for name in each}
    headers = {spelled[name]: text for name, text in endpoint.extra_headers.items()}
    keys = other_indexes.provider_keys(
        theirs.provider,
        theirs.model,
        {url.rstrip("/") + end for url in urls for end in ("", "/")},
        headers,
        choice.identity.dims if choice.identity else 0,
    )
    return "" if recorded in keys else _ANOTHER.format(endpoint.shown_url)


class _TakeOver:
    """Goes through the files of one index."""

    def __init__(self, agent: AgentSettings, writer: IndexWriter, theirs: TheirIndex, clock: Clock) -> None:
        self._places = MemoryPaths.of(agent)
        self._transcripts = transcripts_of(agent)
        self._reader = FileReader(agent, clock=clock)
        self._writer, self._theirs, self._clock = writer, theirs, clock
        row = identities.target(writer.connection)
        assert row is not None
        self._identity = row.identity
        self._dims = row.vector_dims or theirs.dims
        self._odd_vectors = 0

    def run(self, taken: Taken, on_progress: Callable[[int], None]) -> Taken:
        counts: dict[str, Any] = dict.fromkeys(
            ("files", "sessions_taken", "known_files", "chunks", "vectors", "tokens"), 0
        )
        changed: list[str] = []
        odd: list[str] = []
        for number, file in enumerate(self._theirs.files(MEMORY), 1):
            on_progress(number)
            row = _note(self._reader, self._places, file.path)
            if (
                row is None
                or row.hash != file.hash
                or forgotten.lines_of(self._writer.connection, file.path).lines
            ):
                changed.append(file.path)
                continue
            if self._is_known(row):
                counts["known_files"] += 1
                continue
            found = self._theirs.chunks(file.path, MEMORY)
            chunks = self._chunks(row, found)
            if chunks is None:
                odd.append(file.path)
                continue
            counts["files"] += 1
            self._take(replace(row, chunks=chunks), found, counts)
        counts["sessions"] = self._take_sessions(counts)
        cached = self._take_cache()
        with self._writer.session() as (connection, _):
            model_change.switch_when_complete(connection)
        return replace(
            taken,
            **counts,
            cached=cached,
            changed=tuple(changed),
            odd_files=tuple(odd),
            odd_vectors=self._odd_vectors,
        )

    def _take(self, row: FileRow, found: Sequence[TheirChunk], counts: dict[str, Any]) -> None:
        """Store a file with its chunks, after the vectors that serve them."""
        rows = self._vectors([(text_hash(each.text), each) for each in found])
        self._store(rows)
        self._writer.store_file(row, job=jobs.UNCOUNTED)
        ready = {each.hash for each in rows}
        counts["chunks"] += len(row.chunks or ())
        counts["vectors"] += len(ready)
        texts = {text_hash(chunk.text): chunk.text for chunk in row.chunks or ()}
        counts["tokens"] += sum(estimate_tokens(text) for each, text in texts.items() if each in ready)

    def _take_sessions(self, counts: dict[str, Any]) -> int:
        """Take transcripts over; returns how many are left to `index`."""
        left = 0
        for file in self._theirs.files(SESSIONS):
            path = openclaw_sessions.path_of(file.path)
            row = openclaw_sessions.read(self._reader, path) if self._transcripts else None
            if row is not None and forgotten.lines_of(self._writer.connection, path).lines:
                row = None
            if row is not None and self._is_known(row):
                counts["known_files"] += 1
                continue
            found = self._theirs.chunks(file.path, SESSIONS)
            taken = None
            if row is not None and self._transcripts is not None:
                taken = openclaw_sessions.with_chunks(row, found, self._transcripts, self._clock)
            if taken is None:
                left += 1
                continue
            counts["sessions_taken"] += 1
            self._take(taken, found, counts)
        return left

    def _is_known(self, row: FileRow) -> bool:
        """Tell whether the index has this content, cut as configured, with all its vectors."""
        connection = self._writer.connection
        entry = ledger.entry(connection, row.path)
        if entry is None or (entry.hash, entry.chunking) != (row.hash, row.chunking):
            return False
        missing = (
            "SELECT 1 FROM chunks JOIN files ON files.id = file_id WHERE path = ? AND NOT EXISTS"
            " (SELECT 1 FROM vectors JOIN identities ON identities.id = identity_id WHERE key = ?"
            " AND vectors.text_hash = chunks.text_hash AND state = 'ready') LIMIT 1"
        )
        return not scalar(connection, missing, row.path, self._identity.key)

    def _chunks(self, row: FileRow, found: Sequence[TheirChunk]) -> tuple[Chunk, ...] | None:
        """Make chunks of ours of theirs; None when they are not what the note says, all of it and no more."""
        located = self._places.locate(row.path)
        assert located is not None
        reading = read_file(located.absolute, root=located.anchor, clock=self._clock)
        if reading.sha256 != row.hash:
            return None
        lines = reading.text.split("\n")
        trail = Trail(outline(lines).headings)
        chunks: list[Chunk] = []
        covered: set[int] = set()
        for each in found:
            start, end = each.start_line, min(each.end_line, len(lines))
            span = "".join(lines[start - 1 : end])
            if not 1 <= start <= end or not each.text.strip():
                return None
            if each.text.translate(_NO_LINE_ENDS) not in span:
                return None
            covered.update(range(start, end + 1))
            # Blank lines at the borders are part of the text, but nothing to cite.
            while start < end and not lines[start - 1].strip():
                start += 1
            while end > start and not lines[end - 1].strip():
                end -= 1
            chunks.append(Chunk(start_line=start, end_line=end, text=each.text, heading=trail.at(start - 1)))
        if any(line.strip() for number, line in enumerate(lines, 1) if number not in covered):
            return None
        return tuple(chunks)

    def _vectors(self, stored: Sequence[tuple[bytes, TheirChunk]]) -> list[VectorRow]:
        """Decode the vectors of chunks; those of another model or another kind are counted and left out."""
        rows = {}
        for digest, chunk in stored:
            vector = self._vector(chunk.embedding) if chunk.model == self._theirs.model else b""
            if vector:
                rows[digest] = VectorRow(hash=digest, vector=vector)
            else:
                self._odd_vectors += 1
        return list(rows.values())

    def _vector(self, stored: object) -> bytes:
        try:
            vector = unit_vector(other_indexes.numbers(stored), dims=self._dims or None)
        except (ValueError, ProviderBrokenAnswer):
            return b""
        self._dims = len(vector) // FLOAT_BYTES
        return vector

    def _store(self, rows: Sequence[VectorRow]) -> int:
        """Store vectors, before the texts that need them: nothing of them is ever wanted."""
        new = 0
        for first in range(0, len(rows), SLICE_ROWS):
            with self._writer.transaction() as (connection, now):
                row = identities.take_in(connection, self._identity, self._dims, now)
                part = rows[first : first + SLICE_ROWS]
                new += vectors.take_in(connection, row, part, now)
        return new

    def _take_cache(self) -> int:
        new = 0
        for page in self._theirs.cached(SLICE_ROWS):
            rows = []
            for digest, stored in page:
                vector = self._vector(stored)
                try:
                    hash_bytes = bytes.fromhex(digest) if isinstance(digest, str) else b""
                except ValueError:
                    hash_bytes = b""
                if vector and len(hash_bytes) == 32:
                    rows.append(VectorRow(hash=hash_bytes, vector=vector))
                else:
                    self._odd_vectors += 1
            new += self._store(rows)
        return new


def take_over_all(agents: Sequence[AgentSettings], state_dir: Path | None, **options: Any) -> list[Taken]:
    """Take over the index of every agent that OpenClaw has one of. Raises IndexMissing when it has none."""
    found = [(agent, path) for agent in agents if (path := find(agent, state_dir)) is not None]
    if not found:
        where = state_dir or (agents[0].state_dir if agents else "")
        names = ", ".join(agent.agent for agent in agents)
        raise IndexMissing(f"OpenClaw has no memory index below {where} (agents: {names})")
    return [take_over(agent, path, **options) for agent, path in found]
