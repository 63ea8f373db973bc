"""A file of 0.2.0 is brought over where it is: every row stays, and nothing is embedded again."""

import subprocess
import sys
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pytest

from memline.shared.config.schema import ACCOUNT_FILE
from memline.shared.errors import IndexTooNew, IndexTooOld
from memline.shared.index import accounts, driver, forgotten, identities, jobs, meta, vectors
from memline.shared.index.chunks import text_hash
from memline.shared.index.full_text import TOKENIZER
from memline.shared.index.migrations import migrate
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import health
from memline.shared.search.request import session_days
from memline.shared.sqlite import SCHEMA
from tests.support import old_files
from tests.support.index_rows import CAPS, MODEL_A, nearest, vector_of

READY = ("apples", "pears", "Die Straße", "ｶﾞｽ料金", "user: hello")
# sqlite-utils notes its steps in a table that a new file does not need yet.
OURS = "name NOT LIKE 'sqlite_%' AND name NOT LIKE '%sqlite_migrations%'"
OBJECTS = f"SELECT name FROM sqlite_master WHERE type = ? AND {OURS} ORDER BY name"


@pytest.fixture
def old(path: Path) -> Path:
    """The index and the account file of 0.2.0, in their places."""
    old_files.make(path.with_name(ACCOUNT_FILE), old_files.ACCOUNTS)
    return old_files.make(path, old_files.INDEX)


def rows_of(connection: Connection, table: str) -> list[dict[str, Any]]:
    """All rows by the names of their columns, whose order may differ."""
    names = sorted(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))
    return [
        dict(zip(names, row, strict=True))
        for row in connection.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY 1, 2")
    ]


def tables_of(connection: Connection) -> set[str]:
    names = {row[0] for row in connection.execute(OBJECTS, ("table",))}
    return {name for name in names if not name.startswith("chunks_fts")}


@pytest.mark.parametrize("which", ["index", "accounts"])
def test_every_row_of_0_2_is_there_after_it_was_opened(old: Path, which: str) -> None:
    path = old if which == "index" else old.with_name(ACCOUNT_FILE)
    with closing(driver.library().connect(str(path))) as connection:
        before = {name: rows_of(connection, name) for name in tables_of(connection)}
    # Its rows are those of 0.1, which the pauses below are made of.
    before.pop("providers", None)
    # Signs are made anew, and nothing is known of them yet.
    for row in before.get("identities", []):
        row.pop("signs_check")
    for row in before.get("vector_signs", []):
        row["length"] = None
    # The file is known when it is renamed.
    for row in before.get("forgotten", []):
        row |= {"everywhere": 0, "content": "hash-memory/a.md" if row["kind"] == "line" else ""}
    before.get("forgotten", []).sort(key=itemgetter("content"))
    assert all(before.values()), "the fixture has rows of every kind"

    with closing(IndexWriter(old)) as writer:
        with writer.accounts.file.writing() as shared:
            connection = writer.connection if which == "index" else shared
            after = {name: rows_of(connection, name) for name in before}
        checked = writer.connection.execute("PRAGMA integrity_check").fetchall()
        dangling = writer.connection.execute("PRAGMA foreign_key_check").fetchall()

    # What was in flight then may have been sent.
    assert {row.pop("sent", 1) for row in after.get("reservations", ())} <= {1}
    if which == "index":
        # What it deleted is erased by the next run.
        after["meta"].remove({"key": meta.TO_ERASE, "value": '"all"'})
    assert after == before
    assert (checked, dangling) == ([("ok",)], [])


def test_a_file_of_0_2_has_the_schema_of_a_new_one(old: Path, tmp_path: Path) -> None:
    schemas = []
    for path in (old, tmp_path / "new" / "main.sqlite"):
        with closing(driver.open_writer(path)) as connection:
            columns = {
                name: {tuple(row[1:]) for row in connection.execute(f"PRAGMA table_info({name})")}
                for name in tables_of(connection)
            }
            programs = {
                (name, " ".join(sql.split()))
                for kind in ("index", "trigger", "view")
                for (name,) in connection.execute(OBJECTS, (kind,)).fetchall()
                for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,))
            }
            schemas.append((columns, programs, driver.scalar(connection, "PRAGMA user_version")))

    assert schemas[0] == schemas[1]
    assert schemas[1][2] == driver.SCHEMA_VERSION


def test_nothing_that_was_paid_or_asked_for_is_lost(old: Path) -> None:
    with closing(IndexWriter(old)) as writer:
        connection = writer.connection
        with writer.session() as (_, now):
            assert now > 0
        target = identities.target(connection)
        state = health.read(writer.accounts, "openai")
        is_batch_paused = health.read(writer.accounts, "openai", health.BATCH).manual

        assert target is not None and target.identity == MODEL_A
        assert vectors.backlog(connection, target.id) == vectors.Backlog(
            leased=2, ready=5, failed=1, cancelled=1, paused=1
        )
        kept = connection.execute("SELECT text_hash, embedding FROM vectors WHERE state = 'ready'").fetchall()
        assert dict(kept) == {text_hash(text): vector_of(text) for text in (*READY, "cached text")}
        assert vectors.count_cached(connection) == 1
        assert nearest(writer, "pears")[0] == "pears"
        assert connection.execute("SELECT rowid FROM chunks_fts ('strasse')").fetchall() == [(3,)]
        assert forgotten.texts_of(connection, "memory/a.md") == {text_hash("a secret")}
        assert [job.state for job in jobs.latest(connection, 9)] == ["cancelled", "paused", "running"]
        assert jobs.waiting_files(connection).keys() == {"memory/c.md"}
        assert session_days(connection) == {5: ("2026-01-01", "2026-01-02")}
        assert (state.state, state.reason, state.max_rows) == ("open", "no quota", 64)
        assert is_batch_paused
        assert meta.get(connection, meta.PAUSED) is True
        # Paused, so nothing is sent, and nothing was wanted again.
        assert writer.lease(CAPS, credits=8, only_full=False) == []


