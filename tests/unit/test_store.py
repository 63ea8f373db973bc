"""The writer: modules that work together, and a file that another process replaces."""

from __future__ import annotations

from pathlib import Path

from memline.shared.index.vectors import Backlog
from memline.shared.store import IndexWriter
from tests.support.index_rows import (
    CAPS,
    MODEL_A,
    MODEL_B,
    answer,
    backlog,
    file_row,
    lease_all,
    nearest,
)


def test_texts_of_a_stored_file_are_leased_answered_and_searchable(wanting: IndexWriter) -> None:
    requests = lease_all(wanting)

    assert [text.text for request in requests for text in request.texts] == ["apples", "pears"]
    assert backlog(wanting).leased == 2

    answer(wanting, requests)

    assert backlog(wanting) == Backlog(ready=2)
    assert nearest(wanting, "pears")[0] == "pears"


def test_a_writer_notices_that_its_file_is_another_one(writer: IndexWriter, path: Path) -> None:
    assert not writer.is_replaced

    path.rename(path.with_name("aside"))

    assert writer.is_replaced


def test_texts_for_another_model_are_left_to_processes_that_have_it(writer: IndexWriter) -> None:

    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))

    assert writer.lease(CAPS, credits=8, only_full=False, only=MODEL_B) == []
    assert len(writer.lease(CAPS, credits=8, only_full=False, only=MODEL_A)) == 1
