import pytest

from memline.shared.index_writer import IndexWriter
from tests.support.clock import ManualClock
from tests.support.index_rows import MODEL_A, file_row, retarget


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory" / "main.sqlite"


@pytest.fixture
def writer(path, clock):
    opened = IndexWriter(path, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def wanting(writer):
    """An index with one model and two texts that wait for their vectors."""
    retarget(writer, MODEL_A)
    writer.store_file(file_row("a.md", "apples", "pears"))
    return writer