@pytest.mark.parametrize(
    ("stored", "expected"), [(None, {"voyage requests"}), ('["openai batch"]', {"openai batch"})]
)
def test_a_pause_of_0_1_holds_unless_an_operator_has_changed_pauses_since(
    path: Path, stored: str | None, expected: set[str]
) -> None:
    old_files.make(path, old_files.INDEX, "DELETE FROM meta WHERE key = 'paused_modes'")
    if stored:
        with closing(driver.library().connect(str(path), isolation_level=None)) as connection:
            connection.execute("INSERT INTO meta VALUES ('paused_modes', ?)", (stored,))

    with closing(driver.open_writer(path)) as connection:
        assert set(meta.get(connection, meta.PAUSED_MODES)) == expected


def test_tags_and_links_are_made_of_the_rows_of_0_2(path: Path) -> None:
    """Of the chunks, which overlap: a note that does not change is not read again."""
    change = "UPDATE chunks SET (start_line, end_line, text) = ({}, {}, '{}') WHERE id = {}"
    first = change.format(1, 4, "---\ntags: [Fruit]\n---\n#red apples", 1)
    second = change.format(4, 8, "#red apples\n[[pears]] [x](c.md)\n```\n#code\n[[code]]", 2)
    old_files.make(path, old_files.INDEX, first, second)

    with closing(driver.open_writer(path)) as connection:
        tags = connection.execute("SELECT path, tag FROM tags JOIN files ON files.id = file_id ORDER BY tag")
        assert tags.fetchall() == [("memory/a.md", "fruit"), ("memory/a.md", "red")]
        links = connection.execute("SELECT line, target, is_path, key FROM links ORDER BY target")
        assert links.fetchall() == [(5, "c.md", 1, "c"), (5, "pears", 0, "pears")]


def test_names_and_the_words_as_typed_are_made_of_the_rows_of_0_2(old: Path) -> None:
    with closing(driver.open_writer(old)) as connection:
        paths = connection.execute("SELECT DISTINCT path FROM files JOIN chunks ON file_id = files.id")
        named = connection.execute("SELECT DISTINCT path FROM files JOIN names ON file_id = files.id")
        assert set(named) == set(paths)
        assert connection.execute(
            "SELECT count(*) FROM forms_fts WHERE forms_fts MATCH 'apples'"
        ).fetchone() == (1,)
        assert connection.execute(
            "SELECT count(*) FROM forms_fts WHERE forms_fts MATCH 'apple'"
        ).fetchone() == (0,)
        for table in ("forms_fts", "names_fts"):
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")


def test_full_text_that_a_process_without_fts5_left_behind_is_made_again(path: Path) -> None:
    old_files.make(
        path,
        old_files.INDEX,
        "INSERT INTO meta VALUES ('fts_stale', 'true')",
        "UPDATE chunks SET text = 'quokka' WHERE id = 2",
    )

    with closing(driver.open_writer(path)) as connection:
        assert connection.execute("SELECT rowid FROM chunks_fts ('quokka')").fetchall() == [(2,)]
        connection.execute("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)")


def test_an_older_account_file_gets_what_it_lacks(path: Path) -> None:
    old_files.make(path, old_files.ACCOUNTS, "DROP TABLE calls", "PRAGMA user_version = 1")

    with closing(accounts.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM calls").fetchone() == (0,)
        assert connection.execute("SELECT tokens FROM spending").fetchone() == (21,)
        assert connection.execute("PRAGMA user_version").fetchone() == (accounts.VERSION,)


def test_a_reader_brings_an_older_index_up_to_date_first(old: Path) -> None:
    with closing(driver.open_reader(old)) as reader:
        assert vectors.count_ready(reader) == 6
        with pytest.raises(driver.library().OperationalError, match="readonly"):
            reader.execute("DELETE FROM vectors")


@pytest.mark.parametrize(
    ("version", "error"), [(18, IndexTooOld), (1, IndexTooOld), (driver.SCHEMA_VERSION + 1, IndexTooNew)]
)
def test_a_schema_that_is_not_read_is_named_and_the_file_left_as_it_is(
    path: Path, version: int, error: type[Exception]
) -> None:
    old_files.make(path, old_files.INDEX, f"PRAGMA user_version = {version}")
    before = path.read_bytes()

    for opening in (driver.open_writer, driver.open_reader):
        with pytest.raises(error, match=rf"has schema {version}\b"):
            opening(path)

    assert path.read_bytes() == before


def test_a_new_file_is_made_without_sqlite_utils_and_lacks_no_step(path: Path) -> None:
    """Its import is 130 ms of a first index."""
    code = "import sys; from pathlib import Path; from memline.shared.index import driver\n"
    code += f"driver.open_writer(Path({str(path)!r})).close(); print('sqlite_utils' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"False\n"

    with closing(driver.open_writer(path)) as connection:
        made = connection.execute(f"SELECT sql FROM sqlite_master WHERE {OURS}").fetchall()
        migrate(connection)
        assert driver.scalar(connection, "PRAGMA user_version") == driver.SCHEMA_VERSION
        assert connection.execute(f"SELECT sql FROM sqlite_master WHERE {OURS}").fetchall() == made


def test_the_schema_cuts_words_as_the_rest_of_the_product_does() -> None:
    assert f"tokenize = '{TOKENIZER}'" in SCHEMA.read_text()
