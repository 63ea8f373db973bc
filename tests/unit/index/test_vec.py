"""The vec0 tables stay a copy of the active vectors."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from memline.shared.clock import ManualClock
from memline.shared.store import IndexWriter
from tests.support.index_rows import (
    MODEL_A,
    answer,
    file_row,
    forget_vectors,
    lease_all,
    nearest,
)


class TestVecTables:
    def test_a_writer_without_sqlite_vec_leaves_them_to_be_rebuilt(
        self, path: Path, clock: ManualClock
    ) -> None:
        without = IndexWriter(path, vec_extension=None, clock=clock)
        without.retarget(MODEL_A)
        without.store_file(file_row("a.md", "apples", "pears"))
        answer(without, lease_all(without))
        without.close()

        again = IndexWriter(path, clock=clock)
        again.recover()

        assert nearest(again, "pears")[0] == "pears"
        again.close()

    def test_a_table_that_is_mostly_holes_is_rebuilt(self, writer: IndexWriter) -> None:
        writer.retarget(MODEL_A)
        texts = [f"text {n}" for n in range(3_000)]
        writer.store_file(file_row("a.md", *texts, at=1))
        answer(writer, lease_all(writer, credits=100))
        # One text stays in each of the table's pages, so none of them is freed by itself.
        writer.store_file(file_row("a.md", *texts[::256], at=2))
        pages_before = writer.connection.execute("SELECT count(*) FROM vec_1_chunks").fetchone()[0]

        writer.recover()

        pages_after = writer.connection.execute("SELECT count(*) FROM vec_1_chunks").fetchone()[0]
        assert (pages_before, pages_after) == (12, 1)
        assert nearest(writer, "text 256")[0] == "text 256"


def test_a_vec_table_that_another_process_dropped_is_made_again(writer: IndexWriter, path: Path) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    answer(writer, lease_all(writer))
    with closing(IndexWriter(path)) as other:
        forget_vectors(other)

    writer.store_file(file_row("b.md", "pears"))
    answer(writer, lease_all(writer))

    assert writer.connection.execute("SELECT count(*) FROM vec_1").fetchone()[0] == 2
