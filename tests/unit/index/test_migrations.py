"""An index of an older release is opened as it is: every row stays, and nothing is embedded again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from sqlite3 import Connection

import pytest
from sqlite_utils import Database

from memline.shared.embedders.protocol import Identity
from memline.shared.index import batches, driver, identities, jobs, ledger, vectors
from memline.shared.index.chunks import text_hash
from memline.shared.index.migrations import migrations
from memline.shared.index.rows import FileRow
from memline.shared.scheduling import health
from memline.shared.sources.discover import DiscoveredFile, Discovery
from memline.shared.store import IndexWriter
from memline.shared.sync.changes import compare
from tests.support.index_rows import CAPS, vector_of

MODEL = Identity(provider="openai", model="a")
READY = ("apples", "pears")


def old_index(path: Path, *, before: str) -> Connection:
    """An index as a release made it that did not know the migration `before` yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection: Connection = driver.library().connect(str(path), isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA application_id = {driver.APPLICATION_ID}")
    database = Database(connection, recursive_triggers=False, execute_plugins=False)
    migrations.apply(database, stop_before=before)
    return connection


def fill(connection: Connection) -> None:
    """Rows in every table of schema 4, by its own column names."""
    insert = connection.execute
    insert("INSERT INTO files VALUES (1, 'a.md', 'memory', 9, 8, 'h', 7, 'indexed', '', 'c1')")
    insert("INSERT INTO files VALUES (2, 's.jsonl', 'sessions', 9, 8, 'h', 7, 'empty', '', 'c1')")
    insert("INSERT INTO identities VALUES (1, ?, 'openai', 'a', '', 0, '', 'http://x', 4, 1.0)", (MODEL.key,))
    for number, text in enumerate((*READY, "plums", "figs", "dates"), 1):
        insert(
            "INSERT INTO chunks VALUES (?, 1, ?, ?, ?, '', ?, '', ?)",
            (number, number, number, number, text, text_hash(text)),
        )
    insert("INSERT INTO chunks_fts (chunks_fts) VALUES ('rebuild')")
    columns = "(identity_id, text_hash, state, live, backfill, lease, error, embedding, due)"
    for row in (
        *((1, text_hash(text), "ready", 1, 0, None, "", vector_of(text)) for text in READY),
        (1, text_hash("gone"), "ready", 0, 0, None, "", vector_of("gone")),
        (1, text_hash("plums"), "leased", 1, 1, "lease", "", None),
        (1, text_hash("figs"), "failed", 1, 0, None, "refused", None),
        (1, text_hash("dates"), "wanted", 1, 2, None, "", None),
    ):
        insert(f"INSERT INTO vectors {columns} VALUES (?, ?, ?, ?, ?, ?, ?, ?, 9e9)", row)
    insert("INSERT INTO leases VALUES ('lease', 1, 'elsewhere:1:1', 9e9, 1)")
    columns = "(token, identity_id, state, said, calling_at, looked_at, cancel_asked, created_at)"
    insert(f"INSERT INTO batches {columns} VALUES ('t', 1, 'submitted', 'running', 2, 3, 4, 1)")
    insert(f"INSERT INTO batches {columns} VALUES ('u', 1, 'filling', '', 0, 0, 0, 2)")
    insert("INSERT INTO providers (name, mode, hold_until, by_hand) VALUES ('openai', 'requests', 5, 1)")
    insert("INSERT INTO transcripts VALUES (2, 10, 1, '{}', 'title', 1, 0, '2026-01-01', '2026-01-02')")
    values = {"active_identity": 1, "target_identity": 1, "batch_mark": 3, "misfits": '{"count": 1}'}
    connection.executemany("INSERT INTO meta VALUES (?, ?)", ((k, str(v)) for k, v in values.items()))


def test_every_row_of_schema_4_is_kept_and_nothing_is_wanted_again(path: Path) -> None:
    with closing(old_index(path, before="m005_names_of_batch_columns")) as old:
        fill(old)

    with closing(IndexWriter(path)) as writer:
        connection = writer.connection
        writer.retarget(MODEL, "http://x")
        writer.sweep()

        target = identities.target(connection)
        assert target is not None
        assert vectors.backlog(connection, target.id) == vectors.Backlog(
            leased=1, ready=2, failed=1, cancelled=1
        )
        kept = connection.execute("SELECT text_hash, embedding FROM vectors WHERE state = 'ready'").fetchall()
        assert dict(kept) == {text_hash(text): vector_of(text) for text in (*READY, "gone")}
        assert vectors.count_cached(connection) == 1
        assert [entry.outcome for entry in ledger.entries(connection).values()] == ["indexed", "empty"]
        assert connection.execute("SELECT count(*) FROM chunks").fetchone()[0] == 5
        assert connection.execute("SELECT rowid FROM chunks_fts ('pears')").fetchone()[0] == 2
        batch, other = batches.open_batches(connection)
        assert other.state == "intent"
        assert (batch.provider_state, batch.call_started_at, batch.polled_at) == ("running", 2, 3)
        assert batch.cancel_requested_at == 4
        state = health.read(writer.accounts, "openai")
        assert (state.retry_at, state.manual) == (5, True)
        assert ledger.session_days(connection) == {2: ("2026-01-01", "2026-01-02")}
        assert writer.lease(CAPS, credits=8, only_full=False) == []
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_what_a_backfill_of_an_older_release_left_is_a_job(path: Path) -> None:
    with closing(old_index(path, before="m005_names_of_batch_columns")) as old:
        fill(old)

    with closing(IndexWriter(path)) as writer:
        (job,) = jobs.open_jobs(writer.connection)
        left = jobs.left(writer.connection)

    assert (job.kind, job.state) == ("backfill", "running")
    # The text that is in flight; the one that was cancelled belongs to no job.
    assert {job_id: each.texts for job_id, each in left.items()} == {job.id: 1}


def test_an_index_of_an_older_release_without_a_backfill_has_no_job(path: Path) -> None:
    with closing(old_index(path, before="m013_jobs")) as old:
        old.execute("INSERT INTO meta VALUES ('workspace', '\"notes\"')")

    with closing(IndexWriter(path)) as writer:
        assert jobs.latest(writer.connection, 1) == []


def test_a_file_of_schema_7_is_read_once_more_and_keeps_its_row(path: Path) -> None:
    with closing(old_index(path, before="m008_change_times")) as old:
        old.execute("INSERT INTO files VALUES (1, 'a.md', 'memory', 9, 8, 'h', 7, 'indexed', '', 'c1')")
    ours = {"path": "a.md", "absolute": "/a.md", "size": 9, "mtime_ns": 8}
    found = Discovery(files=(DiscoveredFile(**ours, ctime_ns=6),))

    with closing(IndexWriter(path)) as writer:
        before = compare(found, ledger.recorded_files(writer.connection), "c1")
        same = FileRow(
            path="a.md",
            source="memory",
            outcome="indexed",
            size=9,
            mtime_ns=8,
            ctime_ns=6,
            hash="h",
            observed_ns=8,
            chunks=None,
            chunking="c1",
        )
        writer.store_file(same)
        after = compare(found, ledger.recorded_files(writer.connection), "c1")

    assert (before.changed, after.unchanged) == (("a.md",), ("a.md",))


def test_what_an_older_release_stored_is_folded_and_not_embedded_again(path: Path) -> None:
    with closing(old_index(path, before="m015_folded")) as old:
        old.execute(
            "INSERT INTO files (id, path, source, size, mtime_ns, hash, observed_ns, outcome, names)"
            " VALUES (1, 'Ёж.md', 'memory', 9, 8, 'h', 7, 'indexed', 'чёрный-ёж')"
        )
        for number, text in enumerate(("Die Straße", "plain", "ｶﾞｽ料金"), 1):
            old.execute(
                "INSERT INTO chunks VALUES (?, 1, ?, 1, 2, 'Чёрный чай', ?, '', ?)",
                (number, number, text, text_hash(text)),
            )
        old.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('rebuild')")

    with closing(IndexWriter(path)) as writer:
        connection = writer.connection
        find = "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?"
        found = {
            word: [row[0] for row in connection.execute(find, (word,))]
            for word in ("strasse", "черный", "еж", "grams : ガス")
        }
        connection.execute("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)")
        stored = connection.execute("SELECT text, folded FROM chunks").fetchall()
        headings = connection.execute("SELECT DISTINCT heading, folded_heading FROM chunks").fetchall()
        hashes = connection.execute("SELECT text_hash FROM chunks ORDER BY id").fetchall()

    assert found == {"strasse": [1], "черный": [1, 2, 3], "еж": [1, 2, 3], "grams : ガス": [3]}
    assert stored == [("Die Straße", "Die Strasse"), ("plain", None), ("ｶﾞｽ料金", "ガス料金")]
    assert headings == [("Чёрный чай", "Черный чай")]
    assert hashes == [(text_hash(text),) for text, _ in stored]


def test_a_reader_brings_an_older_index_up_to_date_first(path: Path) -> None:
    with closing(old_index(path, before="m005_names_of_batch_columns")) as old:
        fill(old)

    with closing(driver.open_reader(path)) as reader:
        assert vectors.count_ready(reader) == 3
        with pytest.raises(driver.library().OperationalError, match="readonly"):
            reader.execute("DELETE FROM vectors")


def test_a_paused_provider_of_schema_1_keeps_its_pause_and_its_caps(path: Path) -> None:
    with closing(old_index(path, before="m002_batches")) as old:
        old.execute(
            "INSERT INTO providers VALUES ('openai', 'paused', 'no quota', 'pay', 0, 0, 64, 0, 1750000000)"
        )

    with closing(IndexWriter(path)) as writer:
        state = health.read(writer.accounts, "openai")

    assert (state.state, state.reason, state.action, state.max_rows) == ("open", "no quota", "pay", 64)
    assert (state.shrunk_rows, state.quick_answers, state.limited_rows) == (0, 0, 0)
    assert state.probe_at == 1_750_000_000


@pytest.mark.skipif(not driver.can_load_extensions(), reason="this SQLite library cannot load sqlite-vec")
def test_the_second_copies_of_vectors_go_without_sqlite_vec_and_the_vectors_stay(path: Path) -> None:
    with closing(old_index(path, before="m014_one_copy_of_a_vector")) as old:
        assert driver.load_vec(old) == ""
        old.execute(
            "INSERT INTO identities (key, provider, model, endpoint, dims, scheme, vector_dims, created_at)"
            " VALUES (?, 'openai', 'a', '', 0, '', 4, 1.0)",
            (MODEL.key,),
        )
        old.execute(
            "INSERT INTO vectors (identity_id, text_hash, state, embedding) VALUES (1, x'01', 'ready', ?)",
            (vector_of("pears"),),
        )
        for number in (1, 12):
            old.execute(
                f"CREATE VIRTUAL TABLE vec_{number} USING vec0(embedding float[4] distance_metric=cosine)"
            )
            old.execute(f"INSERT INTO vec_{number} (rowid, embedding) VALUES (1, ?)", (vector_of("pears"),))

    with closing(IndexWriter(path)) as writer:
        names = {row[0] for row in writer.connection.execute("SELECT name FROM sqlite_master")}
        rows = writer.connection.execute("SELECT text_hash, embedding FROM vectors").fetchall()
        checked = writer.connection.execute("PRAGMA integrity_check").fetchall()
        signs = writer.connection.execute("SELECT vector_id, identity_id, signs FROM vector_signs").fetchall()

    assert not [name for name in names if name.startswith("vec_")]
    # They are made later.
    assert signs == [(1, 1, None)]
    assert {"vectors", "vector_changes", "vectors_updated"} <= names
    assert rows == [(b"\x01", vector_of("pears"))]
    assert checked == [("ok",)]
