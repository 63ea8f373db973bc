"""Single values of an index."""

from memline.shared.index import meta
from memline.shared.index_writer import IndexWriter


def test_the_workspace_is_a_value_of_the_index(writer: IndexWriter) -> None:
    meta.put(writer.connection, meta.WORKSPACE, "/notes")

    assert meta.get(writer.connection, meta.WORKSPACE) == "/notes"
