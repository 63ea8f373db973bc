import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from memline.shared.index import driver, ledger, maintenance
from memline.shared.index.driver import open_reader, open_writer
from tests.support.index_rows import file_row


def test_a_new_index_is_private_and_marked_as_ours(path):
    open_writer(path).close()

    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("PRAGMA application_id").fetchone()[0] == driver.INDEX.application_id
        assert plain.execute("PRAGMA user_version").fetchone()[0] == driver.INDEX.version
        assert plain.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_reader_cannot_write(path):
    open_writer(path).close()

    with closing(open_reader(path)) as reader, pytest.raises(driver.library().OperationalError):
        ledger.forget_removed(reader, before_ns=1)


def test_sqlite_vec_loads_without_importing_its_package():
    code = (
        "import sys; from memline.shared.index import driver as d; c = d.library().connect(':memory:')\n"
        "print(d.load_vec(c) or c.execute('select vec_version()').fetchone()[0], 'numpy' in sys.modules)"
    )

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert printed.stdout.split() == ["v0.1.9", "False"]


OPEN_AND_CLOSE = """
import sys
from pathlib import Path
from memline.shared.index_writer import IndexWriter
IndexWriter(Path(sys.argv[1])).close()
"""


def in_another_process(code, *arguments):
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)


def test_reading_in_the_same_process_never_drops_the_locks_of_its_writer(writer, path):
    writer.store_file(file_row("a.md", "apples"))

    for _ in range(3):
        with driver.reading(path) as reader:
            ledger.entries(reader)
        # With the locks gone, this one would take itself for the last and delete the WAL we write to.
        in_another_process(OPEN_AND_CLOSE, str(path))
        writer.store_file(file_row(f"{_}.md", f"text {_}"))

    assert Path(f"{path}-wal").exists()
    with driver.reading(path) as reader:
        assert len(ledger.entries(reader)) == 4


def test_what_another_process_built_in_the_place_of_a_damaged_index_is_not_moved(tmp_path):
    path = tmp_path / "main.sqlite"
    path.write_bytes(b"no database")
    found = driver.file_id(path)

    first = maintenance.move_aside(path, 0.0, found)
    driver.open_writer(path).close()
    second = maintenance.move_aside(path, 0.0, found)

    assert first is not None and first.read_bytes() == b"no database"
    assert second is None and path.exists()
