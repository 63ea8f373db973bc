"""Single values of an index."""

from memline.shared.index import meta


def test_the_workspace_is_a_value_of_the_index(writer):
    meta.put(writer.connection, meta.WORKSPACE, "/notes")

    assert meta.get(writer.connection, meta.WORKSPACE) == "/notes"
