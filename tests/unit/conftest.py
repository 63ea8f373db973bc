from collections.abc import Iterator
from pathlib import Path

import pytest

from memline.shared.clock import ManualClock
from memline.shared.index_writer import IndexWriter
from tests.support.index_rows import MODEL_A, file_row


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory" / "main.sqlite"


@pytest.fixture
def writer(path: Path, clock: ManualClock) -> Iterator[IndexWriter]:
    opened = IndexWriter(path, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def wanting(writer: IndexWriter) -> IndexWriter:
    """An index with one model and two texts that wait for their vectors."""
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples", "pears"))
    return writer
