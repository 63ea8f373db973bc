"""The writer: modules that work together, and a file that another process replaces."""

from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from memline.shared.errors import IndexFault
from memline.shared.index import driver, ledger
from tests.support.index_rows import CAPS, MODEL_A, MODEL_B, backlog, file_row, retarget


def test_a_writer_notices_that_its_file_is_another_one(writer, path):
    assert not writer.is_replaced

    path.rename(path.with_name("aside"))

    assert writer.is_replaced


def test_files_are_stored_together_or_not_at_all(wanting):
    before = sorted(ledger.entries(wanting.connection))
    bad = replace(file_row("c.md", "plums"), hash=None)

    with pytest.raises(IndexFault):
        wanting.store_files((file_row("b.md", "cherries"), bad))
    assert sorted(ledger.entries(wanting.connection)) == before

    rows = (file_row("b.md", "cherries"), file_row("c.md", "plums", "apples"), file_row("b.md", at=1))
    assert wanting.store_files(rows) == ["stored", "stored", "late"]
    assert sorted(ledger.entries(wanting.connection)) == [*before, "b.md", "c.md"]
    # Two of the texts were wanted before.
    assert backlog(wanting).wanted == 4


def test_a_note_that_changed_is_stored_without_reading_all_vectors(wanting):
    plans = []
    wanting.store_file(file_row("b.md", "cherries"))
    connection = wanting.connection
    statements = []
    connection.set_trace_callback(statements.append)
    wanting.store_file(file_row("b.md", "plums", at=2))
    connection.set_trace_callback(None)

    for statement in statements:
        if statement.startswith(("UPDATE vectors", "DELETE FROM vectors")):
            plans += [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]

    assert plans
    assert [plan for plan in plans if plan.startswith("SCAN vectors")] == []


@pytest.mark.parametrize("reads", [False, True])
def test_a_long_log_is_emptied_when_its_writer_is_closed_unless_another_reads(
    writer, path, monkeypatch, reads
):
    monkeypatch.setattr(driver, "LONG_LOG_BYTES", 20_000)
    log = Path(f"{path}-wal")
    with closing(driver.open_reader(path)) as reader:
        if reads:
            reader.execute("BEGIN")
            ledger.entries(reader)
        writer.store_files([file_row(f"{n}.md", "apples " * 400) for n in range(20)])
        assert log.stat().st_size > 20_000

        writer.close()

        assert (log.stat().st_size > 20_000) == reads


def test_texts_for_another_model_are_left_to_processes_that_have_it(writer):

    retarget(writer, MODEL_A)
    writer.store_file(file_row("a.md", "apples"))

    assert writer.lease(CAPS, credits=8, only_full=False, only=MODEL_B) == []
    assert len(writer.lease(CAPS, credits=8, only_full=False, only=MODEL_A)) == 1
