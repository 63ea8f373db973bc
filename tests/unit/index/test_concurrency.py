"""What other processes do to the same index while this one has it open."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from shared.clock import ManualClock
from shared.embedders.choice import Choice
from shared.errors import IndexFault
from shared.index import driver, health, identity, ledger, meta, model_change, vectors
from shared.index.rows import LearnedCaps
from shared.index.writer import IndexWriter
from tests.support.index_rows import MODEL_A, MODEL_B, answer, fail, file_row, lease_all, vector_of

OPEN_AND_CLOSE = """
import sys
from pathlib import Path
from shared.index.writer import IndexWriter
IndexWriter(Path(sys.argv[1])).close()
"""


def in_another_process(code: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)


def active_model(writer: IndexWriter) -> str:
    active = identity.active(writer.connection)
    assert active is not None
    return active.identity.model


def test_reading_in_the_same_process_never_drops_the_locks_of_its_writer(
    writer: IndexWriter, path: Path
) -> None:
    writer.store_file(file_row("a.md", "apples"))

    for _ in range(3):
        with driver.reading(path) as reader:
            reader.execute("SELECT count(*) FROM files").fetchone()
        # With the locks gone, this one would take itself for the last and delete the WAL we write to.
        in_another_process(OPEN_AND_CLOSE, str(path))
        writer.store_file(file_row(f"{_}.md", f"text {_}"))

    assert Path(f"{path}-wal").exists()
    with driver.reading(path) as reader:
        assert len(ledger.entries(reader)) == 4


def test_opening_another_writer_in_the_same_process_keeps_them_as_well(
    writer: IndexWriter, path: Path
) -> None:
    writer.store_file(file_row("a.md", "apples"))

    IndexWriter(path).close()
    in_another_process(OPEN_AND_CLOSE, str(path))
    writer.store_file(file_row("b.md", "pears"))

    with driver.reading(path) as reader:
        assert sorted(ledger.entries(reader)) == ["a.md", "b.md"]


def test_a_process_without_a_provider_leaves_the_others_theirs(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)

    writer.use(Choice(requested="auto", provider="none", reason="no key"))
    writer.store_file(file_row("a.md", "apples"))

    assert len(lease_all(writer)) == 1

    writer.use(Choice(requested="none", provider="none"))
    assert identity.target(writer.connection) is None


def test_texts_for_another_model_are_left_to_those_who_have_it(writer: IndexWriter) -> None:
    from tests.support.index_rows import CAPS

    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))

    assert writer.lease(CAPS, credits=8, only_full=False, only=MODEL_B) == []
    assert len(writer.lease(CAPS, credits=8, only_full=False, only=MODEL_A)) == 1


def test_a_vec_table_that_another_process_dropped_is_made_again(writer: IndexWriter, path: Path) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    answer(writer, lease_all(writer))
    with closing(IndexWriter(path)) as other:
        other.forget_vectors()

    writer.store_file(file_row("b.md", "pears"))
    answer(writer, lease_all(writer))

    assert writer.connection.execute("SELECT count(*) FROM vec_1").fetchone()[0] == 2


def test_a_row_id_is_never_given_to_another_vector(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    answer(writer, lease_all(writer))
    before = writer.connection.execute("SELECT id FROM vectors").fetchall()

    writer.forget_vectors()
    answer(writer, lease_all(writer))

    assert set(writer.connection.execute("SELECT id FROM vectors").fetchall()).isdisjoint(before)


def test_a_writer_notices_that_its_file_is_another_one(writer: IndexWriter, path: Path) -> None:
    assert not writer.is_replaced

    path.rename(path.with_name("aside"))

    assert writer.is_replaced


def test_a_short_busy_timeout_gives_up_early(writer: IndexWriter, path: Path) -> None:
    writer.connection.execute("BEGIN IMMEDIATE")
    with closing(IndexWriter(path, busy_timeout_ms=10)) as other, pytest.raises(IndexFault, match="locked"):
        other.store_file(file_row("a.md", "apples"))
    writer.connection.execute("ROLLBACK")


def test_an_edit_after_the_clock_was_put_back_is_not_taken_for_an_old_message(writer: IndexWriter) -> None:
    hour_ns = 3_600 * 10**9
    writer.store_file(file_row("a.md", "apples", at=2 * hour_ns))

    stored = writer.store_file(file_row("a.md", "pears", at=hour_ns))

    assert stored.change == "changed"


def test_search_stays_with_the_old_model_when_many_texts_fail_under_the_new(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(10))))
    answer(writer, lease_all(writer))

    writer.retarget(MODEL_B)
    from shared.index.rows import VectorRow

    (request,) = lease_all(writer)
    first = request.texts[0]
    writer.store_vectors(
        MODEL_B, request.lease, [VectorRow(hash=first.hash, vector=vector_of(first.text))], LearnedCaps()
    )
    fail(writer, request, "refused")

    assert active_model(writer) == "a"


def test_an_identity_that_is_taken_up_again_meanwhile_is_not_put_to_rest(
    writer: IndexWriter, path: Path
) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    answer(writer, lease_all(writer))
    writer.retarget(MODEL_B)
    answer(writer, lease_all(writer))
    with closing(IndexWriter(path)) as other:
        other.retarget(MODEL_A)

    model_change.rest_retired(writer.connection)

    target = identity.target(writer.connection)
    assert target is not None and target.identity == MODEL_A
    assert vectors.backlog(writer.connection, target.id).ready == 1


def test_caps_that_one_model_taught_do_not_bind_another(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples", "pears", "plums"))
    (request,) = lease_all(writer)
    rows = []
    writer.store_vectors(MODEL_A, request.lease, rows, LearnedCaps(max_rows=1))

    writer.retarget(MODEL_B)

    assert health.read(writer.connection, "openai").max_rows == 0


def test_retry_after_zero_is_no_reason_to_ask_for_ever(writer: IndexWriter, clock: ManualClock) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))

    calls = 0
    for _ in range(100):
        for request in lease_all(writer):
            calls += 1
            fail(writer, request, "later", retry_after_s=0.0)
        clock.advance(2)

    assert calls == health.REQUEST_RULES.limit
    assert health.read(writer.connection, "openai").paused


def test_the_workspace_is_a_value_of_the_index(writer: IndexWriter) -> None:
    writer.put_meta(meta.WORKSPACE, "/notes")

    assert writer.meta(meta.WORKSPACE) == "/notes"
