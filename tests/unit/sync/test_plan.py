"""A plan says what a run would do, and so how stale an index is."""

from memline.shared.embedders.choice import NONE, Choice
from memline.shared.index import meta
from memline.shared.sync.plan import read_index_state
from tests.support.index_rows import MODEL_A, MODEL_B, answer, file_row, lease_all, retarget

NO_CHOICE = Choice(requested=NONE, provider=NONE)


def test_an_index_is_stale_while_vectors_are_wanted_or_the_model_changes(writer):
    retarget(writer, MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    meta.put(writer.connection, meta.WORKSPACE, "/notes")
    wanting = read_index_state(writer.connection)
    answer(writer, lease_all(writer))
    complete = read_index_state(writer.connection)
    retarget(writer, MODEL_B)
    changing = read_index_state(writer.connection)

    assert (wanting.backlog.pending, complete.backlog.pending) == (1, 0)
    assert wanting.workspace == "/notes"
    assert list(wanting.files) == ["a.md"]
    assert (complete.is_changing_model, changing.is_changing_model) == (False, True)
