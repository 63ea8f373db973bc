"""Small rows for tests of the index: files of a few lines, vectors of four dimensions."""

import struct
import time
from functools import partial

from memline.shared.config.schema import Batch
from memline.shared.embedders.choice import Choice
from memline.shared.embedders.protocol import Identity
from memline.shared.index import identities, vectors
from memline.shared.index.chunks import text_hash
from memline.shared.index.driver import scalar
from memline.shared.index.matrix import VectorMatrix
from memline.shared.index.rows import Chunk, FileRow, VectorRow
from memline.shared.providers import RequestCaps
from memline.shared.scheduling import health, jobs, model_change
from memline.shared.scheduling.health import Failure
from memline.shared.scheduling.leases import Answer

MODEL_A = Identity(provider="openai", model="a")
MODEL_B = Identity(provider="openai", model="b")
CAPS = RequestCaps(max_rows=100, max_tokens=100_000)


#: The rules of batches by the default settings.
BATCH_RULES = health.batch_rules(Batch())


def file_row(path, *texts, at=1, outcome="indexed"):
    """A file whose every text is a chunk of one line."""
    chunks = tuple(Chunk(start_line=n, end_line=n, text=text) for n, text in enumerate(texts, 1))
    return FileRow(
        path=path,
        source="memory",
        outcome=outcome,
        size=sum(map(len, texts)),
        mtime_ns=at,
        hash=f"hash-{at}",
        observed_ns=at,
        chunks=chunks,
        chunking="c1",
    )


def vector(*values):
    return struct.pack(f"<{len(values)}f", *values)


def vector_of(text):
    """A unit vector of four dimensions that depends on the text alone."""
    raw = [byte - 127.5 for byte in text_hash(text)[:4]]
    norm = sum(value * value for value in raw) ** 0.5
    return vector(*(value / norm for value in raw))


def lease_all(writer, *, credits=8):
    return writer.lease(CAPS, credits=credits, only_full=False)


def answer(writer, requests):
    """Store the right vector for every text of the requests."""
    for request in requests:
        rows = tuple(VectorRow(hash=text.hash, vector=vector_of(text.text)) for text in request.texts)
        writer.store_vectors(Answer(identity=request.identity, lease=request.lease, vectors=rows))


def fail(writer, request, kind, *, retry_after_s=None):
    failure = Failure(
        hashes=tuple(text.hash for text in request.texts),
        kind=kind,
        error=f"it was {kind}",
        action="do something",
        retry_after_s=retry_after_s,
    )
    writer.store_vectors(Answer(identity=request.identity, lease=request.lease, failures=(failure,)))


def fail_all(writer, error):
    """Have every vector failed with this error."""
    writer.connection.execute("UPDATE vectors SET state = 'failed', error = ?", (error,))


def retarget(writer, identity):
    """Embed with another model from now on; search keeps the old vectors until the new are complete."""
    name = identity.provider if identity else "none"
    use(writer, Choice(requested=name, provider=name, identity=identity))


def use(writer, choice):
    """Embed with the provider of a choice from now on."""
    with writer.session() as (_, now):
        model_change.use(writer.accounts, choice, now)


def forget_vectors(writer):
    """Drop every vector, as `index --re-embed` does."""
    with writer.session() as (connection, now):
        model_change.forget_vectors(connection, now)


def make_job(writer, *paths, now_ns=0, force=False):
    """A reindex that has to read these files; those observed from `now_ns` on have been read."""
    with writer.transaction() as (connection, _):
        files = [(path, 1) for path in paths]
        return jobs.create(connection, jobs.REINDEX, now_ns=now_ns, files=files, force=force)


def cancel_backfill(writer):
    """Cancel all jobs; how many texts."""
    with writer.transaction() as (connection, now):
        given_up = [jobs.cancel(connection, job, now) for job in jobs.open_jobs(connection)]
        return sum(texts for _, texts in filter(None, given_up))


def target_id(writer):
    """The row id of the identity that texts are embedded with."""
    target = identities.target(writer.connection)
    assert target is not None
    return target.id


def batch_failed(accounts, error, now):
    """A batch of OpenAI failed."""
    return health.update(
        accounts,
        "openai",
        health.BATCH,
        partial(
            health.after_failure,
            failure=Failure(kind="later", error=error, is_probe=True),
            now=now,
            rules=BATCH_RULES,
        ),
    )


def backlog(writer):
    """States of the vectors that the index wants."""
    return vectors.backlog(writer.connection, target_id(writer))


def nearest(writer, text):
    """The texts that have a vector of the searched model, the nearest to `text` first."""
    active = identities.active(writer.connection)
    assert active is not None
    matrix = VectorMatrix(active.id, active.vector_dims)
    matrix.refresh(writer.connection)
    found = matrix.top(writer.connection, vector_of(text), 10)
    text_of = (
        "SELECT chunks.text FROM chunks JOIN vectors ON vectors.text_hash = chunks.text_hash"
        " WHERE vectors.id = ?"
    )
    return [scalar(writer.connection, text_of, vector_id) for vector_id, _ in found]


def add_batch(writer, token, *, texts=0, **columns):
    """Put a batch at the provider into an index, with so many new texts and all others that are wanted."""
    retarget(writer, MODEL_A)
    if texts:
        writer.store_file(file_row(f"{token[:8]}.md", *(f"{token} {n}" for n in range(texts))))
    target = identities.target(writer.connection)
    assert target is not None
    values = {
        "token": token,
        "identity_id": target.id,
        "state": "submitted",
        "rows": texts,
        "created_at": time.time() - 120,
    } | columns
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    with writer.transaction() as (connection, _):
        connection.execute(f"INSERT INTO batches ({names}) VALUES ({marks})", list(values.values()))
        connection.execute("UPDATE vectors SET state = 'leased', lease = ? WHERE state = 'wanted'", (token,))


def paths_with(writer, match):
    """The files whose chunks match a question of FTS5."""
    rows = writer.connection.execute(
        "SELECT files.path FROM chunks_fts JOIN chunks ON chunks.id = chunks_fts.rowid"
        " JOIN files ON files.id = chunks.file_id WHERE chunks_fts MATCH ? ORDER BY files.path",
        (match,),
    )
    return [path for (path,) in rows]


def stored_chunks(writer):
    """The chunks in their order, as (id, text); full text agrees with them."""
    for table in ("chunks_fts", "names_fts"):
        writer.connection.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
    query = "SELECT id, text FROM chunks ORDER BY file_id, ordinal"
    return writer.connection.execute(query).fetchall()


def segments(writer):
    """The segments of full text, of chunks and of names."""
    queries = [f"SELECT count(DISTINCT segid) FROM {name}_fts_idx" for name in ("chunks", "names")]
    return [scalar(writer.connection, query) for query in queries]


def stored_tags(writer):
    query = "SELECT path, tag FROM tags JOIN files ON files.id = file_id ORDER BY path, tag"
    return writer.connection.execute(query).fetchall()


def stored_tokens(writer):
    """The token vectors by the text they are of, in the order in which the texts were wanted."""
    query = (
        "SELECT (SELECT text FROM chunks WHERE chunks.text_hash = vectors.text_hash), token_vectors.tokens"
        " FROM token_vectors JOIN vectors ON vectors.id = vector_id ORDER BY vector_id"
    )
    return writer.connection.execute(query).fetchall()
